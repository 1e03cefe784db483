"""A comparison as text, markdown and JSON (``cachedoctor.compare/1``, frozen).

Knows Comparison and the forms. Knows nothing of how a number came about.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import ComparedSide, Comparison, Difference, Direction, FindingChange, Measure
from cachedoctor.model.tool import Tool
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.markdown.markdown_safe import cell, code, prose, table
from cachedoctor.report.secrets import hidden
from cachedoctor.report.text import text_table
from cachedoctor.report.text.page import Page
from cachedoctor.report.words import compare_words as words
from cachedoctor.report.words.table_parts import Heading, Row

Form = Literal["text", "json", "markdown"]
FORMATS: tuple[Form, ...] = get_args(Form)
_HEADINGS = [Heading("before"), Heading("after"), Heading("difference"), Heading("95 % interval")]


class CompareDocument(msgspec.Struct):
    """Two reports side by side. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.compare/1"]
    tool: Tool
    before: ComparedSide
    after: ComparedSide
    verdict: Direction
    why: str
    measures: list[Measure]
    findings: list[FindingChange]
    differences: list[Difference]


def write(form: Form, shown: Comparison, out: IO[bytes], look: Look) -> None:
    """Write the comparison in one of the forms."""
    forms: dict[Form, Callable[[Comparison, Look], bytes]] = {"text": _text, "json": _json, "markdown": _markdown}
    out.write(forms[form](sanitize.comparison(shown), look))


def _json(shown: Comparison, _: Look) -> bytes:
    tool = Tool("cachedoctor", shown.tool_version)
    document = CompareDocument(
        "cachedoctor.compare/1", tool, shown.before, shown.after, shown.verdict, shown.why, shown.measures,
        shown.findings, shown.differences,
    )  # fmt: skip
    return msgspec.json.encode(document) + b"\n"


# ---- text


def _text(shown: Comparison, look: Look) -> bytes:
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    for key, side in (("before", shown.before), ("after", shown.after)):
        name, *others = words.side(side)
        page.row((f"{key:<10}", "bold"), name)
        for other in others:
            page.prose([" " * 10], other, 10)
    for at, found in enumerate(shown.differences):
        key = "differ in" if not at else ""
        caveat = f" ({found.caveat})" if found.caveat else ""
        page.prose([(f"{key:<10}", "bold")], f"{found.name}: {found.before} -> {found.after}{caveat}", 10)
    page.gap()
    text_table.show(page, "", _HEADINGS, [Row(words.label(m), words.cells(m)) for m in shown.measures])
    page.gap()
    for change in shown.findings:
        _finding(page, change)
    if not shown.findings:
        page.prose([], "No findings on either side.", 0)
    page.gap()
    style = {"better": "green", "worse": "red"}.get(shown.verdict, "")
    page.prose([], words.verdict(shown), 2, style)
    return look.encode(text.getvalue())


def _finding(page: Page, shown: FindingChange) -> None:
    head = f"{words.CHANGES[shown.change]}: "
    page.prose([(head, "bold"), f"{shown.code} {shown.name}: "], words.finding(shown), 2)
    if shown.note:
        page.prose(["  "], words.note(shown), 4)
    if shown.enable:
        # A command stands on a row of its own, so that it can be copied.
        advice, *commands = shown.enable.split("\n")
        page.prose(["  ", ("to see it: ", "bold")], advice, 4)
        for command in commands:
            page.row("    ", (command, "green"))


# ---- markdown


def _markdown(shown: Comparison, _: Look) -> bytes:
    parts = [f"**{prose(words.verdict(shown))}**"]
    sides = []
    for key, side in (("before", shown.before), ("after", shown.after)):
        name, *others = (hidden(text) for text in words.side(side))  # it is made to be published
        sides += [f"- {key}: {code(name)}", *(f"  - {prose(other)}" for other in others)]
    parts.append("\n".join(sides))
    measures = [[words.label(m), *words.cells(m)] for m in shown.measures]
    parts.append(table(["measure", *(heading.name for heading in _HEADINGS)], measures, 1))
    if shown.findings:
        rows = [[f"{c.code} {c.name}", words.CHANGES[c.change], words.finding(c), _more(c)] for c in shown.findings]
        parts.append(_words(["finding", "change", "requests and cost", "note"], rows))
    if shown.differences:
        rows = [[d.name, d.before, d.after, d.caveat] for d in shown.differences]
        parts.append(_words(["differs", "before", "after", "caveat"], rows))
    return ("\n\n".join(parts) + "\n").encode("utf-8", "backslashreplace")


def _words(head: list[str], rows: list[list[str]]) -> str:
    return table(head, [[cell(text) if text else "" for text in row] for row in rows], len(head))


def _more(change: FindingChange) -> str:
    enable = " ".join(change.enable.split())
    return f"{words.note(change)}{f' To see it: {enable}' if enable else ''}"
