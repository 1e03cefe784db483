"""Reuse of each slot as a row of small bars, with its number beside it. Knows SlotReuse and Page; knows no session."""

from __future__ import annotations

from cachedoctor.model import SlotReuse
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.palette import BARS
from cachedoctor.report.words.numbers import count, number, percent

_BARS, _UNKNOWN = "▁▂▃▄▅▆▇█", "·"
_ASCII_BARS, _ASCII_UNKNOWN = ".:-=+*#", "?"
_KEY, _EACH = 10, len(", 1,024 a bar")
"""Cells of a row before the bars, and of the words that are needed when a bar is many requests."""
_NARROW = 60
"""On a page narrower than that only the most important words stand behind the bars."""
_FEWEST = 6
"""Bars that are drawn on any page."""

Cells = list[tuple[int, int] | None]


def show(page: Page, slots: list[SlotReuse], where: str) -> None:
    """Write a row for each slot; none where there is nothing to see along the requests.

    Args:
        where: which server, when there are several.
    """
    if sum(slot.requests for slot in slots) < 2 or not any(cell for slot in slots for cell in slot.cells):
        return
    narrow, behind = page.width < _NARROW, f" ({where})" if where else ""
    room = page.width - _KEY - 2 - max(len(_reuse_text(slot, narrow)) for slot in slots) - len(behind)
    if not narrow and any(len(slot.cells) > room or slot.step > 1 for slot in slots):
        room -= _EACH
    room = max(room, _FEWEST)
    # A bar is as many requests in every slot, so that they can be compared. Where many share a row, it is more.
    alone = _step([slot for slot in slots if slot.slot is not None], room)
    steps = [alone if slot.slot is not None else _step([slot], room) for slot in slots]
    drawn = [bars(joined(slot, step), page.ascii_only) for slot, step in zip(slots, steps, strict=True)]
    wide = max(map(len, drawn))
    for slot, row, step in zip(slots, drawn, steps, strict=True):
        key = f"slot {slot.slot}" if slot.slot is not None else "others"
        page.facts(
            [(f"{key:<{_KEY}}", "bold"), (f"{row:<{wide}}", BARS), "  "],
            _reuse_text(slot, narrow, step) + behind,
            _KEY,
        )


def _step(slots: list[SlotReuse], room: int) -> int:
    """Requests of a bar with which all of ``slots`` fit."""
    step = max((slot.step for slot in slots), default=1)
    while any(len(slot.cells) * slot.step > room * step for slot in slots):
        step *= 2
    return step


def joined(slot: SlotReuse, step: int) -> Cells:
    """Join neighbouring cells until each holds ``step`` requests."""
    cells, each = slot.cells, slot.step
    while each < step:
        pairs = zip(cells[::2], [*cells[1::2], None], strict=False)
        cells, each = [_sum(a, b) for a, b in pairs], each * 2
    return cells


def _sum(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return a[0] + b[0], a[1] + b[1]


def bars(cells: Cells, ascii_only: bool = False) -> str:
    """Draw a bar for each cell, the higher the more was reused; what is not known is a gap."""
    levels, gap = (_ASCII_BARS, _ASCII_UNKNOWN) if ascii_only else (_BARS, _UNKNOWN)
    # In a torn log more tokens may have been reused than the prompt had.
    return "".join(gap if c is None else levels[min(c[1] * len(levels) // c[0], len(levels) - 1)] for c in cells)


def _reuse_text(slot: SlotReuse, narrow: bool, step: int = 1) -> str:
    known = [cell for cell in slot.cells if cell is not None]
    prompt = sum(cell[0] for cell in known)
    share = percent(sum(cell[1] for cell in known), prompt) if prompt else "unknown"
    requests = count(slot.requests, "request")
    if narrow:
        return f"{share}, {requests}"
    each = f", {number(step)} a bar" if step > 1 else ""
    return f"{share}{' reused' if prompt else ''}, {requests}{each}"
