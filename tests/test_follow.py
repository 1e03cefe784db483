"""Live input (a log that grows and is rotated, the standard input) and the order of rotated names."""

from __future__ import annotations

import bz2
import codecs
import gzip
import importlib
import lzma
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from following import POLL, Step, append, followed, one_by_one

from cachedoctor.inputs.sources import follow, stdin
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.follow import FollowSource
from cachedoctor.inputs.sources.generations import in_time_order
from cachedoctor.inputs.sources.stdin import StdinSource

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

LOG = b"".join(b"slot %d: progress\n" % number for number in range(1000))


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


class Clock:
    """Stands in for the clock of the follower: sleeping is all that takes time; that of files continues."""

    time = staticmethod(time.time)

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(follow, "time", clock)
    return clock


def test_an_idle_follower_says_so_once_and_sleeps_between_its_looks(path: Path, clock: Clock) -> None:
    """Nothing but pauses between two looks at the file, and word of each silence once 0.2 s have passed."""
    looks = [0]

    def count() -> bool:
        looks[0] += 1
        if looks[0] == 9:
            append(path, b"more\n")()
        return looks[0] > 20

    chunks = FollowSource(str(path), 0.125, count).chunks()  # eighths add up exactly
    assert [(chunk, clock.now) for chunk in chunks] == [(b"start\n", 0), (b"", 0.25), (b"more\n", 0.875), (b"", 1.125)]
    assert clock.pauses == [0.125] * (looks[0] - 3)


def test_a_follower_looks_twenty_times_a_second(path: Path, clock: Clock) -> None:
    chunks = FollowSource(str(path)).chunks()
    assert [next(chunks), next(chunks)] == [b"start\n", b""]
    assert clock.pauses == [0.05] * 4


def test_half_a_line_after_a_copied_and_cut_log_keeps_nobody_from_resting(path: Path, clock: Clock) -> None:
    chunks = FollowSource(str(path), 0.125).chunks()
    assert next(chunks) == b"start\n"
    shutil.copyfile(path, f"{path}.1")
    os.truncate(path, 0)
    append(path, b"l")()
    assert [next(chunks), next(chunks)] == [b"", b"l"]  # a line may be all there will be
    append(path, b"ine\n")()
    assert next(chunks) == b"ine\n"


def test_who_does_not_want_to_wait_hears_of_each_look_and_of_each_file(path: Path, clock: Clock) -> None:
    pieces = FollowSource(str(path), waits=False).pieces()
    assert [next(pieces), next(pieces), next(pieces)] == [(0, b"start\n"), (0, b""), (0, b"")]
    append(path, b"torn")()
    assert next(pieces) == (0, b"torn")
    path.rename(f"{path}.1")
    path.write_bytes(b"new\n")
    assert [next(pieces), next(pieces)] == [(None, b"\n"), (1, b"new\n")]
    assert clock.pauses == []


def test_appended_bytes_come_at_the_next_look(path: Path, clock: Clock) -> None:
    chunks = FollowSource(str(path), POLL).chunks()
    next(chunks)
    append(path, b"fresh\n")()
    assert next(chunks) == b"fresh\n"
    assert clock.pauses == []
    assert next(chunks) == b""  # it waits now
    append(path, b"more\n")()
    before = len(clock.pauses)
    assert next(chunks) == b"more\n"
    assert clock.pauses[before:] == [POLL]


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


def test_stdin_yields_what_is_there_without_waiting_for_more(pipe: tuple[int, int]) -> None:
    """Neither a newline nor another write nor the end is waited for."""
    out, into = pipe
    chunks = StdinSource(out).chunks()
    for line in (b"first\n", b"no newline yet", b"third\n"):
        os.write(into, line)
        assert next(chunks) == line
    os.close(into)
    assert list(chunks) == []


def test_stdin_wakes_up_when_something_comes(pipe: tuple[int, int]) -> None:
    out, into = pipe
    chunks = StdinSource(out).chunks()
    assert next(chunks) == b""
    writer = threading.Timer(0.02, os.write, [into, b"late\n"])
    writer.start()
    assert next(chunk for chunk in chunks if chunk) == b"late\n"
    writer.join()


def test_stdin_waits_a_fifth_of_a_second_before_it_says_that_it_is_idle(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it waits without end: an idle pipe costs nothing."""
    out, into = pipe
    waits: list[float | None] = []

    def wait(fds: list[int], _: object, __: object, seconds: float | None) -> tuple[list[int], list[int], list[int]]:
        waits.append(seconds)
        if seconds is None:
            os.write(into, b"line\n")
        return select.select(fds, [], [], 0)

    monkeypatch.setattr(stdin, "select", SimpleNamespace(select=wait))
    chunks = StdinSource(out).chunks()
    assert [next(chunks) for _ in range(4)] == [b"", b"line\n", b"", b"line\n"]
    assert waits == [0.2, None] * 2


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
    with pytest.raises(SourceError, match="-: standard input cannot be read"):
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
