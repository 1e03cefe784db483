"""Every bundled log: the numbers that the server reported, the causes by construction, none of their look-alikes."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from conftest import CASES, case_of, content_of, every_case, given_of, json_of, log_of, prompts_of
from findings_text import Expected, findings_text, first_command, summary
from syrupy.assertion import SnapshotAssertion

from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.analysis import servers
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.tracker import catalogue
from cachedoctor.model import Report
from cachedoctor.report.text import text_report as text

FIELDS = ("prompt", "cached", "processed")
MEMORIES = {"attention", "swa", "hybrid", "recurrent"}
BUILDS = {6123, 6301, 6900, 7551, 7964, 8353, 8672, 9294, 9713, 11549}
MOST_BYTES = 4_000_000
"""Of all logs together, which every clone and every source archive has."""
SNAPSHOTS = ("billing-header-hybrid", "mmproj-truncation-b7551")

# With this scope the tests of one case follow each other, so that one worker has them all, and makes one report.
by_case = pytest.mark.parametrize("case", CASES, ids=lambda folder: folder.name, scope="module")


@cache
def whole(case: Path) -> bytes:
    """The JSON report of the log read at once."""
    return json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case))


def report_of(case: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(whole(case))
    return report


def numbers(request: dict[str, Any]) -> tuple[int | None, ...]:
    return tuple(request[f"{field}_tokens"] for field in FIELDS)


def truth_and_report(what: str, truth: list[str], report: list[str]) -> str:
    """A message that shows what the case states above what the report says."""
    return "\n".join([f"{what}, by case.toml:", *truth, "by the report:", *report])


@cache
def plain_catalogue() -> Catalogue:
    return Catalogue(ROWS)


# ---- the numbers


@by_case
def test_numbers_server_and_causes_are_those_of_the_run(case: Path) -> None:
    """Prompt, cached and processed tokens of every answered request; what the log does not show is null."""
    ours = [numbers(r) for r in report_of(case)["requests"] if r["parent"] is None]
    left = list(ours)
    for n, request in enumerate(case_of(case)["requests"]):
        want = tuple(None if f in request.get("unknown", ()) else request[f] for f in FIELDS)
        assert want in left, f"request {n} {want} is not among {left}"
        left.remove(want)
    assert not [found for found in left if None not in found], "a number that no request of this log had"
    _server_is_what_it_was(case)
    _findings_are_the_causes(case)


def _server_is_what_it_was(case: Path) -> None:
    """Build and memory are known or open, never wrong."""
    want = case_of(case)
    for session in report_of(case)["sessions"]:
        assert session["memory"] in (None, want["memory"])
        assert session["build"] in (None, 0, want["build"])
        assert (session["build_min"] or 0) <= want["build"] <= (session["build_max"] or want["build"])


def _findings_are_the_causes(case: Path) -> None:
    """The codes with the counts of their requests, the costliest first, and no look-alike."""
    want, report = case_of(case), report_of(case)
    found = [f"{finding['code']} x{finding['count']}" for finding in report["findings"]]
    expected = [" ".join(entry.split()[:2]) for entry in want["expect"]]
    assert found == expected, truth_and_report("findings", expected, found)
    codes = {entry.split()[0] for entry in expected}
    assert not set(want["absent"]) & codes, "case.toml contradicts itself"
    for entry in want.get("ruled_out", ()):
        code, name = entry.split()
        (finding,) = (f for f in report["findings"] if f["code"] == code)
        assert name in {other["name"] for other in finding["ruled_out"]}


@pytest.mark.sample(40)
@by_case
def test_requests_that_follow_each_other_keep_their_order(case: Path) -> None:
    """One after the other on one slot, they are reported in that order."""
    report = report_of(case)
    known = [numbers(r) for r in report["requests"] if r["parent"] is None and None not in numbers(r)]
    truth = [tuple(r[f] for f in FIELDS) for r in case_of(case)["requests"] if "unknown" not in r]
    if report["sessions"] and report["sessions"][0]["n_slots"] == 1:
        assert known == truth


# ---- the causes


@by_case
def test_a_finding_says_what_the_log_proves(case: Path, request: pytest.FixtureRequest) -> None:
    """What each costs, how sure it is, the line that proves it, the numbers it names, and its first command."""
    want, findings = case_of(case), report_of(case)["findings"]
    if "wrong" in want:  # what is true is in the case; the mark goes when the code gets there
        request.applymarker(pytest.mark.xfail(reason=want["wrong"], strict=True))
    found = [summary(finding) for finding in findings]
    assert found == want["expect"], truth_and_report("findings", want["expect"], found)
    commands, fixes = [first_command(finding) for finding in findings], want.get("fix", [])
    assert commands == fixes, truth_and_report("first commands", fixes, commands)
    for entry in want.get("says", ()):
        code, words = entry.split(": ", 1)
        said = [f"{finding['claim']} {finding['why']}" for finding in findings if finding["code"] == code]
        assert any(words in text for text in said), truth_and_report("words", [entry], said)


@pytest.mark.sample(40)
@by_case
def test_evidence_quotes_the_log(case: Path) -> None:
    """The text of every piece of evidence is in the line that it names."""
    if case.name.startswith(("wrapped-docker", "jsonl")):
        pytest.skip("the text stands in the line as JSON")
    lines = content_of(case).split(b"\n")
    for finding in report_of(case)["findings"]:
        assert finding["evidence"] or finding["code"] in ("CD406", "CD407", "CD903")
        assert [e["role"] for e in finding["evidence"]].count("primary") == bool(finding["evidence"])
        for evidence in finding["evidence"]:
            line = re.sub(rb"\x1b\[[0-9;]*m", b"", lines[evidence["line"] - 1]).decode("utf-8", "replace")
            assert evidence["text"].strip() in line


def test_a_cache_that_is_announced_and_not_used_is_not_said_to_be_disabled() -> None:
    """Up to b7964 the RAM cache does nothing with mmproj, whatever the start-up line shows."""
    folder = next(f for f in CASES if f.name == "mmproj-truncation-b7551")
    (found,) = (f for f in report_of(folder)["findings"] if f["code"] == "CD303")
    assert "does not use it while a multimodal projector is loaded" in found["why"]
    assert not any("prompt cache is enabled" in e["text"] for e in found["evidence"])


# ---- robustness


@pytest.mark.sample(12)
@pytest.mark.spread(9)
@every_case
@pytest.mark.parametrize("part", ["first 30 lines", "last 30 lines", "every second line"])
def test_a_part_of_a_log_raises_nothing(case: Path, part: str) -> None:
    """No exception, no broken rule, no number without a source."""
    lines = content_of(case).splitlines(keepends=True)
    cut = {"first 30 lines": lines[:30], "last 30 lines": lines[-30:], "every second line": lines[::2]}[part]
    report = json.loads(json_of([b"".join(cut)], prompts=prompts_of(case), given=given_of(case)))
    assert not [n for n in report["not_evaluated"] if "failed" in n["reason"]]
    assert not {n["code"] for n in report["not_evaluated"]}.intersection(f["code"] for f in report["findings"])
    for request in report["requests"]:
        prompt, cached, processed = numbers(request)
        assert all(n is None or n >= 0 for n in (prompt, cached, processed))
        if prompt is not None and cached is not None:
            assert cached <= prompt


@pytest.mark.sample(8)
@pytest.mark.spread(7)
@every_case
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.sweep), pytest.param(3, marks=pytest.mark.sweep)]
)
def test_chunks_cut_anywhere_give_the_same_bytes(case: Path, seed: int) -> None:
    """A pipe, a tail and a file are the same log."""
    data, draw = content_of(case), random.Random(seed)
    most = draw.choice((200, 5000, 20000))
    chunks, at = [], 0
    while at < len(data):
        size = draw.randint(1, most)
        chunks.append(data[at : at + size])
        at += size
    assert json_of(chunks, prompts=prompts_of(case), given=given_of(case)) == whole(case)


@pytest.mark.sample(6)
@pytest.mark.spread(9)
@every_case
def test_line_by_line_gives_the_same_bytes(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fused patterns are a shortcut: without them every line is an event of its own, and nothing else changes."""
    list(catalogue().pattern.finditer(b"\n" * 70_000))  # as in a log so long that they are compiled
    expected = json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case))
    assert expected == whole(case)
    monkeypatch.setattr(servers, "catalogue", plain_catalogue)
    monkeypatch.setattr(servers, "LISTING_PLAN", msgspec.structs.replace(servers.LISTING_PLAN, fused_groups=0))
    assert json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case)) == expected


