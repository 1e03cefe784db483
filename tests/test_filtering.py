"""``--task``, ``--slot``, ``--since``, ``--until``: what is shown of a report, and what stays that of the whole log."""

from __future__ import annotations

import io
import json
from pathlib import Path

import msgspec
import pytest
from command import one_line, run
from conftest import FIXTURES, content_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.filtering import RequestFilter, filtered
from cachedoctor.model import CacheDoctorError, Report
from cachedoctor.report.base import FORMATS, Appearance, write
from cachedoctor.report.wire import stored

CASE = FIXTURES / "cases" / "billing-header-hybrid"
"""Four requests of slot 0, tasks 0, 9 or the like, of which all but the first show CD101."""
RETURNING = FIXTURES / "cases" / "cache-ram-evicts-b9294"


def report_of(log: bytes) -> Report:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(log)
    return analyzer.finish()


def wrapped(log: bytes, stamp: str) -> bytes:
    """The log as journald and others wrap it, a second a line; ``stamp`` has a hole for minutes and seconds."""
    rows = log.splitlines()
    return b"".join(stamp.format(f"{n // 60:02d}:{n % 60:02d}").encode() + row + b"\n" for n, row in enumerate(rows))


def tasks(report: Report) -> list[int]:
    return [row.task for row in report.requests]


def test_a_task_is_shown_as_it_was_judged_with_all_before_it() -> None:
    """The same row but for its number, the same finding, the same sums."""
    whole = report_of(content_of(CASE))
    rows = list(whole.requests)
    one = filtered(whole, RequestFilter(tasks=(rows[-1].task,)))
    (row,) = one.requests
    assert (row.index, row.codes, row.lost_tokens) == (0, ["CD101"], rows[-1].lost_tokens)
    assert row == msgspec.structs.replace(rows[-1], index=0)
    assert list(one.requests.lines()) == [msgspec.json.encode(row)]
    assert [f.code for f in one.findings] == ["CD101"]
    assert (one.findings[0].requests, one.findings[0].count) == ([0], 3)
    assert one.totals == whole.totals
    assert one.filtered is not None
    assert (one.filtered.requests, one.filtered.all_requests) == (1, 4)


def test_what_a_request_does_not_belong_to_is_not_shown() -> None:
    """The first one had nothing to lose."""
    whole = report_of(content_of(CASE))
    one = filtered(whole, RequestFilter(tasks=(next(iter(whole.requests)).task,)))
    assert one.findings == []
    assert one.filtered is not None
    assert (one.filtered.findings, one.filtered.all_findings) == (0, len(whole.findings))


def test_slots_and_their_findings() -> None:
    whole = report_of(content_of(RETURNING))
    slots = sorted({row.slot for row in whole.requests})
    parts = [filtered(whole, RequestFilter(slots=(slot,))) for slot in slots]
    assert sum(len(list(part.requests)) for part in parts) == len(list(whole.requests))
    assert {f.identity for part in parts for f in part.findings} == {f.identity for f in whole.findings if f.requests}
    both = filtered(whole, RequestFilter(slots=tuple(slots)))
    assert [f.requests for f in both.findings] == [f.requests for f in whole.findings if f.requests]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("stamp", "since", "until"),
    [
        ("2026-05-01T10:{}.250000+02:00 ", "2026-05-01T10:{}", None),
        ("2026-05-01T10:{}.250000+02:00 ", "10:{}", None),
        ("2026-05-01T10:{}.250000+02:00 ", "2026-05-01T08:{}Z", None),
        ("2026-05-01T10:{}.250000+02:00 ", None, "10:{}"),
        ("May  1 10:{} host llama-server[5]: ", "10:{}", None),
        ("May  1 10:{} host llama-server[5]: ", "2026-05-01T10:{}", None),
        ("May  1 10:{} host llama-server[5]: ", None, "2026-05-01 10:{}"),
    ],
)
def test_times_are_those_of_the_wrapper(stamp: str, since: str | None, until: str | None) -> None:
    """From the first line of a request on, or until the last line of the one before it: two halves of the log."""
    whole = report_of(wrapped(content_of(CASE), stamp))
    rows = list(whole.requests)
    at = rows[2].first_line - 1
    early = rows[1].last_line - 1
    limit = since.format(f"{at // 60:02d}:{at % 60:02d}") if since else None
    last = until.format(f"{early // 60:02d}:{early % 60:02d}") if until else None
    shown = filtered(whole, RequestFilter(since=limit, until=last))
    assert tasks(shown) == [row.task for row in (rows[2:] if since else rows[:2])]


