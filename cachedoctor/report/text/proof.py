"""The lines that prove a finding: whole, with what each shows; or each in a row. Knows Evidence and Page only."""

from __future__ import annotations

from rich.cells import cell_len

from cachedoctor.model import Evidence, Finding
from cachedoctor.report.text import quote
from cachedoctor.report.text.page import Page
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
    room = page.width - len(head)
    found = quote.one_row(line.text, max(room, 8), page.ascii_only)
    before, token, after = found.text[: found.start], found.text[found.start : found.end], found.text[found.end :]
    page.row((head, style if is_primary else GUTTER), before, (token, f"{style} underline"), after)
    label, tint = (f"^ {line.label}", style) if is_primary else (f"- {line.label}", "")
    # the caret stands below the token that changed, where the words behind it have room
    at = cell_len(before) if is_primary and cell_len(before) + len(label) <= room else 0
    page.facts([" " * (len(head) + at), (label[:2], tint or GUTTER)], label[2:], len(head) + at + 2)
