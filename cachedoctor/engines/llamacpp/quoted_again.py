"""Lines that a paste has twice: somebody who answers in an issue quotes the log that stands above.

Read twice, they would be requests of their own. A line with the server's clock, or the time of a prompt, is printed
once; a run of lines that holds one and stands above word for word is that.
"""

from __future__ import annotations

import re

from cachedoctor.engines.catalogue.base import CLOCK

_LEAST = 3
"""Lines of a run; fewer may be quoted to point at them, and cost nothing."""
_PLACES = 8
"""Places of one line that are looked at; more has only what says nothing."""
_ONCE = re.compile(CLOCK + rb" +[IWEDT] |.{0,80}?prompt eval time = +\d")
_QUOTE = b"> \t\r"


def without_repeats(data: bytes) -> bytes:
    """Empty the lines of runs that stand above already; all others keep their numbers."""
    lines = data.split(b"\n")
    plain = [line.strip(_QUOTE) for line in lines]
    above: dict[bytes, list[int]] = {}
    at = 0
    while at < len(plain):
        length = max((_common(plain, begin, at) for begin in above.get(plain[at], ())), default=0)
        if length >= _LEAST and any(_ONCE.match(line) for line in plain[at : at + length]):
            lines[at : at + length] = [b""] * length
        else:
            length = 1
            places = above.setdefault(plain[at], [])
            if len(places) < _PLACES:
                places.append(at)
        at += length
    return b"\n".join(lines)


def _common(plain: list[bytes], begin: int, at: int) -> int:
    """Lines from ``at`` on that are those from ``begin`` on."""
    length = 0
    while at + length < len(plain) and begin + length < at and plain[begin + length] == plain[at + length]:
        length += 1
    return length
