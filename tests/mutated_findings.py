"""A pytest plugin of scripts/mutants: spoils one part of the findings of one rule, and asks whether a test notices.

Collects once, then forks for each mutant: the child runs the cases that state the rule, until one fails.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from conftest import Analyzer, case_of

from cachedoctor.diagnosis.rules import registry
from cachedoctor.model import Evidence, Finding, Report


def _claim(finding: Finding) -> None:
    finding.claim = "x"


def _why(finding: Finding) -> None:
    finding.why = "x"


def _fix(finding: Finding) -> None:
    finding.remedies = []


def _cost(finding: Finding) -> None:
    finding.cost.tokens = 1 if finding.cost.tokens == 0 else finding.cost.tokens // 2


def _confidence(finding: Finding) -> None:
    finding.confidence = "low" if finding.confidence == "high" else "high"


def _severity(finding: Finding) -> None:
    finding.severity = "note" if finding.severity == "warning" else "warning"


def _evidence(finding: Finding) -> None:
    first = Evidence(finding.path or "", 0, 1, "x", "primary", "x")
    finding.evidence = [] if finding.evidence else [first]


PARTS: dict[str, dict[str, Callable[[Finding], None]]] = {
    "words": {"claim": _claim, "why": _why, "fix": _fix},
    "rules": {"cost": _cost, "confidence": _confidence, "severity": _severity, "evidence": _evidence},
}
"""What is spoilt, by class of mutants."""


def _spoil(code: str, part: Callable[[Finding], None]) -> None:
    """Spoil the findings of this rule in every report that is made from now on."""
    finish = Analyzer.finish

    def spoilt(self: Analyzer, *args: Any, **kwargs: Any) -> Report:
        report = finish(self, *args, **kwargs)
        for finding in report.findings:
            if finding.code == code:
                part(finding)
        return report

    Analyzer.finish = spoilt  # type: ignore[method-assign]


def _stated(item: pytest.Item) -> set[str]:
    """Codes that the case of a test states; none for a test without a case."""
    case = item.callspec.params.get("case") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    known = case_of(case) if isinstance(case, Path) else case or {}
    return {entry.split()[0] for entry in known.get("expect", ())}


def _notices(items: list[pytest.Item]) -> bool:
    return any(report.failed for item in items for report in runtestprotocol(item, log=False))


def _nothing(_: Finding) -> None:
    """Leave a finding as it is: what every test has to pass."""


def _killed(code: str, part: Callable[[Finding], None], items: list[pytest.Item]) -> bool:
    """Whether one of the tests fails in a child whose reports are spoilt."""
    child = os.fork()
    if not child:
        status = 2
        try:
            _spoil(code, part)
            status = int(_notices(items))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise pytest.UsageError(f"{code}: the child ended with {status}")
    return status == 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Write ``killed NAME`` or ``survived NAME`` for each mutant of the class in MUTANTS into the file MUTANTS_OUT.

    MUTANTS_OF has what their rules' files are called, or a part of that: ``cd108``.
    """
    stated = [(item, _stated(item)) for item in session.items]
    if _killed("", _nothing, session.items):
        raise pytest.UsageError("a test fails without a mutant")
    with open(os.environ["MUTANTS_OUT"], "w", encoding="utf-8") as out:
        for code in (name[:5].upper() for name in registry.modules() if os.environ["MUTANTS_OF"] in name):
            items = [item for item, codes in stated if code in codes]
            for name, part in PARTS[os.environ["MUTANTS"]].items():
                verdict = "killed" if items and _killed(code, part, items) else "survived"
                out.write(f"{verdict} {code} {name}\n")
                out.flush()
    return True
