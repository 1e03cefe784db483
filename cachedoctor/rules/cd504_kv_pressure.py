"""CD504: more was computed than the KV cache holds, and little of it was reused: prompts may have been pushed out."""

from __future__ import annotations

from cachedoctor.model import Remedy, SamplePeriod, Session
from cachedoctor.rules import rolling
from cachedoctor.rules.base import Note, Rule, Words, n

_OVERFLOW = 1.5
"""Times the cache that computed and generated tokens must fill: once is what a first visit of every prompt takes."""
_LOW = 0.5
"""Share reused from which on the cache does its work."""


def inspect(session: Session, fired: set[str]) -> list[Note]:
    """Say it where the tokens of a period exceed the capacity and reuse stayed low."""
    size = session.settings.get("kv_tokens")
    evicted = next((c for c in session.counters if c.evicted), None)
    if fired & {"CD501", "CD502", "CD503"} or size is None or not size.value:
        return []
    for p in session.periods:
        if (
            not isinstance(p, SamplePeriod)
            or p.busy < rolling.MIN_INTERVALS
            or p.last_rate is None
            or p.last_rate > _LOW
        ):
            continue
        if p.answered is not None and p.answered < rolling.MIN_REQUESTS:
            continue
        if p.computed_tokens is None:
            continue
        written = p.computed_tokens + (p.generated_tokens or 0)
        if written >= _OVERFLOW * size.value:
            return [_note(session, p, written, evicted is not None)]
    return []


def _note(session: Session, p: SamplePeriod, written: int, evicted: bool) -> Note:
    size = session.settings["kv_tokens"]
    times = written / size.value
    lines = [*rolling.said_by(size, f"the cache holds {n(size.value)} tokens"), *rolling.shown(p)]
    return Note(
        Words(
            f"about {n(written)} tokens went through a KV cache of {n(size.value)}, {times:.1f} times its size, and the hit rate stayed "
            f"at {rolling.percent(p.last_rate or 0.0)}: prompts were probably pushed out before they came back",
            "What is not in use stays in the cache until room is needed, the oldest first. The usage that the log prints counts running "
            "requests alone, so that a low one says nothing against it. Prompts that share nothing fill the cache in the same way.",
            _remedies(session),
            [],
        ),
        "",
        lines,
        "warning",
        "high" if evicted else "medium" if (p.most_rate or 0.0) > 0 else "low",
    )


def _remedies(session: Session) -> list[Remedy]:
    return (
        [
            Remedy(
                "Give it more memory, or make a token smaller.",
                ["vllm serve ... --gpu-memory-utilization 0.95 --kv-cache-dtype fp8"],
            ),
            Remedy(
                "Keep what is pushed out in main memory (0.12 and newer), or serve fewer conversations at once.",
                ["vllm serve ... --kv-offloading-size 32"],
            ),
            Remedy(
                "To see whether blocks are pushed out while they are still wanted (0.12 and newer): kv_block_* in /metrics.",
                ["vllm serve ... --kv-cache-metrics"],
            ),
        ]
        if session.since("0.12") is not False
        else [
            Remedy(
                "Give it more memory, or make a token smaller.",
                ["vllm serve ... --gpu-memory-utilization 0.95 --kv-cache-dtype fp8"],
            ),
            Remedy("Or serve fewer conversations at once."),
        ]
    )


RULE = Rule(
    "CD504",
    "kv-pressure",
    "More was computed than the KV cache holds, and little came back",
    needs=rolling.needs_traffic,
    severity="warning",
    on=(),
    inspect=inspect,
    after=("CD501", "CD502", "CD503"),
    engine="vllm",
)
