"""A log line in one row: what comes first in every line is left out, and the token that changed is known.

``0.00.868.204 W slot operator(): id  0 | task 32 | new: ... 1; cch= | e6;`` becomes ``new: ... 1; cch= | e6;``
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rich.cells import cell_len

from cachedoctor.report.text.text_safe import take, visible

_LEAD = re.compile(
    r"(?:\(\w+ pid=\d+\) )?(?:[\d.:,-]+ )?(?:[DIWET] |(?:INFO|WARNING|ERROR|DEBUG):? )?(?:[\d-]+ [\d:]+ )?"
    r"(?:\[[\w.]+:\d+\] )?(?:(?:slot|srv|que|res|cmn) {1,4}[^:|]{0,40}: +)?(?:id +\d+ \| task -?\d+ \| )?"
)
"""Time, level, place in the source, slot: it says where the line is from, not what it says."""
_PRINTED = re.compile(r"(?:old|new): \.\.\.")
_BAR = re.compile(r" \| (\S{1,40})")
_DOTS = "... "


class Quote(NamedTuple):
    """A row, and where in it the token stands that changed: from, to; equal where none is known."""

    text: str
    start: int = 0
    end: int = 0


def one_row(line: str, room: int, ascii_only: bool = False) -> Quote:
    """Return ``line`` in at most ``room`` cells."""
    text = visible(line[:_MOST], ascii_only).strip()
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


_MOST = 20_000
"""Characters of a line that are looked at."""


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


def path(name: str, room: int, ascii_only: bool = False) -> str:
    """Return a path in at most ``room`` cells: its end says most."""
    shown = visible(name, ascii_only)
    return shown if cell_len(shown) <= room else "..." + take(shown[::-1], max(room - 3, 1))[::-1]
