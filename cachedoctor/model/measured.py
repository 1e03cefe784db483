"""What vLLM and SGLang log instead of requests: samples, batches, periods, counters, and sums of given bodies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cachedoctor.model.account import ClientName
from cachedoctor.model.bounds import Amount, Count, LineNumber, Long, Name, Rate, Share, Text
from cachedoctor.model.diff import PromptDiff
from cachedoctor.model.log_lines import Mark


class CacheSample(msgspec.Struct, gc=False):
    """Statistics that one engine logs every few seconds. Shares run from 0 to 1; rates are tokens per second."""

    session: Count
    """Index of the session."""
    path: str
    line: LineNumber
    engine: str | None = None
    """Name of the engine, such as ``000``; None if the line names no engine (versions up to 0.7)."""
    time: str | None = None
    """Time as ``--MM-DDTHH:MM:SS``, because vLLM writes no year."""
    interval_s: Rate | None = None
    """Seconds over which the rates are averaged: the time between the lines of a busy engine, or the default
    interval."""
    prompt_rate: Rate | None = None
    """Prompt tokens per second. Whether reused tokens are included depends on the version: see prompt_tokens and
    computed_tokens."""
    generation_rate: Rate | None = None
    """Generated tokens per second."""
    running: Amount | None = None
    """Running requests."""
    waiting: Amount | None = None
    """Waiting requests."""
    deferred: Amount | None = None
    """Deferred requests."""
    kv_usage: Share | None = None
    """Share of the KV cache that running requests hold; cached blocks that are free count as unused."""
    hit_rate: Share | None = None
    """Reused share of the tokens looked up by the last 1,000 requests since the start or a reset; None if the line does
    not print it."""
    external_hit_rate: Share | None = None
    mm_hit_rate: Share | None = None
    """Hit rate of multimodal items, not of tokens."""
    preemptions: Amount | None = None
    prompt_tokens: Amount | None = None
    """prompt_rate x interval_s, if prompt_rate includes reused tokens (up to 0.14)."""
    computed_tokens: Amount | None = None
    """prompt_rate x interval_s, if prompt_rate counts only computed tokens (0.16 and newer)."""
    looked_up_tokens: Amount | None = None
    """Prompt tokens looked up since the previous sample: the difference of two sums; see SamplePeriod."""
    looked_up_within: Amount | None = None
    """Possible error of looked_up_tokens."""
    answered: Amount | None = None
    """Text requests answered since the previous sample; None if the log has no access lines."""


class PrefillBatch(msgspec.Struct, gc=False):
    """What one scheduler logs about a batch. A batch is neither a request nor a prompt: it may contain parts of several
    prompts."""

    session: Count
    """Index of the session."""
    path: str
    line: LineNumber
    rank: str | None = None
    """Name of the rank, such as ``DP0 TP0``; None if the line names no rank."""
    time: str | None = None
    """Time in ISO 8601, in the time zone of the server."""
    new_seqs: Amount | None = None
    """Requests in the batch, including a request that continues from the previous batch."""
    new_tokens: Amount | None = None
    """Tokens computed; rounded up to whole pages before 0.5.20."""
    cached_tokens: Amount | None = None
    """Tokens reused by the requests that were admitted in the batch, from all kinds of memory."""
    token_usage: Share | None = None
    """Used share of the KV pool, from 0 to 1; for a hybrid or SWA model, of the pool for full attention."""
    swa_usage: Share | None = None
    mamba_usage: Share | None = None
    running: Amount | None = None
    """Running requests."""
    queue: Amount | None = None
    """Waiting requests."""
    pending_tokens: Amount | None = None
    continues: bool | None = None
    """True if the batch continues an unfinished prompt of the previous batch and reuses nothing."""
    whole: bool = False
    """True if the batch contains exactly one complete request. Its prompt has new_tokens + cached_tokens tokens, up to
    a page."""


Since = Literal["start", "reset", "log"]
"""What began it: a server start, a cache reset, or only the start of the log."""


FULL = 0.95
"""token_usage from which a batch counts as having a full KV pool: running requests leave almost no space for the
cache."""
STATES_FULL = 0.9
"""mamba_usage from which the pool of states counts as full: one request takes up to three states at once."""
BURST = 4
"""New requests from which a batch without reuse counts as a burst: fewer may coincide by chance."""

PROBE = 16
"""Tokens, or one page if larger: a single request of at most this size is a warm-up or a health check."""


class SamplePeriod(msgspec.Struct, gc=False, tag_field="unit", tag="interval"):
    """Statistics lines of one vLLM engine. Shares run from 0 to 1."""

    engine: str | None
    since: Since
    """What began the period: a server start, a cache reset, or the start of the log."""
    first_line: LineNumber
    last_line: LineNumber
    samples: Count = 0
    busy: Count = 0
    """Number of samples with prompt tokens."""
    seconds: Rate = 0.0
    """Time that the busy samples cover."""
    prompt_tokens: Amount | None = None
    """Sum over the samples; None if the samples do not show this number (see CacheSample)."""
    computed_tokens: Amount | None = None
    """Sum over the samples; None as for prompt_tokens."""
    within: Amount | None = None
    """Possible error of the sum in tokens: rates are rounded, and the first interval is known only to the second."""
    looked_up_tokens: Amount | None = None
    """Prompt tokens that were looked up in the cache, including reused tokens: computed_tokens / (1 - last_rate). None
    if the log does not show the number: below 0.16, after the first 1,000 requests, if the start is missing, and up to
    0.26 if requests waited."""
    looked_up_within: Amount | None = None
    """Possible error of looked_up_tokens: the rate is rounded to 0.1 %."""
    generated_tokens: Amount | None = None
    """Generated tokens, as a sum over the samples."""
    answered: Amount | None = None
    """Text requests answered by all engines of the server; None if the log has no access lines."""
    rates: Count = 0
    """Number of samples that print a hit rate."""
    first_rate: Share | None = None
    """Hit rate of the first busy sample that prints a hit rate."""
    last_rate: Share | None = None
    least_rate: Share | None = None
    most_rate: Share | None = None
    last_external_rate: Share | None = None
    kv_usage: Share | None = None
    """Highest KV cache usage."""
    waiting: Count = 0
    """Maximum number of requests that waited at the same time."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """Lines that prove it: ``first`` and ``last`` busy sample, ``begin`` (the reset), ``usage``."""


class BatchPeriod(msgspec.Struct, gc=False, tag_field="unit", tag="batch"):
    """Prefill batches of one SGLang scheduler. Shares run from 0 to 1."""

    rank: str | None
    since: Since
    """What began the period: a server start, a cache reset, or the start of the log."""
    first_line: LineNumber
    last_line: LineNumber
    batches: Count = 0
    seqs: Count = 0
    """Admitted requests without probes, as far as new batches can be distinguished from continued batches."""
    new_tokens: Long = 0
    """Tokens computed."""
    cached_tokens: Long = 0
    """Tokens reused."""
    wholes: Count = 0
    """Requests that ran alone from start to end, in one batch or in chunks, so their prompt length is known; without
    probes."""
    cold: Count = 0
    """Number of the ``wholes`` requests that reused nothing."""
    cached_least: Amount | None = None
    """Fewest reused tokens of any complete request after the first."""
    cached_most: Amount | None = None
    """Most reused tokens of any complete request after the first."""
    best_share: Share | None = None
    """Largest share of its own prompt that one of the ``wholes`` requests reused."""
    whole_tokens: Long = 0
    """Prompt tokens of all ``wholes`` requests."""
    whole_cached: Long = 0
    """Tokens reused by all ``wholes`` requests after the first one."""
    smallest_prompt: Amount | None = None
    """Prompt tokens of the shortest ``wholes`` request."""
    largest_prompt: Amount | None = None
    """Prompt tokens of the longest ``wholes`` request."""
    full_new_tokens: Long = 0
    """The part of new_tokens in batches with a token_usage of FULL or more."""
    full_cached_tokens: Long = 0
    """The part of cached_tokens in batches with a full KV pool."""
    states_new_tokens: Long = 0
    """The part of new_tokens in batches with a mamba_usage of STATES_FULL or more."""
    states_cached_tokens: Long = 0
    """The part of cached_tokens in batches with a full pool of states."""
    bursts: Count = 0
    """Batches with at least BURST new requests that reused nothing."""
    burst_seqs: Count = 0
    """Requests in the ``bursts`` batches."""
    burst_new_tokens: Long = 0
    """Tokens computed in the ``bursts`` batches."""
    after_burst_seqs: Count = 0
    """Requests admitted after the last of the ``bursts`` batches."""
    after_burst_cached: Long = 0
    """Tokens that the ``after_burst_seqs`` requests reused."""
    token_usage: Share | None = None
    """Highest token_usage. Tokens that only the cache holds are not included, because they can be evicted at once
    (0.4.3 to 0.5.23)."""
    swa_usage: Share | None = None
    """Highest swa_usage."""
    mamba_usage: Share | None = None
    """Highest mamba_usage."""
    usage_at_mamba: Share | None = None
    """token_usage of the batch with the highest mamba_usage."""
    retracted: Count = 0
    """Requests that were put back into the queue because the memory was full."""
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)
    """Lines that prove it: ``first``, ``last``, ``cold``, ``usage``, ``mamba``, ``retracted``, ``burst``, ``begin``.

    ``whole`` is a whole request after the first that reused least.
    """


Period = SamplePeriod | BatchPeriod


class Bucket(msgspec.Struct):
    """A bar of a histogram."""

    most: Rate | None
    """Upper bound in tokens; the lower bound is the upper bound of the previous bar. None for the last bar, which has
    no upper bound."""
    requests: Count


class Counters(msgspec.Struct):
    """Counters of one engine between two dumps of /metrics, or since the start of the server. Numbers are tokens unless
    stated otherwise."""

    path: str
    """The later dump."""
    since: str | None
    """The earlier dump; None: since the start of the server."""
    source: str
    """Engine that wrote the counters: ``vllm``, ``sglang``."""
    engine: str | None = None
    """Label ``engine`` or rank; None if there is no label."""
    model: str | None = None
    looked_up: Amount | None = None
    """Prompt tokens that were looked up in the prefix cache."""
    reused: Amount | None = None
    """Prompt tokens that were found in the prefix cache."""
    prompt_tokens: Amount | None = None
    """Prompt tokens of all requests, including reused tokens."""
    computed: Amount | None = None
    """Prompt tokens that were computed."""
    external_looked_up: Amount | None = None
    external_reused: Amount | None = None
    requests: Amount | None = None
    """Requests that ended."""
    preemptions: Amount | None = None
    """How often a running request had to give up its memory (retractions of SGLang)."""
    evicted: Amount | None = None
    """Tokens evicted from the cache for lack of space."""
    cached_local: Amount | None = None
    """Prompt tokens from the engine's own cache (vLLM 0.16 and newer, which count tokens by source)."""
    cached_external: Amount | None = None
    """Prompt tokens from a cache outside the engine (vLLM 0.16 and newer, which count tokens by source)."""
    cached_by_tier: dict[str, Amount] = msgspec.field(default_factory=dict)
    """Reused prompt tokens by the memory that held them, under the server's own names; empty if the server does not
    report the memory. vLLM 0.32: ``device``, ``host``, ``disk``, ``p2p``, ``external_unspecified``. SGLang 0.5.9:
    ``device``, ``host``, ``storage``."""
    blocks_taken: Amount | None = None
    """Blocks that requests reused from earlier requests, as sampled by vLLM; includes partly filled blocks."""
    computed_per_request: list[Bucket] = msgspec.field(default_factory=list)
    """Histogram of requests by their computed prompt tokens (0.13 and newer)."""
    prompt_per_request: list[Bucket] = msgspec.field(default_factory=list)
    """Histogram of requests by their prompt length."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings of the cache in the dump: ``enable_prefix_caching``, ``block_size``, ``num_gpu_blocks`` ..."""


