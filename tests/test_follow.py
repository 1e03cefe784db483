"""Live input (a log that grows and is rotated, the standard input) and the order of rotated names."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachedoctor.sources.base import SourceError
from cachedoctor.sources.follow import FollowSource
from cachedoctor.sources.order import in_time_order
from cachedoctor.sources.stdin import StdinSource

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

LOG = b"".join(b"slot %d: progress\n" % number for number in range(1000))
POLL = 0.01
Step = Callable[[], object]


def append(path: Path, data: bytes) -> Step:
    def step() -> None:
        with path.open("ab") as file:
            file.write(data)

    return step


def followed(path: Path, write: Callable[[Step], object]) -> bytes:
    """All bytes that a follower saw while a thread ran ``write``.

    What ``write`` is given waits until the follower has read everything and looked at the file name again.
    """
    looks, done = [0], threading.Event()

    def stop() -> bool:
        looks[0] += 1
        return done.is_set()

    def settle() -> None:
        enough = looks[0] + 4
        while looks[0] < enough:
            time.sleep(POLL / 4)

    def run() -> None:
        settle()
        write(settle)
        done.set()

    writer = threading.Thread(target=run, daemon=True)
    writer.start()
    data = b"".join(FollowSource(str(path), POLL, stop).chunks())
    writer.join()
    return data


def one_by_one(*steps: Step) -> Callable[[Step], None]:
    def write(settle: Step) -> None:
        for step in steps:
            step()
            settle()

    return write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"start\n")
    return path


def test_what_is_there_comes_first_then_what_is_appended(path: Path) -> None:
    assert followed(path, one_by_one(append(path, b"one\ntw"), append(path, b"o\n"))) == b"start\none\ntwo\n"


def test_a_cut_file_is_read_again_from_its_beginning(path: Path) -> None:
    steps = (lambda: path.write_bytes(b"new\n"), append(path, b"more\n"))
    assert followed(path, one_by_one(*steps)) == b"start\nnew\nmore\n"


def test_a_cut_file_does_not_glue_its_unfinished_line_to_the_new_one(path: Path) -> None:
    steps = (append(path, b"unfinished"), lambda: os.truncate(path, 0), append(path, b"new\n"))
    assert followed(path, one_by_one(*steps)) == b"start\nunfinished\nnew\n"


def test_a_rotated_file_is_read_to_its_end_and_its_line_is_ended(path: Path) -> None:
    old = path.with_name("server.log.1")
    steps = (lambda: path.rename(old), append(old, b"late"), append(path, b"new\n"))
    assert followed(path, one_by_one(*steps)) == b"start\nlate\nnew\n"


def test_lines_written_to_the_old_file_after_logrotate_made_the_new_one(path: Path) -> None:
    old = path.with_name("server.log.1")

    def rotate() -> None:
        path.rename(old)
        path.touch()

    assert followed(path, one_by_one(rotate, append(old, b"late\n"), append(path, b"new\n"))) == b"start\nlate\nnew\n"


def test_a_deleted_file_is_waited_for(path: Path) -> None:
    assert followed(path, one_by_one(path.unlink, lambda: None, append(path, b"again\n"))) == b"start\nagain\n"


def test_each_file_has_its_own_byte_order_mark(path: Path) -> None:
    def replace() -> None:
        path.unlink()
        path.write_bytes(codecs.BOM_UTF16_LE + "neu: é\n".encode("utf-16-le"))

    assert followed(path, one_by_one(replace)) == b"start\nneu: \xc3\xa9\n"


def test_no_line_is_lost_over_many_rotations_and_deletions(path: Path) -> None:
    path.write_bytes(b"")
    count = 20_000

    def write(settle: Step) -> None:
        file = path.open("ab", buffering=0)
        for number in range(count):
            file.write(b"line %d\n" % number)
            if number % 1000 == 999:
                settle()  # two changes within one poll cannot be seen
                file.write(b"last words of %d\n" % number)
                if number % 2000 == 999:
                    path.rename(path.with_name(f"server.log.{number}"))
                else:
                    path.unlink()
                file.close()
                file = path.open("ab", buffering=0)
        file.close()

    lines = followed(path, write).splitlines()
    assert [line for line in lines if line.startswith(b"line")] == [b"line %d" % number for number in range(count)]
    assert len(lines) == count + count // 1000


def test_an_idle_follower_says_so_and_costs_nothing(path: Path) -> None:
    chunks = FollowSource(str(path)).chunks()
    assert next(chunks) == b"start\n"
    busy, began = time.thread_time(), time.monotonic()
    assert [next(chunks) for _ in range(4)] == [b""] * 4
    elapsed = time.monotonic() - began
    assert 0.7 < elapsed < 2
    assert (time.thread_time() - busy) / elapsed < 0.01
    chunks.close()  # type: ignore[attr-defined]


def test_appended_bytes_come_within_the_poll(path: Path) -> None:
    chunks = FollowSource(str(path), POLL).chunks()
    next(chunks)
    append(path, b"fresh\n")()
    asked = time.monotonic()
    assert next(chunks) == b"fresh\n"
    assert time.monotonic() - asked < 0.2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (Path.mkdir, "is a directory"),
        (os.mkfifo, "is not a regular file and cannot be followed"),
        (lambda path: path.write_bytes(gzip.compress(b"x")), "is compressed and cannot be followed"),
    ],
)
def test_what_cannot_be_followed(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    path = tmp_path / "other"
    make(path)
    with pytest.raises(SourceError, match=message):
        next(FollowSource(str(path)).chunks())


# The standard input


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


def test_stdin_yields_at_once_and_tells_when_idle(pipe: tuple[int, int]) -> None:
    out, into = pipe
    chunks = StdinSource(out).chunks()
    sent: list[float] = []
    delays: list[float] = []

    def send(line: bytes) -> None:
        sent.append(time.monotonic())
        os.write(into, line)

    for line in (b"first\n", b"no newline yet", b"third\n"):
        threading.Timer(0.02, send, [line]).start()
        assert next(chunks) == line
        delays.append(time.monotonic() - sent[-1])
    assert min(delays) < 0.05  # the best of three: the machine may be busy, the code may not wait
    silent = time.monotonic()
    assert next(chunks) == b""
    assert 0.15 < time.monotonic() - silent < 0.4
    os.close(into)
    assert list(chunks) == []


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress, zstd.compress])
def test_compressed_stdin_in_small_writes(pipe: tuple[int, int], pack: Callable[[bytes], bytes]) -> None:
    out, into = pipe
    packed = pack(LOG)

    def write() -> None:
        for piece in (packed[:1], packed[1:5], packed[5:]):
            os.write(into, piece)
            time.sleep(0.01)
        os.close(into)

    writer = threading.Thread(target=write)
    writer.start()
    assert b"".join(StdinSource(out).chunks()) == LOG
    writer.join()


def test_stdin_from_a_regular_file_has_no_idle_chunks(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    with path.open("rb") as file:
        assert list(StdinSource(file.fileno()).chunks()) == [LOG]


def test_a_closed_stdin_is_an_error(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    with pytest.raises(SourceError, match="-: the standard input cannot be read"):
        next(StdinSource(pipe[0]).chunks())


# The order of rotated names


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["s.log", "s.log.1", "s.log.10.gz", "s.log.2.gz"], ["s.log.10.gz", "s.log.2.gz", "s.log.1", "s.log"]),
        (["s.log", "s.log-20260201", "s.log-20260101.gz"], ["s.log-20260101.gz", "s.log-20260201", "s.log"]),
        (["s.log", "s.log-2026010113", "s.log-2026010102"], ["s.log-2026010102", "s.log-2026010113", "s.log"]),
        (["s.log.2026-01-02", "s.log.2026-01-01_10-00-00"], ["s.log.2026-01-01_10-00-00", "s.log.2026-01-02"]),
        (["s.log.1", "s.log-20260101"], ["s.log-20260101", "s.log.1"]),
        (["b.log", "x/s.log", "a.log", "x/s.log.1"], ["b.log", "x/s.log.1", "x/s.log", "a.log"]),
        (["./s.log", "s.log.1"], ["s.log.1", "./s.log"]),
        (["x/s.log", "y/s.log.1"], ["x/s.log", "y/s.log.1"]),
        (["run.8080", "run.8081"], ["run.8080", "run.8081"]),
        (["s.log.1", "s.log.1.gz"], ["s.log.1", "s.log.1.gz"]),
        (["-"], ["-"]),
        ([], []),
    ],
)
def test_rotations_come_oldest_first(given: list[str], ordered: list[str]) -> None:
    assert in_time_order(given) == ordered
