"""One cause on many servers is one cause."""

from __future__ import annotations

import json

from command import run
from conftest import FIXTURES

from cachedoctor.model import Cost, Finding, causes


def finding(code: str, path: str, tokens: int, ms: float | None, **changes: object) -> Finding:
    fields: dict[str, object] = {
        "code": code, "name": "a-name", "severity": "warning", "confidence": "medium", "claim": "", "requests": [],
        "count": 2, "evidence": [], "cost": Cost(tokens, ms), "why": "", "ruled_out": [], "diff": None, "remedies": [],
        "references": [], "path": path,
    }  # fmt: skip
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def test_findings_of_one_cause_are_put_together() -> None:
    """The highest severity and confidence, every server once, and sums; unknown times are left out."""
    found = causes([
        finding("CD101", "b.log", 900, 90.0, severity="error"),
        finding("CD303", "a.log", 500, None),
        finding("CD101", "a.log", 100, None, confidence="high"),
        finding("CD101", "a.log", 10, 1.5, origin="llama-1"),
    ])  # fmt: skip
    assert [(c.code, c.findings, c.servers, c.count, c.tokens, c.ms) for c in found] == [
        ("CD101", [0, 2, 3], ["b.log", "a.log", "llama-1"], 6, 1010, 91.5),
        ("CD303", [1], ["a.log"], 2, 500, None),
    ]
    assert (found[0].severity, found[0].confidence) == ("error", "high")


def test_a_code_with_several_causes_is_not_put_together() -> None:
    found = causes([finding("CD408", "a.log", 1, None, key="one"), finding("CD408", "b.log", 1, None, key="two")])
    assert [c.servers for c in found] == [["a.log"], ["b.log"]]


def test_the_report_of_several_servers_names_them() -> None:
    logs = [FIXTURES / "cases" / name / "server.log" for name in ("billing-header-hybrid", "billing-header-swa-b9713")]
    data = json.loads(run("analyze", *logs, "-f", "json").stdout)
    (first, *_) = data["causes"]
    assert (first["code"], first["servers"], first["tokens"]) == ("CD101", [str(log) for log in logs], 5912 * 2)
    assert sorted(at for cause in data["causes"] for at in cause["findings"]) == list(range(len(data["findings"])))