class AgentClaim(msgspec.Struct, frozen=True):
    """Why less of a prompt was reused, according to the agent that sent it or the provider that answered."""

    by: str
    """``Claude Code``, ``Copilot``, ``the provider``."""
    reason: str
    """Reason as it is written: ``tools_changed``."""
    tokens: int | None = None
    """Tokens not reused for this reason."""


class ClaimedRequest(msgspec.Struct, frozen=True):
    """A request with such a claim, and the counts of its answer, by which it is found in a log."""

    claim: AgentClaim
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


class AgentDifference(msgspec.Struct):
    """A request for which an agent names another reason than the log shows."""

    request: Count
    """Index of the request."""
    task: int | None
    line: LineNumber
    """Line of the log at which the request begins."""
    reason: Text
    """Reason as the agent writes it."""
    log: list[Name]
    """Causes that the log shows; empty if nearly all was reused."""


class AgentVerdict(msgspec.Struct):
    """What one agent reports about its requests, compared with the log. A claim changes no finding."""

    by: Text
    """Name of the agent: ``Claude Code``."""
    reasons: dict[str, Count]
    """Number of requests for each reason that the agent gives."""
    tokens: Amount
    """Tokens not reused, as far as the claims give a number."""
    agrees: Count = 0
    """Requests for which the log shows the same reason."""
    differs: Count = 0
    """Requests for which the log shows another reason."""
    undecided: Count = 0
    """Requests whose cause the log does not show."""
    unmatched: Count = 0
    """Requests whose token counts match no request in the log."""
    differences: list[AgentDifference] = msgspec.field(default_factory=list)
    """The first 20 requests for which the log shows another reason."""


