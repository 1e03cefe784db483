"""The tokens that passed through the KV cache of a vLLM server, and whether its requests form two groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from cachedoctor.diagnosis.rules.kit import n
from cachedoctor.diagnosis.rules.measured import rolling
from cachedoctor.model import Bucket, Counters, SamplePeriod, Session

_OVERFLOW = 1.5
"""Times that computed and generated tokens must fill the cache: the first request of every prompt may fill it once."""
_LOW = 0.5
"""Reused share above which the cache works well."""


class KvFlow(msgspec.Struct, frozen=True):
    """Tokens that passed through a cache, and tokens that were reused."""

    written: int
    """Tokens that went through the cache."""
    share: str
    """Words for what was reused."""
    evidence: rolling.Shown


def overflow(session: Session) -> KvFlow | None:
    """The first stretch of traffic with little reuse whose tokens exceed the cache by far; None if there is none."""
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
        found.append(KvFlow(c.computed, f"{c.path} counts {n(c.reused)} of {n(c.looked_up)} tokens as reused", []))
    return found


_LEAST = 20
"""Requests that are needed before their distribution shows anything."""
_GROUP = 0.2
"""Share of the requests that each group must have."""
_GAP = 2
"""Almost empty histogram buckets between the groups; each bucket ends at two to two and a half times the previous one."""
LONG = 256
"""Tokens of a prompt from which on a block of any usual size is small compared with it."""
_NOTHING = 0.05
"""Share of its prompt up to which a request reused almost nothing."""
_EMPTY = 0.02
"""Share of the requests up to which a bucket counts as empty."""


class RequestGroups(msgspec.Struct, frozen=True):
    """Two groups of requests."""

    low: int
    """Requests that computed little."""
    low_most: float
    """Maximum tokens that one of them computed."""
    high: int
    """Requests that computed nearly all of their prompt."""
    high_least: float
    """Minimum tokens that one of them computed."""


def groups(session: Session) -> Iterator[tuple[RequestGroups, str]]:
    """Yield the groups that dumps of /metrics and responses show, with their source."""
    for counted in session.counters:
        if (found := _counted(counted)) is not None:
            yield found, counted.path
    for answers in session.answers:
        each = ((a.prompt_tokens or 0, a.cached_tokens) for a in answers.each)
        told = [(prompt, cached) for prompt, cached in each if cached is not None and prompt >= LONG]
        low = [prompt - cached for prompt, cached in told if cached > prompt / 2]
        high = [prompt - cached for prompt, cached in told if cached < _NOTHING * prompt]
        if len(told) >= _LEAST and min(len(low), len(high)) >= _GROUP * len(told):
            yield RequestGroups(len(low), max(low), len(high), min(high)), answers.path


def _counted(counted: Counters) -> RequestGroups | None:
    """Return the groups in the histograms of a dump of /metrics; None where there are none."""
    bars, prompts = counted.computed_per_request, counted.prompt_per_request
    total = sum(bar.requests for bar in bars)
    if total < _LEAST or len(prompts) != len(bars):
        return None
    for at in range(1, len(bars) - _GAP):
        behind = at + _GAP
        if any(bar.requests > _EMPTY * total for bar in bars[at:behind]):
            continue
        low, high = _sum(bars[:at]), _sum(bars[behind:])
        whole = _sum(prompts[behind : _last(bars) + 2])  # the prompt of a request is in its bar or the next
        edge = bars[at - 1].most, bars[behind - 1].most
        if min(low, high) >= _GROUP * total and whole >= high and edge[0] is not None and edge[1] is not None:
            return RequestGroups(low, edge[0], high, edge[1])
    return None


def _sum(bars: Sequence[Bucket]) -> int:
    return sum(bar.requests for bar in bars)


def _last(bars: Sequence[Bucket]) -> int:
    """Index of the last bar that is not empty."""
    return max((at for at, bar in enumerate(bars) if bar.requests), default=0)
