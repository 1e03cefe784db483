"""How far the reading has come: shown late, seldom and on terminals only, and gone before anything else is printed."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import LOG, PYTHON, run
from terminals import Stream, in_terminal

from cachedoctor.cli import read_progress
from cachedoctor.inputs.sources.file import FileSource


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Gone(Stream):
    """A terminal that was closed."""

    refused = 0

    def write(self, _: str) -> int:
        self.refused += 1
        raise OSError(5, "Input/output error")


@pytest.fixture
def clock(bare: pytest.MonkeyPatch) -> Clock:
    ours = Clock()
    bare.setattr(read_progress, "time", SimpleNamespace(monotonic=ours.monotonic))
    bare.setenv("COLUMNS", "80")
    return ours


GONE = "\n\r\x1b[1A\x1b[2K"
"""How a row is removed: rich goes below it, back up, and erases."""


def plain(text: str) -> str:
    """Text without colours."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def drawn(stream: Stream) -> list[str]:
    """Rows since the last look, without their colours; one that is removed is ``gone``. The cursor is never hidden."""
    rows = plain(stream.getvalue()).replace(GONE, "\rgone").replace("\x1b[2K", "").split("\r")
    stream.seek(0)
    stream.truncate()
    assert not any("\x1b" in row or "\n" in row for row in rows)
    return [row for row in rows if row]


def bar(full: int, half: str = "") -> str:
    return "━" * full + half + "━" * (20 - full - len(half))


def test_a_row_after_half_a_second_ten_times_a_second_and_removed(
    bare: pytest.MonkeyPatch, clock: Clock, tmp_path: Path
) -> None:
    stream = Stream(True)
    bare.setattr(sys, "stderr", stream)
    for name, size in (("a", 1_000_000), ("b", 3_000_000)):
        (tmp_path / name).write_bytes(bytes(size))
    shown = read_progress.ReadProgress([str(tmp_path / name) for name in ("a", "b", "a", "none", ".")])
    clock.now += 0.49
    shown.read(500_000)
    assert drawn(stream) == []
    clock.now += 0.51
    shown.read(500_000)
    assert drawn(stream) == [f"reading {bar(5, '╺')}  25% 1.0/4.0 MB -:--:--"]
    clock.now += 0.05
    shown.read(1)
    assert drawn(stream) == []
    clock.now += 0.05
    shown.read(1_999_999)
    assert drawn(stream) == [f"reading {bar(15, '╺')}  75% 3.0/4.0 MB 0:00:01"]
    shown.hide()
    assert drawn(stream)[-1] == "gone"
    shown.hide()
    assert drawn(stream) == []  # nothing is there to be removed
    clock.now += 1
    shown.read(9_000_000)  # it grew meanwhile
    assert drawn(stream)[-1] == f"reading {bar(20)} 100% 12.0/4.0 MB 0:00:00"
    shown.close()
    clock.now += 1
    shown.read(1)
    assert drawn(stream)[-1] == "gone"


@pytest.mark.parametrize(
    ("tty", "quiet", "term"), [(False, False, "xterm"), (True, True, "xterm"), (True, False, "dumb")]
)
def test_no_row_on_a_pipe_or_a_dumb_terminal_or_when_quiet(
    bare: pytest.MonkeyPatch, clock: Clock, tty: bool, quiet: bool, term: str
) -> None:
    stream = Stream(tty)
    bare.setattr(sys, "stderr", stream)
    bare.setenv("TERM", term)
    shown = read_progress.ReadProgress(["-"], quiet)
    clock.now += 9
    shown.read(1)
    shown.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("columns", "expected"), [("80", "64.0/? kB"), ("10", "")])
def test_without_a_size_it_only_counts_and_no_row_is_wrapped(
    bare: pytest.MonkeyPatch, clock: Clock, columns: str, expected: str
) -> None:
    stream = Stream(True)
    bare.setattr(sys, "stderr", stream)
    bare.setenv("COLUMNS", columns)
    bare.setattr(os, "stat", lambda *_: SimpleNamespace(st_mode=0o010644))  # a pipe
    shown = read_progress.ReadProgress(["-"])
    clock.now += 1
    shown.read(64_000)
    (row,) = drawn(stream)
    assert row.startswith("reading ")
    assert expected in row
    assert len(row) <= int(columns)


def test_a_terminal_that_is_gone_is_not_a_reason_to_fail(bare: pytest.MonkeyPatch, clock: Clock) -> None:
    stream = Gone(True)
    bare.setattr(sys, "stderr", stream)
    shown = read_progress.ReadProgress(["-"])
    clock.now += 1
    shown.read(1)
    tried = stream.refused
    assert tried > 0
    clock.now += 1
    shown.read(1)
    assert stream.refused == tried  # it gives up
    shown.close()


@pytest.mark.parametrize("packed", [False, True])
def test_bytes_are_counted_as_they_are_stored(tmp_path: Path, packed: bool) -> None:
    """So that the size of a packed file is the end."""
    path, told = tmp_path / "server.log", []
    path.write_bytes(gzip.compress(LOG * 100) if packed else LOG * 100)
    assert b"".join(FileSource(str(path), told=told.append).chunks()) == LOG * 100
    assert sum(told) == path.stat().st_size


EAGER = """
import sys
from cachedoctor.cli import read_progress
read_progress._PATIENCE = read_progress._EVERY = 0.0
import cachedoctor.cli
sys.argv[1:] = {args!r}
cachedoctor.cli.main()
"""


def eager(args: list[str]) -> list[str]:
    """Give a command that draws the row at once."""
    return [PYTHON[0], "-c", EAGER.format(args=args)]


@pytest.mark.sweep
@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("command", ["fleet", "compare", "table"])
def test_other_commands_show_how_far_they_are(tmp_path: Path, command: str, quiet: bool) -> None:
    """Until they write; ``-q`` shows nothing."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(LOG)
    args = [str(tmp_path / "a.log"), str(tmp_path / "b.log"), *["-q"] * quiet]
    args = ["analyze", *args, "-f", "csv", "-o", "-"] if command == "table" else [command, *args]
    status, shown, error = in_terminal(partial(subprocess.Popen, eager(args)), "stderr")
    assert status == 0
    assert shown == run(*args).stdout
    rows = plain(error.decode())
    assert rows.endswith("" if quiet else GONE)
    assert (f"reading {bar(20)} 100%" in rows) is not quiet


@pytest.mark.sweep
@pytest.mark.parametrize("option", [(), ("--jobs", "2"), ("-q",)], ids=" ".join)
def test_the_row_is_gone_before_errors_and_the_report(tmp_path: Path, option: tuple[str, ...]) -> None:
    """As a terminal would show it, in one process and in several; ``-q`` leaves the error."""
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(LOG)
    args = ["analyze", *(str(tmp_path / name) for name in ("a.log", "none.log", "b.log")), *option]
    status, report, error = in_terminal(partial(subprocess.Popen, eager(args)), "stderr")
    assert status == 2
    assert report == run(*[word for word in args if word not in option]).stdout
    rows, _, complaint = plain(error.decode()).rpartition(GONE)
    assert complaint.startswith("cachedoctor: error:")
    assert "no such file" in " ".join(complaint.split())
    assert "reading" not in complaint
    assert (f"reading {bar(20)} 100%" in rows) is (option != ("-q",))
