"""Reports for the tests of formats: of every bundled case, of odd inputs, and with hostile text in every field."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import CASES, content_of, given_of, json_of, prompts_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.report.base import Appearance, FormatName, write
from cachedoctor.report.wire.stored import read

FINDINGS = "checkpoint-evicted-three-depths-b8672"
"""A case with two findings of three requests each."""
TEXTS = (
    "billing-header-hybrid",
    "requests-timestamp",
    "requests-tail-differs-swa",
    FINDINGS,
    "wrapped-compose-two-services",
)
"""Cases with printed prompts, prompts given beside the log, several findings, several servers."""


def case_named(name: str) -> Path:
    (found,) = (folder for folder in CASES if folder.name == name)
    return found


def report_of_case(folder: Path, path: str = "server.log") -> Report:
    analyzer = Analyzer(prompts=prompts_of(folder), given=given_of(folder))
    analyzer.open(path)
    analyzer.feed(content_of(folder))
    return analyzer.finish()


def written(name: FormatName | str, report: Report, look: Appearance | None = None) -> bytes:
    out = io.BytesIO()
    write(name, report, out, look or Appearance())  # type: ignore[arg-type]
    return out.getvalue()


def _of(*logs: tuple[str, bytes], interrupted: bool = False) -> Report:
    analyzer = Analyzer()
    for path, data in logs:
        analyzer.open(path)
        analyzer.feed(data)
    return analyzer.finish(interrupted)


def _failed() -> Report:
    report = _of(("gone.log", b""), ("server.log", content_of(case_named(FINDINGS))))
    report.inputs[0].error = "gone.log: cannot be read: No such file or directory"
    return report


def _nowhere() -> Report:
    """Findings of an older version: they do not name their input."""
    data = json.loads(json_of([content_of(case_named("option-unknown-hybrid-b9294"))]))
    for finding in data["findings"]:
        for field in ("path", "origin", "key"):
            del finding[field]
    return read(json.dumps(data).encode(), "report.json")


ODD: dict[str, Callable[[], Report]] = {
    "no input": _of,
    "empty input": lambda: _of(("server.log", b"")),
    "something else": lambda: _of(("a.log", b"GET / HTTP/1.1 200\n" * 9), ("b.log", b"GET / HTTP/1.1 200\n" * 9)),
    "no findings": lambda: report_of_case(case_named("healthy-dense-b6301")),
    "no evidence": lambda: report_of_case(case_named("option-unknown-hybrid-b9294")),
    "an older version": _nowhere,
    "several servers": lambda: report_of_case(case_named("server-restarted-b9713")),
    "several inputs": lambda: _of(*((f"{n}/server.log", content_of(case_named(FINDINGS))) for n in range(3))),
    "unknown build": lambda: report_of_case(case_named("no-timestamps-b11549")),
    "interrupted": lambda: _of(("-", content_of(case_named(FINDINGS))[:20_000]), interrupted=True),
    "a failed input": _failed,
}
"""What a format must be able to write."""


def poisoned(text: str) -> Report:
    """A report in which every text that may come from a log, a path or a stored report is ``text``."""
    data = json.loads(json_of([content_of(case_named(FINDINGS))]))
    data["tool"]["version"] = text
    data["inputs"] += [{**data["inputs"][0], "path": text, "error": text}]
    data["restart"] = {"command": text, "text": text, "codes": [text]}
    for session in data["sessions"]:
        session |= dict.fromkeys(("path", "origin", "engine", "model", "memory"), text) | {"memory": "hybrid"}
        session["settings"] |= {"arch": {"value": text, "line": 1}, text: {"value": text, "line": None}}
    for at, request in enumerate(data["requests"]):
        request |= {"path": text, "selected_by": text, "codes": [text]} | {"task": at}
    for number, finding in enumerate(data["findings"]):
        finding |= dict.fromkeys(("name", "claim", "why", "path", "origin", "key"), text)
        finding["code"] = f"CD10{number + 1}"
        finding["diff"] = _difference(text)
        finding["ruled_out"] = [{"name": text, "why": text}]
        finding["remedies"] = [{"text": text, "commands": [text, text]}]
        finding["references"] = [text]
        for evidence in finding["evidence"]:
            evidence |= dict.fromkeys(("path", "text", "label"), text)
    data["not_evaluated"] = [dict.fromkeys(("code", "name", "reason", "enable"), text)]
    data["rules"] += [dict.fromkeys(("code", "name", "summary", "url"), text)]
    return read(json.dumps(data).encode(), "report.json")


def _difference(text: str) -> dict[str, Any]:
    side = {"path": text, "kind": text, "chars": 1, "tokens": 1}
    first = {"token": 1, "char": 1, "line": 1, "column": 1, "advice": [{"text": text, "commands": [text]}]}
    first |= dict.fromkeys(("place", "kind", "field", "a", "b"), text)
    return {"a": side, "b": side, "first": first, "common_prefix_tokens": 1, "exact": False}
