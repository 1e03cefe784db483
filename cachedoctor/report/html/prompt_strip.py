"""Where two prompts diverge: how much they share, and the few characters on both sides of the place.

Knows findings and rows; the texts come from sanitize.py, cut and without secrets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from cachedoctor.model import Evidence, Finding, RequestRow
from cachedoctor.report.html.axis import box
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words.numbers import count, percent

WIDTH = 1000
_SIDE = re.compile(r"\b(old|new): \.\.\.")
_BAR = " | "
_MOST = 200
"""Characters of a text shown."""


@dataclass(slots=True)
class Strip:
    """One divergence."""

    words: str
    place: str
    shared: str
    """The bar up to where the prompts diverge; empty when the lengths are unknown."""
    rest: str
    before: str
    old: str
    new: str
    old_name: str
    new_name: str


def strip(finding: Finding, rows: dict[int, RequestRow]) -> Strip | None:
    """Return the divergence that a finding shows, if it shows one. ``rows``: its requests by their index."""
    if finding.diff is not None and finding.diff["first"] is not None:
        return _compared(finding, rows)
    return _printed(finding, rows)


def _compared(finding: Finding, rows: dict[int, RequestRow]) -> Strip:
    diff: dict[str, Any] = finding.diff
    first, about = diff["first"], "" if diff["exact"] else "about "
    shared, whole = diff["common_prefix_tokens"], diff["b"].tokens
    row = None if diff["exact"] else _row_of(finding.primary, [rows[i] for i in finding.requests if i in rows])
    if row is not None and row.common_prefix_tokens is not None and row.prompt_tokens:
        # what the server counted, as the claim does: one place has one number
        about, shared, whole = "", row.common_prefix_tokens, row.prompt_tokens
    place = ", ".join(part for part in (first.place, f"line {first.line:,}", f"column {first.column:,}") if part)
    what = f"{first.kind}: {first.field}" if first.field and first.field != first.kind else first.kind
    return Strip(
        _shared(shared, whole, about), f"{what} at {place}", *_bars(shared, whole),
        "", _line(first.a), _line(first.b), _short(diff["a"].path), _short(diff["b"].path),
    )  # fmt: skip


def _printed(finding: Finding, rows: dict[int, RequestRow]) -> Strip | None:
    sides: dict[str, tuple[str, str]] = {}
    for evidence in finding.evidence:
        found = _SIDE.search(evidence.text)
        before, bar, after = evidence.text[found.end() :].partition(_BAR) if found else ("", "", "")
        if found and bar:
            sides.setdefault(found[1], (before, after))
    if len(sides) < 2:
        return None
    row = _row_of(finding.primary, [rows[i] for i in finding.requests if i in rows])
    shared, whole = (row.common_prefix_tokens, row.prompt_tokens) if row is not None else (None, None)
    words, bars = ("", ("", "")) if shared is None or not whole else (_shared(shared, whole), _bars(shared, whole))
    return Strip(
        words, "", *bars, _line(sides["new"][0]), _line(sides["old"][1]), _line(sides["new"][1]),
        "what the slot held", "the new prompt",
    )  # fmt: skip


def _row_of(line: Evidence | None, rows: list[RequestRow]) -> RequestRow | None:
    """The request in whose lines the primary evidence stands."""
    for row in rows:
        if line is None or (row.session, row.path) != (line.session, line.path):
            continue
        if row.first_line <= line.line <= row.last_line:
            return row
    return None


def _shared(shared: int, whole: int, about: str = "") -> str:
    if not whole:
        return ""
    return f"The prompts share {about}{shared:,} of {count(whole, 'token')} ({percent(min(shared, whole), whole)})"


def _bars(shared: int, whole: int) -> tuple[str, str]:
    if not whole:
        return "", ""
    x = WIDTH * min(shared, whole) / whole
    return box(0, 0, x, 14), box(x, 0, WIDTH - x, 14)


def _short(path: str) -> str:
    """The end of a path says which prompt it is."""
    return cut(path.replace("\\", "/").rpartition("/")[2], 60)


def _line(text: str) -> str:
    return cut(text.replace("\n", "↵"), _MOST)
