"""A program that uses the library, and that mypy --strict accepts: types of the whole public interface.

``mypy`` reads it with the package; tests/test_library.py runs it: python api.py LOG PROMPT PROMPT.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import cachedoctor
from cachedoctor import CacheDoctorError, Finding, First, PromptDiff, Report, RequestRow, Session, Totals
from cachedoctor.report.base import Appearance, FormatName, write


def numbers(report: Report) -> None:
    """The fields of a report."""
    assert_type(report.totals, Totals)
    assert_type(report.totals.reuse, float | None)
    assert_type(report.findings, list[Finding])
    assert_type(report.sessions, Sequence[Session])
    assert_type(report.ignored, list[str])
    for finding in report.findings:
        assert_type(finding.cost.tokens, int)
        assert_type(finding.cost.ms, float | None)
        assert_type(finding.remedies[0].commands, list[str])
    for row in report.requests:
        assert_type(row, RequestRow)
        assert_type(row.cached_tokens, int | None)
        assert_type(row.codes, list[str])


def main(log: str, a: Path, b: Path) -> None:
    """Call everything once."""
    report = cachedoctor.analyze(log, Path(log), build=10567, cmdline="llama-server -np 1", ignore=["CD105"])
    assert_type(report, Report)
    numbers(report)
    name: FormatName = "json"
    out = io.BytesIO()
    write(name, report, out, Appearance())
    difference = cachedoctor.diff(a, str(b), full=True)
    assert_type(difference, PromptDiff)
    assert_type(difference.first, First | None)
    try:
        cachedoctor.analyze(log, select=("no-such-rule",))
    except CacheDoctorError as error:
        print(len(report.findings), out.getvalue()[:34].decode(), difference.equal, error.message)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
