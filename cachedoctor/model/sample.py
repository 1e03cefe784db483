"""One statistics line of a vLLM engine: rates of an interval, and one that rolls over the last requests.

Unknown is None, never 0. Knows no engine, no rule, no file.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model.bounds import Count, Long


class CacheSample(msgspec.Struct):
    """What one engine says of itself every few seconds. Shares run from 0 to 1, rates are tokens per second."""

    session: Count
    path: str
    line: Long
    engine: str | None = None
    """``000``; None where the line names none, which was so up to 0.7."""
    time: str | None = None
    """``--MM-DDTHH:MM:SS``: vLLM writes no year."""
    interval_s: float | None = None
    """Seconds that the rates are over: the time between lines of an engine that is busy, else the default."""
    prompt_rate: float | None = None
    generation_rate: float | None = None
    running: int | None = None
    waiting: int | None = None
    deferred: int | None = None
    kv_usage: float | None = None
    """Share of the KV cache that running requests hold; what is cached and free counts as unused."""
    hit_rate: float | None = None
    """Reused share of the tokens looked up by the last 1,000 requests since the start or a reset; None: not printed."""
    external_hit_rate: float | None = None
    mm_hit_rate: float | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    """prompt_rate x interval_s where it counts all prompt tokens, reused ones included: up to 0.14."""
    computed_tokens: int | None = None
    """prompt_rate x interval_s where it counts computed tokens alone: 0.16 and newer."""
    answered: int | None = None
    """Requests for text that were answered since the sample before; None where the log has no access lines."""