class Answer(msgspec.Struct):
    """Token counts of one request, from its response; or, without token counts, the common prefix of a logged prompt
    with other prompts."""

    prompt_tokens: Amount | None
    """Prompt tokens including reused tokens, also if the endpoint does not count reused tokens."""
    cached_tokens: Amount | None
    """Reused tokens; None if the server does not report them."""
    line: LineNumber | None = None
    """Line of the response in its input."""
    prefix: Amount | None = None
    """Longest common prefix with an earlier prompt, if the log shows the prompts, in the unit of ``length``; None for
    the first prompt. If the log truncated one of the prompts, the real prefix may be longer."""
    length: Amount | None = None
    """Length of the prompt, if the log shows it, in bytes or characters, like ``prefix``."""


_EACH = msgspec.Meta(extra_json_schema={"contract": {"maxItems": 10_000}})


class Answers(msgspec.Struct):
    """Responses of one server, in their order."""

    path: str
    source: str
    """``responses``: given with the log; ``log``: the server logged them."""
    requests: Count = 0
    told: Count = 0
    """Number of these responses that show how much was reused; the sums cover only these responses."""
    prompt_tokens: Amount = 0
    """Prompt tokens including reused tokens, also if the endpoint does not count reused tokens."""
    cached_tokens: Amount = 0
    """Reused tokens."""
    each: Annotated[list[Answer], _EACH] = msgspec.field(default_factory=list)
    """The first 10,000 responses."""


