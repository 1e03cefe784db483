"""Lint as SARIF 2.1.0 and as annotations of GitHub Actions, by the escapes of the reports. Knows Lint only."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import IO, Any

import msgspec

from cachedoctor.model import Advice, Lint, LintError, LintHint
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.wire import github, sarif
from cachedoctor.report.words import lint_words


def write_sarif(shown: Lint, out: IO[bytes]) -> None:
    """Write one run with a result for each error and hint, and for each answer about a template that is no."""
    results = [_error(error, shown.exact) for error in shown.errors] + [_hint(hint) for hint in shown.hints]
    results += [
        _result(answer.name, "warning", f"{answer.question} No: {answer.words}", "template", None)
        for answer in shown.template
        if answer.verdict == "no"
    ]
    kinds = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = kinds.index(result["ruleId"])
    driver = {
        "name": "cachedoctor lint",
        "version": visible(shown.tool.version),
        "rules": [_rule(kind) for kind in kinds],
    }
    run = {"tool": {"driver": driver}, "results": results}
    log = {"$schema": sarif.SCHEMA, "version": "2.1.0", "runs": [run]}
    out.write(msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n")


def _rule(kind: str) -> dict[str, Any]:
    text = {"text": f"A request does not extend the one before it, or is likely not to: {kind}."}
    return {"id": kind, "name": kind, "shortDescription": text, "help": {"text": "cachedoctor lint --help"}}


def _error(error: LintError, exact: bool) -> dict[str, Any]:
    rows = [f"{error.explanation} ({lint_words.place(error, exact)}).", f"Cost: {lint_words.cost(error, exact)}."]
    text = "\n".join([*rows, *_fixes(error.advice)])
    return _result(error.kind, "error", text, error.path, error.line)


def _hint(hint: LintHint) -> dict[str, Any]:
    return _result(hint.kind, "note", "\n".join([f"{hint.words}.", *_fixes(hint.advice)]), hint.path, None)


def _fixes(advice: list[Advice]) -> list[str]:
    return ["\n".join([f"Fix: {one.text}", *(f"    {command}" for command in one.commands)]) for one in advice]


def _result(kind: str, level: str, text: str, path: str, line: int | None) -> dict[str, Any]:
    file, _, request = path.rpartition("#")
    shown = "\n".join(visible(row) for row in text.split("\n"))
    address = "stdin" if path.startswith("<") else sarif.uri(file or path)
    place = {"artifactLocation": {"uri": address}, "region": {"startLine": line or 1}}
    mark = sha256(f"{kind} {file} {request}".encode("utf-8", "replace")).hexdigest()[:32]
    return {
        "ruleId": kind,
        "level": level,
        "message": {"text": sarif.message_text(shown)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {sarif.GITHUB_FINGERPRINT: mark},
    }


def workflow_commands(shown: Lint) -> Iterator[str]:
    """Give a workflow command for each error and hint, and a line that sums up."""
    for error in shown.errors:
        rows = [error.explanation, lint_words.place(error, shown.exact), f"cost: {lint_words.cost(error, shown.exact)}"]
        rows += [f"fix: {advice.text}" for advice in error.advice]
        yield _annotation("error", error.kind, error.path, error.line, rows)
    for hint in shown.hints:
        yield _annotation("notice", hint.kind, hint.path, None, [hint.words, *(a.text for a in hint.advice[:1])])
    for answer in shown.template:
        if answer.verdict == "no":
            yield f"::warning title={github.property_value(answer.name)}::{github.data(answer.words)}"
    yield f"cachedoctor: {lint_words.verdict(shown)}"


def _annotation(level: str, kind: str, path: str, line: int | None, rows: list[str]) -> str:
    file = path.rpartition("#")[0] or path
    place = {} if path.startswith("<") else {"file": file, "line": str(line or 1)}
    named = ",".join(f"{k}={github.property_value(v)}" for k, v in {**place, "title": kind}.items())
    return f"::{level} {named}::{'%0A'.join(map(github.data, rows))}"
