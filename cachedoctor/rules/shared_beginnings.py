"""What given request bodies, or prompts that the server logged, say of the traffic: do prompts share their beginning?

Decides between the two look-alikes where nothing per request is known.
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import First, PromptDiff, Remedy, Session
from cachedoctor.rules.base import n

_LEAST = 3
"""Logged prompts that have to be compared; of given bodies one pair is enough, since somebody chose them."""
_EARLY = 0.1
"""Share of the shorter prompt: a common beginning below it is early."""
_LATE = 0.5
"""Share from which on a common beginning is worth reusing."""


class Shared(NamedTuple):
    """A verdict."""

    early: bool
    """They part early; else they share most of their length."""
    said: str
    why: str
    remedies: list[Remedy]
    difference: PromptDiff | None


def judged(session: Session) -> Shared | None:
    """Return the verdict; None where nothing was given or logged, or where it is neither early nor late."""
    return given(session) or _logged(session)


def given(session: Session) -> Shared | None:
    """Return the verdict of the bodies that were given."""
    pairs = [(d, d.common_prefix_tokens / max(1, min(d.a.tokens, d.b.tokens))) for d in session.parted]
    if not pairs:
        return None
    early = [d for d, share in pairs if share < _EARLY]
    late = [d for d, share in pairs if share >= _LATE]
    if 2 * len(early) > len(pairs):
        worst = early[-1]
        said = (
            f"of {n(len(pairs) + 1)} request bodies that were given, {n(len(early))} share less than {_EARLY:.0%} with any before "
            f"them{_first(worst.first)}"
        )
        return Shared(True, said, _why(worst), _remedies(worst), worst)
    if 2 * len(late) > len(pairs):
        said = f"of {n(len(pairs) + 1)} request bodies that were given, {n(len(late))} share half or more with one before them"
        return Shared(False, said, "", [], None)
    return None


def _first(first: First | None) -> str:
    if first is None:
        return ""
    where = f" in {first.place}" if first.place else ""
    return f"; the first difference is at token {n(first.token)}{where}"


def _why(difference: PromptDiff) -> str:
    kind = difference.first.kind if difference.first is not None else "other"
    known = "" if kind == "other" else f" What differs there: {kind}."
    return f"A cached prefix ends at the first token that differs.{known}"


def _remedies(difference: PromptDiff) -> list[Remedy]:
    advice = difference.first.advice if difference.first is not None else []
    found = [Remedy(a.text, a.commands) for a in advice]
    return found or [
        Remedy(
            "Put what changes behind what stays. To see the place with the text around it:",
            ["cachedoctor diff request1.json request2.json"],
        )
    ]


def _logged(session: Session) -> Shared | None:
    shares = [
        a.prefix / a.length
        for answers in session.answers
        if answers.source == "log"
        for a in answers.each
        if a.prefix is not None and a.length
    ]
    if len(shares) < _LEAST:
        return None
    early = sum(share < _EARLY for share in shares)
    late = sum(share >= _LATE for share in shares)
    if 2 * early > len(shares):
        said = f"{n(early)} of {n(len(shares))} prompts in the log share less than {_EARLY:.0%} of their text with any before them"
        why = "A cached prefix ends at the first token that differs. Different documents share none, and that is nothing to mend."
        return Shared(True, said, why, [_SEE], None)
    if 2 * late > len(shares):
        said = f"{n(late)} of {n(len(shares))} prompts in the log share half of their text or more with one before them"
        return Shared(False, said, "", [], None)
    return None


_SEE = Remedy(
    "The prompts stand in the log: see where two of them part, and put what changes behind what stays. They may hold secrets; "
    "cachedoctor shows none of their text.",
    ["cachedoctor diff prompt1.txt prompt2.txt"],
)