class SentChange(msgspec.Struct):
    """Bodies that repeat text of earlier ones after differences of one kind."""

    worst: PromptDiff
    """Difference between the body that repeats most text and the earlier body that contains this text."""
    bodies: int = 0
    repeated: int = 0
    """Bytes of repeated text."""
    senders: list[ClientName | None] = msgspec.field(default_factory=list)
    """Clients that sent them, each once; None if the body does not identify the client."""


class SentBodies(msgspec.Struct):
    """Sums over all bodies, in bytes of their text."""

    bodies: int
    complete: bool
    """True if there are as many bodies as answered requests, so that the content of the cache can be computed."""
    size: int
    """Bytes of all prompts."""
    shared: int
    """Longest prefix shared with an earlier body: what an unlimited cache would have reused."""
    endless: int | None
    """Of ``shared``, the part in whole blocks."""
    kept: int | None
    """The part of these blocks that a cache of the logged size still held; None if its size, or the length of a token,
    is unknown."""
    repeated: int
    """Text after a difference that an earlier body contains after another prefix."""
    changed: int
    """Bodies that consist mostly of such text."""
    salted: int
    """Prefix shared with an earlier body under another ``cache_salt``, beyond ``shared``."""
    resumed: int
    """Of it, the part of bodies that continue an earlier one: one conversation under several salts."""
    salts: int
    """Different salts."""
    with_salt: int
    """Bodies that have one."""
    senders: int
    """Distinguishable clients; all unidentified ones count as one."""
    adapted: int = 0
    """Prefix shared with an earlier body with the same salt but another LoRA adapter, beyond ``shared``."""
    switched: int = 0
    """Of it, the part of bodies that continue an earlier one: one conversation with several adapters."""
    adapters: int = 0
    """Different adapters, none at all among them."""
    changes: list[SentChange] = msgspec.field(default_factory=list)
    """Changed bodies by kind of first difference, largest part first."""
    tokens: int | None = None
    """Tokens of all prompts, if a source other than the bodies counts them."""

    def share(self, part: int | None) -> float:
        """Share of ``part`` in all prompts, from 0 to 1."""
        return (part or 0) / self.size if self.size else 0.0
