"""Every bundled log of a server without requests: the causes by construction, none of their look-alikes, true sums."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from conftest import FIXTURES, MEASURED
from findings_text import Expected, findings_text
from syrupy.assertion import SnapshotAssertion

import cachedoctor
from cachedoctor.redaction import sanitize
from cachedoctor.report.wire import report_v1

# With this scope the tests of one case follow each other, so that one worker has them all, and makes one report.
by_case = pytest.mark.parametrize("case", MEASURED, ids=lambda case: case["name"], scope="module")


@cache
def _report(name: str) -> dict[str, Any]:
    (case,) = (c for c in MEASURED if c["name"] == name)
    beside: dict[str, list[Path]] = {"metrics": [], "responses": [], "prompts": [], "kv_events": []}
    for option, path in case.get("beside", ()):
        name = "prompts" if option == "--requests" else option.removeprefix("--").replace("-", "_")
        beside[name].append(FIXTURES / path)
    out = io.BytesIO()
    report_v1.render(sanitize.report(cachedoctor.analyze(FIXTURES / case["log"], **beside)), out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def report_of(case: dict[str, Any]) -> dict[str, Any]:
    return _report(case["name"])


@by_case
def test_the_findings_are_the_causes_by_construction(case: dict[str, Any]) -> None:
    """Code, severity and confidence; no other finding."""
    want = [tuple(entry.split()) for entry in case["expect"]]
    found = [(f["code"], f["severity"], f["confidence"]) for f in report_of(case)["findings"]]
    assert sorted(w[0] for w in want) == sorted(f[0] for f in found)
    for entry in want:
        assert any(f[: len(entry)] == entry for f in found), f"{entry} is not among {found}"
    assert not set(case["absent"]) & {code for code, _, _ in found}
    _untold_is_said(case)
    _server_is_what_it_was(case)
    _evidence_stands_in_the_log(case)


def _untold_is_said(case: dict[str, Any]) -> None:
    """Rules without their evidence are named, with what would show it."""
    left = {rule["code"]: rule for rule in report_of(case)["not_evaluated"]}
    for code in case.get("open", ()):
        assert left[code]["reason"]
        assert left[code]["enable"]
    assert not {entry.split()[0] for entry in case["expect"]} & set(left)


def _server_is_what_it_was(case: dict[str, Any]) -> None:
    """One life, its engine and version."""
    (session,) = report_of(case)["sessions"]
    assert session["engine"] == case["engine"]
    assert (session["version"] or "") == case["version"]
    assert session["build"] is None


def _evidence_stands_in_the_log(case: dict[str, Any]) -> None:
    """Each line is quoted with its number; of long lines a part."""
    lines = (FIXTURES / case["log"]).read_text("utf-8", "replace").split("\n")
    for finding in report_of(case)["findings"]:
        for evidence in finding["evidence"]:
            stored = lines[evidence["line"] - 1]
            for part in evidence["text"].split("[...]"):
                words = part.strip()
                assert words[:40] in stored.replace("\x1b[0;36m", "").replace("\x1b[0;0m", "")


class MeasuredExpected(Expected):
    """Snapshots in ``fixtures/measured/expected/``."""

    folders: ClassVar[dict[str, Path]] = {case["name"]: FIXTURES / "measured" / "expected" for case in MEASURED}


@by_case
def test_findings_read_as_before(case: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    """Each word of each finding; ``pytest --snapshot-update`` accepts a change that was checked."""
    said = findings_text(report_of(case)).replace(f"{FIXTURES}/", "")  # dumps beside a log are named with their folder
    assert said == snapshot.use_extension(MeasuredExpected)(name=case["name"])


@pytest.mark.parametrize("case", [c for c in MEASURED if "computed" in c], ids=lambda case: case["name"])
def test_sums_agree_with_the_responses(case: dict[str, Any]) -> None:
    """Computed tokens of every period, as exactly as rounded rates allow; answered requests exactly."""
    periods = [p for p in report_of(case)["sessions"][0]["periods"] if p["busy"]]
    assert len(periods) == len(case["computed"])
    for period, computed in zip(periods, case["computed"], strict=True):
        assert abs(period["computed_tokens"] - computed) <= period["within"]
        assert period["within"] <= max(10, 0.15 * computed), "so wide a range says nothing"
    assert [p["answered"] for p in periods] == case.get("answered", [])


def test_no_prompt_of_the_log_is_shown() -> None:
    """Logged prompts are compared, and nothing of them leaves."""
    for name in ("logged-prompts-part-early", "logged-prompts-shared"):
        assert "otter" not in json.dumps(_report(name))


def _open(name: str) -> dict[str, dict[str, Any]]:
    return {rule["code"]: rule for rule in _report(name)["not_evaluated"]}


def test_what_would_help_was_not_done_already() -> None:
    """A log that holds prompts is not to be made to hold them."""
    assert "--log-requests" in _open("sglang-unshared")["CD102"]["enable"]
    assert "--log-requests" not in _open("sglang-unshared-logged")["CD102"]["enable"]
    assert "--requests bodies.jsonl" in _open("dense-mutation")["CD102"]["enable"]


def test_a_cause_that_only_llama_server_has_is_not_called_open() -> None:
    """No request to vLLM or SGLang has a field cache_prompt."""
    assert "CD108" in _open("dense-mutation")
    assert "CD109" not in _open("dense-mutation")
    assert "CD109" not in _open("sglang-unshared")


def test_caching_that_is_off_needs_no_traffic() -> None:
    """That nothing is reused then is known, so that the rules about reuse had their answer."""
    assert not {"CD501", "CD504", "CD510"} & set(_open("prefix-caching-off"))
