"""The text at which two prompts part often stands on a later line than the one with ``old:`` or ``new:``."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import FIXTURES

import cachedoctor
from cachedoctor.model import Report

LOG = (FIXTURES / "cases" / "timestamp-over-lines-b11549" / "server.log").read_text("utf-8")
CLOCK = "Now it is 2026-02-03 08:1 | "


def report(tmp_path: Path, log: str) -> Report:
    path = tmp_path / "server.log"
    path.write_text(log, encoding="utf-8")
    return cachedoctor.analyze(path)


def names(found: Report) -> list[tuple[str, str]]:
    return [(finding.name, finding.confidence) for finding in found.findings]


def test_a_clock_behind_a_line_break_is_seen(tmp_path: Path) -> None:
    found = report(tmp_path, LOG)
    assert names(found) == [("volatile-prefix", "high")]
    quoted = {evidence.text.split("|", 2)[-1].strip() for evidence in found.findings[0].evidence}
    assert {"old: ... stant.", "new: ... stant."} <= quoted, "evidence is the line as it is in the log"


def test_a_header_behind_a_line_break_is_seen(tmp_path: Path) -> None:
    log = LOG.replace(CLOCK, "x-anthropic-billing-header: cc_version=2.1.150. | a")
    assert names(report(tmp_path, log)) == [("billing-header", "high")]


@pytest.mark.parametrize("text", ["The story so far goes on in chapter | ", "Read src/part1.py | ", "- [ ] item | "])
def test_other_text_is_not_a_clock(tmp_path: Path, text: str) -> None:
    """Only the words at the bar are new: what changes there is not known, and nothing is certain of it."""
    found = report(tmp_path, LOG.replace(CLOCK, text))
    assert not {"billing-header"} & {name for name, _ in names(found)}
    assert ("volatile-prefix", "high") not in names(found)
    assert found.findings[0].name in ("prefix-diverges-early", "volatile-prefix")


def test_what_only_looks_like_the_server_is_no_part_of_the_text(tmp_path: Path) -> None:
    """A date on a line behind the one with the bar is not what changed."""
    log = LOG.replace(CLOCK, "Chapter | ").replace("\nwindow bridge", "\n2026-02-03 08:10 I srv window bridge")
    assert ("volatile-prefix", "high") not in names(report(tmp_path, log))
