"""From the start of a server, or a reset of its cache, to the next: what was seen in that time, summed up.

Between two resets the numbers of an engine are about one cache; across them they are not. Unknown is None, never 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Amount, Count, LineNumber, Long, Rate, Share
from cachedoctor.model.log_lines import Mark

Since = Literal["start", "reset", "log"]
"""What began it: a start of the server, a reset of its cache, or nothing but the begin of the log."""


FULL = 0.95
"""token_usage from which a batch counts as one of a full KV pool: running requests leave the cache next to no room."""
STATES_FULL = 0.9
"""mamba_usage from which it counts as one of a full pool of states: a request takes up to three of them at once."""
BURST = 4
"""New requests from which a batch that reused nothing is a burst: fewer come together by chance."""

PROBE = 16
"""Tokens, or one page where that is more: a request alone with no more is the server's warm-up or a health check."""


class SamplePeriod(msgspec.Struct, tag_field="unit", tag="interval"):
    """Statistics lines of one vLLM engine. Shares run from 0 to 1."""

    engine: str | None
    since: Since
    """What began it: a start of the server, a reset of its cache, or the begin of the log."""
    first_line: LineNumber
    last_line: LineNumber
    samples: Count = 0
    busy: Count = 0
    """Samples with prompt tokens in them."""
    seconds: Rate = 0.0
    """Time that the busy samples cover."""
    prompt_tokens: Amount | None = None
    """Sum over the samples; None where they do not tell, as in CacheSample."""
    computed_tokens: Amount | None = None
    """Sum over the samples, as there."""
    within: Amount | None = None
    """Tokens by which the sum may be off: rates are rounded, and the first interval is known to a second only."""
    looked_up_tokens: Amount | None = None
    """Prompt tokens that were looked up in the cache, reused ones included: computed_tokens / (1 - last_rate).

    None where the log does not tell: below 0.16, behind the first 1,000 requests, where the begin is missing, and up
    to 0.26 where requests waited.
    """
    looked_up_within: Amount | None = None
    """Tokens by which looked_up_tokens may be off: the rate is rounded to a tenth of a percent."""
    generated_tokens: Amount | None = None
    """Of replies, as a sum over the samples."""
    answered: Amount | None = None
    """Requests for text that the server (all its engines) answered; None where the log has no access lines."""
    rates: Count = 0
    """Samples that print a hit rate."""
    first_rate: Share | None = None
    """Of the first busy sample that prints one."""
    last_rate: Share | None = None
    least_rate: Share | None = None
    most_rate: Share | None = None
    last_external_rate: Share | None = None
    kv_usage: Share | None = None
    """The highest."""
    waiting: Count = 0
    """The most requests that waited at once."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """Lines that prove it: ``first`` and ``last`` busy sample, ``begin`` (the reset), ``usage``."""


class BatchPeriod(msgspec.Struct, tag_field="unit", tag="batch"):
    """Prefill batches of one SGLang scheduler. Shares run from 0 to 1."""

    rank: str | None
    since: Since
    """What began it: a start of the server, a reset of its cache, or the begin of the log."""
    first_line: LineNumber
    last_line: LineNumber
    batches: Count = 0
    seqs: Count = 0
    """Requests admitted, as far as batches can be told apart from their continuations; no probes."""
    new_tokens: Long = 0
    """Computed."""
    cached_tokens: Long = 0
    """Reused."""
    wholes: Count = 0
    """Requests that were alone from begin to end, so that their prompt is known: in one batch, or in chunks.

    Probes are none of them.
    """
    cold: Count = 0
    """Of these, those that reused nothing."""
    cached_least: Amount | None = None
    """Reused tokens of the whole requests behind the first: the fewest."""
    cached_most: Amount | None = None
    """The most."""
    best_share: Share | None = None
    """The largest part of its own prompt that one of them reused."""
    whole_tokens: Long = 0
    """Prompt tokens of all whole requests."""
    whole_cached: Long = 0
    """Tokens that the whole requests behind the first reused."""
    smallest_prompt: Amount | None = None
    """Tokens of the shortest whole request."""
    largest_prompt: Amount | None = None
    """Tokens of the longest whole request."""
    full_new_tokens: Long = 0
    """Of new_tokens, those of batches with a token_usage of FULL or more."""
    full_cached_tokens: Long = 0
    """Of cached_tokens, those of batches with a full KV pool."""
    states_new_tokens: Long = 0
    """Of new_tokens, those of batches with a mamba_usage of STATES_FULL or more."""
    states_cached_tokens: Long = 0
    """Of cached_tokens, those of batches with a full pool of states."""
    bursts: Count = 0
    """Batches of BURST new requests or more that reused nothing."""
    burst_seqs: Count = 0
    """Requests in them."""
    burst_new_tokens: Long = 0
    """Tokens computed in them."""
    after_burst_seqs: Count = 0
    """Requests admitted behind the last of them."""
    after_burst_cached: Long = 0
    """Tokens that these reused."""
    token_usage: Share | None = None
    """The highest. What only the cache holds is not in it: it can be given up at once (0.4.3 to 0.5.23)."""
    swa_usage: Share | None = None
    """The highest."""
    mamba_usage: Share | None = None
    """The highest."""
    usage_at_mamba: Share | None = None
    """token_usage of the batch with the highest mamba_usage."""
    retracted: Count = 0
    """Requests that were put back into the queue because the memory was full."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """Lines that prove it: ``first``, ``last``, ``cold``, ``usage``, ``mamba``, ``retracted``, ``burst``, ``begin``.

    ``whole`` is a whole request behind the first that reused least.
    """


Period = SamplePeriod | BatchPeriod
