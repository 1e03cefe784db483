"""One finding as Markdown: claim, cost, evidence, the requests, what it is not, fix; and how to see it again."""

from __future__ import annotations

import re
from urllib.parse import quote

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, RequestRow
from cachedoctor.redaction import sanitize
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.markdown.markdown_safe import code, details, fenced, prose, table
from cachedoctor.report.report_view import FindingView
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words.do_now import DoNow
from cachedoctor.report.words.numbers import capital, count
from cachedoctor.report.words.powershell import in_powershell

_FORMS = {"sh": "sh", "yaml": "yaml", "ini": "ini"}
"""Names of the forms of a fix, above its block."""
_FEW = 3
"""Requests listed for a finding: how many of the first ones, and how many of the worst."""
_LINE = 400
"""Cells of a quoted line."""
_ADDRESS = late(r"https://[A-Za-z0-9.-]+(?:/[\w./#?=&%+-]*)?", re.ASCII)
_COLUMNS = {
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "processed": "processed_tokens",
    "common prefix": "common_prefix_tokens",
    "slot held": "held_tokens",
    "lost": "lost_tokens",
}


def show(at: int, one: FindingView, rows: dict[int, RequestRow], several: bool, pages: str | None) -> list[str]:
    """Return the parts of one cause.

    Args:
        at: its number in the report.
        rows: the requests that it names, and others.
        several: whether the report is about several servers.
        pages: what comes before the address of a rule to make it a link, if anything.
    """
    finding = one.finding
    about = f"**{finding.severity}**, confidence {finding.confidence}"
    parts = [f"#### {at}. {code(finding.code)} {prose(finding.name)}", f"{about}: {prose(finding.claim)}."]
    parts += _first_fix(one.step)
    if one.servers:
        parts.append(f"On {prose(one.servers)}")
    if one.cost:
        parts.append(f"{'Cost' if finding.cost.ms is None else 'Cost in prompt time'}: {prose(one.cost)}")
    if finding.evidence:
        parts += [f"Log, {_where(finding, several)}:", fenced(_evidence(one))]
    elif finding.path is not None:
        parts.append(f"Log: {code(hidden(finding.path))}; no single line proves it.")
    if finding.diff is not None:
        parts.append("The prompts themselves were compared: text withheld.")
    if finding.why:
        parts.append(f"Why: {prose(finding.why)}")
    parts += _requests(one, rows)
    for title, others in (("Ruled out:", finding.excluded), ("Still possible:", finding.still_possible)):
        if others:
            parts.append(title)
            parts.append("\n".join(f"- {prose(other.name)}: {prose(other.why)}" for other in others))
    more = one.steps[1:]
    title = "Other fixes and references" if more else "References"
    parts.append(details(title, *_fix(more), _references(one, pages)))
    return parts


def _where(finding: Finding, several: bool) -> str:
    line = finding.evidence[0]
    place = "standard input" if line.path == "-" else code(hidden(line.path))
    return f"{place}, server {line.session + 1}" if several else place


def _evidence(one: FindingView) -> list[str]:
    """The lines, each with what it shows below; ``>`` marks the one that proves the claim."""
    wide = max(len(str(e.line)) for e in one.evidence)
    rows = []
    for line in one.evidence:
        mark, below = (">", "^") if line is one.primary else (" ", "-")
        rows.append(f"{mark} {line.line:>{wide}} | {cut(sanitize.withheld(line.text), _LINE)}")
        rows.append(f"  {'':{wide}} | {below} {line.label}")
    return rows


# ---- requests


def _dearest(finding: Finding, rows: dict[int, RequestRow]) -> list[RequestRow]:
    """Return the requests of a finding that are known, the costliest first."""
    found = [rows[number] for number in finding.requests if number in rows]
    return sorted(found, key=lambda r: (-(r.lost_tokens or 0), -(r.processed_tokens or 0), r.index))


def _requests(one: FindingView, rows: dict[int, RequestRow]) -> list[str]:
    finding = one.first
    worst = _dearest(finding, rows)
    if not worst:
        return []
    first = sorted(worst, key=lambda r: r.index)[:_FEW]
    shown = sorted({r.index: r for r in (*first, *worst[:_FEW])}.values(), key=lambda r: r.index)
    head = ["task", "slot", "lines", *_COLUMNS]
    body = [
        [str(r.task), str(r.slot), f"{r.first_line:,} to {r.last_line:,}", *(_cell(r, f) for f in _COLUMNS.values())]
        for r in shown
    ]
    left = one.finding.count - len(shown)
    more = f" (first and worst shown; {count(left, 'request')} not shown)" if left else ""
    derived = any(set(_COLUMNS.values()) & set(r.derived) for r in shown)
    note = ["\\* this value was computed from other numbers in the log"] if derived else []
    return [f"Requests, in tokens{more}:", table(head, body), *note]


