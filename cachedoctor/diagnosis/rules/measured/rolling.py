"""The reuse of a server by vLLM's measurements: stretches of traffic, each in the unit of its source."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.diagnosis.rules.kit import n
from cachedoctor.model import (
    Answers,
    Counters,
    Mark,
    Remedy,
    SamplePeriod,
    Session,
    Setting,
    SettingName,
    as_typed,
    left_out,
)

MIN_REQUESTS = 4
"""Requests before anything is said of reuse: on hybrid models the first two with a prefix are always cold."""
MIN_INTERVALS = 2
"""Intervals with traffic before a rolling rate is trusted."""
LITTLE = 0.05
"""Share of the prompts below which there is no useful reuse: a constant beginning of 1,000 in 20,000 tokens."""
SMALLEST_BLOCK = 16
"""Default tokens of a block on a GPU (0.7 to 0.33)."""

_DROPS = (
    "eagle",
    "dflash",
    "dspark",
    "mtp",
    "deepseek_mtp",
    "qwen3_next_mtp",
    "ernie_mtp",
    "longcat_flash_mtp",
    "glm4_moe_mtp",
    "mimo_mtp",
)
"""Methods whose drafting layers need the hidden state of the token before: the last block found is recomputed."""

Shown = list[tuple[Mark, str]]


class TrafficStretch(msgspec.Struct, frozen=True):
    """Traffic that one source shows."""

    unit: Literal["interval", "counters", "responses"]
    requests: int | None
    prompt: float | None
    """Tokens of the average prompt."""
    share: float
    """Reused share, from 0 to 1."""
    computed: int | None
    """Computed tokens."""
    said: str
    """Words for the source of the share."""
    evidence: Shown


def stretches(session: Session) -> list[TrafficStretch]:
    """All that has enough traffic to judge, the lowest share first."""
    rated = _rated(session)
    found = [_interval(session, p) for p in session.periods if isinstance(p, SamplePeriod) and rated]
    found += [_counters(c) for c in session.counters]
    found += [_responses(a) for a in session.answers]
    return sorted((s for s in found if s is not None), key=lambda s: s.share)


def _rated(session: Session) -> bool:
    """Whether the hit rate of this version tells anything: in 0.7 the V1 engine always prints 0.0 %."""
    return session.since("0.8") is not False or "stats_v0" in session.seen


def _interval(session: Session, p: SamplePeriod) -> TrafficStretch | None:
    answered = requests(session, p)
    few = answered is not None and answered < MIN_REQUESTS
    if p.busy < MIN_INTERVALS or few or p.last_rate is None:
        return None
    return TrafficStretch(
        "interval",
        answered,
        average(session, p),
        reused(p) or 0.0,
        p.computed_tokens if p.computed_tokens is not None or p.last_rate else p.prompt_tokens,
        f"{_named(p)}the hit rate is {percent(p.last_rate)} after {p.busy} intervals with traffic{_answered(answered)}{_outside(p)}",
        shown(p),
    )


def _counters(c: Counters) -> TrafficStretch | None:
    if not c.looked_up or c.reused is None or (c.requests is not None and c.requests < MIN_REQUESTS):
        return None
    prompt = c.prompt_tokens / c.requests if c.prompt_tokens and c.requests else None
    since = "since the start of the server" if c.since is None else f"since {c.since}"
    said = f"{c.path} counts {n(c.reused)} of {n(c.looked_up)} tokens as reused {since}"
    found = min(c.looked_up, c.reused + (c.external_reused or 0))
    return TrafficStretch("counters", c.requests, prompt, found / c.looked_up, c.computed, said, [])


def _responses(a: Answers) -> TrafficStretch | None:
    if a.told < MIN_REQUESTS or not a.prompt_tokens:
        return None
    whose = f"{a.told} responses report" if a.source == "responses" else f"the log has {a.told} requests, with"
    said = f"{whose} {n(a.cached_tokens)} of {n(a.prompt_tokens)} prompt tokens reused"
    computed = a.prompt_tokens - a.cached_tokens
    return TrafficStretch(
        "responses", a.told, a.prompt_tokens / a.told, a.cached_tokens / a.prompt_tokens, computed, said, []
    )


def _named(p: SamplePeriod) -> str:
    return "" if p.engine in (None, "000") else f"on engine {p.engine} "


def _answered(requests: int | None) -> str:
    return "" if requests is None else f" and {n(requests)} requests"


def _outside(p: SamplePeriod) -> str:
    return "" if p.last_external_rate is None else f", and {percent(p.last_external_rate)} in an external cache"


def reused(p: SamplePeriod) -> float | None:
    """Share found in the engine's cache or, of the rest, in an external one; None if not printed."""
    if p.last_rate is None:
        return None
    return p.last_rate + (1 - p.last_rate) * (p.last_external_rate or 0.0)


def requests(session: Session, p: SamplePeriod) -> int | None:
    """Text requests that the engine of a period answered; None if the log does not show them or their engine."""
    return p.answered if len(_engines(session)) == 1 else None


def _engines(session: Session) -> set[str | None]:
    return {p.engine for p in session.periods if isinstance(p, SamplePeriod)}


def fits(session: Session, stretch: TrafficStretch) -> bool | None:
    """Whether the cache can contain all computed tokens, so that nothing was evicted; None if unknown."""
    room = session.setting("kv_tokens")
    if not isinstance(room, int) or stretch.computed is None:
        return None
    return stretch.computed < room


