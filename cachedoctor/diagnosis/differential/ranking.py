"""The causes between which a log does not decide, most likely first: votes of its requests, weighed by tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from cachedoctor.diagnosis.differential.kinds import RULE_OF, Candidate
from cachedoctor.diagnosis.differential.votes import Vote


class Weight(NamedTuple):
    """One kind of evidence in a log."""

    words: str
    requests: int
    tokens: int


class Ranked(NamedTuple):
    """One candidate."""

    candidate: Candidate
    likelihood: float
    """0 to 1; those of all candidates add up to 1."""
    speaks_for: list[Weight]
    """The most tokens first."""
    speaks_against: list[Weight]


FOR, AGAINST = 0.3, 0.1
"""Likelihood by one kind of evidence from which on it speaks for a candidate, and up to which against it."""


def rank(votes: Iterable[Vote], excluded: frozenset[Candidate] = frozenset()) -> list[Ranked]:
    """All candidates that are not excluded, by their likelihood; empty without votes."""
    tokens: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    kinds = {}
    for vote in votes:
        kinds[vote.kind.name] = vote.kind
        tokens[vote.kind.name] += vote.tokens
        requests[vote.kind.name] += 1
    found = []
    for candidate in RULE_OF if tokens else ():
        if candidate in excluded:
            continue
        weight = sum(kinds[name].share(candidate) * count for name, count in tokens.items())
        sides: tuple[list[Weight], list[Weight]] = ([], [])
        for name, count in tokens.most_common():
            share = kinds[name].share(candidate)
            if share >= FOR or share <= AGAINST:
                sides[share < FOR].append(Weight(kinds[name].words, requests[name], count))
        found.append(Ranked(candidate, weight, *sides))
    whole = sum(one.likelihood for one in found)
    ordered = sorted(found, key=lambda one: -one.likelihood)
    return [one._replace(likelihood=one.likelihood / whole) for one in ordered]
