"""CD606: with SGLang's strategy extra_buffer a prompt keeps one state, which is after its common prefix with others."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import (
    ENOUGH,
    HALF,
    LONG,
    WholeRequests,
    caching,
    hybrid,
    marks,
    one_by_one,
    periods,
    seen,
    stateless,
    strategy,
    wanting,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import compare_bodies, needs_requests, needs_start

COLD = 2
"""Requests that reused nothing after the first one: one may begin another conversation."""

_WHY = "A prefill keeps one state: at its last multiple of 64 tokens, or where its prompt diverges from an earlier prompt. The state of the first prompt with a shared beginning is saved inside that prompt's own suffix. The second prompt finds no state, computes everything, and keeps a state where the two prompts diverge. Only later prompts that diverge at the same place reuse that state. The next turn cannot reuse the second prompt's suffix, unless the answer is longer than --mamba-track-interval (256 tokens)."
_WHY_HICACHE = "A prefill keeps one state, at its last multiple of 64 tokens. Up to 0.5.16, the unified tree with --enable-hierarchical-cache keeps no state where prompts diverge. A shared beginning followed by different text is then never reused (PR 31181)."


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if some requests reused and several did not, or if the version keeps no state at a fork."""
    if strategy(session) not in ("extra_buffer", "extra_buffer_lazy") or caching(session) is not True:
        return []
    forkless = (
        session.setting("hicache") is True
        and session.setting("cache_kind") == "UnifiedRadixCache"
        and session.since("0.5.17") is False
    )
    for period in periods(session):
        requests = seen(session, period)
        if requests is not None and not stateless(period) and _loses(requests, forkless):
            return [_note(session, period, requests, forkless)]
    return []


def _loses(requests: WholeRequests, forkless: bool) -> bool:
    if requests.count <= ENOUGH or requests.largest < LONG or requests.share >= HALF:
        return False
    return requests.cold > COLD and (requests.most > 0 or forkless)


def _note(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests, forkless: bool) -> kit.SessionFinding:
    remedies = [
        kit.Remedy(
            "Use 0.5.17 or newer, which keeps a state where prompts diverge, also with --enable-hierarchical-cache."
        )
    ]
    if not forkless:
        remedies = [
            kit.Remedy(
                "When the server starts, send only the shared beginning and generate one token. The state is then inside the part that all prompts share."
            ),
            kit.Remedy(
                "Or keep more states per prompt, one at the end of every prefill chunk. More states cost speed.",
                options=kit.as_typed("--chunked-prefill-size 2048"),
            ),
        ]
    return kit.finding(
        f"strategy {strategy(session)}: {requests.cold:,} of {requests.count:,} requests of {kit.n(requests.smallest)} to "
        f"{kit.n(requests.largest)} tokens reused nothing, the other requests reused up to {kit.n(requests.most)} tokens; the prompts may share a beginning, with different text after it",
        _WHY_HICACHE if forkless else _WHY,
        [*remedies, compare_bodies()],
        ruled_out=[kit.RuledOut("mamba-state-pressure", "the running requests always left many states free")],
        references=[
            "https://github.com/sgl-project/sglang/issues/22935",
            "https://github.com/sgl-project/sglang/pull/31181",
            "https://github.com/sgl-project/sglang/pull/37198",
        ],
        evidence=[
            *marks(period, ("cold", "a request that reused nothing"), ("whole", "the request that reused least")),
            *kit.said_by(session.settings.get("mamba_strategy"), "the strategy"),
        ],
        confidence="medium" if forkless or requests.most > 0 else "low",
    )


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if hybrid(session) is not True or caching(session) is False or not wanting(session):
        return None
    kept = strategy(session)
    if kept is None:
        return needs_start()
    return needs_requests() if kept != "no_buffer" and not one_by_one(session) else None


RULE = kit.session_rule(
    __name__, "A shared beginning is not reused when different text follows it (extra_buffer)", inspect, needs=_needs
)
