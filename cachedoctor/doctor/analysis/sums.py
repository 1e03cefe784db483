"""Sums over requests, in whole numbers, so that the sums of two parts of a log add up to those of the whole.

Milliseconds are kept as nanoseconds: 636 ms is 636,000,000.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Request, Totals
from cachedoctor.model.options import MIN_PROMPT_TOKENS

_JUDGED = frozenset({"cold", "reused", "partial", "reprocessed", "failed"})
"""Outcomes of which the log tells what was possible, and what was done; not that the client went away."""

_LOST = frozenset({"partial", "reprocessed"})


class Sums(msgspec.Struct):
    """Tokens and nanoseconds of the requests with known accounting; children of ``n > 1`` requests are left out."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    processed_tokens: int = 0
    unknown_tokens: int = 0
    unknown_requests: int = 0
    prompt_ns: int = 0
    judged: int = 0
    left_open: int = 0
    passed_over: int = 0

    def add(self, request: Request, least: int = MIN_PROMPT_TOKENS.default) -> bool:
        """Count a request; returns whether it computed enough to matter, and it is open what it could have reused.

        ``least``: tokens of the shortest prompt of which the rules say something.
        """
        if request.parent is not None:
            return False
        self.requests += 1
        judged = request.outcome in _JUDGED and (request.facts.starts_cold or not _begins(request))
        cached, prompt = request.cached_tokens, request.prompt_tokens
        left_open = not judged and request.outcome != "cancelled" and _matters(prompt, cached)
        self.judged += judged
        self.left_open += left_open
        lost = request.outcome in _LOST or (request.cut and bool(request.lost_tokens))
        self.passed_over += prompt is not None and prompt < least and lost
        if cached is not None and prompt is not None:
            self.prompt_tokens += prompt
            self.cached_tokens += cached
            if request.processed_tokens is None:
                self.unknown_tokens += prompt - cached
                self.unknown_requests += 1
            else:
                self.processed_tokens += request.processed_tokens
            self.prompt_ns += round((request.prompt_ms or 0.0) * 1e6)
        return left_open

    def merge(self, more: Sums) -> None:
        """Count the requests of another part."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(more, name))

    def totals(self, avoidable_tokens: int, avoidable_ms: float, least: int = MIN_PROMPT_TOKENS.default) -> Totals:
        """Give the totals of a report; ``least`` as for ``add``."""
        return Totals(
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            processed_tokens=self.processed_tokens,
            unknown_tokens=self.unknown_tokens,
            unknown_requests=self.unknown_requests,
            reuse=self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None,
            prompt_ms=round(self.prompt_ns / 1e6, 3),
            avoidable_tokens=avoidable_tokens,
            avoidable_ms=round(avoidable_ms, 3) if self.requests else None,
            judged_requests=self.judged,
            open_requests=self.left_open,
            short_requests=self.passed_over,
            short_below=least,
        )


def _matters(prompt: int | None, cached: int | None) -> bool:
    """Whether a request may have computed as many tokens as are worth a word."""
    return prompt is None or prompt - (cached or 0) >= MIN_PROMPT_TOKENS.default


def _begins(request: Request) -> bool:
    """Whether what came before it may be missing in a log whose start is: an empty slot may have been emptied, and what
    a slot held may be another conversation's."""
    taken = request.outcome in ("partial", "reprocessed") and not request.thread_turn and request.held_thread is None
    return request.outcome == "cold" or taken
