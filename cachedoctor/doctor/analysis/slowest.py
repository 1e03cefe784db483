"""The requests that took longest, whatever their number: three are kept."""

from __future__ import annotations

import msgspec

from cachedoctor.account.from_numbers import place
from cachedoctor.model import Judged, SlowTurn

_KEPT = 3
_SUMMED: dict[str, str] = {"reused": "reused", "new": "new", "rounding": "new", "undecided": "undecided"}
"""Rows of the account that are no loss; the tokens of all others were computed again."""


class Slowest(msgspec.Struct):
    """The slowest requests so far, by their number."""

    kept: dict[int, SlowTurn] = msgspec.field(default_factory=dict)
    least: float = 0.0
    """Milliseconds that one more has to take longer, once there are enough."""

    def add(self, judged: Judged) -> None:
        """Take a request, or one in the place of what it was."""
        request = judged.request
        spent = request.prompt_ms
        if spent is None or ((request.seen.reply_ms or 0.0) + spent <= self.least and request.index not in self.kept):
            return
        if request.parent is None and spent:
            self.kept[request.index] = _turn(judged)
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
        if len(self.kept) == _KEPT:
            self.least = min(turn.ms for turn in self.kept.values())

    def turns(self) -> list[SlowTurn]:
        """Return them, the slowest first."""
        return sorted(self.kept.values(), key=_rank)


def _rank(turn: SlowTurn) -> tuple[float, int]:
    return -turn.ms, turn.request


def _turn(judged: Judged) -> SlowTurn:
    r, sums = judged.request, dict.fromkeys(("reused", "new", "again", "undecided"), 0)
    placed = place(judged)
    for row, _, tokens in placed:
        sums[_SUMMED.get(row, "again")] += tokens
    reused, new, again, undecided = sums.values() if placed else (r.cached_tokens, None, None, None)
    return SlowTurn(
        r.index, r.session, r.path, r.first_line - r.before, r.slot, r.task, r.prompt_ms or 0.0, reused, new, again,
        undecided, r.generated_tokens, r.seen.reply_ms,
    )  # fmt: skip
