"""Matches of the rules, grouped into what becomes one finding each.

What was said of the last requests can be taken back: it waits, and is counted into its group once it is final. Sums are
whole numbers, and the worst match is the first in one order of all, so that groups of parts of a log add up to those of
the whole. A rule is asked for its proof where a match becomes the worst. Knows no rule by name and no words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from cachedoctor.doctor.speed import PromptSpeed
from cachedoctor.model import CONFIDENCE_ORDER, Request, Session
from cachedoctor.rules.base import Group, Match, Proof, RequestRule, RuleContext

FIRST, WORST = 20, 5
"""Requests listed by a finding: the first and the worst."""
REVISABLE = 64
"""Requests with matches that can still be taken back."""

Key = tuple[str, str, str, str | None]
"""(code, key of the match, path, origin)."""


class _Charge(msgspec.Struct):
    """What one rule said of one request."""

    key: Key
    rule: RequestRule
    match: Match
    ns: int
    at_depth: bool
    proof: Proof | None = None
    """None as long as nobody asked."""


class _Charges(msgspec.Struct):
    """What all rules said of one request."""

    context: RuleContext
    session: Session
    charges: list[_Charge] = msgspec.field(default_factory=list)


class Groups:
    """One group per cause and input; state is bounded by the causes, not by the log."""

    def __init__(self, ignored: frozenset[str] = frozenset(), failures: dict[str, str] | None = None) -> None:
        """Begin without a match.

        Args:
            ignored: codes whose matches count for nothing that could have been avoided.
            failures: takes what rules failed with that could not prove a match, by code.
        """
        self._ignored = ignored
        self._failures = {} if failures is None else failures
        self._final: dict[Key, Group] = {}
        self._waiting: dict[int, _Charges] = {}
        self._waiting_keys: Counter[Key] = Counter()
        self._speeds: dict[int, PromptSpeed] = {}
        self._tokens = self._ns = 0

    def add(self, rule: RequestRule, match: Match, context: RuleContext, session: Session) -> bool:
        """Count a match; returns whether it opened a new group. No fix saves more tokens than were computed."""
        request = context.request
        computed = request.processed_tokens
        if computed is not None and match.tokens > computed:
            match.tokens = computed
        key = (rule.code, match.key, session.path, session.origin)
        new = key not in self._final and key not in self._waiting_keys
        said = self._waiting.get(request.index)
        if said is None:
            if len(self._waiting) >= REVISABLE:
                self._settle(self._waiting.pop(next(iter(self._waiting))))
            said = self._waiting[request.index] = _Charges(context, session)
        speed = self.speed(session)
        ns = round(speed.ms_of(request, match.tokens) * 1e6)
        said.charges.append(_Charge(key, rule, match, ns, speed.slope > 0))
        self._waiting_keys[key] += 1
        return new

    def speed(self, session: Session) -> PromptSpeed:
        """What is known of the prompt speed of this session."""
        found = self._speeds.get(session.index)
        if found is None:
            found = self._speeds[session.index] = PromptSpeed()
        return found

    def forget(self, session: int) -> None:
        """Unlearn the prompt speed of the session with this number: it is over."""
        self._speeds.pop(session, None)

    def retract(self, index: int) -> None:
        """Take back what was said of the request with this number, unless it is final."""
        said = self._waiting.pop(index, None)
        if said is not None:
            self._forget(said)

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Every group with its key, with what is not final yet."""
        groups = {key: _copy(group) if key in self._waiting_keys else group for key, group in self._final.items()}
        for said in self._waiting.values():
            self._count(groups, said)
        yield from groups.items()

    @property
    def avoidable_tokens(self) -> int:
        """Tokens that the fixes would have saved: of each request what its dearest cause cost."""
        return self._tokens + sum(self._dearest(said)[0] for said in self._waiting.values())

    @property
    def avoidable_ms(self) -> float:
        """Time that the fixes would have saved, milliseconds."""
        return (self._ns + sum(self._dearest(said)[1] for said in self._waiting.values())) / 1e6

    def cost_of(self, request: Request) -> tuple[int, int]:
        """Tokens and nanoseconds that count as avoidable of a request that is not final yet."""
        said = self._waiting.get(request.index)
        if said is None:
            return 0, 0
        return self._dearest(said)

    def merge(self, later: Groups) -> None:
        """Count what was said of the requests of a later part of the same logs, which is finished."""
        self.finish()
        for key, group in later._final.items():
            before = self._final.get(key)
            if before is None:
                self._final[key] = group
            else:
                _join(before, group)
        self._tokens += later._tokens
        self._ns += later._ns

    def renumber(self, requests: int, sessions: int) -> None:
        """Count requests and sessions from here on, once finished; whoever holds the sessions numbers them."""
        for group in self._final.values():
            group.first = [number + requests for number in group.first]
            group.top = [(tokens, number + requests) for tokens, number in group.top]
            worst = group.worst_request
            index, session = worst.index + requests, worst.session + sessions
            group.worst_request = msgspec.structs.replace(worst, index=index, session=session)

    def finish(self) -> None:
        """Make all final; nothing more is learnt of the sessions so far."""
        for said in list(self._waiting.values()):
            self._settle(said)
        self._waiting.clear()
        self._speeds.clear()

    def _settle(self, said: _Charges) -> None:
        self._count(self._final, said)
        tokens, ns = self._dearest(said)
        self._tokens += tokens
        self._ns += ns
        self._forget(said)

    def _dearest(self, said: _Charges) -> tuple[int, int]:
        """Tokens and nanoseconds of the dearest cause that is reported."""
        reported = [charge for charge in said.charges if charge.key[0] not in self._ignored]
        if not reported:
            return 0, 0
        charge = reported[0] if len(reported) == 1 else max(reported, key=lambda charge: charge.match.tokens)
        return charge.match.tokens, charge.ns

    def _forget(self, said: _Charges) -> None:
        for charge in said.charges:
            self._waiting_keys[charge.key] -= 1
            if not self._waiting_keys[charge.key]:
                del self._waiting_keys[charge.key]

    def _count(self, groups: dict[Key, Group], said: _Charges) -> None:
        request, number = said.context.request, said.context.request.index
        for charge in said.charges:
            match = charge.match
            group = groups.get(charge.key)
            if group is None:
                group = groups[charge.key] = Group(said.session, match, request, self._proof(charge, said.context))
            elif _rank(match) > _rank(group.worst):
                group.worst, group.worst_request, group.session = match, request, said.session
                group.proof = self._proof(charge, said.context)
            group.at_depth = charge.at_depth
            group.count += 1
            group.tokens += match.tokens
            group.ns += charge.ns
            if len(group.first) < FIRST:
                group.first.append(number)
            if len(group.top) < WORST or match.tokens > group.top[-1][0]:
                group.top = _worst([*group.top, (match.tokens, number)])

    def _proof(self, charge: _Charge, context: RuleContext) -> Proof | None:
        if charge.proof is None:
            try:
                charge.proof = charge.rule.prove(context, charge.match)
            except Exception as error:  # one broken rule must not end the run
                self._failures[charge.rule.code] = repr(error)
        return charge.proof


def _join(group: Group, later: Group) -> None:
    if _rank(later.worst) > _rank(group.worst):
        group.worst, group.worst_request, group.session = later.worst, later.worst_request, later.session
        group.proof = later.proof
    group.at_depth = later.at_depth
    group.count += later.count
    group.tokens += later.tokens
    group.ns += later.ns
    group.first = [*group.first, *later.first][:FIRST]
    group.top = _worst([*group.top, *later.top])


def _copy(group: Group) -> Group:
    return msgspec.structs.replace(group, first=list(group.first), top=list(group.top))


def _worst(requests: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(requests, key=lambda request: -request[0])[:WORST]


def _rank(match: Match) -> tuple[int, int]:
    """The dearer the higher; each step of confidence counts as much as twice the cost."""
    sure = CONFIDENCE_ORDER[match.confidence]
    return match.tokens << sure, sure
