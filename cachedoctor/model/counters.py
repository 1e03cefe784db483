"""What lies beside a log: counters of /metrics between two moments, and what responses say of their requests.

Unknown is None, never 0.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from cachedoctor.model.bounds import Amount, Count, LineNumber, Rate


class Bucket(msgspec.Struct):
    """A bar of a histogram."""

    most: Rate | None
    """Tokens up to which it counts, from those of the bar before it on; None for the last one, which has no end."""
    requests: Count


class Counters(msgspec.Struct):
    """Counters of one engine between two dumps of /metrics, or since the start of the server. Tokens, if not said."""

    path: str
    """The later dump."""
    since: str | None
    """The earlier dump; None: since the start of the server."""
    source: str
    """What wrote them: ``vllm``, ``sglang``."""
    engine: str | None = None
    """Label ``engine`` or rank; None where there is none."""
    model: str | None = None
    looked_up: Amount | None = None
    """Prompt tokens that were looked up in the prefix cache."""
    reused: Amount | None = None
    """Of these, tokens that were found."""
    prompt_tokens: Amount | None = None
    """Prompt tokens of all requests, reused ones included."""
    computed: Amount | None = None
    """Prompt tokens that were computed."""
    external_looked_up: Amount | None = None
    external_reused: Amount | None = None
    requests: Amount | None = None
    """Requests that ended."""
    preemptions: Amount | None = None
    """Times that a running request had to give up its memory (retractions of SGLang)."""
    evicted: Amount | None = None
    """Tokens that left the cache for want of room."""
    cached_local: Amount | None = None
    """Prompt tokens that came from the cache of the engine, by their source (vLLM 0.16 and newer)."""
    cached_external: Amount | None = None
    """Prompt tokens that came from a cache beside it, by their source."""
    cached_by_tier: dict[str, Amount] = msgspec.field(default_factory=dict)
    """Reused prompt tokens by the memory that they were found in, as the server calls it; empty where it does not say.

    ``device``, ``host``, ``disk``, ``p2p``, ``external_unspecified`` of vLLM 0.32; ``device``, ``host`` and ``storage``
    of SGLang 0.5.9.
    """
    blocks_taken: Amount | None = None
    """Blocks that requests took over from earlier ones, as far as vLLM samples them; unfilled ones are among them."""
    computed_per_request: list[Bucket] = msgspec.field(default_factory=list)
    """Requests by the prompt tokens that were computed for them (0.13 and newer)."""
    prompt_per_request: list[Bucket] = msgspec.field(default_factory=list)
    """Requests by the length of their prompt."""
    config: dict[str, str] = msgspec.field(default_factory=dict)
    """What the dump says of the cache: ``enable_prefix_caching``, ``block_size``, ``num_gpu_blocks`` ..."""


class Answer(msgspec.Struct):
    """What one response says of its request, in tokens; or, without them, what a logged prompt shares with others."""

    prompt_tokens: Amount | None
    """Reused ones included, whatever the endpoint prints."""
    cached_tokens: Amount | None
    """None where the server was not asked to say it."""
    line: LineNumber | None = None
    """Where in its input it stands."""
    prefix: Amount | None = None
    """Longest common prefix with the best earlier prompt, where the log has them; None for the first.

    In the unit of ``length``. It may be longer where the log has cut one of them.
    """
    length: Amount | None = None
    """Length of the prompt, where the log has it, in bytes or characters as ``prefix`` is."""


_EACH = msgspec.Meta(extra_json_schema={"contract": {"maxItems": 10_000}})


class Answers(msgspec.Struct):
    """Responses of one server, in their order."""

    path: str
    source: str
    """``responses``: given beside the log; ``log``: the server logged them."""
    requests: Count = 0
    told: Count = 0
    """Of these, those that say how much was reused; the sums are over them."""
    prompt_tokens: Amount = 0
    """Reused ones included, whatever the endpoint prints."""
    cached_tokens: Amount = 0
    """Reused."""
    each: Annotated[list[Answer], _EACH] = msgspec.field(default_factory=list)
    """The first 10,000."""
