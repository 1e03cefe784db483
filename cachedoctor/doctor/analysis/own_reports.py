"""Reports of cachedoctor in an input: the lines of a log that they quote are evidence, not a log.

``> 237 | slot update_slots: id  0 | ...`` in a report that was pasted above a log, or alone.
"""

from __future__ import annotations

from msgspec.structs import replace

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Segment

_WHOLE = late(
    rb"\A\s{0,64}\{[^\0]{0,400}?sarif[^\0]{0,400}?\"name\": ?\"cachedoctor\""
    rb"|\A\s{0,64}\{[^\0]{0,64}?\"schema\": ?\"cachedoctor\."
    rb"|\A(?:# )?CD\d{3} [a-z-]{3,60}\n\n(?:## )?What it means\n"
)
"""A report for programs, or the page of a rule."""
_SIGN = late(rb"(?m)^(?:(?:rule {1,9})?(?:error|warning|note)\[CD\d{3}\][: ]|#### \d{1,4}\. `CD\d{3}` )")
"""A finding in a report for people."""
_QUOTE = late(rb" {4,12}\d{1,9}  \S|[> ] {0,9}\d{1,9} \| | {2,12}\| ")
"""How a line of a log begins as such a report quotes it, with its number, and what is below it."""


def is_report(begin: bytes) -> bool:
    """Whether an input that begins so is a report of ours for programs, or the page of a rule."""
    return _WHOLE.search(begin) is not None


def has_finding(begin: bytes) -> bool:
    """Whether a finding of a report for people is in the begin of an input."""
    return _SIGN.search(begin) is not None


def without_quotes(segments: list[Segment], begin: bytes = b"") -> list[Segment]:
    """Empty the lines that a report of ours quotes; as they are where none is in them or in the ``begin`` of the
    input."""
    if not _SIGN.search(begin) and not any(_SIGN.search(segment.data) for segment in segments):
        return segments
    return [_without(segment) for segment in segments]


def _without(segment: Segment) -> Segment:
    lines = segment.data.removesuffix(b"\n").split(b"\n")
    kept = [
        b"" if _QUOTE.match(segment.stored.get(segment.number(at), line)) else line for at, line in enumerate(lines)
    ]
    return replace(segment, data=b"\n".join(kept) + b"\n")
