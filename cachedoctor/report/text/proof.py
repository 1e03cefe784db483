"""The lines that prove a finding: whole, with what each shows; or each in a row. Knows Evidence and Page only."""

from __future__ import annotations

from rich.cells import cell_len

from cachedoctor.model import Evidence, Finding
from cachedoctor.report.text import quote
from cachedoctor.report.text.page import Page, Part
from cachedoctor.report.text.palette import GUTTER, SEVERITY

_MOST = 3
"""Lines in the short form: the one that proves it, and those next to it in its file."""


def location(path: str, line: int | None = None) -> str:
    """Name a place as editors and terminals find it, ``path:line``."""
    name = "<stdin>" if path == "-" else path
    return name if line is None else f"{name}:{line}"


def _ordered(finding: Finding) -> tuple[Evidence, list[Evidence]]:
    """The line that proves it, and all lines in the order of the log, its file first."""
    primary = finding.primary or finding.evidence[0]
    return primary, sorted(finding.evidence, key=lambda e: (e.path != primary.path, e.path, e.line))


def whole(page: Page, finding: Finding, where: str = "") -> None:
    """Write every line; the one that proves the claim has ``>`` before and ``^`` below it.

    ``where``: which server of the input, when there are several.
    """
    primary, lines = _ordered(finding)
    style = SEVERITY[finding.severity]
    wide = max(len(str(e.line)) for e in lines)
    blank = " " * (wide + 2)
    page.row((f"{' ' * wide}--> ", GUTTER), location(primary.path, primary.line), f" ({where})" if where else "")
    page.row((f"{blank} |", GUTTER))
    for line in lines:
        if line.path != primary.path:
            page.row((f"{' ' * wide}::: ", GUTTER), location(line.path, line.line))
        mark, below, tint = (">", "^ ", style) if line is primary else (" ", "- ", GUTTER)
        gutter = (f"{blank} | ", GUTTER)
        page.excerpt([(f"{mark} {line.line:>{wide}} | ", tint)], [gutter], line.text, page.width - wide - 5)
        page.prose([gutter, (below, tint)], line.label, wide + 7, style if line is primary else "")
    page.row((f"{blank} |", GUTTER))


def place(page: Page, finding: Finding, key: str, more: str, where: str = "") -> None:
    """Write where to look, and what else is claimed; arguments as of ``short``."""
    primary = finding.primary or finding.evidence[0]
    shown = quote.path(location(primary.path, primary.line), page.width - len(key), page.ascii_only)
    shown += f" ({where})" if where else ""
    page.facts([(key, "bold")], f"{shown}: {more}" if more else shown, len(key))


def short(page: Page, finding: Finding, key: str, more: str, where: str = "") -> None:
    """Write where to look, and a row for each of the first lines; the token that changed is marked.

    Args:
        key: what stands before the first row, as wide as the rows below it are indented.
        more: what else is claimed.
        where: which server of the input, when there are several.
    """
    primary, lines = _ordered(finding)
    indent = len(key)
    place(page, finding, key, more, where)
    same = [line for line in lines if line.path == primary.path]
    near = sorted(same, key=lambda e: (e is not primary, abs(e.line - primary.line)))[:_MOST]
    wide = max(len(str(e.line)) for e in near)
    for line in same:
        if line in near:
            _row(page, line, line is primary, indent, wide, SEVERITY[finding.severity])


def _row(page: Page, line: Evidence, is_primary: bool, indent: int, wide: int, style: str) -> None:
    head = f"{' ' * indent}{line.line:>{wide}}  "
    room = max(page.width - len(head), 8)
    tint = style if is_primary else GUTTER
    # what a line beside the proof shows stands behind it, where both have room
    beside = 0 if is_primary else cell_len(line.label) + 4
    if beside and beside <= room // 2:
        found = quote.one_row(line.text, room - beside, page.ascii_only)
        page.row((head, tint), *_marked(found, style), ("  - ", tint), line.label)
        return
    found = quote.one_row(line.text, room, page.ascii_only)
    page.row((head, tint), *_marked(found, style))
    # the caret stands below the token that changed, where the words behind it have room
    before = cell_len(found.text[: found.start])
    at = before if is_primary and before + 2 + cell_len(line.label) <= room else 0
    mark = "^ " if is_primary else "- "
    page.facts([" " * (len(head) + at), (mark, tint)], line.label, len(head) + at + 2)


def _marked(found: quote.Quote, style: str) -> list[Part]:
    """The parts of a row, the token that changed underlined."""
    before, token, after = found.text[: found.start], found.text[found.start : found.end], found.text[found.end :]
    return [before, (token, f"{style} underline"), after]
