"""Ranks what an undecided finding leaves open, and puts the experiment that separates the first two before all else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cachedoctor.diagnosis.differential import experiments
from cachedoctor.diagnosis.differential.experiments import experiment
from cachedoctor.diagnosis.differential.kinds import ALSO, RULE_OF, Candidate
from cachedoctor.diagnosis.differential.votes import NOTABLE, Ranked, Weight, excluded, rank, votes
from cachedoctor.diagnosis.rules.context import was_emptied
from cachedoctor.doctor.replaying.from_log import log_order, rotating
from cachedoctor.model import Finding, Remedy, Request, RuledOut, Session

SLOTS = "CD3"
"""Family of the findings about slots and the RAM prompt cache."""
UNDECIDED = frozenset({"CD901", "CD904"})
"""Findings that report a loss without its cause."""
_SHOWN, _LEAST = 0.05, 2
"""Likelihood below which a candidate is not named, but for the first two."""
_EQUAL = 0.1
"""Difference of two likelihoods up to which neither is called more likely."""


def ranked(findings: Sequence[Finding], requests: Sequence[Request], sessions: Sequence[Session]) -> list[Finding]:
    """The findings, those that are undecided with their candidates, most likely first, and one experiment.

    A suspicion of the slots gets the experiment that separates it from what looks alike.
    """
    found = []
    for one in findings:
        lives = {s.index: s for s in sessions if (s.path, s.origin) == (one.path, one.origin)}
        if one.code in UNDECIDED and not one.diff:
            one = _ranked(one, requests, lives, _named_beside(one, findings))
        elif one.confidence == "low" and one.code.startswith(SLOTS) and one.cost.tokens >= NOTABLE:
            one = _separated(one, lives)
        found.append(one)
    return found


def _separated(finding: Finding, lives: Mapping[int, Session]) -> Finding:
    """A suspicion with the experiment that separates it from the first cause that looks alike."""
    own = _candidate_of(finding.name)
    others = (
        candidate for open_ in finding.still_possible if (candidate := _candidate_of(open_.name)) not in (None, own)
    )
    other = next(others, None)
    evidence = finding.primary
    if own is None or other is None or evidence is None or evidence.session not in lives:
        return finding
    test, *then = experiment(own, other, lives[evidence.session])
    first = next((one for one in finding.remedies if one.purpose == "fix" and one.options), None)
    if first is not None and not test.options:
        then = [Remedy(f"{experiments.THEN}{first.text}", options=first.options, purpose="depends")]
    return replace(finding, remedies=[test, *finding.remedies, *then])


def _candidate_of(name: str) -> Candidate | None:
    """The candidate that a rule of this name stands for."""
    return next((one for one in RULE_OF if name == RULE_OF[one] or name in ALSO[one]), None)


def _named_beside(finding: Finding, findings: Sequence[Finding]) -> frozenset[Candidate]:
    """The candidates that other findings name as the cause of the rest of its requests' losses."""
    own = set(finding.requests)
    beside = [one for one in findings if one is not finding and not own.isdisjoint(one.requests)]
    return frozenset(candidate for one in beside if (candidate := _candidate_of(one.name)) is not None)


def _ranked(
    finding: Finding, requests: Sequence[Request], lives: Mapping[int, Session], named_beside: frozenset[Candidate]
) -> Finding:
    own = log_order(one for one in requests if one.session in lives).requests
    turns = frozenset(rotating(own))
    order = rank(votes(own, turns), excluded(own, turns) | named_beside)
    if len(order) < _LEAST or any(map(was_emptied, own)):  # what empties a slot is none of the candidates
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
    parts = [f"{100 * one.likelihood:.0f} % likely{_beside(one, at, shown, named)}"]
    parts += [f"evidence for this cause: {_words(one.speaks_for)}"] if one.speaks_for else []
    parts += [f"evidence against this cause: {_words(one.speaks_against)}"] if one.speaks_against else []
    return RuledOut(_name(one, named), f"not excluded: {'; '.join(parts)}", likelihood=round(one.likelihood, 2))


def _name(one: Ranked, named: set[str]) -> str:
    """The name of a candidate's rule, or of what the finding itself names for the candidate."""
    return next(iter(sorted(named & ALSO[one.candidate])), RULE_OF[one.candidate])


def _beside(one: Ranked, at: int, shown: Sequence[Ranked], named: set[str]) -> str:
    """Say of the first two candidates that their likelihoods are close; empty for others."""
    if at > 1 or len(shown) < 2 or abs(shown[0].likelihood - shown[1].likelihood) > _EQUAL:
        return ""
    return f", not clearly {'less' if at else 'more'} likely than {_name(shown[1 - at], named)}"


def _words(evidence: Sequence[Weight]) -> str:
    first = evidence[0]
    requests = "1 request" if first.requests == 1 else f"{first.requests:,} requests"
    return f"{first.words} (seen in {requests}, {first.tokens:,} tokens not reused)"