def test_a_day_that_no_calendar_has_is_not_a_fault() -> None:
    """Its requests have no time that another zone could be compared with."""
    whole = report_of(wrapped(content_of(CASE), "2026-02-30T10:{}Z "))
    with pytest.raises(CacheDoctorError, match="no request in the log matches --since 10:00Z"):
        filtered(whole, RequestFilter(since="10:00Z"))


def test_times_since_the_start_of_the_server() -> None:
    whole = report_of(content_of(CASE))
    rows = list(whole.requests)
    second = rows[1].uptime_ms or 0
    shown = filtered(whole, RequestFilter(since=f"+{second / 1000:.6f}s", until=f"+{second / 1000 + 0.0001:.6f}"))
    assert tasks(shown) == [rows[1].task]
    assert tasks(filtered(whole, RequestFilter(until="+1h"))) == tasks(whole)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (RequestFilter(since="2026-05-01T10:00"), "no timestamps with a date"),
        (RequestFilter(until="10:00"), "no timestamps with a date"),
        (RequestFilter(tasks=(99999,)), "no request in the log matches --task 99999"),
        (RequestFilter(since="+9h"), "matches --since +9h"),
        (RequestFilter(since="yesterday"), "is not a time"),
        (RequestFilter(since="2026-13-01"), "is not a time"),
        (RequestFilter(until="+"), "is not a time"),
        (RequestFilter(since="10:00+99:99"), "is not a time"),
    ],
)
def test_what_cannot_be_chosen_is_said(wanted: RequestFilter, words: str) -> None:
    with pytest.raises(CacheDoctorError) as caught:
        filtered(report_of(content_of(CASE)), wanted)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_log_of_several_days_or_without_a_zone_says_so() -> None:
    """A time of the day would mean several; a zone cannot be compared with none."""
    lines = content_of(CASE).splitlines()
    log = b"".join(f"2026-05-0{1 + n // 250} 10:00:00 ".encode() + row + b"\n" for n, row in enumerate(lines))
    whole = report_of(log)
    for wanted, words in (
        (RequestFilter(since="10:00"), "several days"),
        (RequestFilter(since="2026-05-02T10:00Z"), "has no time zone"),
    ):
        with pytest.raises(CacheDoctorError) as caught:
            filtered(whole, wanted)
        assert words in caught.value.message
    assert tasks(filtered(whole, RequestFilter(until="2026-05-01"))) == tasks(whole)[:2]


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("concise", "jsonl")])
def test_every_format_says_that_it_is_filtered(format: str) -> None:
    """With the number of requests that are left out; JSON in numbers, which read back say the same."""
    whole = report_of(content_of(CASE))
    part = filtered(whole, RequestFilter(tasks=(tasks(whole)[-1],)))
    out = io.BytesIO()
    write(format, part, out, Appearance(200))  # type: ignore[arg-type]
    text = out.getvalue().decode()
    if format == "json":
        assert json.loads(text)["filtered"]["requests"] == 1
        assert stored.read(out.getvalue(), "report.json").filtered == part.filtered
    else:
        assert f"Filtered by task {tasks(whole)[-1]}: 1 of 4 requests" in text
    other = io.BytesIO()
    write(format, whole, other, Appearance(200))  # type: ignore[arg-type]
    assert "Filtered by" not in other.getvalue().decode()


@pytest.mark.sweep
def test_the_command_line_of_logs_and_stored_reports(tmp_path: Path) -> None:
    """A pipe is shown at its end; a stored report is filtered alike; lines that tell all as it happens are not."""
    log = CASE / "server.log"
    whole = tmp_path / "whole.json"
    assert run("analyze", log, "-o", whole, "-q").returncode == 0
    task = json.loads(whole.read_bytes())["requests"][-1]["task"]
    from_log = run("analyze", log, "--task", str(task), "-q", "--fail-on", "warning")
    assert from_log.returncode == 1
    assert run("analyze", whole, "--task", str(task)).stdout == from_log.stdout
    piped = run("analyze", "-", "--slot", "0", stdin=log.read_bytes())
    assert b"4 of 4 requests" in piped.stdout
    part = tmp_path / "part.json"
    assert run("analyze", whole, "--task", str(task), "-o", part).returncode == 0
    one_line(run("analyze", part, "--slot", "0"), "already filtered")
    one_line(run("compare", whole, part), "shows part of a log")
    one_line(run("analyze", log, "-f", "jsonl", "--task", "1"), "cannot be filtered")
    nothing = run("analyze", log, "--task", "4711", "-q")
    assert (nothing.returncode, nothing.stdout) == (3, b"")
    one_line(nothing, "no request in the log matches --task 4711")
