"""Annotations of GitHub Actions, read as the runner reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from conftest import every_case
from reports import FINDINGS, ODD, case_named, poisoned, report_of_case, written
from test_hostile_text import PAYLOADS

from cachedoctor.model import Report
from cachedoctor.report.report_view import ReportView
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words import do_now

_COMMAND = re.compile(r"::(\w[\w-]*)(?: ([^:]*))?::(.*)")
_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    message: str


def _plain(text: str, *codes: str) -> str:
    for code in codes:
        text = text.replace(f"%{code}", chr(int(code, 16)))
    return text.replace("%25", "%")


def commands(report: Report) -> tuple[list[Command], str]:
    """The commands in the order of the lines, and the line at the end, which is none."""
    shown = written("github", report).decode()
    *lines, last = shown.removesuffix("\n").split("\n")
    assert "\r" not in shown
    assert "##[" not in shown
    assert "##vso[" not in shown
    assert last.startswith("cachedoctor: ")
    found = []
    for line in lines:
        match = _COMMAND.fullmatch(line)
        assert match, line
        pairs = (part.split("=", 1) for part in match[2].split(","))
        properties = {key: _plain(value, "0D", "0A", "3A", "2C") for key, value in pairs}
        found.append(Command(match[1], properties, _plain(match[3], "0D", "0A")))
    return found, last


@pytest.mark.spread(9)
@pytest.mark.sample(9)
@every_case
def test_an_annotation_per_finding(case: Path) -> None:
    """At the line that proves it, its claim first, each fix with its commands."""
    report = report_of_case(case)
    found, last = commands(report)
    assert [c.name for c in found] == [_LEVELS[f.severity] for f in report.findings]
    for command, one in zip(found, ReportView(report).findings, strict=True):
        finding = one.finding
        lines = [e.line for e in finding.evidence if e.role == "primary"] or [1]
        title = f"{finding.code} {finding.name}"
        assert command.properties == {"file": "server.log", "line": str(lines[0]), "title": title}
        rows = command.message.split("\n")
        assert rows[0].lower().endswith(f"{finding.claim}.".lower())
        for remedy in finding.remedies:
            formed = [row for step in do_now.form_of(remedy, one.fix) for row in step.commands]
            assert all(f"    {row}" in rows for row in formed or remedy.commands)
    assert ("finding" in last) == (report.totals.requests > 0 or bool(found))


@pytest.mark.sample(1)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_hostile_text_starts_no_command(payload: str) -> None:
    """It stays within its own message and property."""
    for text in (
        payload,
        f"::set-output name=x::{payload}",
        f"a\n::stop-commands::x\r\n##[command]{payload}",
        "a,line=7::b",
    ):
        report = poisoned(text)
        found, last = commands(report)
        assert len(found) == len(report.findings)
        for command, finding in zip(found, report.findings, strict=True):
            assert command.name == _LEVELS[finding.severity]
            assert set(command.properties) == {"file", "line", "title"}
            assert command.properties["line"] == str(finding.evidence[0].line)
            assert command.properties["title"] == f"{finding.code} {visible(text)}".replace("##[", "## [")
        assert visible(text) not in last


@pytest.mark.sample(5)
@pytest.mark.parametrize("odd", ODD)
def test_odd_reports(odd: str) -> None:
    found, _ = commands(ODD[odd]())
    assert len(found) == len(ODD[odd]().findings)


def test_standard_input_has_no_place() -> None:
    """There is no file that an annotation could be in."""
    found, last = commands(ODD["interrupted"]())
    assert [set(command.properties) for command in found] == [{"title"}] * len(found)
    assert found
    assert last.endswith("Interrupted: this covers the part read until then.")


def test_the_last_line_sums_up() -> None:
    """The numbers of the case: 15 requests."""
    _, last = commands(report_of_case(case_named(FINDINGS)))
    assert last.startswith("cachedoctor: 2 findings: 1 warning, 1 note; ")
    assert "15 requests, 46,550 prompt tokens: 32,143 reused (69.1 %), 14,407 computed." in last
    _, last = commands(ODD["a failed input"]())
    assert last.endswith("1 input could not be read to the end.")


def test_the_server_is_named_where_there_are_several() -> None:
    report = report_of_case(case_named(FINDINGS))
    alone, _ = commands(report)
    report.sessions = [*report.sessions, msgspec.structs.replace(report.sessions[0], index=7)]
    among, _ = commands(report)
    assert [command.message for command in among] == [f"server 1: {command.message}" for command in alone]
