"""One fault: how it is made, what cachedoctor must call it, and how its printed remedies are tried one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e import models
from e2e.client import Client, Probe
from e2e.remedy import Action, NotMechanicalError, Setup, actions, applied
from e2e.server import Server

SEVERITIES = ["note", "warning", "error"]


class NotAsClaimedError(Exception):
    """A demand of a case was not met; the message says which, with the numbers."""


@dataclass(frozen=True)
class Case:
    """A fault of a server or its client, made on purpose."""

    name: str
    finding: str
    """What must stand first in the report."""
    setup: Setup
    """The faulty server and client."""
    traffic: Callable[[Client], None]
    severity: str = "warning"
    """The finding is at least this severe."""
    leads: tuple[str, ...] = ()
    """What must stand first before, each time with a remedy that only shows more; it is followed."""
    words: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Phrases of remedies without a command, and the habits of a client that does what they say."""
    remains: tuple[str, ...] = ()
    """What the traffic deserves even from a fixed server, such as history-rewritten for messages that are edited."""
    known: str = ""
    """Why this case fails today. It is reported as known, and fails when it is fixed without removing this."""
    untried: Mapping[str, str] = field(default_factory=dict)
    """Phrases of remedies that this case cannot try, and why."""


@dataclass
class Played:
    """What one run of a case's traffic left."""

    probes: list[Probe]
    findings: list[dict[str, Any]]

    @property
    def first(self) -> str:
        return str(self.findings[0]["name"]) if self.findings else "nothing"

    @property
    def numbers(self) -> str:
        return "; ".join(str(probe) for probe in self.probes)


def play(case: Case, setup: Setup, folder: Path) -> Played:
    """Start the server of ``setup``, send the case's traffic, stop, and let cachedoctor read the log."""
    folder.mkdir()
    log, model = folder / "server.log", folder.parent / f"{setup.model}.gguf"
    if not model.exists():
        models.KINDS[setup.model]().save(model)
    with Server(setup.build, model, list(setup.options), dict(setup.server_env), log) as server:
        client = Client(server, dict(setup.client_env), dict(setup.habits))
        case.traffic(client)
    done = subprocess.run(
        [sys.executable, "-m", "cachedoctor", "analyze", str(log), "--format", "json"], capture_output=True, check=False
    )
    if done.returncode:
        raise NotAsClaimedError(f"cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    return Played(client.probes, json.loads(done.stdout)["findings"])


def run(case: Case, folder: Path) -> Iterator[str]:
    """Make the fault, have it named, apply each remedy alone, play again; yields what was seen."""
    setup, step = case.setup, 0
    for lead in case.leads:
        shown = play(case, setup, folder / f"lead{step}")
        action = _looking(_named(lead, "note", shown))
        yield f"{lead} -> {action}"
        setup, step = applied(action, setup, case.words), step + 1
    before = play(case, setup, folder / "before")
    finding = _named(case.finding, case.severity, before)
    if all(probe.cured for probe in before.probes):
        raise NotAsClaimedError(f"{case.finding} is named, but the server lost nothing: {before.numbers}")
    yield f"{case.finding} ({finding['severity']}, {finding['confidence']}) {before.numbers}"
    cures = list(_tried(case, finding, setup))
    if not cures:
        raise NotAsClaimedError(f"no remedy of {case.finding} can be applied: {[str(a) for a in actions(finding)]}")
    failed = []
    for number, (action, cure) in enumerate(cures):
        after = play(case, cure, folder / f"after{number}")
        fault = _not_cured(case, after)
        yield f"  {'NOT CURED by' if fault else 'cured by'} {action} (b{cure.build}): {after.numbers}"
        failed += [f"{action}: {fault}"] if fault else []
    if failed:
        raise NotAsClaimedError("\n".join(failed))


def _named(finding: str, severity: str, played: Played) -> dict[str, Any]:
    """Return the first finding if it is the expected one and severe enough."""
    if played.first != finding:
        named = [f["name"] for f in played.findings]
        raise NotAsClaimedError(f"expected {finding} first, the report has {named}; {played.numbers}")
    first = played.findings[0]
    if SEVERITIES.index(first["severity"]) < SEVERITIES.index(severity):
        raise NotAsClaimedError(f"{finding} is only a {first['severity']}: {first['claim']}")
    return first


def _looking(finding: dict[str, Any]) -> Action:
    """Return the first remedy of a finding that makes the server's log show more."""
    for action in actions(finding):
        if action.looks and action.command and "llama-server" in action.command:
            return action
    raise NotAsClaimedError(f"{finding['name']} does not say how to see more")


def _tried(case: Case, finding: dict[str, Any], setup: Setup) -> Iterator[tuple[Action, Setup]]:
    """Every remedy of the finding that a program can apply, and what becomes of the setup."""
    for action in actions(finding):
        if action.looks or any(phrase in str(action) for phrase in case.untried):
            continue
        try:
            cure = applied(action, setup, case.words)
        except NotMechanicalError:
            continue
        if cure != setup:
            yield action, cure


def _not_cured(case: Case, after: Played) -> str | None:
    """Say what is still wrong after a remedy, or nothing."""
    if missed := [str(probe) for probe in after.probes if not probe.cured]:
        return f"still recomputed: {'; '.join(missed)}"
    if left := [f["name"] for f in after.findings if _is_left(case, f)]:
        return f"still reported: {', '.join(left)}"
    return None


def _is_left(case: Case, finding: dict[str, Any]) -> bool:
    """Whether a fixed server must not have this finding."""
    name = finding["name"]
    return name == case.finding or (finding["severity"] != "note" and name not in case.remains)
