"""Lines that a paste has twice: somebody who answers in an issue quotes the log that stands above.

Read twice, they would be requests of their own. A line with the server's clock, or the time of a prompt, is printed
once; a run of lines that holds one and stands above word for word is that.
"""

from __future__ import annotations

import re

from cachedoctor.engines.catalogue.base import CLOCK
from cachedoctor.engines.llamacpp.pasted_issue import FENCE

_LEAST = 3
"""Lines of a run; fewer may be quoted to point at them, and cost nothing."""
_ONCE = re.compile(CLOCK + rb" +[IWEDT] |.{0,80}?prompt eval time = +\d")
_QUOTE = b"> \t\r"


def without_repeats(data: bytes) -> bytes:
    """Empty lines of runs that stand above already, behind an empty line or a fence; all others keep their numbers."""
    lines = data.split(b"\n")
    plain = [line.strip(_QUOTE) for line in lines]
    first: dict[bytes, int] = {}
    at = after = 0
    while at < len(plain):
        above = first.setdefault(plain[at], at) if _ONCE.match(plain[at]) else at
        begin, end = _run(plain, above, at, after) if above < at else (at, at)
        if end - begin >= _LEAST:
            if not plain[begin - 1] or FENCE.match(plain[begin - 1]):
                lines[begin:end] = [b""] * (end - begin)
            at = after = end
        else:
            at += 1
    return b"\n".join(lines)


def _run(plain: list[bytes], above: int, at: int, after: int) -> tuple[int, int]:
    """The lines around ``at``, none of them before ``after``, that are those around ``above``."""
    begin, end, distance = at, at, at - above
    while end < len(plain) and end - distance < begin and plain[end - distance] == plain[end]:
        end += 1
    while begin > after and begin > distance and plain[begin - 1] and plain[begin - 1 - distance] == plain[begin - 1]:
        begin -= 1
    return begin, end
