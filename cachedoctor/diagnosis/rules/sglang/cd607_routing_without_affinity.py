"""CD607: SGLang's data-parallel ranks have separate caches, and a conversation is sent to several ranks."""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import (
    TWICE,
    caching,
    crowded,
    evicts,
    hybrid,
    known,
    marks,
    periods,
    replica,
    share,
    wanting,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import needs_requests

SPREAD = 0.75
"""Share of the prompt tokens: where conversations stay on their rank, agents reuse more; below it a spread may cost much."""
BALANCE = 0.5
"""Minimum ratio of the least used rank's requests to the most used one's: routing alternates, or follows load."""

_WHY = (
    "Each data-parallel rank has its own radix cache, and requests go to ranks in rotation or by load (--load-balance-method), "
    "never by their beginning. The next turn of a conversation finds its prefix only if it goes to the same rank. So each rank computes the same beginning once, and later turns find an older, shorter prefix."
)


class _Rank(msgspec.Struct):
    """What one rank did over all its periods."""

    name: str
    first: kit.BatchPeriod
    requests: int = 0
    cold: int = 0
    new: int = 0
    cached: int = 0


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire where several ranks did alike: each computed beginnings from nothing, reused them later, and all reuse is moderate."""
    ranks = _ranks(session)
    if len(ranks) < 2 or caching(session) is False:
        return []
    reused = share(sum(r.cached for r in ranks), sum(r.new for r in ranks))
    alike = [r for r in ranks if r.cold and r.cached]
    most = max(r.requests for r in ranks)
    if reused is None or reused >= SPREAD or len(alike) < 2 or min(r.requests for r in alike) < BALANCE * most:
        return []
    return [_note(session, ranks, alike, reused)]


def _ranks(session: kit.Session) -> list[_Rank]:
    found: dict[str, _Rank] = {}
    for period in sorted(periods(session), key=lambda p: p.first_line):
        name = replica(period)
        if name is None:
            continue
        rank = found.setdefault(name, _Rank(name, period))
        rank.requests += period.seqs
        rank.cold += period.cold
        rank.new += period.new_tokens
        rank.cached += period.cached_tokens
    return sorted(found.values(), key=lambda r: (len(r.name), r.name))


def _note(session: kit.Session, ranks: list[_Rank], alike: list[_Rank], reused: float) -> kit.SessionFinding:
    proven = known(session)
    excluded = hybrid(session) is False and not any(
        crowded(p) or evicts(session, p) is not False for p in periods(session)
    )
    sure = proven >= TWICE and excluded
    severity: kit.Severity = "warning" if sure else "note"
    confidence: kit.Confidence = "high" if sure else "medium"
    counted = [f"{r.name} {r.cold:,} of {r.requests:,}" for r in ranks[:8]]
    each = ", ".join([f"{counted[0]} prompts", *counted[1:]])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    proof = f"; {kit.n(proven)} logged prompts had been cached and were not reused" if proven else ""
    return kit.finding(
        f"{len(ranks)} data-parallel ranks, each with its own cache, computed prompts from the first token: {each}{more}; "
        f"{100 * reused:.0f} % of the prompt tokens were reused{proof}",
        _WHY,
        [*_remedies(session), *([] if sure else [_experiment(len(ranks))])],
        references=[
            "https://github.com/sgl-project/sglang/issues/26611",
            "https://github.com/sgl-project/sglang/pull/31170",
        ],
        evidence=[
            m for r in alike[:3] for m in marks(r.first, ("cold", f"{r.name} computes a prompt from its first token"))
        ]
        or marks(alike[0].first, ("first", "the first batch of a rank")),
        severity=severity,
        confidence=confidence,
    )


def _experiment(ranks: int) -> kit.Remedy:
    return kit.Remedy(
        f"To decide: start the server with --enable-cache-report and send one request of a few thousand tokens {ranks + 1} times, one after "
        "the other. Each rank has its own cache if cached_tokens in the usage is 0 several times before it covers nearly the whole prompt.",
        options=kit.as_typed("--enable-cache-report"),
        purpose="look",
    )


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    out = [
        kit.Remedy(
            "Run one server per rank, and put a router in front that sends each prompt to the server that has cached the same beginning: sglang_router with "
            "--policy cache_aware.",
        )
    ]
    if session.since("0.5.10") is not False:
        out.append(
            kit.Remedy(
                "Or let the client select the same rank for all turns of a conversation with the header "
                "X-Data-Parallel-Rank (0.5.10 and newer)."
            )
        )
    else:
        out.append(kit.Remedy("Or let the client select the rank with data_parallel_rank in the body of /generate."))
    return out


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if len(_ranks(session)) < 2 or caching(session) is False or not wanting(session):
        return None
    return None if any(p.wholes for p in periods(session)) else needs_requests()


RULE = kit.session_rule(
    __name__, "Conversations go to several data-parallel ranks, each with its own cache", inspect, needs=_needs
)
