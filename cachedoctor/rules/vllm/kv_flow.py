"""How much went through the KV cache of a vLLM server, beside what it holds, and what came back."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import SamplePeriod, Session
from cachedoctor.rules.base import n
from cachedoctor.rules.vllm import rolling

_OVERFLOW = 1.5
"""Times the cache that computed and generated tokens must fill: once is what a first visit of every prompt takes."""
_LOW = 0.5
"""Share reused from which on the cache does its work."""


class KvFlow(NamedTuple):
    """What went through a cache, and what came back."""

    written: int
    """Tokens."""
    share: str
    """Words for what was reused."""
    evidence: rolling.Shown


def overflow(session: Session) -> KvFlow | None:
    """The first stretch of traffic with little reuse whose tokens exceed the cache by far; None where there is none."""
    size = session.setting("kv_tokens")
    if not isinstance(size, int) or not size:
        return None
    return next((flow for flow in _flows(session) if flow.written >= _OVERFLOW * size), None)


def _flows(session: Session) -> list[KvFlow]:
    """All with little reuse whose tokens are known."""
    found = []
    for p in session.periods:
        if (
            not isinstance(p, SamplePeriod)
            or p.busy < rolling.MIN_INTERVALS
            or p.last_rate is None
            or (rolling.reused(p) or 0.0) > _LOW
        ):
            continue
        answered = rolling.requests(session, p)
        computed = p.computed_tokens if p.computed_tokens is not None or p.most_rate else p.prompt_tokens
        if computed is None or (answered is not None and answered < rolling.MIN_REQUESTS):
            continue
        written = computed + (p.generated_tokens or 0)
        found.append(KvFlow(written, f"the hit rate is {rolling.percent(p.last_rate)}", rolling.shown(p)))
    for c in session.counters:
        few = c.requests is not None and c.requests < rolling.MIN_REQUESTS
        if (
            few
            or not c.looked_up
            or c.reused is None
            or c.computed is None
            or c.reused + (c.external_reused or 0) > _LOW * c.looked_up
        ):
            continue
        found.append(KvFlow(c.computed, f"{c.path} counts {n(c.reused)} of {n(c.looked_up)} tokens reused", []))
    return found
