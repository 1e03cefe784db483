"""The list of lines that are no known message: how many, of which shape, and where the first one stands."""

from __future__ import annotations

from cachedoctor.model import Report
from cachedoctor.report.words.numbers import count, number

_SHOWN = 20
"""Shapes; JSON has them all."""


def listed(report: Report) -> list[str]:
    """Return the list as rows of text; empty where it was not asked for."""
    if report.unknown is None:
        return []
    several = len(report.inputs) > 1
    lines = sum(info.lines for info in report.inputs)
    left = sum(shape.count for shape in report.unknown)
    rows = [f"{number(left)} of {count(lines, 'line')} are no known message, by shape (N: a number):"]
    for shape in report.unknown[:_SHOWN]:
        place = f"{shape.path}:{shape.line}" if several else f"line {shape.line}"
        rows.append(f"{number(shape.count):>9}  {shape.shape}  (first: {place})")
    if len(report.unknown) > _SHOWN:
        rows.append(f"{'':9}  and {count(len(report.unknown) - _SHOWN, 'more shape')}: --format json has them all")
    return rows
