"""The lines that prove a finding, shortened to one row each or whole, with what each shows."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Evidence
from cachedoctor.report.report_view import FindingView
from cachedoctor.report.text.page import GUTTER, SEVERITY, Part, TextPage
from cachedoctor.report.text.text_safe import take, visible

_LEAD = late(
    r"(?:\(\w+ pid=\d+\) )?(?:[\d.:,-]+ )?(?:[DIWET] |(?:INFO|WARNING|ERROR|DEBUG):? )?(?:[\d-]+ [\d:]+ )?"
    r"(?:\[[\w.]+:\d+\] )?(?:(?:slot|srv|que|res|cmn) {1,4}[^:|]{0,40}: +)?(?:id +\d+ \| task -?\d+ \| )?"
)
"""Time, level, place in the source, slot: it says where the line is from, not what it says."""
_PRINTED = late(r"(?:old|new): \.\.\.")
_BAR = late(r" \| (\S{1,40})")
_DOTS = "... "


class Quote(NamedTuple):
    """A row, and where in it the token stands that changed: from, to; equal where none is known."""

    text: str
    start: int = 0
    end: int = 0


def one_row(line: str, room: int, ascii_only: bool = False) -> Quote:
    """Return ``line`` in at most ``room`` cells."""
    text = visible(line[:_QUOTE_MOST], ascii_only).strip()
    if cell_len(text) > room:
        lead = _LEAD.match(text)
        text = (_DOTS if lead is not None and lead.end() else "") + text[lead.end() if lead is not None else 0 :]
    printed = _PRINTED.search(text)
    bar = _BAR.search(text, printed.end()) if printed is not None else None
    if bar is None:
        return Quote(_middle(text, room))
    # what stands next to the bar is what matters
    end = min(bar.end(1), len(text))
    behind = take(text[end:], max(room // 4, 4)) if cell_len(text) > room else text[end:]
    before = text[: bar.start(1)]
    left = room - cell_len(text[bar.start(1) : end]) - cell_len(behind)
    if cell_len(before) > left:
        word = printed[0][:5] if printed is not None else ""
        keep = left - len(word) - len(_DOTS)
        before = f"{word}{_DOTS}{take(before[::-1], keep)[::-1]}" if keep > 8 else take(before[::-1], left)[::-1]
    return Quote(before + text[bar.start(1) : end] + behind, len(before), len(before) + end - bar.start(1))


_QUOTE_MOST = 20_000
"""Characters of a line that are checked."""


def _middle(text: str, room: int) -> str:
    """Leave the middle out of what is longer than ``room``."""
    if cell_len(text) <= room:
        return text
    head = _to_space(take(text, max((room - 5) * 2 // 3, 1)))
    tail = _to_space(take(text[::-1], max(room - 5 - cell_len(head), 0)))[::-1]
    return take(f"{head} ... {tail}", room)


def _to_space(text: str) -> str:
    """Leave out the word that is cut, unless it is most of the text."""
    kept = text.rpartition(" ")[0].rstrip()
    return kept if len(kept) > len(text) // 2 else text


def short_path(name: str, room: int, ascii_only: bool = False) -> str:
    """Return a path in at most ``room`` cells: its end says most."""
    shown = visible(name, ascii_only)
    return shown if cell_len(shown) <= room else "..." + take(shown[::-1], max(room - 3, 1))[::-1]


_PROOF_MOST = 2
"""Lines in the short form: the one that proves it, and those next to it in its file."""


def location(path: str, line: int | None = None) -> str:
    """Name a place as editors and terminals find it, ``path:line``."""
    name = "<stdin>" if path == "-" else path
    return name if line is None else f"{name}:{line}"


def whole(page: TextPage, one: FindingView) -> None:
    """Write every line; the one that proves the claim has ``>`` before and ``^`` below it."""
    primary, lines = one.primary or one.evidence[0], one.evidence
    style = SEVERITY[one.finding.severity]
    wide = max(len(str(e.line)) for e in lines)
    blank = " " * (wide + 2)
    where = f" ({one.place})" if one.place else ""
    page.row((f"{' ' * wide}--> ", GUTTER), location(primary.path, primary.line), where)
    page.row((f"{blank} |", GUTTER))
    for line in lines:
        if line.path != primary.path:
            page.row((f"{' ' * wide}::: ", GUTTER), location(line.path, line.line))
        mark, below, tint = (">", "^ ", style) if line is primary else (" ", "- ", GUTTER)
        gutter = (f"{blank} | ", GUTTER)
        page.excerpt([(f"{mark} {line.line:>{wide}} | ", tint)], [gutter], line.text, page.width - wide - 5)
        page.prose([gutter, (below, tint)], line.label, wide + 7, style if line is primary else "")
    page.row((f"{blank} |", GUTTER))


def place(page: TextPage, one: FindingView, key: str, *, is_cut: bool = False) -> None:
    """Write where to look, and what else is claimed, after ``key``; in one row where it ``is_cut``."""
    primary = one.primary or one.evidence[0]
    shown = short_path(location(primary.path, primary.line), page.width - len(key), page.ascii_only)
    shown += f" ({one.place})" if one.place else ""
    words = f"{shown}: {one.claim.more}" if one.claim.more else shown
    if is_cut:
        page.cut_row([(key, "bold")], words)
    else:
        page.facts([(key, "bold")], words, len(key))


def short(page: TextPage, one: FindingView, key: str, tight: int = 0) -> None:
    """Write where to look, and a row for each of the first lines; the token that changed is marked.

    ``key``: what comes before the first row, as wide as the rows below it are indented.
    """
    place(page, one, key, is_cut=tight > 0)
    primary = one.primary or one.evidence[0]
    same = [line for line in one.evidence if line.path == primary.path]
    near = sorted(same, key=lambda e: (e is not primary, abs(e.line - primary.line)))[: _PROOF_MOST if tight < 3 else 1]
    wide = max(len(str(e.line)) for e in near)
    for line in same:
        if line in near:
            _row(page, line, line is primary, len(key), wide, SEVERITY[one.finding.severity])


def _row(page: TextPage, line: Evidence, is_primary: bool, indent: int, wide: int, style: str) -> None:
    head = f"{' ' * indent}{line.line:>{wide}}  "
    room = max(page.width - len(head), 8)
    tint = style if is_primary else GUTTER
    # what a line beside the proof shows comes after it, where both have room
    beside = 0 if is_primary else cell_len(line.label) + 4
    if beside and beside <= room // 2:
        found = one_row(line.text, room - beside, page.ascii_only)
        page.row((head, tint), *_marked(found, style), ("  - ", tint), line.label)
        return
    found = one_row(line.text, room, page.ascii_only)
    page.row((head, tint), *_marked(found, style))
    # the caret is below the token that changed, where the words after it have room
    before = cell_len(found.text[: found.start])
    at = before if is_primary and before + 2 + cell_len(line.label) <= room else 0
    mark = "^ " if is_primary else "- "
    page.facts([" " * (len(head) + at), (mark, tint)], line.label, len(head) + at + 2)


def _marked(found: Quote, style: str) -> list[Part]:
    """The parts of a row, the token that changed underlined."""
    before, token, after = found.text[: found.start], found.text[found.start : found.end], found.text[found.end :]
    return [before, (token, f"{style} underline"), after]
