"""CD504: more was computed than the KV cache holds, and little of it was reused: pushed out, or nothing to share."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import Remedy, SamplePeriod, Session
from cachedoctor.rules import shared_beginnings
from cachedoctor.rules.base import FindingText, SessionFinding, SessionRule, n
from cachedoctor.rules.vllm import rolling

_OVERFLOW = 1.5
"""Times the cache that computed and generated tokens must fill: once is what a first visit of every prompt takes."""
_LOW = 0.5
"""Share reused from which on the cache does its work."""
_FALL = 0.1
"""Share by which a hit rate must have fallen to say that what was found before is found no more."""


class _Flow(NamedTuple):
    """What went through a cache, and what came back."""

    written: int
    """Tokens."""
    share: str
    """FindingText for what was reused."""
    fell: bool
    """Reuse was better before."""
    evidence: rolling.Shown


def inspect(session: Session) -> list[SessionFinding]:
    """Say it where the tokens of a period or of counters exceed the capacity and reuse stayed low."""
    size = session.setting("kv_tokens")
    if not isinstance(size, int) or not size or rolling.caching(session) is False:
        return []
    parted = shared_beginnings.judged(session)
    if parted is not None and parted.early:
        return []  # the prompts are known, and there was nothing to reuse
    for flow in _flows(session):
        if flow.written >= _OVERFLOW * size:
            return [_note(session, flow, shared=parted is not None)]
    return []


def _flows(session: Session) -> list[_Flow]:
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
        fell = (p.most_rate or 0.0) - p.last_rate >= _FALL
        found.append(_Flow(written, f"the hit rate is {rolling.percent(p.last_rate)}", fell, rolling.shown(p)))
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
        said = f"{c.path} counts {n(c.reused)} of {n(c.looked_up)} tokens reused"
        found.append(_Flow(c.computed, said, False, []))
    return found


def _note(session: Session, flow: _Flow, shared: bool) -> SessionFinding:
    size = session.settings["kv_tokens"]
    evicted = any(c.evicted for c in session.counters)
    sure = evicted or flow.fell or shared
    cause = (
        "prompts were probably pushed out before they came back"
        if sure
        else "prompts were pushed out before they came back, or have nothing more to share; the log cannot tell"
    )
    return SessionFinding(
        FindingText(
            f"about {n(flow.written)} tokens went through a KV cache of {n(size.value)}, {flow.written / size.value:.1f} times its size, and "
            f"{flow.share}: {cause}",
            "What is not in use stays in the cache until room is needed, the oldest first. The usage that the log prints counts running "
            "requests alone, so that a low one says nothing against it."
            + (
                ""
                if sure
                else " Prompts that share nothing, by their nature or by a change at their beginning, fill it in the same way."
            ),
            [*([] if sure else [_DECIDE, *_watch(session)]), *_remedies(session), *(_watch(session) if sure else [])],
        ),
        "",
        [*rolling.said_by(size, f"the cache holds {n(size.value)} tokens"), *flow.evidence],
        "warning" if evicted or sure else "note",
        "high" if evicted else "medium" if sure else "low",
    )


_DECIDE = Remedy(
    "See first whether prompts should have shared anything: compare the bodies of two requests.",
    ["cachedoctor diff request1.json request2.json"],
)


def _watch(session: Session) -> list[Remedy]:
    if session.since("0.12") is False:
        return []
    return [
        Remedy(
            "To see whether blocks are pushed out while they are still wanted (0.12 and newer): kv_block_* in /metrics.",
            ["vllm serve ... --kv-cache-metrics"],
        )
    ]


def _remedies(session: Session) -> list[Remedy]:
    found = rolling.more_room(session)
    if session.since("0.11.1") is False:
        return [*found, Remedy("Or serve fewer conversations at once.")]
    return [
        *found,
        Remedy(
            "Keep what is pushed out in main memory (GiB; 0.11.1 and newer), or serve fewer conversations at once.",
            ["vllm serve ... --kv-offloading-size 32"],
        ),
    ]


def _needs(session: Session) -> tuple[str, str] | None:
    missing = rolling.needs_traffic(session)
    if missing is not None or rolling.caching(session) is False:
        return missing
    if not isinstance(session.setting("kv_tokens"), int):
        return "the size of the KV cache is not in the log", "give the log from the start of the server"
    periods = [p for p in session.periods if isinstance(p, SamplePeriod) and p.busy]
    known = any(p.computed_tokens is not None or not p.most_rate for p in periods) or any(
        c.computed is not None for c in session.counters
    )
    return (
        None
        if known
        else ("the lines of this version do not tell how many tokens were computed", rolling.NEEDS_STATISTICS[1])
    )


RULE = SessionRule(
    "CD504",
    "kv-pressure",
    "More was computed than the KV cache holds, and little came back",
    needs=_needs,
    severity="warning",
    inspect=inspect,
    unless=("CD501", "CD502", "CD503"),
    engine="vllm",
)
