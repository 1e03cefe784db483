"""CD210: --cache-reuse was asked for and cannot work here."""

from __future__ import annotations

from cachedoctor.model import Mark, Remedy
from cachedoctor.rules.base import Group, Hit, Rule, Situation, Words, times


def check(s: Situation) -> Hit | None:
    """Fire on the history change that the option was meant for, where the server said at its start that it is off."""
    off = s.session.settings.get("cache_reuse_supported")
    if off is None or off.value is not False or off.line is None or not s.fired & {"CD105", "CD106", "CD104"}:
        return None
    why = "multimodal" if s.session.setting("mmproj") else "memory"
    return Hit(0, "high", (Mark(off.line, off.text), "the option is switched off at start"), [], {"why": why})


def words(g: Group) -> Words:
    """Say that the flag does nothing, and that this is no loss by itself."""
    because = (
        "a multimodal projector is loaded"
        if g.worst.facts["why"] == "multimodal"
        else "this model's memory cannot shift a part of itself (recurrent, hybrid, or sliding window)"
    )
    return Words(
        f"--cache-reuse has no effect here: {times(g.count)} changed the history and could not use it",
        f"The server switched it off because {because}. Reuse of the common prefix goes on as before.",
        [Remedy("Drop --cache-reuse, or use it with a plain attention model without --mmproj.")],
    )


RULE = Rule(
    "CD210", "cache-reuse-unsupported", "--cache-reuse cannot work with this model", check, words, severity="note",
    on=("changed",),
    after=("CD104", "CD105", "CD106"),
)  # fmt: skip
