"""CD610: the cache is on and has free space, but requests that are known one by one reuse almost nothing."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import kv_proof, shared_beginnings
from cachedoctor.diagnosis.rules.measured.batch_periods import (
    EARLY,
    PAGES,
    WholeRequests,
    caching,
    capacity,
    crowded,
    differ,
    evicts,
    hybrid,
    marks,
    one_by_one,
    page,
    periods,
    replica,
    seen,
    shared,
    stateless,
    wanting,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import (
    NO_TRACE,
    compare_bodies,
    experiment,
    log_requests,
    needs_requests,
    needs_start,
)

CAUSES = ("CD601", "CD602", "CD603", "CD605", "CD606", "CD607")
"""If one of these fired, it explains better why nothing is reused."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if enough requests reused almost nothing, and the log does not explain it."""
    if caching(session) is not True:
        return []
    given = shared_beginnings.given(session)
    if given is not None and given.verdict in ("changed", "salted"):
        return []  # a client's doing, of which other rules speak
    events = kv_proof.changed(session) if given is None else []
    if events:
        return events
    for period in periods(session):
        requests = seen(session, period)
        if requests is None or not requests.barely or crowded(period) or stateless(period):
            continue
        if requests.smallest >= PAGES * page(session):
            return [_note(session, period, requests) if given is None else _decided(session, period, requests, given)]
    return []


def _decided(
    session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests, given: shared_beginnings.SharedVerdict
) -> kit.SessionFinding:
    """Request bodies were given: they say whether the prompts share their beginning."""
    claim = f"{requests.count - 1:,} requests of {kit.n(requests.smallest)} to {kit.n(requests.largest)} tokens reused {_reused(session, requests)}"
    why = given.why if given.early else f"The text of the prompts is not the cause. Possible causes: {NO_TRACE}."
    remedies = given.remedies if given.early else [experiment(session), log_requests()]
    proof = marks(period, ("whole", "a request that reused almost nothing"), ("cold", "a request that reused nothing"))
    words = kit.FindingText(f"{claim}; {given.said}", why, remedies, _ruled_out(session, period, requests))
    fault = given.verdict == "shared"  # nothing to share is none
    return kit.SessionFinding(
        words, given.verdict, proof, "warning" if fault else "note", "high", unless=shared_beginnings.CODES
    )


def _note(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests) -> kit.SessionFinding:
    """No bodies were given: a note, unless the log shows that the prompts do begin alike. Nothing to share is not a fault."""
    claim = (
        f"{requests.count - 1:,} requests of {kit.n(requests.smallest)} to {kit.n(requests.largest)} tokens reused "
        f"{_reused(session, requests)}; the cache is on and has room"
    )
    sure, alike = _confidence(session, period), False
    if differ(session):
        words = _parted(session, claim)
        sure = "high"
    elif shared(session):
        alike = True
        said = f"{shared(session):,} logged prompts begin like an earlier prompt"
        words = kit.FindingText(f"{claim}; {said}", f"The prompts do share their beginning, so {_traceless(session, period, requests)}",
                      [experiment(session, shared=True)])  # fmt: skip
    else:
        words = kit.FindingText(
            claim, _why(session, period, requests), [experiment(session), compare_bodies(), log_requests()]
        )
    words.ruled_out = _ruled_out(session, period, requests)
    evidence = [
        *marks(period, ("whole", "a request that reused almost nothing"), ("cold", "a request that reused nothing")),
        *kit.said_by(session.settings.get("radix_cache"), "the cache is on"),
        *kit.said_by(session.settings.get("kv_tokens"), "the size of the KV pool"),
    ]
    return kit.SessionFinding(
        words, "", evidence, "warning" if alike and sure != "low" else "note", sure, unless=shared_beginnings.CODES
    )


def _parted(session: kit.Session, claim: str) -> kit.FindingText:
    """FindingText where logged prompts prove that the prompts diverge early."""
    return kit.FindingText(
        f"{claim}; {differ(session):,} logged prompts share fewer than {EARLY:,} characters with any earlier prompt",
        "The prompts diverge near their beginning, so there is nothing to reuse: either unrelated texts, which is fine, or a start that "
        "changes in every request (a date, an id, tools in a different order). The request bodies show whether text repeats after the difference.",
        [compare_bodies()],
    )


def _confidence(session: kit.Session, period: kit.BatchPeriod) -> kit.Confidence:
    """Medium where neither states nor evictions can be the reason; what leaves no trace keeps it from being high."""
    return "medium" if hybrid(session) is False and evicts(session, period) is False else "low"


def _reused(session: kit.Session, requests: WholeRequests) -> str:
    if not requests.most:
        return "nothing"
    if requests.most - requests.least < page(session):
        return f"{kit.n(requests.most)} tokens each, always the same number"
    return f"{kit.n(requests.least)} to {kit.n(requests.most)} tokens each"


def _why(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests) -> str:
    at = f" In that case the prompts diverge after token {kit.n(requests.most)}." if requests.most else ""
    return f"Perhaps the prompts do not share their beginning: a date, an id or a header changes, or the texts are unrelated.{at} Perhaps {_traceless(session, period, requests)}"


def _traceless(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests) -> str:
    """What may part or drop prompts without a line in this log."""
    others = [NO_TRACE]
    if replica(period) is not None:
        others.append("another data-parallel rank that has the prefix")
    if hybrid(session) is not False:
        others.append("states of a hybrid model that are not kept where the prompts diverge")
    if evicts(session, period) is not False:
        others.append(_eviction(session, requests))
    return f"the cause leaves no trace in this log: {'; '.join(others)}."


def _eviction(session: kit.Session, requests: WholeRequests) -> str:
    pool = capacity(session)
    if pool is None:
        return "an eviction, because the size of the pool is not in the log"
    return f"an eviction, if more than {max(pool // requests.largest, 1):,} conversations of this length alternate in a pool of {kit.n(pool)} tokens"


def _room(session: kit.Session) -> str:
    if any(c.evicted == 0 for c in session.counters):
        return "the metrics count no evicted token"
    return "the pool is at least twice as large as all computed tokens"


def _ruled_out(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests) -> list[kit.RuledOut]:
    out = [kit.RuledOut("radix-cache-off", "the log shows that the radix cache is on, or that tokens were reused")]
    usage = "" if period.token_usage is None else f", and at most {100 * period.token_usage:.0f} % was in use"
    if evicts(session, period) is False:
        out.append(kit.RuledOut("kv-pressure", f"{_room(session)}{usage}"))
    if period.mamba_usage is not None:
        out.append(
            kit.RuledOut(
                "mamba-state-pressure", f"running requests held {100 * period.mamba_usage:.0f} % of the states"
            )
        )
    if page(session) > 1:
        out.append(
            kit.RuledOut(
                "page-rounding",
                f"a page has {kit.n(page(session))} tokens, the shortest prompt {kit.n(requests.smallest)}",
            )
        )
    return out


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if caching(session) is False or not wanting(session):
        return None
    if not one_by_one(session):
        return needs_requests()
    return needs_start() if caching(session) is None else None


RULE = kit.session_rule(
    __name__,
    "The cache is on and has room, but prompts reuse almost nothing",
    inspect,
    severity="warning",
    needs=_needs,
    unless=CAUSES,
)