def _cell(row: RequestRow, field: str) -> str:
    value: int | None = getattr(row, field)
    if value is None:
        return "unknown"
    return f"{value:,}" + ("\\*" if field in row.derived else "")


# ---- what to do


def _first_fix(step: DoNow | None) -> list[str]:
    """The first thing to do, as the other formats name it."""
    if step is None:
        return []
    if step.steps:
        return [*_formed(step, f"{capital(step.kind)}: "), *(prose(words) for words in (step.words, *step.notes))]
    return [f"{capital(step.kind)}: {prose(step.words)}", *_commands(step.commands, "sh", "")]


def _commands(rows: list[str], language: str, indent: str) -> list[str]:
    """The commands to copy, once more for PowerShell if they set the environment of a shell."""
    parts = [fenced(rows, language, indent)] if rows else []
    other = in_powershell(rows) if language == "sh" else []
    return [*parts, f"{indent}In PowerShell:", fenced(other, "powershell", indent)] if other else parts


def _formed(fix: DoNow, key: str, indent: str = "") -> list[str]:
    """What to change in the form of what starts the server, the first step after ``key``."""
    parts = []
    for at, step in enumerate(fix.steps):
        then = "Then:" if step.text == "then" else f"Then: {prose(step.text)}"
        parts.append(f"{indent}{then}" if at else f"{key}{prose(step.text)}")
        parts += _commands(step.commands, _FORMS.get(step.form, ""), indent)
    return parts


def _fix(others: list[DoNow]) -> list[str]:
    parts = []
    for other in others:
        if other.steps:
            parts += _formed(other, f"- {prose(other.text)} ", "  ")
            continue
        parts.append(f"- {prose(other.words)}")
        parts += _commands(other.commands, "sh", "  ")
    return parts


def _references(one: FindingView, pages: str | None) -> str:
    rows = [f"- <{r}>" if _ADDRESS.fullmatch(r) else f"- {code(r)}" for r in one.finding.references]
    if pages is not None and one.url is not None:
        rows.append(f"- [page of this rule]({pages}{quote(one.url)})")
    else:
        rows.append(f"- {code(f'cachedoctor explain {one.finding.code}')}")
    return "\n".join(rows)


def reproduce(findings: list[Finding], rows: dict[int, RequestRow]) -> list[str]:
    """Return the steps to reproduce the costliest finding, as far as the numbers of the quoted request show them."""
    for finding in findings:
        row = _quoted(finding, rows)
        if row is not None and row.prompt_tokens is not None and row.cached_tokens is not None:
            steps = "\n".join(f"{at}. {step}" for at, step in enumerate(_steps(row), 1))
            return [
                "### How to reproduce",
                f"Steps for {code(finding.code)}, task {row.task}, as far as the log shows them:",
                steps,
            ]
    return []


def _quoted(finding: Finding, rows: dict[int, RequestRow]) -> RequestRow | None:
    """Return the request from which most of the quoted lines are."""
    lines = [(e.path, e.line) for e in finding.evidence]
    return max(
        _dearest(finding, rows),
        key=lambda r: sum(path == r.path and r.first_line <= line <= r.last_line for path, line in lines),
        default=None,
    )


def _steps(row: RequestRow) -> list[str]:
    prompt, cached = row.prompt_tokens or 0, row.cached_tokens or 0
    steps = ["Start this llama-server version with a model of this kind and the settings above."]
    before = row.reference_tokens if row.turn and row.reference_tokens != row.held_tokens else None
    if before:
        steps.append(f"Send the earlier turns of a conversation: {count(before, 'token')}, including the last reply.")
    if row.held_tokens:
        other = "other prompts" if before else "prompts"
        steps.append(f"Send {other} until slot {row.slot} contains {count(row.held_tokens, 'token')}.")
    same = ""
    if row.common_prefix_tokens is not None:
        about = "about the first " if "common_prefix_tokens" in row.bounds else "the first "
        same = f", of which {about}{row.common_prefix_tokens:,} match the slot's content"
    turn = "the next turn of the earlier conversation, " if before else ""
    steps.append(f"Send {turn}a prompt of {count(prompt, 'token')}{same}.")
    if row.expected_cached is not None and row.expected_cached != cached:
        steps.append(f"Expected with this version: {count(row.expected_cached, 'token')} reused.")
    done = "unknown" if row.processed_tokens is None else f"{row.processed_tokens:,}"
    steps.append(f"The log shows: {cached:,} tokens reused, {done} computed.")
    return steps
