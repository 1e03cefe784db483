"""The requests that took longest, whatever their number: three are kept."""

from __future__ import annotations

import msgspec

from cachedoctor.model import Judged, Request, SlowTurn

_KEPT = 3
_KNOWN = frozenset({"reused", "partial", "reprocessed"})
"""Outcomes of which the log tells what could have been reused."""


class Slowest(msgspec.Struct):
    """The slowest requests so far, by their number."""

    kept: dict[int, SlowTurn] = msgspec.field(default_factory=dict)

    def add(self, judged: Judged) -> None:
        """Take a request, or one in the place of what it was."""
        request = judged.request
        if request.parent is not None or not request.prompt_ms:
            return
        if len(self.kept) < _KEPT or request.index in self.kept or _ms(request) > min(t.ms for t in self.kept.values()):
            self.kept[request.index] = _turn(request)
            self._shorten()

    def merge(self, more: Slowest, requests: int, sessions: int) -> None:
        """Take those of a later part; before it came so many requests and sessions."""
        for number, turn in more.kept.items():
            self.kept[number + requests] = msgspec.structs.replace(
                turn, request=number + requests, session=turn.session + sessions
            )
        while len(self.kept) > _KEPT:
            self._shorten()

    def _shorten(self) -> None:
        if len(self.kept) > _KEPT:
            del self.kept[max(self.kept.values(), key=_rank).request]

    def turns(self) -> list[SlowTurn]:
        """Return them, the slowest first."""
        return sorted(self.kept.values(), key=_rank)


def _rank(turn: SlowTurn) -> tuple[float, int]:
    return -turn.ms, turn.request


def _ms(request: Request) -> float:
    return (request.prompt_ms or 0.0) + (request.seen.reply_ms or 0.0)


def _turn(r: Request) -> SlowTurn:
    computed, again = r.processed_tokens, None
    if r.outcome == "cold" and r.facts.starts_cold:
        again = 0
    elif r.outcome in _KNOWN and r.lost_tokens is not None:
        again = 0 if r.outcome == "reused" else r.lost_tokens
    if computed is not None and again is not None:
        again = min(again, computed)
    new = computed - again if computed is not None and again is not None else None
    return SlowTurn(
        r.index, r.session, r.path, r.first_line, r.slot, r.task, r.prompt_ms or 0.0, r.cached_tokens, new, again,
        r.generated_tokens, r.seen.reply_ms,
    )  # fmt: skip
