"""Every log with known causes, with and without what lies beside it: more evidence loses no verdict that is sure.

And no report passes over a quarter of the prompt tokens that were recomputed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import CASES, FIXTURES, MEASURED, ROOT, case_of, content_of, given_of, json_of, log_of, prompts_of

import cachedoctor
from cachedoctor.model import Finding, Report

sys.path.insert(0, str(ROOT / "benchmarks"))
import runs

OPEN = {"client", "server", "undecided", "unexplained"}
"""Rows of the account of which a report has to speak."""
NOTABLE, SHARE = 1000, 0.25
"""Tokens, and part of all prompt tokens, from which on it does."""
OPTIONS = {"--requests": "prompts", "--responses": "responses", "--metrics": "metrics", "--kv-events": "kv_events"}
WITH_PROMPTS = [case for case in CASES if "prompts" in case_of(case)]
BESIDE = [case for case in MEASURED if "beside" in case]
DAYS = runs.find(FIXTURES / "days")


def sure(findings: list[dict[str, Any]]) -> set[str]:
    """Causes above a note and above low confidence."""
    return {f["code"] for f in findings if f["severity"] != "note" and f["confidence"] != "low"}


def lost(alone: list[dict[str, Any]], more: list[dict[str, Any]], true: set[str]) -> str | None:
    """What more evidence made worse; ``true`` are the causes by construction, none on a healthy server."""
    kept = sure(alone) & true - {f["code"] for f in more}
    if kept:
        return f"lost {sorted(kept)}"
    wrong = sure(more) - true
    if wrong:
        return f"sure of {sorted(wrong)}, which was not there"
    above = [f for f in alone if f["severity"] != "note"]
    return "nothing is said any more" if above and true and not more else None


def as_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    return [{"code": f.code, "severity": f.severity, "confidence": f.confidence} for f in findings]


def unsaid(report: Report) -> int:
    """Tokens of the whole log that were recomputed while nothing is said of it; 0 where little was."""
    if report.findings:
        return 0
    whole = next((account for account in report.accounts if account.scope == "log"), None)
    again = 0 if whole is None else sum(entry.tokens for entry in whole.entries if entry.row in OPEN)
    return again if whole is not None and again >= max(NOTABLE, SHARE * whole.prompt_tokens) else 0


# ---- more evidence


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", WITH_PROMPTS, ids=lambda folder: folder.name)
def test_bodies_lose_no_verdict_of_a_case(case: Path) -> None:
    content, true = content_of(case), {entry.split()[0] for entry in case_of(case)["expect"]}
    alone = json.loads(json_of([content], given=given_of(case)))["findings"]
    more = json.loads(json_of([content], prompts=prompts_of(case), given=given_of(case)))["findings"]
    assert lost(alone, more, true) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case["name"])
def test_what_lies_beside_a_measured_log_loses_no_verdict(case: dict[str, Any]) -> None:
    """Each file alone beside the log, and all together."""
    true = {entry.split()[0] for entry in case["expect"]}
    files = [(OPTIONS[option], FIXTURES / path) for option, path in case["beside"]]
    alone = as_rows(cachedoctor.analyze(FIXTURES / case["log"]).findings)
    for some in [files, *([one] for one in files if len(files) > 1)]:
        given: dict[str, Any] = {option: [path] for option, path in some}
        assert lost(alone, as_rows(cachedoctor.analyze(FIXTURES / case["log"], **given).findings), true) is None, some


def test_what_is_worse_is_seen() -> None:
    def said(code: str, severity: str = "warning", confidence: str = "medium") -> dict[str, Any]:
        return {"code": code, "severity": severity, "confidence": confidence}

    assert lost([said("CD101")], [said("CD101", confidence="high")], {"CD101"}) is None
    assert lost([said("CD101")], [said("CD101", "note")], {"CD101"}) is None
    assert lost([said("CD101")], [said("CD202")], {"CD101", "CD202"}) == "lost ['CD101']"
    assert lost([], [said("CD202")], {"CD101"}) == "sure of ['CD202'], which was not there"
    assert lost([said("CD108", confidence="low")], [], {"CD101"}) == "nothing is said any more"
    assert lost([said("CD108", confidence="low")], [], set()) is None


# ---- nothing is passed over


@pytest.mark.spread(9)
@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES, ids=lambda folder: folder.name)
def test_no_case_is_passed_over(case: Path) -> None:
    assert not unsaid(cachedoctor.analyze(log_of(case)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("run", DAYS, ids=lambda run: run.name)
def test_no_day_is_passed_over(run: Path) -> None:
    """By the log alone, and with the bodies."""
    build = runs.truth(run)["build"]
    assert not unsaid(cachedoctor.analyze(run / "server.log", build=build))
    assert not unsaid(cachedoctor.analyze(run / "server.log", build=build, prompts=[run / "requests.jsonl"]))


@pytest.mark.sweep
def test_no_excerpt_is_passed_over() -> None:
    logs = sorted((FIXTURES / "excerpts").glob("*.log"))
    assert logs
    assert [log.name for log in logs if unsaid(cachedoctor.analyze(log))] == []


def test_what_is_passed_over_is_seen() -> None:
    """Without the rule of last resort the six conversations on four slots of a case are."""
    case = FIXTURES / "cases" / "reuse-undecided"
    assert unsaid(cachedoctor.analyze(log_of(case), ignore=["CD"])) >= NOTABLE