# ---- the collection


def test_the_cases_cover_builds_memories_and_rules() -> None:
    """Every sampled build, every kind of memory; every rule fires somewhere. Its look-alike is on its page."""
    cases = [case_of(folder) for folder in CASES]
    assert {c.get("build") for c in cases} >= BUILDS
    assert {c.get("memory") for c in cases} >= MEMORIES
    size = sum(log_of(folder).stat().st_size for folder in CASES)
    assert size < MOST_BYTES, "shorten the new log, or keep it as server.log.gz"
    fires = {entry.split()[0] for c in cases for entry in c["expect"]}
    codes = {rule.code for rule in registry.load()[0] if rule.engine == "llama.cpp"}
    assert codes <= fires


def test_copied_logs_name_no_machine() -> None:
    """Paths of the machine they were made on are not in them."""
    for folder in CASES:
        assert not re.search(rb"/(?:work|root|home|tmp)/", content_of(folder)), folder.name


# ---- what the cases look like


class CaseExpected(Expected):
    """Snapshots in ``CASE/expected/``."""

    folders: ClassVar[dict[str, Path]] = {case.name: case / "expected" for case in CASES}


@by_case
def test_findings_read_as_before(case: Path, snapshot: SnapshotAssertion) -> None:
    """Each word of each finding; ``pytest --snapshot-update`` accepts a change that was checked."""
    assert findings_text(report_of(case)) == snapshot.use_extension(CaseExpected)(name="findings")


def masked(report: str) -> str:
    """Without what differs from release to release."""
    report = re.sub(r'("name":"cachedoctor","version":)"[^"]*"', r'\1"VERSION"', report)
    return re.sub(r"\bcachedoctor \d+\.\d+\.\d+\S*", "cachedoctor VERSION", report)


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_reports_look_as_before(name: str, snapshot: SnapshotAssertion) -> None:
    """Text and JSON report; ``pytest --snapshot-update`` accepts a change that was checked."""
    (case,) = (folder for folder in CASES if folder.name == name)
    shot = snapshot.use_extension(CaseExpected)
    report = json.loads(masked(whole(case).decode()))
    told = {one["code"] for one in report["findings"] + report["not_evaluated"]}
    report["rules"] = [rule for rule in report["rules"] if rule["code"] in told]  # a new rule is told here by its cases
    assert json.dumps(report, indent=1, ensure_ascii=False) + "\n" == shot(name="report-json")
    out = StringIO()
    text.render(_report(content_of(case)), out)
    assert masked(out.getvalue()) == shot(name="report-text")


def _report(data: bytes) -> Report:
    doctor = Analyzer()
    doctor.open("server.log")
    doctor.feed(data)
    return doctor.finish()
