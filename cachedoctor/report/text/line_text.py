"""A line of a log in words: what it means, its parts, its fields, the builds that print it, an example.

Knows Line and Page. Knows no message.
"""

from __future__ import annotations

from typing import TextIO

from cachedoctor.model import Explanation, Level, Line, Part, Reading, Wording
from cachedoctor.report import sanitize
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.text_safe import cut

_VALUE_MAX = 400
"""Cells: a value may be a prompt or a body; of a longer one the middle is left out."""
_NAME_MAX = 28
"""Cells of the first column; a longer name or value stands on a row of its own."""


def render(line: Line, out: TextIO, width: int = 80, *, color: bool = False, ascii_only: bool = False) -> None:
    """Write every reading of ``line``; a line without one gives nothing."""
    page = Page(out, width, color, ascii_only)
    for number, explanation in enumerate(sanitize.line(line).explanations):
        if number:
            page.gap()
            page.prose([], "The wording alone does not decide; it may also be:", 0)
        _show(page, explanation)


def _show(page: Page, e: Explanation) -> None:
    page.prose([(e.message, "bold"), ": "], e.meaning, 2)
    page.gap()
    page.excerpt(["  | "], ["  | "], e.text, max(page.width - 4, 20))
    if e.origin is not None:
        page.prose(["  "], f"from the server that the wrapper calls {e.origin}", 2)
    if e.cut:
        also = "; other wordings fit what is left of it as well" if e.undecided else ""
        page.prose(["  "], f"the line is cut{also}", 2)
    if e.more:
        page.prose(["  "], f"no known build prints what follows the message: {cut(e.more, _VALUE_MAX)}", 2)
    if e.parts:
        _heading(page, "Before the message")
        wide = _wide([p.text for p in e.parts])
        for part in e.parts:
            _part(page, part, wide)
    if e.fields:
        _heading(page, "Fields")
        for field in e.fields:
            _field(page, field)
    _builds(page, e)
    _heading(page, "Example")
    page.row("  ", e.sample)


def _heading(page: Page, words: str) -> None:
    page.gap()
    page.row((words, "bold"))


def _wide(names: list[str]) -> int:
    return min(max(len(name) for name in names), _NAME_MAX)


def _part(page: Page, part: Part, wide: int) -> None:
    page.prose(["  ", (f"{part.text:<{wide}}", "cyan"), "  "], part.meaning, wide + 4)


def _field(page: Page, field: Reading) -> None:
    value = "(cut off)" if field.text is None else cut(field.text, _VALUE_MAX) or "(empty)"
    unit = f"  [{field.unit}]" if field.unit else ""
    page.row("  ", (f"{field.label} = {value}", "cyan"), unit)
    if field.here:
        page.prose(["      here: "], field.here, 6, "bold")
    page.prose(["      "], field.meaning, 6)


def _builds(page: Page, e: Explanation) -> None:
    _heading(page, "Builds of llama.cpp" if e.program == "llama.cpp" else f"Versions of {e.program}")
    page.prose(["  "], e.builds, 2)
    for level in e.levels:
        page.prose(["  "], f"{_span(e, level)}: {level.level}, {level.shown}", 4)
    if e.others:
        page.prose(["  "], "other wordings:", 2)
        for other in e.others:
            page.prose([f"    {_span(e, other)}: "], other.text, 6)
    page.prose(["  "], f"cachedoctor analyze {'reads' if e.analyzed else 'makes no use of'} this message", 2)


def _span(e: Explanation, seen: Level | Wording) -> str:
    first, last = e.named(seen.first), e.named(seen.last)
    return first if first == last else f"{first} to {last}"
