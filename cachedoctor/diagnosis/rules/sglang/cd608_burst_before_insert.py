"""CD608: many requests were admitted at once, before any of them had put their shared beginning into the cache."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import LONG, TINY, caching, marks, periods

LATER = 4
"""Requests after the burst: the reuse of fewer does not show what the burst could have shared."""

_WHY = (
    "A prefix enters the cache when the prefill of its request is done. Requests admitted in the same batch cannot "
    "reuse each other's beginning, so each request computes the beginning. Later requests find the beginning in the cache."
)


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if a burst of requests reused nothing, and later requests reused a large part of their prompts."""
    if caching(session) is not True:
        return []
    for period in periods(session):
        if _shares(period):
            return [_note(session, period)]
    return []


def _shares(period: kit.BatchPeriod) -> bool:
    """Whether requests after the bursts reused much of what one of a burst computed."""
    if not period.bursts or period.burst_new_tokens < LONG or period.after_burst_seqs < LATER:
        return False
    each = period.burst_new_tokens / max(period.burst_seqs, 1)
    return period.after_burst_cached / period.after_burst_seqs >= TINY * each


def _note(session: kit.Session, period: kit.BatchPeriod) -> kit.SessionFinding:
    later = period.after_burst_cached // period.after_burst_seqs
    bursts = "1 batch" if period.bursts == 1 else f"{period.bursts:,} batches"
    remedies = [
        kit.Remedy(
            "Send one request with the shared beginning first, and the other requests once the server has begun to answer."
        ),
    ]
    if session.setting("schedule_policy") not in ("lpm", "dfs-weight"):
        remedies.append(
            kit.Remedy(
                "Or make the scheduler delay requests that share a beginning with an earlier waiting request. With more than 128 "
                "waiting requests, lpm falls back to the order of arrival.",
                options=kit.as_typed("--schedule-policy lpm"),
            )
        )
    return kit.finding(
        f"{bursts} admitted {period.burst_seqs:,} new requests at once, which computed all of their "
        f"{kit.n(period.burst_new_tokens)} tokens; the {period.after_burst_seqs:,} requests after them reused about {kit.n(later)} tokens each",
        _WHY,
        remedies,
        references=["https://github.com/sgl-project/sglang/pull/2442"],
        evidence=marks(period, ("burst", "many new requests, and nothing reused"), ("last", "the last batch")),
        confidence="medium",
    )


RULE = kit.session_rule(
    __name__, "Requests with a shared prefix were admitted at once, before the prefix was cached", inspect
)
