"""What is said of mixed days on real servers, against what was done (fixtures/days): by the log and with the bodies."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from cachedoctor.model import Finding, Remedy, RuledOut

sys.path.insert(0, str(ROOT / "benchmarks"))
import day_causes
import days
import runs

pytestmark = pytest.mark.usefixtures("child_here")
FOLDER = ROOT / "fixtures" / "days"
RUNS = runs.find(FOLDER)
KNOWN: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "known.toml").read_text(encoding="utf-8"))
GOOD = {"right", "honest", "ok"}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return days.models_in(tmp_path_factory.mktemp("models"))


@pytest.mark.sample(1)
@pytest.mark.spread(7)
@pytest.mark.parametrize("evidence", ["log", "counted", "exact"])
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_day_is_said_as_it_was(run: Path, evidence: str, models: Path) -> None:
    """What is not, is in known.toml; an entry that is fixed has to go."""
    said = days.analyse((run, evidence, models))
    assert not said.counted
    answer = None if said.verdict in GOOD else f"{said.verdict} {said.answer}"
    assert answer == KNOWN.get(run.name, {}).get(evidence), said.claim


def test_known_entries_are_of_runs() -> None:
    assert set(KNOWN) <= {run.name for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_rows_of_a_day_add_up(run: Path) -> None:
    truth = runs.truth(run)
    placed = [request for request in truth["requests"] if request["rows"]]
    assert placed
    for request in placed:
        assert sum(request["rows"].values()) == request["prompt"] == request["cached"] + request["processed"]
    total = sum(truth["total"].values())
    assert total == sum(request["prompt"] for request in placed)
    assert truth["cause"] == "none" or truth["cause"] in day_causes.RIGHT


def finding(name: str, severity: str = "warning", confidence: str = "medium", **more: Any) -> Finding:
    blank: dict[str, Any] = dict.fromkeys(Finding.__struct_fields__) | {
        "why": "",
        "ruled_out": [],
        "still_possible": [],
        "remedies": [],
    }
    return Finding(**blank | {"name": name, "severity": severity, "confidence": confidence, **more})


TWO_HEADS = "A date (volatile-prefix), or other tools (tools-changed)."
TELLS = [Remedy("Give the bodies.", ["cachedoctor analyze server.log --requests bodies.jsonl"])]


def truth(cause: str, side: str = "client", memory: str = "dense", **more: Any) -> dict[str, Any]:
    return {"cause": cause, "side": side, "memory": memory, "going_back": False, "total": {"client": 900}, **more}


@pytest.mark.parametrize(
    ("day", "first", "verdict"),
    [
        (truth("clock"), finding("volatile-prefix"), "right"),
        (truth("clock"), finding("prefix-diverges-early", confidence="high"), "near"),
        (truth("clock"), finding("log-too-terse", "note"), "near"),
        (truth("clock"), finding("slot-contention"), "WRONG"),
        (truth("clock"), finding("slot-contention", confidence="low"), "wrong"),
        (truth("clock"), finding("context-shift", "note"), "silent"),
        (truth("clock"), None, "silent"),
        (truth("clock", "none"), None, "ok"),
        (truth("clock", "none"), finding("volatile-prefix"), "ALARM"),
        (truth("none", "none"), finding("history-rewritten", "note", "high"), "ok"),
        (truth("none", "none"), finding("history-rewritten", "warning", "low"), "alarm"),
        (truth("slept", "server"), finding("server-slept", "note"), "right"),
        (truth("clock", "both"), finding("no-usable-checkpoint"), "WRONG"),
        (truth("clock", "both", "hybrid"), finding("no-usable-checkpoint"), "right"),
        (truth("none", "server", "hybrid", going_back=True), finding("no-usable-checkpoint"), "ok"),
        (truth("none", "server", "hybrid", going_back=True), finding("volatile-prefix"), "ALARM"),
    ],
)
def test_an_answer_is_judged_by_the_cause(day: dict[str, Any], first: Finding | None, verdict: str) -> None:
    assert days.judge(day, first) == verdict


def test_more_evidence_is_held_against_the_log_alone() -> None:
    def said(evidence: str, verdict: str) -> days.Said:
        return days.Said("run", evidence, verdict, "x", "", "", "", None, "", days.Counter(), [], [])

    assert days.worse([said("log", "near"), said("exact", "right")]) == []
    assert days.worse([said("log", "wrong"), said("exact", "silent")]) == []
    assert days.worse([said("log", "right"), said("exact", "near")]) == ["run: log right (x), exact near (x)"]


@pytest.mark.parametrize(
    ("first", "others", "verdict"),
    [
        (finding("prefix-diverges-early", why=TWO_HEADS, remedies=TELLS), [], "honest"),
        (finding("prefix-diverges-early", why=TWO_HEADS), [], "near"),  # nothing said that would tell
        (finding("prefix-diverges-early", why="Other tools (tools-changed, of a kind).", remedies=TELLS), [], "near"),
        (finding("prefix-diverges-early", why="A date (volatile-prefix).", remedies=TELLS), [], "near"),  # alone
        (finding("slot-contention", why=TWO_HEADS, remedies=TELLS), [], "WRONG"),
        (finding("prefix-diverges-early", why=TWO_HEADS, remedies=TELLS), [finding("slot-contention")], "near"),
        (
            finding("prefix-diverges-early", why=TWO_HEADS, remedies=TELLS),
            [finding("slot-contention", confidence="low"), finding("history-rewritten", "note", "high")],
            "honest",
        ),
    ],
)
def test_an_answer_is_honest_that_names_the_true_cause_and_what_tells(
    first: Finding, others: list[Finding], verdict: str
) -> None:
    assert days.judge(truth("clock"), first, others) == verdict


def test_what_is_not_excluded_is_left_open() -> None:
    out = [RuledOut("slot-contention", "not excluded: too few slots"), RuledOut("one-shot-prompts", "each is longer")]
    assert days.left_open(finding("reuse-undecided", ruled_out=out)) == {"slot-contention"}
