"""Failures of the memory in words that no build of llama-server has: forks and patches write their own.

``seq_rm failed at p0 = 18800, clearing slot memory``: only behind a slot's prefix, only what names the failure and what
was done about it, and only the position that the line names.
"""

from __future__ import annotations

import msgspec

from cachedoctor.engines.catalogue.base import CLOCK, Event, Message
from cachedoctor.knowledge.late_patterns import late

CLEARED = Message("truncate_fail", "slot", 0, 0, "W0", "", "")
"""The memory could not be cut and was cleared, in words of a fork; of no build, so that it narrows none."""
REFUSED = Message("ckpt_restore_fail", "slot", 0, 0, "W0", "", "")
"""A checkpoint could not be restored, in words of a fork."""

_LINE = late(
    rb"[ \t]*(?:" + CLOCK + rb" +)?(?:(?P<level>[IWED]) +)?slot +[^\s:|]{1,32}: *id +(?P<id>\d{1,3}) *\|"
    rb" *task +(?P<task>\d{1,15}) *\| *(?P<text>\S.{7,1000})"
)
_FAILURE = late(
    r"\b(?:fail(?:ed|s|ure)?|refus(?:ed|es|ing)|can(?:no|')t|could(?:n't| not)|unable|mismatch|abort(?:ed|ing)?)\b"
)
_MEMORY = late(r"\b(?:memory|checkpoints?|pos(?:ition)?s?|p0|pos_m(?:in|ax)|cache|seq_rm|tokens)\b")
_REMOVE = late(r"\b(?:seq_rm|remov(?:e|es|ed|ing|al)|roll(?:s|ed|ing)?[ -]?back)\b")
_CLEAR = late(r"\b(?:clear(?:s|ed|ing)?|reset(?:s|ting)?)\b")
_CHECKPOINT = late(r"\bcheckpoints?\b")
_RESTORE = late(r"\brestor(?:e|es|ed|ing)\b")
_RESCUE = late(
    r"\b(?:put(?:s|ting)? back|instead|f[ae]ll(?:s|ing)? back|recover(?:s|ed|ing)?|retry(?:ing)?|"
    r"(?:next|another|older|earlier) (?:one|checkpoint))\b"
)
_WHOLE = late(r"\b(?:from scratch|full|whole|entire)\b")
"""Falling back to all of the prompt is no rescue."""
_SPECULATIVE = late(r"\b(?:drafts?|drafted|speculat\w*|mtp|spec)\b")
_POSITION = late(r"\b(?:p0|pos(?:ition)?|from) *(?:>?=|:)? *(\d{1,10})\b")
_COVERED = late(r"\bpos_max *[=:] *(\d{1,10})\b")


class Unknown(msgspec.Struct, frozen=True):
    """A slot's line that states something, in words that are not known."""

    event: Event | None
    """What it is taken for; None where it is not to be judged."""


def unknown(line: bytes, number: int) -> Unknown | None:
    """Read a line that no message fits; None for one that is no slot's, or states nothing.

    Args:
        line: without its wrapper.
        number: of the line in its input.
    """
    found = _LINE.match(line)
    if found is None:
        return None
    text = found["text"].decode("utf-8", "replace").lower()
    failure = _FAILURE.search(text) is not None
    if not failure and found["level"] not in (b"W", b"E"):
        return None
    judged = _judged(text) if failure and _MEMORY.search(text) else None
    if judged is None:
        return Unknown(None)
    row, fields = judged
    return Unknown(Event(row.id, row, fields, int(found["id"]), int(found["task"]), number, line, 0))


def _judged(text: str) -> tuple[Message, dict[str, object]] | None:
    """What a failure is taken for, and its numbers; None where the words do not say enough."""
    if _SPECULATIVE.search(text) or (_RESCUE.search(text) and not _WHOLE.search(text)):
        return None
    if _CHECKPOINT.search(text) and _RESTORE.search(text):
        covered = _COVERED.search(text)
        return None if covered is None else (REFUSED, {"pos_max": int(covered[1])})
    position = _POSITION.search(text)
    if position is None or not (_REMOVE.search(text) and _CLEAR.search(text)):
        return None
    return CLEARED, {"p0": int(position[1])}
