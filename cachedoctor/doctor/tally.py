"""What the requests of one report add up to, conversation by conversation, for a comparison with another.

Memory grows with the conversations and takes 8 bytes of each request. Knows rows of a report; knows no statistics.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from statistics import median

import msgspec

from cachedoctor.doctor.intervals import Part
from cachedoctor.model import Report, RequestRow


class Sums(msgspec.Struct, gc=False):
    """Sums over requests of which prompt and reuse are known."""

    requests: int = 0
    prompt: int = 0
    cached: int = 0
    processed: int = 0
    timed: int = 0
    """Requests with a known prompt time."""
    ms: float = 0.0
    ms_prompt: int = 0
    """Prompt tokens of these."""
    ms_processed: int = 0

    def add(self, row: RequestRow) -> None:
        """Count a request."""
        prompt, cached, processed = row.prompt_tokens or 0, row.cached_tokens or 0, row.processed_tokens or 0
        self.requests += 1
        self.prompt += prompt
        self.cached += cached
        self.processed += processed
        if row.prompt_ms is not None:
            self.timed += 1
            self.ms += row.prompt_ms
            self.ms_prompt += prompt
            self.ms_processed += processed


_COUNTED = ("session", "thread", "turn", "prompt_tokens", "cached_tokens", "processed_tokens", "prompt_ms")
"""What of a request is counted here."""


class Tally:
    """Counts the requests of a report."""

    def __init__(self, report: Report) -> None:
        self.requests = self.unknown = 0
        self.all = Sums()
        self.rows = 0
        """Requests and children of ``n > 1`` requests: findings count both."""
        self._lengths = array("q")
        self._digest = hashlib.blake2b(digest_size=16)
        self._conversations: dict[tuple[int, int], tuple[Sums, Sums]] = {}
        for row in report.requests:
            self.rows += 1
            if row.parent is None:
                self._add(row)

    def _add(self, row: RequestRow) -> None:
        self.requests += 1
        self._digest.update(repr([getattr(row, name) for name in _COUNTED]).encode())
        if row.prompt_tokens is None or row.cached_tokens is None:
            self.unknown += 1
            return
        self._lengths.append(row.prompt_tokens)
        # One that belongs to no conversation is one of its own: no thread has a negative number.
        key = (row.session, row.thread if row.thread is not None else -1 - row.index)
        both = self._conversations.get(key)
        if both is None:
            both = self._conversations[key] = (Sums(), Sums())
        self.all.add(row)
        both[0].add(row)
        if row.turn:
            both[1].add(row)

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

    def parts(self, upper: str, lower: str, *, later: bool = False) -> Iterator[Part]:
        """Yield two of the sums of every conversation, ``later`` without its first request."""
        for both in self._conversations.values():
            sums = both[later]
            yield Part(getattr(sums, upper), getattr(sums, lower))
