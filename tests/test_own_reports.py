"""Reports of cachedoctor that were pasted: the lines that they quote are not a log."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from conftest import FIXTURES, json_of

from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.report.base import Appearance, write

CASES = ("volatile-prefix-dense", "billing-header-hybrid", "slot-contention-dense-b8672", "context-overflow-b9713")
FORMS = [(name, verbose) for name in ("text", "markdown") for verbose in (False, True)] + [
    (name, False) for name in ("json", "jsonl", "sarif", "html", "concise", "github")
]


def analysed(data: bytes) -> Report:
    analyzer = Analyzer()
    analyzer.open("issue.txt")
    analyzer.feed(data)
    return analyzer.finish()


def log_of(case: str) -> bytes:
    return (FIXTURES / "cases" / case / "server.log").read_bytes()


def written(case: str, name: str, *, verbose: bool) -> bytes:
    out = io.BytesIO()
    write(name, analysed(log_of(case)), out, Appearance(verbose=verbose))
    return out.getvalue()


@pytest.mark.sample(14)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("name", "verbose"), FORMS)
def test_a_report_is_not_read_as_a_log(case: str, name: str, verbose: bool) -> None:
    report = analysed(written(case, name, verbose=verbose))
    assert [info.recognised for info in report.inputs] == [0]
    assert [found.code for found in report.findings] == ["CD903"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["text", "markdown"])
@pytest.mark.parametrize("case", CASES)
def test_a_log_below_a_report_is_read_as_without_it(case: str, name: str) -> None:
    pasted = written(case, name, verbose=True) + b"\n```\n" + log_of(case) + b"```\n"
    both, alone = (json.loads(json_of([data])) for data in (pasted, log_of(case)))
    assert both["totals"] == alone["totals"]
    assert [found["code"] for found in both["findings"]] == [found["code"] for found in alone["findings"]]


def test_the_page_of_a_rule_is_not_read_as_a_log() -> None:
    rules, _ = registry.load()
    pages = [Path(rule.url) for rule in rules if rule.code in ("CD102", "CD301", "CD402")]
    assert len(pages) == 3
    for page in pages:
        report = analysed((FIXTURES.parent / page).read_bytes())
        assert [found.code for found in report.findings] == ["CD903"]
        assert "a report of cachedoctor" in report.findings[0].claim


def test_a_log_with_numbered_lines_is_still_read() -> None:
    """As `grep -n` and `cat -n` write them; only beside a finding of a report they are quotes."""
    numbered = b"".join(b"%6d  %s\n" % (at, line) for at, line in enumerate(log_of(CASES[0]).splitlines(), 1))
    assert analysed(numbered).totals.requests == analysed(log_of(CASES[0])).totals.requests
