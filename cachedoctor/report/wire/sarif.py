"""The report as SARIF 2.1.0, the format in which code scanning takes findings."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import IO, Any
from urllib.parse import quote

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Evidence, Finding, InputInfo, NotEvaluated, Report, RuleInfo
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance
from cachedoctor.report.markdown.markdown_safe import code, fenced, prose
from cachedoctor.report.report_view import FindingView, ReportView
from cachedoctor.report.text.text_safe import cut, visible
from cachedoctor.report.words import do_now
from cachedoctor.report.words.numbers import capital
from cachedoctor.report.words.remarks import filtered, switched_off

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "cachedoctorCause/v1"
GITHUB_FINGERPRINT = "primaryLocationLineHash"
"""The only key by which GitHub recognises two results as the same; without it, the text of the line would be
compared."""

_SNIPPET = 400
"""Cells: a log line may be a megabyte."""
_DRIVE = late(r"[A-Za-z]:[\\/]")


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write one run with a result per finding."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report, look)]}
    out.write(msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n")


def _run(report: Report, look: Appearance) -> dict[str, Any]:
    findings = report.findings
    index = {rule.code: at for at, rule in enumerate(report.rules)}
    remedied: dict[str, Finding] = {}
    for finding in findings:
        remedied.setdefault(finding.code, finding)
    driver = {
        "name": "cachedoctor",
        "version": visible(report.tool_version),
        "rules": [_rule(rule, remedied.get(rule.code), look.pages) for rule in report.rules],
    }
    marked = zip(ReportView(report).findings, fingerprints(findings, report.inputs), strict=True)
    return {
        "tool": {"driver": driver},
        "invocations": [_invocation(report, index)],
        "artifacts": [_artifact(info) for info in report.inputs],
        "results": [_result(one, mark, index, report) for one, mark in marked],
    }


# ---- rules


def _rule(rule: RuleInfo, finding: Finding | None, pages: str | None) -> dict[str, Any]:
    """A rule; its help is what the first, costliest finding advises."""
    more, summary = f"cachedoctor explain {visible(rule.code)}", visible(rule.summary)
    plain, rich = [], []
    for remedy in do_now.remedies(finding) if finding is not None else ():
        words, commands = do_now.sentences(remedy), [visible(command) for command in remedy.commands]
        plain.append("\n".join([visible(words), *(f"    {command}" for command in commands)]))
        rich.append("\n\n".join([f"- {prose(words)}", *([fenced(commands, "sh", "  ")] if commands else ())]))
    out: dict[str, Any] = {
        "id": visible(rule.code),
        "name": visible(rule.name),
        "shortDescription": {"text": message_text(f"{summary}.")},
        "fullDescription": {"text": message_text(f"{summary}. The page of this rule: {more}")},
        "help": {
            "text": message_text("\n".join([*plain, f"More: {more}"])),
            "markdown": "\n\n".join([*rich, f"More: {code(more)}"]),
        },
    }
    if pages is not None:
        out["helpUri"] = pages + quote(rule.url)
    return out


# ---- results


def _result(one: FindingView, mark: str, index: dict[str, int], report: Report) -> dict[str, Any]:
    finding, primary = one.finding, one.finding.primary
    related = [e for e in finding.evidence if e is not primary]
    path = finding.path or (report.inputs[0].path if report.inputs else "-")
    out: dict[str, Any] = {"ruleId": visible(finding.code)}
    if finding.code in index:
        out["ruleIndex"] = index[finding.code]
    return out | {
        "level": finding.severity,
        "message": {"text": message_text(_claim_and_fix(one))},
        "locations": [_location(primary) if primary is not None else _start(path)],
        "relatedLocations": [{"id": at, **_location(e)} for at, e in enumerate(related, 1)],
        "partialFingerprints": {FINGERPRINT: mark, GITHUB_FINGERPRINT: mark},
        "occurrenceCount": max(finding.count, 1),
        "properties": {
            "confidence": finding.confidence,
            "requests": finding.count,
            "recomputedTokens": finding.cost.tokens,
            "recomputedMs": finding.cost.ms,
            "stillPossible": [visible(other.name) for other in finding.still_possible],
            "server": None if finding.origin is None else visible(finding.origin),
        },
    }


def fingerprints(findings: list[Finding], inputs: list[InputInfo]) -> list[str]:
    """Give every finding its fingerprint, in their order; they are quoted, so that a stored report has the same.

    It stands for the rule, the cause within the rule, and the server that the wrapper names: not for lines, counts,
    sessions, and not for the name of the log, which rotates and lies elsewhere on another machine. Where several inputs
    of one report have the same finding, those after the first, in the order of the inputs, carry a number.
    """
    place = {info.path: at for at, info in reversed(list(enumerate(inputs)))}
    order = sorted(enumerate(findings), key=lambda f: place.get(f[1].path or "", len(place)))
    found: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for at, finding in order:
        cause = _cause(finding)
        seen[cause] += 1
        found[at] = cause if seen[cause] == 1 else f"{cause}:{seen[cause]}"
    return [found[at] for at in range(len(found))]


def _cause(finding: Finding) -> str:
    parts = (finding.code, finding.name, finding.key, finding.origin or "")
    # The length of each part keeps "a" + "bc" apart from "ab" + "c".
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _claim_and_fix(one: FindingView) -> str:
    """The claim, the fix with its commands, what it cost."""
    rows = [f"{visible(capital(one.finding.claim))}."]
    for at, step in enumerate(one.steps):
        first, *others = map(visible, step.rows())
        rows += [f"{'Or' if at and step.kind == 'fix' else capital(step.kind)}: {first}", *others]
    rows += [f"Cost: {visible(one.cost)}."] if one.cost else []
    return "\n".join(rows)


def message_text(text: str) -> str:
    """Escape what means something in the text of a message: placeholders in braces, links in brackets."""
    return text.replace("{", "{{").replace("}", "}}").replace("](", "\\](")


def _location(evidence: Evidence) -> dict[str, Any]:
    region = {"startLine": evidence.line, "snippet": {"text": cut(evidence.text, _SNIPPET)}}
    place = {"artifactLocation": {"uri": uri(evidence.path)}, "region": region}
    return {"physicalLocation": place, "message": {"text": message_text(visible(evidence.label))}}


def _start(path: str) -> dict[str, Any]:
    """The first line of an input, if no line belongs to a finding; GitHub accepts no result without a location."""
    return {"physicalLocation": {"artifactLocation": {"uri": uri(path)}, "region": {"startLine": 1}}}


def uri(path: str) -> str:
    """Return the address of an input: relative as it was given, ``file:`` where it was absolute."""
    if path == "-":
        return "stdin"
    if _DRIVE.match(path):
        return "file:///" + path[0] + ":" + quote(path[2:].replace("\\", "/"))
    if path.startswith("/"):
        return "file:///" + quote(path.lstrip("/"))
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return quote(path) or "."


# ---- how the run went


def _artifact(info: InputInfo) -> dict[str, Any]:
    return {
        "location": {"uri": uri(info.path)},
        "roles": ["analysisTarget", "standardStream"] if info.path == "-" else ["analysisTarget"],
        "properties": {"lines": info.lines, "recognisedLines": info.recognised},
    }


def _invocation(report: Report, index: dict[str, int]) -> dict[str, Any]:
    failed = [info for info in report.inputs if info.error is not None]
    faults = [_notice("input-failed", "error", info.error or "", locations=[_start(info.path)]) for info in failed]
    if report.filtered is not None:
        faults.append(_notice("filtered", "note", filtered(report)))
    if report.interrupted:
        faults.append(_notice("interrupted", "warning", "Interrupted: this covers the part read until then."))
    return {
        "executionSuccessful": not failed,
        "toolExecutionNotifications": faults,
        "toolConfigurationNotifications": [
            *(_open(left, index) for left in report.not_evaluated),
            *([_notice("switched-off", "note", switched_off(report.ignored))] if report.ignored else ()),
        ],
    }


def _open(left: NotEvaluated, index: dict[str, int]) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": visible(left.code)}
    if left.code in index:
        rule["index"] = index[left.code]
    enable = f"\nTo enable the check: {left.enable}" if left.enable else ""
    text = f"{left.code} {left.name} could not be checked: {left.reason}.{enable}"
    return _notice("not-evaluated", "note", text, associatedRule=rule)


def _notice(kind: str, level: str, text: str, **more: Any) -> dict[str, Any]:
    rows = "\n".join(visible(row) for row in text.split("\n"))
    return {"descriptor": {"id": kind}, "level": level, "message": {"text": message_text(rows)}, **more}
