"""Levels of llama-server's log, and what shows them, by build. Pure data and arithmetic.

Source: PR #17630 (scale of levels, between b7079 and b7376) and PR #23021 (trace level, less by default, between b9093
and b9294).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import msgspec

from cachedoctor.knowledge.builds import LOGS_REDUCED, SAMPLED

SCALE = 7376
"""From here on ``-lv`` counts 0 to 4 and the default is 3; before it counts 0 and 1, and the default is 0."""

WORDS = {
    "I": "INFO",
    "W": "WARN",
    "E": "ERROR",
    "D": "DEBUG",
    "T": "TRACE (printed with the letter I)",
    "L": "INFO of the library",
    "O": "output",
    "P": "error text",
}
"""Letters as in the levels of a message."""


class Period(msgspec.Struct):
    """Builds that print a message at one level."""

    first: int
    last: int
    """Builds that were looked at, both ends included."""
    level: str
    needs: int | None
    """Smallest ``-lv`` that shows it; None when the default does."""


def needs(letter: str, build: int) -> int | None:
    """Smallest ``-lv`` that shows lines of this level; None when the default does.

    Library lines follow the level of the server: they count as trace since it exists.
    """
    if letter == "D":
        return 1 if build < SCALE else 4 if build < LOGS_REDUCED else 5
    if letter == "T" or (letter == "L" and build >= LOGS_REDUCED):
        return 4
    return None


def periods(level_at: Callable[[int], str], first: int, last: int) -> list[Period]:
    """Split the builds of a message by level and by what shows it.

    Args:
        level_at: gives the letter of the message's level at a build.
        first: first build with the message, one of those that were looked at.
        last: last build with it.
    """
    seen = [build for build in SAMPLED if first <= build <= last]
    out = []
    for (letter, level), group in groupby(seen, key=lambda build: (level_at(build), needs(level_at(build), build))):
        builds = list(group)
        out.append(Period(builds[0], builds[-1], letter, level))
    return out
