"""One statistics line of a vLLM engine: rates of an interval, and one that rolls over the last requests.

Unknown is None, never 0.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model.bounds import Amount, Count, LineNumber, Rate, Share


class CacheSample(msgspec.Struct):
    """What one engine says of itself every few seconds. Shares run from 0 to 1, rates are tokens per second."""

    session: Count
    """Index of the session."""
    path: str
    line: LineNumber
    engine: str | None = None
    """``000``; None where the line names none, which was so up to 0.7."""
    time: str | None = None
    """``--MM-DDTHH:MM:SS``: vLLM writes no year."""
    interval_s: Rate | None = None
    """Seconds that the rates are over: the time between lines of an engine that is busy, else the default."""
    prompt_rate: Rate | None = None
    """Prompt tokens per second; what they count depends on the version, see prompt_tokens and computed_tokens."""
    generation_rate: Rate | None = None
    """Generated tokens per second."""
    running: Amount | None = None
    """Requests."""
    waiting: Amount | None = None
    """Requests."""
    deferred: Amount | None = None
    """Requests."""
    kv_usage: Share | None = None
    """Share of the KV cache that running requests hold; what is cached and free counts as unused."""
    hit_rate: Share | None = None
    """Reused share of the tokens looked up by the last 1,000 requests since the start or a reset; None: not printed."""
    external_hit_rate: Share | None = None
    mm_hit_rate: Share | None = None
    """Of items, not of tokens."""
    preemptions: Amount | None = None
    prompt_tokens: Amount | None = None
    """prompt_rate x interval_s where it counts all prompt tokens, reused ones included: up to 0.14."""
    computed_tokens: Amount | None = None
    """prompt_rate x interval_s where it counts computed tokens alone: 0.16 and newer."""
    looked_up_tokens: Amount | None = None
    """Prompt tokens that were looked up since the sample before, as the difference of two sums; as in SamplePeriod."""
    looked_up_within: Amount | None = None
    """Tokens by which looked_up_tokens may be off."""
    answered: Amount | None = None
    """Requests for text that were answered since the sample before; None where the log has no access lines."""
