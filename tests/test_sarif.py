"""SARIF: valid by the schema, every result placed, and the same finding keeps its fingerprint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from conftest import FIXTURES, content_of, every_case
from reports import FINDINGS, ODD, case_named, poisoned, report_of_case, written
from test_hostile_text import PAYLOADS

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.report.base import Appearance
from cachedoctor.report.wire.sarif import fingerprints, uri

SCHEMA = json.loads((FIXTURES / "schemas" / "sarif-2.1.0.schema.json").read_text("utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
_URI = re.compile(r"(?:file://)?(?:[A-Za-z0-9._~/!$&'()*+,;=@-]|%[0-9A-F]{2}|(?<=file:///[A-Z]):)*")
"""Characters of a relative reference; a colon only after the letter of a drive."""


def run_of(report: Report, look: Appearance | None = None) -> dict[str, Any]:
    """The one run of the log, which is valid, and whose references all lead somewhere."""
    log = json.loads(written("sarif", report, look))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    notices = [n for kind in ("Execution", "Configuration") for n in run["invocations"][0][f"tool{kind}Notifications"]]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert len(result["locations"]) == 1
    for notice in notices:
        if "index" in notice.get("associatedRule", {}):
            assert rules[notice["associatedRule"]["index"]]["id"] == notice["associatedRule"]["id"]
    for place in [
        p for r in [*run["results"], *notices] for f in ("locations", "relatedLocations") for p in r.get(f, ())
    ]:
        assert _URI.fullmatch(place["physicalLocation"]["artifactLocation"]["uri"])
        assert place["physicalLocation"]["region"]["startLine"] >= 1
    return run


def marks_of(report: Report) -> dict[str, str]:
    """Fingerprints by code; no two results of a report share one."""
    results = run_of(report)["results"]
    marks = [result["partialFingerprints"]["cachedoctorCause/v1"] for result in results]
    assert len(set(marks)) == len(marks)
    assert marks == [result["partialFingerprints"]["primaryLocationLineHash"] for result in results]
    return dict(zip((result["ruleId"] for result in results), marks, strict=True))


@pytest.mark.spread(7)
@pytest.mark.sample(3)
@every_case
def test_a_result_per_finding(case: Path) -> None:
    report = report_of_case(case)
    run = run_of(report)
    assert [(r["ruleId"], r["level"], r["occurrenceCount"]) for r in run["results"]] == [
        (f.code, f.severity, f.count) for f in report.findings
    ]
    for result, finding in zip(run["results"], report.findings, strict=True):
        lines = [e.line for e in finding.evidence if e.role == "primary"] or [1]
        (place,) = result["locations"]
        assert place["physicalLocation"]["region"]["startLine"] == lines[0]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "server.log"
        assert len(result["relatedLocations"]) == max(len(finding.evidence) - 1, 0)
        assert result["properties"]["recomputedTokens"] == finding.cost.tokens
    marks_of(report)


@pytest.mark.sample(5)
@pytest.mark.parametrize("odd", ODD)
def test_odd_reports_are_valid(odd: str) -> None:
    marks_of(ODD[odd]())


@pytest.mark.sample(2)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_hostile_text_is_valid_and_means_nothing(payload: str) -> None:
    """No placeholder is left in a message, and no link."""
    run = run_of(poisoned(payload))
    for result in run["results"]:
        text = result["message"]["text"]
        assert not re.search(r"(?<!\{)(?:\{\{)*\{\d", text)
        assert "](" not in text.replace("\\](", "")


def test_what_it_says() -> None:
    """By the words of the case: two findings, the first of three requests, fixed by an option."""
    run = run_of(report_of_case(case_named(FINDINGS)))
    first = run["results"][0]
    assert first["ruleId"] == "CD203"
    assert (
        "Fix: Add this option to the llama-server command. Keep more checkpoints per slot." in first["message"]["text"]
    )
    assert "    --ctx-checkpoints 8" in first["message"]["text"].split("\n")
    rule = run["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert rule["name"] == "checkpoint-evicted"
    assert "--ctx-checkpoints 8" in rule["help"]["text"]
    assert "```sh" in rule["help"]["markdown"]
    assert "helpUri" not in rule
    snippet = first["locations"][0]["physicalLocation"]["region"]["snippet"]["text"]
    assert "erasing old context checkpoint" in snippet


def test_pages_become_links_where_there_are_some() -> None:
    run = run_of(report_of_case(case_named(FINDINGS)), Appearance(pages="https://example.org/"))
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert (
        rules["CD203"]["helpUri"]
        == "https://example.org/cachedoctor/diagnosis/rules/memory/cd203_checkpoint_evicted.md"
    )


def test_what_went_wrong_is_a_notification() -> None:
    """A failed input fails the run; an interrupt and rules that could not be checked do not."""
    (failed,) = run_of(ODD["a failed input"]())["invocations"]
    assert failed["executionSuccessful"] is False
    (fault,) = failed["toolExecutionNotifications"]
    assert fault["level"] == "error"
    assert "No such file" in fault["message"]["text"]
    (interrupted,) = run_of(ODD["interrupted"]())["invocations"]
    assert interrupted["executionSuccessful"] is True
    assert [n["descriptor"]["id"] for n in interrupted["toolExecutionNotifications"]] == ["interrupted"]
    report = report_of_case(case_named(FINDINGS))
    (run,) = run_of(report)["invocations"]
    left = [n["associatedRule"]["id"] for n in run["toolConfigurationNotifications"]]
    assert left == [rule.code for rule in report.not_evaluated]
    assert left


# ---- fingerprints


def test_a_finding_keeps_its_fingerprint_while_the_log_grows_and_moves() -> None:
    """More lines before it, more repeats after it, another folder."""
    data = content_of(case_named(FINDINGS))
    lines = data.split(b"\n")
    until = next(n for n, line in enumerate(lines) if b"task 75" in line)
    grown, short = Analyzer(), Analyzer()
    short.open("server.log")
    short.feed(b"\n".join(lines[:until]) + b"\n")
    grown.open("/var/log/llama/server.log")
    grown.feed(b"something else\n" * 7 + data)
    before, after = short.finish(), grown.finish()
    assert [f.count for f in before.findings if f.code == "CD203"] == [1]
    assert [f.count for f in after.findings if f.code == "CD203"] == [3]
    assert marks_of(before)["CD203"] == marks_of(after)["CD203"]


def test_one_finding_in_several_inputs_has_several_fingerprints() -> None:
    """The first input keeps the one that it has alone, whatever the order of their cost."""
    alone = marks_of(report_of_case(case_named(FINDINGS)))["CD203"]
    results = [r for r in run_of(ODD["several inputs"]())["results"] if r["ruleId"] == "CD203"]
    places = {
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]: r["partialFingerprints"][
            "cachedoctorCause/v1"
        ]
        for r in results
    }
    assert places == {"0/server.log": alone, "1/server.log": f"{alone}:2", "2/server.log": f"{alone}:3"}


def test_causes_of_one_code_differ() -> None:
    """Two options that the build does not know, or one that two servers of one log were given, are two findings."""
    report = report_of_case(case_named("option-unknown-hybrid-b9294"))
    (known, *_) = report.findings
    for change in ({"key": "--another"}, {"origin": "8081"}):
        report.findings.append(msgspec.structs.replace(known, **change))
    marks = fingerprints(report.findings, report.inputs)
    assert len(set(marks)) == len(marks) == len(report.findings)
    assert not any(":" in mark for mark in marks)


# ---- places


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("server.log", "server.log"),
        ("./logs/server.log", "logs/server.log"),
        ("../a b/100%#1?.log", "../a%20b/100%25%231%3F.log"),
        ("a:b.log", "a%3Ab.log"),
        ("/var/log/x.log", "file:///var/log/x.log"),
        ("//host/x.log", "file:///host/x.log"),
        (r"C:\logs\a b.log", "file:///C:/logs/a%20b.log"),
        ("ü.log", "%C3%BC.log"),
        ("-", "stdin"),
        ("./-", "-"),
    ],
)
def test_addresses(path: str, address: str) -> None:
    assert uri(path) == address
    assert _URI.fullmatch(address)
