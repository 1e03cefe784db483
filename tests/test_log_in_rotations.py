"""A log in several files is one log: its report is that of the whole, and a quoted line stands where it is said to."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from command import run
from conftest import FIXTURES, content_of, every_case

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report

CASE = "cache-ram-evicts-nothing-missed"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NAMES = ["server.log.2", "server.log.1", "server.log"]


def report_of(files: dict[str, bytes]) -> Report:
    analyzer = Analyzer()
    for at, (name, content) in enumerate(files.items()):
        analyzer.open(name, continues=at > 0)
        analyzer.feed(content)
    return analyzer.finish()


def in_files(content: bytes, *cuts: int) -> dict[str, bytes]:
    """The log in as many files as there are parts, the oldest first."""
    lines = content.splitlines(keepends=True)
    ends = [0, *cuts, len(lines)]
    parts = [b"".join(lines[begin:end]) for begin, end in pairwise(ends)]
    return dict(zip(NAMES[-len(parts) :], parts, strict=True))


def said(report: Report) -> Any:
    """All that a report says but for the places of lines."""
    findings = [
        msgspec.structs.replace(
            found, path=None, evidence=[msgspec.structs.replace(line, path="", line=1) for line in found.evidence]
        )
        for found in report.findings
        if found.name != "unknown-format"  # speaks of one file
    ]
    accounts = [(one.scope, one.session, one.thread, one.entries) for one in report.accounts]
    return findings, accounts, report.totals


def assert_lines_stand_where_they_are_said_to(report: Report, files: dict[str, bytes]) -> None:
    lines = {name: COLOUR.sub("", content.decode("utf-8", "replace")).split("\n") for name, content in files.items()}
    for found in report.findings:
        for line in found.evidence:
            assert line.text in lines[line.path][line.line - 1]


def test_the_lines_of_a_request_are_those_of_the_file_in_which_it_begins(tmp_path: Path) -> None:
    """In every form; a request that continues in the next file has its last line counted on."""
    content = content_of(FIXTURES / "cases" / CASE)
    files = in_files(content, 201, 352)
    for name, part in files.items():
        (tmp_path / name).write_bytes(part)
    done = run("analyze", *NAMES, "-f", "json", folder=str(tmp_path))
    rows = json.loads(done.stdout)["requests"]
    assert {row["path"] for row in rows} == set(NAMES)
    lines = {name: part.split(b"\n") for name, part in files.items()}
    for row in rows:
        assert b"selected slot" in lines[row["path"]][row["first_line"] - 1]
    streamed = [
        json.loads(line) for line in run("analyze", *NAMES, "-f", "jsonl", folder=str(tmp_path)).stdout.splitlines()
    ]
    assert [line["path"] for line in streamed if line["type"] == "event"]
    for event in (line for line in streamed if line["type"] == "event" and (line["task"] or -1) >= 0):
        assert f"task {event['task']} |".encode() in lines[event["path"]][event["line"] - 1]


def test_a_rotation_without_a_known_line_is_not_an_unknown_log() -> None:
    """A backtrace alone may be in one; a log of which no file is known is named."""
    backtrace = b"#0  0x00007f8c in ?? ()\n" * 20
    content = content_of(FIXTURES / "cases" / CASE)
    names = [found.name for found in report_of({NAMES[0]: content, NAMES[1]: backtrace}).findings]
    assert names == [found.name for found in report_of({NAMES[0]: content}).findings]
    assert "unknown-format" not in names
    unknown = [found.path for found in report_of({NAMES[0]: backtrace, NAMES[1]: backtrace}).findings]
    assert unknown == NAMES[:2]
    analyzer = Analyzer()
    for name, part in (("other.log", backtrace), ("server.log", content)):
        analyzer.open(name)
        analyzer.feed(part)
    assert "other.log" in [found.path for found in analyzer.finish().findings if found.name == "unknown-format"]


def test_requests_after_a_rotation_have_their_time() -> None:
    content = content_of(FIXTURES / "cases" / "wrapped-journald-short")
    lines = content.count(b"\n")
    times = [[row.time for row in report_of(in_files(content, *cuts)).requests] for cuts in ((), (lines // 3,))]
    assert all(times[0])
    assert times[1] == times[0]


@pytest.mark.spread(9)
@pytest.mark.sample(2)
@pytest.mark.parametrize("at", [0.3, 0.5, 0.8])
@every_case
def test_a_case_in_two_files(case: Path, at: float) -> None:
    content = content_of(case)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        content = content.decode("utf-16").encode()
    files = in_files(content, max(1, int(content.count(b"\n") * at)))
    report = report_of(files)
    assert said(report) == said(report_of({"server.log": content}))
    assert_lines_stand_where_they_are_said_to(report, files)
