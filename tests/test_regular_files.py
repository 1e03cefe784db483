"""Files that a user names: read to their end, up to a size, with memory for what they hold."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import threading
from pathlib import Path

import hostile_model_files as made
import pytest
from command import LOG, one_line, run, start

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import MIB, read_all, read_file

GIB = 1 << 30


class Counted(io.FileIO):
    """A file that remembers how many bytes it was asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[int] = []

    def read(self, size: int | None = -1, /) -> bytes:
        self.asked.append(-1 if size is None else size)
        return super().read(size) or b""


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_bytes(b"x" * 50)
    with Counted(path) as file:
        assert read_all(file, "f", GIB, "") == b"x" * 50  # type: ignore[arg-type]
    assert file.asked
    assert all(0 < size <= MIB for size in file.asked)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="limits of the address space")
@pytest.mark.sample(1)
@pytest.mark.parametrize("stdin", [False, True])
def test_small_files_are_compared_in_a_small_address_space(tmp_path: Path, stdin: bool) -> None:
    """As under ``ulimit -v``; both files and the standard input."""
    bodies = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, text in zip(bodies, ("hello", "goodbye"), strict=True):
        path.write_text(json.dumps({"messages": [{"role": "user", "content": text}]}))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (GIB // 2, GIB // 2))  # noqa: E731
    first = "-" if stdin else bodies[0]
    with bodies[0].open("rb") as file, start("diff", first, bodies[1], stdin=file, preexec_fn=limit) as process:
        out, error = process.communicate(timeout=60)
    assert error == b""
    assert process.returncode in (0, 1)
    assert b"goodbye" in out


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="limits of the address space")
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--tokenizer", json.dumps(made.TOKENIZERS["Replace that doubles"]())),
        ("--template", made.TEMPLATES["doubling by adding"]),
    ],
)
def test_rules_that_grow_meet_a_limit_of_the_user(tmp_path: Path, option: str, text: str) -> None:
    """As under ``ulimit -v``: the limit that is named is the one that held."""
    grows, bodies = tmp_path / "grows", [tmp_path / "a.json", tmp_path / "b.json"]
    grows.write_text(text)
    for path, said in zip(bodies, ("aaaa", "aaab"), strict=True):
        path.write_text(json.dumps({"messages": [{"role": "user", "content": said}]}))
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (200 * MIB, 200 * MIB))  # noqa: E731
    with start("diff", *bodies, option, grows, stdin=subprocess.DEVNULL, preexec_fn=limit) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert error.startswith(b"cachedoctor: error: ")
    assert b"grows: needs more than 200 MiB of memory (hint: " in error
    assert error.count(b"\n") == 1


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB])
def test_a_file_is_read_to_its_end(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    data = os.urandom(size)
    path.write_bytes(data)
    assert read_file(path, 3 * MIB, "") == data


@pytest.mark.parametrize("size", [MIB, MIB + 1])
def test_a_pipe_is_read_to_its_end_and_no_further_than_the_limit(size: int) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        with open(writing, "wb") as into:
            into.write(b"x" * size)

    writer = threading.Thread(target=write)
    writer.start()
    with open(reading, "rb") as file:
        if size > MIB:
            with pytest.raises(CacheDoctorError, match="f: is larger than 1 MiB"):
                read_all(file, "f", MIB, "")
        else:
            assert read_all(file, "f", MIB, "") == b"x" * size
        file.read()
    writer.join()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_without_a_size_is_read() -> None:
    assert os.stat("/proc/self/status").st_size == 0
    assert b"Pid:" in read_file("/proc/self/status", MIB, "")
    with pytest.raises(CacheDoctorError, match="larger than 0 MiB"):
        read_file("/proc/self/status", 10, "")


@pytest.mark.parametrize("grown", [MIB // 2, 2 * MIB])
def test_a_file_that_grows_while_it_is_read(tmp_path: Path, grown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    small = os.stat(path)
    path.write_bytes(b"x" * grown)
    monkeypatch.setattr("cachedoctor.prompts.regular_files.os.fstat", lambda _: small)
    if grown > MIB:
        with pytest.raises(CacheDoctorError, match="larger than 1 MiB"):
            read_file(path, MIB, "")
    else:
        assert read_file(path, MIB, "") == b"x" * grown


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "command", [("tune", "--set", "parallel=2"), ("tune",), ("analyze", "-f", "mooncake", "-o", "-")]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_read_twice_is_a_file(command: tuple[str, ...], kind: str, tmp_path: Path) -> None:
    """A pipe is empty the second time, and one that nobody writes to never begins; a device never ends."""
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "live.log"
        os.mkfifo(path)
    done = run(command[0], path, *command[1:])
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, f"{path}: is a {kind}, not a file", "use - for a log from a pipe")


def test_a_pipe_without_a_log_is_not_opened_a_second_time(tmp_path: Path) -> None:
    """Nobody writes to it then: what looks for a hint would wait for ever."""
    path = tmp_path / "live.log"
    os.mkfifo(path)
    with start("analyze", path, stdin=None, stdout=None) as process:
        path.write_bytes(b"nothing of a server\n")
        try:
            assert process.wait(60) == 3
        finally:
            process.kill()


def test_a_log_in_a_pipe_is_simulated() -> None:
    assert run("tune", "-", "--set", "parallel=2", stdin=LOG).returncode in (0, 3)
