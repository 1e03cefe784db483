"""CD603: running requests fill SGLang's KV pool, so the cache evicts prefixes that later requests need."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import kv_proof
from cachedoctor.diagnosis.rules.measured.batch_periods import (
    caching,
    capacity,
    crowded,
    hybrid,
    marks,
    periods,
    pressed,
    reuse,
    share,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import log_requests

_WHY = (
    "Cached prefixes use the part of the KV pool that running requests leave free. When requests need that part, the least recently used prefix is evicted without a log line, and is recomputed when its conversation continues. The usage "
    "in the log counts running requests only."
)


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if the pool was full and reuse was lost: it fell then, or is low though prompts share something."""
    if caching(session) is False:
        return []
    proof = kv_proof.pushed_out(session, lambda: _remedies(session))
    if proof is not None:
        return [proof]
    for period in periods(session):
        full = (period.token_usage or 0.0) >= kit.FULL or crowded(period)
        if full and (lost := pressed(session, period, period.full_new_tokens, period.full_cached_tokens)):
            severity, confidence = lost
            if severity == "note" and not period.cached_tokens:
                confidence = "low"  # nothing was ever reused: prompts may have nothing in common
            return [_note(session, period, severity, confidence)]
    return []


def _note(
    session: kit.Session, period: kit.BatchPeriod, severity: kit.Severity, confidence: kit.Confidence
) -> kit.SessionFinding:
    inside = share(period.full_cached_tokens, period.full_new_tokens)
    outside = share(period.cached_tokens - period.full_cached_tokens, period.new_tokens - period.full_new_tokens)
    usage = f"up to {100 * (period.token_usage or 0):.0f} % of the KV pool was in use"
    if severity == "warning":
        claim = f"{usage}; while the pool was full, {_percent(inside)} of the prompt tokens were reused, otherwise {_percent(outside)}"
    else:
        claim = f"{usage}, and of {kit.n(period.new_tokens + period.cached_tokens)} prompt tokens {_percent(reuse(period))} were reused"
    shown = marks(period, ("usage", "the KV pool is full"), ("retracted", "a request lost its memory"))
    return kit.finding(
        claim,
        _WHY,
        [*_remedies(session), *([] if confidence == "high" else [log_requests()])],
        ruled_out=[kit.RuledOut("prefix-not-shared", "logged prompts had been cached")] if confidence == "high" else [],
        references=["https://docs.sglang.io/advanced_features/hyperparameter_tuning.html"],
        evidence=[*shown, *kit.said_by(session.settings.get("kv_tokens"), "the size of the KV pool")],
        severity=severity,
        confidence=confidence,
    )


def _percent(part: float | None) -> str:
    return "an unknown share" if part is None else f"{100 * part:.0f} %"


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    pool, given = capacity(session), session.setting("mem_fraction")
    has = f" The pool has {kit.n(pool)} tokens." if pool else ""
    at = f" (now {given:.2f})" if isinstance(given, float) and 0 < given < 1 else ""
    out = [
        kit.Remedy(
            f"Make the pool larger: an 8-bit KV cache, or a larger share of the GPU memory{at} with --mem-fraction-static.{has}",
            options=kit.as_typed("--kv-cache-dtype fp8_e4m3"),
        ),
        kit.Remedy(
            "Or run fewer requests at once (a smaller --max-running-requests), which leaves more memory for the cache."
        ),
    ]
    if session.setting("hicache") is not True and hybrid(session) is not True:
        ratio = "" if session.since("0.4.5") is False else " --hicache-ratio 2"
        out.append(
            kit.Remedy(
                "Or keep evicted prefixes in main memory.",
                options=kit.as_typed(f"--enable-hierarchical-cache{ratio}"),
            )
        )
    return out


RULE = kit.session_rule(
    __name__, "Running requests fill SGLang's KV pool, so cached prefixes are evicted", inspect, severity="warning"
)
