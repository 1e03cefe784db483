"""Holds a report of cachedoctor against a scenario: the finding that must stand first, and numbers that are true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e2e.case import SEVERITIES, NotAsClaimedError
from e2e.vllm.scenario import AFTER, BEFORE, BODIES, LOG, RESPONSES, Scenario, Told, shares

BESIDE = {"metrics": (BEFORE, AFTER), "responses": (RESPONSES,), "requests": (BODIES,)}
"""Files that an option of ``analyze`` takes."""


def analyze(folder: Path, given: Sequence[str] = tuple(BESIDE)) -> dict[str, Any]:
    """Let cachedoctor read a recording, and beside it what these options give, and return its report."""
    inputs = [LOG]
    for option in given:
        inputs += [word for name in BESIDE[option] if (folder / name).exists() for word in (f"--{option}", name)]
    command = [sys.executable, "-m", "cachedoctor", "analyze", *inputs, "--format", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise NotAsClaimedError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:].strip()}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def title(finding: dict[str, Any]) -> str:
    """Code and name of a finding."""
    return f"{finding['code']} {finding['name']}"


def unmet(scenario: Scenario, told: Sequence[Told], report: dict[str, Any]) -> list[str]:
    """Say which demands the report does not meet; none is right."""
    findings = report["findings"]
    if scenario.finding is None:
        return [*_others(findings), *_untrue(told, report)]
    if not findings or title(findings[0]) != scenario.finding:
        return [f"expected {scenario.finding} first, the report has {[title(f) for f in findings]}"]
    faults = []
    if SEVERITIES.index(findings[0]["severity"]) < SEVERITIES.index(scenario.severity):
        faults.append(f"{scenario.finding} is only a {findings[0]['severity']}: {findings[0]['claim']}")
    return [*faults, *_others(findings[1:]), *_untrue(told, report)]


def _others(findings: Sequence[dict[str, Any]]) -> list[str]:
    """What is reported above a note, though nothing else is wrong."""
    wrong = [f"{title(f)} ({f['severity']}): {f['claim']}" for f in findings if f["severity"] != "note"]
    return [f"nothing else is wrong, but reported is {one}" for one in wrong]


def _untrue(told: Sequence[Told], report: dict[str, Any]) -> list[str]:
    """Numbers of each source, in its own unit, that are not those of the server; what is unknown is not an error."""
    cached, prompt = shares(told)
    faults = []
    for session in report["sessions"]:
        for answers in session["answers"]:
            faults += _differ("responses", answers, {"prompt_tokens": prompt, "cached_tokens": cached})
        if session["counters"]:
            sums = {k: sum(c[k] or 0 for c in session["counters"]) for k in ("prompt_tokens", "computed")}
            faults += _differ("counters", sums, {"prompt_tokens": prompt, "computed": prompt - cached})
        busy = [p for p in session["periods"] if p["busy"] and p["computed_tokens"] is not None]
        logged, within = sum(p["computed_tokens"] for p in busy), sum(p["within"] for p in busy)
        if busy and abs(logged - (prompt - cached)) > within:
            faults.append(f"the log gives {logged} +- {within} computed tokens, the responses {prompt - cached}")
    return faults


def _differ(source: str, found: dict[str, Any], truth: dict[str, int]) -> list[str]:
    return [
        f"{source}: {name} is {found[name]}, the server's responses say {true}"
        for name, true in truth.items()
        if found[name] != true
    ]
