"""CD605: the memory for the states of a hybrid model is full while its KV cache has free space."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import caching, marks, periods, pressed, reuse
from cachedoctor.diagnosis.rules.sglang.option_advice import log_requests

_WHY = "A hybrid model can only continue from a position whose state was kept, and states have their own pool. Each running request uses one to three states; the rest of the pool holds cached states, and the oldest states are evicted without a log line. The KV cache of a prefix without a state remains but cannot be used."


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if states ran short before tokens did, and reuse was lost."""
    if caching(session) is False:
        return []
    for period in periods(session):
        short = (period.mamba_usage or 0.0) >= kit.STATES_FULL
        tokens = period.usage_at_mamba if period.usage_at_mamba is not None else period.token_usage
        if (
            short
            and (tokens is None or tokens < kit.FULL)
            and (lost := pressed(session, period, period.states_new_tokens, period.states_cached_tokens))
        ):
            return [_note(session, period, tokens, *lost)]
    return []


def _note(
    session: kit.Session,
    period: kit.BatchPeriod,
    tokens: float | None,
    severity: kit.Severity,
    confidence: kit.Confidence,
) -> kit.SessionFinding:
    held = session.setting("mamba_states")
    of = f" ({kit.n(held)} in total)" if isinstance(held, int) else ""
    beside = "" if tokens is None else f", while KV cache usage was {100 * tokens:.0f} %"
    claim = (
        f"too little memory for the states of a hybrid model: running requests held {100 * (period.mamba_usage or 0):.0f} % of the states{of}, so almost none were left for reuse{beside}; "
        f"of {kit.n(period.new_tokens + period.cached_tokens)} prompt tokens {100 * reuse(period):.0f} % were reused"
    )
    return kit.finding(
        claim,
        _WHY,
        [*_remedies(session), *([] if confidence == "high" else [log_requests()])],
        ruled_out=[kit.RuledOut("kv-pressure", "the same log line shows free space in the KV pool")]
        if tokens is not None
        else [],
        references=[
            "https://github.com/sgl-project/sglang/pull/15337",
            "https://github.com/sgl-project/sglang/pull/31643",
        ],
        evidence=[
            *marks(period, ("mamba", "almost no state is left for the cache"), ("last", "the last batch")),
            *kit.said_by(session.settings.get("mamba_states"), "the size of the pool of states"),
        ],
        severity=severity,
        confidence=confidence,
    )


def _more_states(session: kit.Session) -> kit.Remedy:
    what = "Give states more memory, at the cost of KV cache: "
    if session.since("0.5.4") is False:
        return kit.Remedy(f"{what}a larger number of states (--max-mamba-cache-size).")
    return kit.Remedy(
        f"{what}a higher ratio than the default of 0.9 (0.5.4 and newer), or a number of states (--max-mamba-cache-size).",
        options=kit.as_typed("--mamba-full-memory-ratio 1.5"),
    )


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    out = [
        _more_states(session),
        kit.Remedy(
            "Or make each state smaller: bfloat16 halves the size if the model does not use bfloat16 already.",
            options=kit.as_typed("--mamba-ssm-dtype bfloat16"),
        ),
    ]
    if session.since("0.5.14") is not False:
        out.append(
            kit.Remedy(
                "Or store cached states in 8 bits (0.5.14 and newer; not together with --enable-hierarchical-cache).",
                options=kit.as_typed("--enable-int8-mamba-checkpoint"),
            )
        )
    if session.since("0.5.16") is not True:
        out.append(
            kit.Remedy(
                "Or use 0.5.16 or newer, which evicts states in a better order: paused conversations lose less (PR 31643)."
            )
        )
    out.append(kit.Remedy("Or run fewer requests at once: a smaller --max-running-requests."))
    return out


RULE = kit.session_rule(
    __name__,
    "The memory for a hybrid model's states is full while the KV cache has room",
    inspect,
    severity="warning",
)
