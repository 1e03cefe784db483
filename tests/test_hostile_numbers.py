"""Numbers that no server prints, in every hole of every message: read or left unread, never a reason to fail."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from command import FIRST, LOG
from conftest import report_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.explain.explain import explain
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import explain_text
from cachedoctor.report.text import text_report as text
from cachedoctor.report.wire import report_v1, stored

_STAMP = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} ")
_DIGITS = re.compile(r"-?\d+(?:\.\d+)?")

VALUES = [
    "9" * 5000,
    "9" * 400 + ".5",
    "9" * 18,
    "9" * 19,
    "-" + "9" * 18,
    str(2**63),
    str(2**64),
    "1e999",
    "-1",
    "0",
    "nan",
    "-nan(ind)",
    "inf",
    "-inf",
    "1.2.3",
    "..",
    "0x7fffffff",
    "\u0663",
]


def lines_with(value: str) -> list[str]:
    """Every sample of the catalogue, as often as it has numbers, each time with another one replaced."""
    lines = []
    for row in ROWS:
        stamp = _STAMP.match(row.sample)
        for found in _DIGITS.finditer(row.sample, stamp.end() if stamp else 0):
            lines.append(row.sample[: found.start()] + value + row.sample[found.end() :])
    return lines


def numbers(value: Any) -> list[int]:
    """All integers in a JSON value."""
    if isinstance(value, dict):
        return [n for inner in value.values() for n in numbers(inner)]
    if isinstance(value, list):
        return [n for inner in value for n in numbers(inner)]
    return [value] if isinstance(value, int) else []


@pytest.mark.sweep
@pytest.mark.parametrize("value", VALUES, ids=lambda v: v[:24])
def test_a_number_that_no_server_prints(value: str) -> None:
    """No message lets it raise, no rule fails on it, and what is reported fits 64 bits."""
    analyzer, out, shown = Analyzer(), io.BytesIO(), io.StringIO()
    analyzer.open("server.log")
    for at, line in enumerate(lines_with(value)):
        if at % 16 == 0:  # among requests that the line can belong to
            analyzer.feed(FIRST.encode())
        analyzer.feed(line.encode() + b"\n")
    analyzer.feed(FIRST.encode())
    report = analyzer.finish()
    assert not analyzer.crashed
    report_v1.render(sanitize.report(report), out)
    text.render(sanitize.report(report), shown)
    found = json.loads(out.getvalue())
    assert max(map(abs, numbers(found))) < 2**63
    assert found["totals"]["requests"] > 10
    assert len(list(stored.read(out.getvalue(), "report.json").requests)) == len(found["requests"])


@pytest.mark.sweep
@pytest.mark.parametrize("value", VALUES, ids=lambda v: v[:24])
def test_a_line_with_such_a_number_is_explained_or_is_not(value: str) -> None:
    for line in lines_with(value)[::40]:
        for answer in explain(line.encode()):
            explain_text.render_line(answer, io.StringIO())


STAMPS = ["9" * 5000 + ".00.000.001 I ", "999999999.99.999.999 I ", "1.2.3.4.5.6.7.8 I ", "0.00.000.272 X "]


@pytest.mark.parametrize("stamp", STAMPS, ids=lambda v: v[-30:])
def test_a_clock_that_no_server_prints(stamp: str) -> None:
    """The launch of a request compares it with the clock before."""
    log = FIRST + FIRST.replace("0.00.153.904 I ", stamp)
    assert 1 <= report_of(log)["totals"]["requests"] <= 2


def test_the_build_is_a_number_that_can_be_one() -> None:
    assert report_of("build_info: b" + "9" * 5000 + "\n" + FIRST)["sessions"][0]["build"] is None
    assert report_of("build_info: b7964-abc\n" + FIRST)["sessions"][0]["build"] == 7964


def test_a_number_is_not_read_in_part() -> None:
    """Eighteen digits of twenty-four are another number; the length then comes from the lines that follow."""
    long = FIRST.replace("task.n_tokens = 1900", "task.n_tokens = 1900" + "0" * 20)
    for log, derived in ((FIRST, False), (long, True)):
        (request,) = report_of(log)["requests"]
        assert ("prompt_tokens" in request["derived"]) == derived
        assert 1890 <= request["prompt_tokens"] <= 1900


def test_slot_numbers_are_those_of_slots() -> None:
    """llama.cpp has at most 256; each would be remembered."""
    assert report_of(FIRST.replace("id  0", "id  255"))["requests"][0]["slot"] == 255
    assert report_of(FIRST.replace("id  0", "id  1000000000"))["requests"] == []


@pytest.mark.parametrize("ms", ["1e308", "99999999999999999999999999.00"])
def test_a_time_without_sense_is_unknown(ms: str) -> None:
    """And the rest of the report is as it was."""
    log = LOG.decode()
    report, plain = (report_of(text.encode()) for text in (log.replace("183.08 ms", f"{ms} ms"), log))
    assert [r["prompt_ms"] for r in plain["requests"]] == [183.08] * len(plain["requests"])
    assert [r["prompt_ms"] for r in report["requests"]] == [None] * len(plain["requests"])
    assert [f["code"] for f in report["findings"]] == [f["code"] for f in plain["findings"]]