def average(session: Session, p: SamplePeriod) -> float | None:
    """Tokens of the average prompt; None if the log does not show it.

    It follows from computed tokens and the hit rate, or from computed tokens alone if nothing was reused. Of several
    engines it is the average of all.
    """
    together = [p] if len(_engines(session)) == 1 else [q for q in session.periods if isinstance(q, SamplePeriod)]
    answered = sum(q.answered or 0 for q in together)
    tokens = [_whole(q) for q in together if q.busy]
    known = [t for t in tokens if t is not None]
    return sum(known) / answered if answered and len(known) == len(tokens) else None


def _whole(p: SamplePeriod) -> int | None:
    """Tokens of all prompts, reused ones included."""
    if p.prompt_tokens is not None:
        return p.prompt_tokens
    if p.looked_up_tokens is not None:
        return p.looked_up_tokens
    return p.computed_tokens if p.most_rate == 0 else None


def shown(p: SamplePeriod) -> Shown:
    """Lines that prove what is said of a period, the last one first."""
    found = [
        ("last", "the last interval with traffic"),
        ("first", "the first interval with traffic"),
        ("begin", "the cache was emptied"),
    ]
    lines = [(p.marks[name], label) for name, label in found if name in p.marks]
    return [pair for at, pair in enumerate(lines) if pair[0].line not in {m.line for m, _ in lines[:at]}]


def percent(share: float) -> str:
    """Write a share as vLLM does."""
    return f"{100 * share:.1f} %"


_BLOCKS: tuple[SettingName, ...] = ("match_unit", "attention_block", "block_size")


def block(session: Session) -> int | None:
    """Tokens of a block that can be reused; None if unknown.

    For a model with several kinds of layers, the least common multiple of their blocks if the log has it (0.30 and
    newer), or else the block of its attention layers.
    """
    line = block_line(session)
    return None if line is None else int(line.value)


def block_line(session: Session) -> Setting | None:
    """The line that shows the block size."""
    found = next((session.settings[name] for name in _BLOCKS if isinstance(session.setting(name), int)), None)
    common = session.settings.get("lcm_block")
    if common is None or session.setting("match_unit") is not None:
        return found
    return common if found is None or common.value > found.value else found


def caching(session: Session) -> bool | None:
    """Whether prefix caching is on, as resolved; None if unknown."""
    if session.setting("prefix_caching") is not None:
        return bool(session.setting("prefix_caching"))
    if any(c.looked_up for c in session.counters):
        return True
    rated = any(isinstance(p, SamplePeriod) and p.rates for p in session.periods)
    return True if rated and (session.since("0.31") is True or any_reuse(session)) else None


def any_reuse(session: Session) -> bool:
    """Whether anything was reused at all."""
    return any(isinstance(p, SamplePeriod) and p.most_rate for p in session.periods) or any(
        c.reused for c in session.counters
    )


def drops_block(method: str) -> bool:
    """Whether a method of speculative decoding makes lookups drop their last block."""
    return method.startswith(_DROPS) or method.endswith("mtp")


def traffic(session: Session) -> bool:
    """Whether prompts were computed."""
    return any(isinstance(p, SamplePeriod) and p.busy for p in session.periods) or any(
        c.prompt_tokens for c in session.counters
    )


def more_room(session: Session) -> list[Remedy]:
    """Advise how the KV cache of this server can contain more tokens."""
    if session.settings.get("blocks_override") is not None:
        return [
            Remedy(
                "Remove or raise --num-gpu-blocks-override, which sets the cache size regardless of the free memory.",
                options=left_out("--num-gpu-blocks-override"),
            )
        ]
    if session.setting("device") == "cpu":
        return [Remedy("Give the cache more memory: VLLM_CPU_KVCACHE_SPACE, in GiB.")]
    return [
        Remedy(
            "Give the cache more memory, or use less memory per token.",
            options=as_typed("--gpu-memory-utilization 0.95 --kv-cache-dtype fp8"),
        )
    ]


def experiment() -> list[Remedy]:
    """Advise how to find out what the log does not show."""
    return [
        Remedy(
            "Send one long request twice, and read cached_tokens in the second response. If cached_tokens is nearly the prompt length, the server reuses identical text, so your prompts differ. If cached_tokens is 0, something on the server prevents reuse.",
            [
                "--enable-prompt-tokens-details",
                "curl -s http://localhost:8000/v1/chat/completions -H 'Content-Type: application/json' -d @request.json",
            ],
            options=as_typed("--enable-prompt-tokens-details"),
            purpose="look",
        ),
        Remedy(
            "Save the request bodies in order. The bodies show whether prompts are unrelated or changed.",
            [
                "cachedoctor analyze vllm.log --requests bodies.jsonl",
                "cachedoctor diff request1.json request2.json",
            ],
        ),
    ]


NEEDS_STATISTICS = (
    "this log has no cache statistics",
    "give dumps of /metrics\ncachedoctor analyze vllm.log --metrics before.txt --metrics after.txt",
)


def needs_statistics(session: Session) -> tuple[str, str] | None:
    """Why a rule that judges reuse was not checked, or None."""
    has = any(isinstance(p, SamplePeriod) for p in session.periods) or session.counters or session.answers
    return None if has else NEEDS_STATISTICS


def needs_traffic(session: Session) -> tuple[str, str] | None:
    """Why a rule that judges a reused share was not checked, or None: no share, or one of too few requests."""
    missing = needs_statistics(session)
    if missing is not None or caching(session) is False or stretches(session):
        return missing
    periods = [p for p in session.periods if isinstance(p, SamplePeriod) and p.busy]
    if periods and not _rated(session):
        reason = "the hit rate of this version is always 0.0 %"
    elif periods and all(p.last_rate is None for p in periods):
        reason = "the log prints no hit rate"
    else:
        reason = f"too little traffic for a conclusion: at least {MIN_INTERVALS} intervals and {MIN_REQUESTS} requests are needed"
    return reason, NEEDS_STATISTICS[1]
