"""What the requests of one report add up to, conversation by conversation, for a comparison with another.

Memory grows with the conversations and takes 8 bytes of each request.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from statistics import median

import msgspec

from cachedoctor.doctor.compare.bootstrap import RatioTerms
from cachedoctor.model import Counted, Report, RequestRow, counted


class Amounts(msgspec.Struct, gc=False):
    """Sums over requests of which prompt and reuse are known."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    processed: int = 0
    timed: int = 0
    """Requests with a known prompt time."""
    ms: float = 0.0
    ms_prompt: int = 0
    """Prompt tokens of these; read by the name that ``metrics`` gives."""
    ms_processed: int = 0

    def add(self, found: Counted, ms: float | None) -> None:
        """Count a request and its prompt time."""
        processed = found.processed or 0
        self.requests += 1
        self.prompt += found.prompt
        self.cached += found.cached
        self.processed += processed
        if ms is not None:
            self.timed += 1
            self.ms += ms
            self.ms_prompt += found.prompt
            self.ms_processed += processed


_COUNTED = ("session", "thread", "turn", "prompt_tokens", "cached_tokens", "processed_tokens", "prompt_ms")
"""What of a request is counted here."""


class Tally:
    """Counts the requests of a report."""

    def __init__(self, report: Report) -> None:
        self.requests = self.unknown = 0
        self.all = Amounts()
        self.rows = 0
        """Requests and children of ``n > 1`` requests: findings count both."""
        self._lengths = array("q")
        self._digest = hashlib.blake2b(digest_size=16)
        self._conversations: dict[tuple[int, int], tuple[Amounts, Amounts]] = {}
        for row in report.requests:
            self.rows += 1
            if row.parent is None:
                self._add(row)

    def _add(self, row: RequestRow) -> None:
        self.requests += 1
        self._digest.update(repr([getattr(row, name) for name in _COUNTED]).encode())
        found = counted(row)
        if found is None:
            self.unknown += 1
            return
        self._lengths.append(found.prompt)
        # One that belongs to no conversation is one of its own: no thread has a negative number.
        key = (row.session, row.thread if row.thread is not None else -1 - row.index)
        both = self._conversations.get(key)
        if both is None:
            both = self._conversations[key] = (Amounts(), Amounts())
        for amounts in (self.all, both[0], *([both[1]] if row.turn else [])):
            amounts.add(found, row.prompt_ms)

    def equals(self, other: Tally) -> bool:
        """Whether both are of the same requests, one by one."""
        return self._digest.digest() == other._digest.digest()

    @property
    def conversations(self) -> int:
        """How many there are among the requests that are known."""
        return len(self._conversations)

    @property
    def median_length(self) -> float | None:
        """Median of the prompts' lengths, tokens."""
        return median(self._lengths) if self._lengths else None

    def parts(self, upper: str, lower: str, *, later: bool = False) -> Iterator[RatioTerms]:
        """Yield two of the sums of every conversation, ``later`` without its first request."""
        for both in self._conversations.values():
            sums = both[later]
            yield RatioTerms(getattr(sums, upper), getattr(sums, lower))
