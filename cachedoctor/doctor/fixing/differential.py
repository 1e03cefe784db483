"""Ranks what an undecided finding leaves open, and puts the experiment that separates the first two before all else."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from cachedoctor.diagnosis.differential import experiments
from cachedoctor.diagnosis.differential.experiments import experiment
from cachedoctor.diagnosis.differential.kinds import ALSO, RULE_OF
from cachedoctor.diagnosis.differential.ranking import Evidence, Ranked, rank
from cachedoctor.diagnosis.differential.votes import excluded, votes
from cachedoctor.doctor.replaying.from_log import log_order, rotating
from cachedoctor.model import Finding, Remedy, Request, RuledOut, Session

UNDECIDED = frozenset({"CD901", "CD904"})
"""Findings that say that something was lost, and not by what."""
_SHOWN, _LEAST = 0.05, 2
"""Likelihood below which a candidate is not named, but for the first two."""
_EQUAL = 0.1
"""Difference of two likelihoods up to which neither comes first."""


def is_undecided(finding: Finding) -> bool:
    """Whether a finding leaves open what the cause is."""
    return finding.code in UNDECIDED and not finding.diff


def ranked(findings: Sequence[Finding], requests: Sequence[Request], sessions: Sequence[Session]) -> list[Finding]:
    """The findings, those that are undecided with their candidates, most likely first, and one experiment."""
    return [_ranked(one, requests, sessions) if is_undecided(one) else one for one in findings]


def _ranked(finding: Finding, requests: Sequence[Request], sessions: Sequence[Session]) -> Finding:
    lives = {one.index: one for one in sessions if (one.path, one.origin) == (finding.path, finding.origin)}
    own = log_order(one for one in requests if one.session in lives).requests
    turns = frozenset(rotating(own))
    order = rank(votes(own, turns), excluded(own, turns))
    if not order:
        return finding
    shown = [one for at, one in enumerate(order) if at < _LEAST or one.likelihood >= _SHOWN]
    named = {other.name for other in finding.still_possible}
    candidates = [_candidate(one, at, shown, named) for at, one in enumerate(shown)]
    taken = {one.name for one in candidates}
    left = [one for one in finding.ruled_out if one.name not in taken]
    test, *then = experiment(order[0].candidate, order[1].candidate, lives[own[-1].session])
    remedies = [test, *(one for one in finding.remedies if not _is_same(one, test)), *then]
    ruled_out = [*candidates, *left]
    return replace(finding, ruled_out=ruled_out, still_possible=[], remedies=remedies)


def _is_same(one: Remedy, test: Remedy) -> bool:
    alone = experiments.ALONE
    both_alone = alone in one.text and alone in test.text
    return both_alone or one.text == test.text or (bool(test.options) and one.options == test.options)


def _candidate(one: Ranked, at: int, shown: Sequence[Ranked], named: set[str]) -> RuledOut:
    """One candidate in words: how likely it is, and what speaks for and against it."""
    name = next(iter(sorted(named & ALSO[one.candidate])), RULE_OF[one.candidate])
    near = [other for other in shown if other is not one and abs(other.likelihood - one.likelihood) <= _EQUAL]
    equal = ", as likely as the other" if at < 2 and any(shown.index(other) < 2 for other in near) else ""
    parts = [f"{100 * one.likelihood:.0f} % likely{equal}"]
    parts += [f"for it: {_words(one.speaks_for)}"] if one.speaks_for else []
    parts += [f"against it: {_words(one.speaks_against)}"] if one.speaks_against else []
    return RuledOut(name, f"not excluded: {'; '.join(parts)}", likelihood=round(one.likelihood, 2))


def _words(evidence: Sequence[Evidence]) -> str:
    first = evidence[0]
    requests = "1 request" if first.requests == 1 else f"{first.requests:,} requests"
    return f"{first.words} ({first.tokens:,} tokens in {requests})"
