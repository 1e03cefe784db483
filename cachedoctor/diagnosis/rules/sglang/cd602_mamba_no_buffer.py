"""CD602: a hybrid model whose states are kept only where a request ended (SGLang's strategy no_buffer)."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import (
    ENOUGH,
    LITTLE,
    LONG,
    WholeRequests,
    caching,
    hybrid,
    known,
    marks,
    one_by_one,
    periods,
    seen,
    stateless,
    strategy,
    wanting,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import experiment, extra_buffer, needs_requests, needs_start

_WHY = "A state cannot be truncated like a KV cache, so a prompt is only reused up to a position whose state was kept. With no_buffer, states are kept at the ends of prefill chunks, prompts and answers. A prompt may diverge elsewhere: after a shared system prompt, or if the template renders the last turn differently. The prompt then needs an earlier state, and usually there is none. A repeated prompt finds no state either, because its last token has to be computed."


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if the strategy is known, and the requests that are known one by one reused little."""
    if strategy(session) != "no_buffer" or caching(session) is not True:
        return []
    for period in periods(session):
        requests = seen(session, period)
        if requests is not None and _loses(requests) and not stateless(period):
            return [_note(session, period, requests)]
    return []


def _loses(requests: WholeRequests) -> bool:
    return requests.count > ENOUGH and requests.largest >= LONG and requests.share < LITTLE


def _note(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests) -> kit.SessionFinding:
    proven = known(session)
    some = requests.most > 0
    severity: kit.Severity = "warning" if proven or some else "note"
    confidence: kit.Confidence = "high" if proven else "medium"
    asked = session.settings.get("mamba_strategy")
    shown = marks(
        period, ("whole", "a single request and its reused tokens"), ("cold", "a request that reused nothing")
    )
    proof = f"; {proven} logged prompts began like an earlier prompt" if proven else ""
    return kit.finding(
        f"states are kept only where a request ended (no_buffer): {requests.count:,} requests of {kit.n(requests.smallest)} to {kit.n(requests.largest)} tokens reused "
        f"{kit.n(requests.cached)} of {kit.n(requests.tokens)} tokens ({100 * requests.share:.0f} %){proof}",
        _WHY,
        [extra_buffer(session), *([] if proven else [experiment(session)])],
        ruled_out=[
            kit.RuledOut("radix-cache-off", "the log shows that the radix cache is on, or that tokens were reused"),
            kit.RuledOut("mamba-state-pressure", "the running requests always left many states free"),
        ],
        references=[
            "https://github.com/sgl-project/sglang/issues/22935",
            "https://github.com/sgl-project/sglang/pull/14792",
        ],
        evidence=[*shown, *kit.said_by(asked, "the strategy")] or kit.said_by(asked, "the strategy"),
        severity=severity,
        confidence=confidence,
    )


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if hybrid(session) is not True or caching(session) is False or not wanting(session):
        return None  # there is nothing to be evaluated
    kept = strategy(session)
    if kept is None:
        return needs_start()
    return needs_requests() if kept == "no_buffer" and not one_by_one(session) else None


RULE = kit.session_rule(
    __name__,
    "A hybrid model saves its state only at the end of a request (no_buffer)",
    inspect,
    severity="warning",
    needs=_needs,
)
