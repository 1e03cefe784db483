"""Turns events of an ik_llama.cpp log into sessions with answers. Knows its lines; knows no rule."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cachedoctor.engines.answering import AnswerTracker
from cachedoctor.engines.base import Event
from cachedoctor.model import CacheSample, PrefillBatch, Session

_SLOTS = 256
"""Slots whose requests are followed at once."""


class _Open(msgspec.Struct):
    """A request that a slot works on."""

    kept: int | None = None
    """Position from which on its memory was cleared, before the first batch of the prompt: tokens that are reused."""
    in_slot: int | None = None
    """Common prefix in tokens of the slot; None where none was printed, as nothing was to be reused."""
    in_prompt: int | None = None
    """The same text in tokens of the prompt."""

    def reused(self) -> int | None:
        """Tokens of the prompt that are reused; None where the log does not tell.

        The same text may be more tokens in the slot than in the prompt. Then a position in the slot, such as that of a
        checkpoint, says nothing about the prompt, unless it is the end of the common prefix, or the token before it.
        """
        if self.kept is None or self.in_slot is None or self.in_prompt is None or self.in_slot == self.in_prompt:
            return self.kept
        back = self.in_slot - self.kept
        return self.in_prompt - back if back in (0, 1) else 0 if self.kept == 0 else None


class Tracker(AnswerTracker):
    """Feeds on the events of one origin. The end of a request names its slot only: its task is gone by then."""

    engine = "ik_llama.cpp"

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        super().__init__(path, origin, new_session, keep)
        self._open: dict[int, _Open] = {}
        self._common: tuple[int, int] | None = None
        """Of the slot whose memory is cleared next."""
        self._timed: int | None = None
        """Slot whose timings follow."""

    def read(self, event: Event) -> None:
        """Take the next event."""
        fields = event.fields
        if event.message == "launched":
            if len(self._open) >= _SLOTS:
                self._open.clear()
            self._open[fields["slot"]] = _Open()
        elif event.message == "common":
            self._common = fields["in_slot"], fields["in_prompt"]
        elif event.message == "kept":
            self._kept(fields["slot"], fields["p0"])
        elif event.message == "timing":
            self._timed = fields["slot"]
        elif event.message == "computed":
            slot, self._timed = fields.get("slot", self._timed), None
            if slot is not None:
                self._computed(event, slot)

    def _kept(self, slot: int, position: int) -> None:
        common, self._common = self._common, None
        request = self._open.get(slot)
        if request is None or request.kept is not None:  # a later batch of the same prompt
            return
        request.kept = position
        if common is not None:
            request.in_slot, request.in_prompt = common

    def _computed(self, event: Event, slot: int) -> None:
        request = self._open.pop(slot, None)
        if request is None:  # it began before this log
            return
        reused = request.reused()
        self.answered(event.line, None if reused is None else reused + event.fields["computed"], reused)
