"""``cachedoctor redact`` as a process: inputs, outputs, exit statuses."""

from __future__ import annotations

import array
import fcntl
import gzip
import os
import signal
import subprocess
import termios
from pathlib import Path

import pytest
from command import LOG, PATIENCE, one_line, run, start, wait_for

from cachedoctor.cli import new_file, sink


@pytest.fixture(scope="module")
def plain() -> bytes:
    """The redacted log, from the standard input to the standard output."""
    return run("redact", stdin=LOG).stdout


SAFE = b"loading model '<path-1>'"


def test_to_the_standard_output(log: Path) -> None:
    done = run("redact", log)
    assert done.returncode == 0
    assert SAFE in done.stdout
    assert b"/models/" not in done.stdout
    assert done.stdout.count(b"\n") == LOG.count(b"\n")
    assert b"cachedoctor: note: " in done.stderr
    assert b"path (1)" in done.stderr


@pytest.mark.sweep
def test_from_the_standard_input_to_a_file(tmp_path: Path, plain: bytes) -> None:
    out = tmp_path / "safe.log"
    done = run("redact", "-", "-o", out, stdin=LOG)
    assert (done.returncode, done.stdout) == (0, b"")
    assert SAFE in out.read_bytes()
    assert out.read_bytes() == plain


@pytest.mark.sweep
def test_the_finding_is_the_same(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "safe.log"
    run("redact", log, "-o", out)
    before, after = run("analyze", log), run("analyze", out)
    claims = [[line for line in done.stdout.splitlines() if b"CD101" in line] for done in (before, after)]
    assert claims[0] == claims[1] != []


@pytest.mark.sweep
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marked_encodings_become_utf8(tmp_path: Path, plain: bytes, encoding: str) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(LOG.decode().replace("\n", "\r\n").encode(encoding))
    assert run("redact", path).stdout == plain


@pytest.mark.sweep
def test_compressed_input(tmp_path: Path, plain: bytes) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(LOG))
    assert run("redact", path).stdout == plain


@pytest.mark.sweep
def test_a_cut_input_is_written_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(LOG)[:-20])
    done = run("redact", path)
    assert done.returncode == 2
    assert SAFE in done.stdout
    one_line(done, "server.log.gz")


def test_an_input_is_not_overwritten(log: Path) -> None:
    done = run("redact", log, "-o", log)
    assert done.returncode == 2
    assert log.read_bytes() == LOG
    one_line(done)


@pytest.mark.sweep
def test_no_file_is_made_of_an_input_that_is_not_there(tmp_path: Path) -> None:
    out = tmp_path / "safe.log"
    out.write_bytes(b"old")
    done = run("redact", tmp_path / "none.log", "-o", out)
    assert done.returncode == 2
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["safe.log"]
    one_line(done, "none.log")


@pytest.mark.sweep
def test_a_folder_that_is_not_there(log: Path, tmp_path: Path) -> None:
    done = run("redact", log, "-o", tmp_path / "none" / "safe.log")
    assert done.returncode == 2
    one_line(done, "create it")


@pytest.mark.sweep
@pytest.mark.parametrize(("data", "word"), [(b"", "empty"), (b"my secret\nmy other secret\n", "recognised")])
def test_nothing_recognised(data: bytes, word: str) -> None:
    done = run("redact", stdin=data)
    assert done.returncode == 3
    assert done.stdout == b"<line>\n" * data.count(b"\n")
    one_line(done)
    assert word in done.stderr.decode()


@pytest.mark.sweep
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_leaves_the_old_file(tmp_path: Path) -> None:
    out = tmp_path / "safe.log"
    out.write_bytes(b"old")
    with start("redact", "-", "-o", out) as process:
        assert process.stdin is not None
        process.stdin.write(LOG)
        process.stdin.flush()
        left = array.array("i", [1])
        wait_for(lambda: fcntl.ioctl(process.stdin, termios.FIONREAD, left) or not left[0], "look at the input")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, error
    assert out.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["safe.log"]


def test_an_interrupt_while_the_file_is_opened_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a new file needs a name: it is there already, and the block that would remove it has not begun."""

    def interrupted(path: str, mode: str) -> None:
        open(path, mode).close()
        assert len(list(tmp_path.iterdir())) == 2
        raise KeyboardInterrupt

    out = tmp_path / "safe.log"
    out.write_bytes(b"old")
    monkeypatch.setattr(new_file, "_UNNAMED", None)
    monkeypatch.setattr(new_file, "open", interrupted, raising=False)
    with pytest.raises(KeyboardInterrupt), sink.Sink(str(out)):
        pass
    assert out.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["safe.log"]


@pytest.mark.sweep
def test_a_live_input_is_redacted_as_it_arrives() -> None:
    with start("redact", stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"srv    load_model: loading model '/home/jane/x.gguf'\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"srv    load_model: loading model '<path-1>'\n"
        process.stdin.close()
        assert process.wait(timeout=PATIENCE) == 0
