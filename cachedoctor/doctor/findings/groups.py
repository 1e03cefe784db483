"""Matches of the rules, grouped into what becomes one finding each.

What was said of the last requests can be taken back: it waits, and is counted into its group once it is final. Sums
are whole numbers, and the worst match is the first in one order of all, so that groups of parts of a log add up to
those of the whole. A rule is asked for its proof where a match becomes the worst.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cachedoctor.diagnosis.rules.kit import Match, MatchGroup, Proof, RequestRule, RuleContext
from cachedoctor.doctor.faults import described
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.model import CONFIDENCE_ORDER, Request, Session
from cachedoctor.model.terms import OF_CLIENTS, OF_INPUT

FIRST, WORST = 20, 5
"""Requests listed by a finding: the first and the worst."""
REVISABLE = 64
"""Requests with matches that can still be taken back."""

Key = tuple[str, str, str, str | None]
"""(code, key of the match, path, origin)."""


class _InputCause(msgspec.Struct, gc=False):
    """One cause in one input."""

    key: Key
    group: MatchGroup | None = None
    """Its matches that are final."""
    rank: tuple[bool, int, int] = (False, -1, -1)
    """Rank of the worst of these matches."""
    waiting: int = 0
    """Matches that can still be taken back."""


class _Cost(msgspec.Struct, gc=False):
    """What one rule said of one request."""

    entry: _InputCause
    rule: RequestRule
    match: Match
    rank: tuple[bool, int, int]
    ns: int
    at_depth: bool
    context: RuleContext | None
    """Context for its proof; None if it cannot become the worst of its group."""
    proof: Proof | None = None
    """None until it is needed."""


class _Costs(msgspec.Struct, gc=False):
    """What all rules said of one request."""

    request: Request
    session: Session
    costs: list[_Cost] = msgspec.field(default_factory=list)
    whole: tuple[int, int, str | None] | None = None
    """Tokens and nanoseconds of all causes, and code of the costliest, once all rules have been checked."""


class FindingGroups:
    """One group per cause and input; state is bounded by the causes, not by the log."""

    def __init__(self, ignored: frozenset[str] = frozenset(), failures: dict[str, str] | None = None) -> None:
        """Begin without a match.

        Args:
            ignored: codes whose matches count for nothing that could have been avoided.
            failures: takes what rules failed with that could not prove a match, by code.
        """
        self._ignored = ignored
        self._failures = {} if failures is None else failures
        self._entries: dict[Key, _InputCause] = {}
        self._waiting: dict[int, _Costs] = {}
        self._tokens = self._ns = 0

    def add(self, rule: RequestRule, match: Match, context: RuleContext, session: Session, speed: PromptSpeed) -> bool:
        """Count a match; returns whether it opened a new group.

        No fix saves more tokens than were computed.

        ``speed``: what is known of the prompt speed of the session.
        """
        request = context.request
        computed = request.processed_tokens
        if computed is not None and match.tokens > computed:
            match.tokens = computed
        said = self._waiting.get(request.index)
        if said is None:
            if len(self._waiting) >= REVISABLE:
                self._settle(self._waiting.pop(next(iter(self._waiting))))
            said = self._waiting[request.index] = _Costs(request, session)
        elif not said.costs:  # it is seen otherwise now
            said.request = request
        key = (rule.code, match.key, session.path, session.origin)
        entry = self._entries.get(key)
        new = entry is None
        if entry is None:
            entry = self._entries[key] = _InputCause(key)
        entry.waiting += 1
        rank = _rank(match)
        ms, at_depth = speed.cost(request, match.tokens)
        said.costs.append(
            _Cost(entry, rule, match, rank, round(ms * 1e6), at_depth, context if rank > entry.rank else None)
        )
        return new

    def retract(self, index: int) -> None:
        """Take back what was said of the request with this number, unless it is final; it keeps its place."""
        said = self._waiting.get(index)
        if said is None:
            return
        taken, said.costs, said.whole = said.costs, [], None
        for cost in taken:
            entry = cost.entry
            entry.waiting -= 1
            if not entry.waiting and entry.group is None:
                del self._entries[entry.key]

    def items(self) -> Iterator[tuple[Key, MatchGroup]]:
        """Every group with its key, with what is not final yet."""
        groups = {
            key: _copy(entry.group) if entry.waiting else entry.group
            for key, entry in self._entries.items()
            if entry.group is not None
        }
        for said in self._waiting.values():
            for cost in said.costs:
                key = cost.entry.key
                groups[key] = self._counted(groups.get(key), cost, said)
        yield from groups.items()

    @property
    def avoidable_tokens(self) -> int:
        """Tokens that the fixes would have saved; a token with several causes is counted once."""
        return self._tokens + sum(self._whole(said)[0] for said in self._waiting.values())

    @property
    def avoidable_ms(self) -> float:
        """Time that the fixes would have saved, milliseconds."""
        return (self._ns + sum(self._whole(said)[1] for said in self._waiting.values())) / 1e6

    def said_of(self, request: Request) -> tuple[int, int, str | None, bool, bool, tuple[str, ...]]:
        """What is said of a request that is not final yet.

        Returns tokens and nanoseconds that count as avoidable, code of the costliest cause, whether all of it may be
        something else, whether all has a low confidence, and the codes of the rules that leave the cause open.
        """
        said = self._waiting.get(request.index)
        if said is None:
            return 0, 0, None, False, False, ()
        undecided = guessed = True
        for cost in said.costs:
            match = cost.match
            undecided = undecided and (match.undecided or cost.rule.code.startswith(OF_INPUT))
            guessed = guessed and match.confidence == "low"
        said.whole = self._whole(said)
        return *said.whole, undecided, guessed, tuple(c.rule.code for c in said.costs if c.match.undecided)

    def merge(self, later: FindingGroups) -> None:
        """Count what was said of the requests of a later part of the same logs, which is finished."""
        self.finish()
        for key, entry in later._entries.items():
            before = self._entries.setdefault(key, entry)
            if before is not entry and before.group is not None and entry.group is not None:
                _join(before.group, entry.group)
                before.rank = max(before.rank, entry.rank)
        self._tokens += later._tokens
        self._ns += later._ns

    def renumber(self, requests: int, sessions: int) -> None:
        """Count requests and sessions from here on, once finished; whoever holds the sessions numbers them."""
        for group in (entry.group for entry in self._entries.values() if entry.group is not None):
            group.first = [number + requests for number in group.first]
            group.top = [(tokens, number + requests) for tokens, number in group.top]
            worst = group.worst_request
            index, session = worst.index + requests, worst.session + sessions
            group.worst_request = msgspec.structs.replace(worst, index=index, session=session)

    def finish(self) -> None:
        """Make all final."""
        for said in self._waiting.values():
            self._settle(said)
        self._waiting.clear()

    def _settle(self, said: _Costs) -> None:
        for cost in said.costs:
            entry = cost.entry
            entry.waiting -= 1
            entry.group = self._counted(entry.group, cost, said)
            if cost.rank > entry.rank:
                entry.rank = cost.rank
        tokens, ns, _ = said.whole or self._whole(said)
        self._tokens += tokens
        self._ns += ns

    def _counts(self, cost: _Cost) -> bool:
        """Whether it is a cause that is reported: a rule that leaves it open names none."""
        code = cost.rule.code
        return not (cost.match.undecided or code.startswith(OF_INPUT) or code in self._ignored)

    def _parts(self, said: _Costs) -> list[tuple[_Cost, int]]:
        """The causes that are reported, the costliest first, each with the tokens that no cause before it has.

        What the server did not restore ends where the prompts diverge, what the client changed begins there: two causes
        of one side have their tokens in common, two of different sides those by which they exceed what was lost.
        """
        counted = [c for c in said.costs if self._counts(c)]
        if len(counted) < 2:
            return [(c, c.match.tokens) for c in counted]
        counted.sort(key=lambda c: -c.match.tokens)
        lost = max([_lost(said.request), *(c.match.tokens for c in counted)])
        covered, found = {True: 0, False: 0}, []
        for cost in counted:
            side = cost.rule.code.startswith(OF_CLIENTS)
            reach = min(cost.match.tokens, lost - covered[not side])
            found.append((cost, max(0, reach - covered[side])))
            covered[side] = max(covered[side], reach)
        return found

    def _whole(self, said: _Costs) -> tuple[int, int, str | None]:
        """Tokens and nanoseconds of all causes, and code of the costliest."""
        if len(said.costs) == 1:  # as nearly always
            only = said.costs[0]
            tokens = only.match.tokens
            return (tokens, only.ns if tokens else 0, only.rule.code) if self._counts(only) else (0, 0, None)
        parts = self._parts(said)
        if not parts:
            return 0, 0, None
        if len(parts) == 1:
            cost, own = parts[0]
            return own, cost.ns if own else 0, cost.rule.code
        ns = sum(cost.ns * own // cost.match.tokens for cost, own in parts if own)
        return sum(own for _, own in parts), ns, parts[0][0].rule.code

    def _shared(self, said: _Costs, cost: _Cost) -> tuple[str, int]:
        """Code of the costliest cause, and the tokens of a cause that it, or another one before this, has too."""
        parts = self._parts(said)
        own = next((own for other, own in parts if other is cost), cost.match.tokens)
        return (parts[0][0].rule.code if parts else ""), cost.match.tokens - own

    def _counted(self, group: MatchGroup | None, cost: _Cost, said: _Costs) -> MatchGroup:
        """Count a match into its group, which shows the match from now on if that is the worst."""
        match, context = cost.match, cost.context
        if group is None:
            group = self._opened(cost, said.session)
        elif context is not None and cost.rank > _rank(group.worst):
            group.worst, group.worst_request, group.session = match, context.request, said.session
            group.proof = self._proof(cost, context)
        group.at_depth = cost.at_depth
        group.count += 1
        group.tokens += match.tokens
        group.at_most += match.tokens if match.at_most is None else match.at_most
        group.ns += cost.ns
        if len(said.costs) > 1 and match.tokens:
            code, shared = self._shared(said, cost)
            if shared:
                group.shared[code] = group.shared.get(code, 0) + shared
        if len(group.first) < FIRST:
            group.first.append(said.request.index)
        if len(group.top) < WORST or match.tokens > group.top[-1][0]:
            group.top = _worst([*group.top, (match.tokens, said.request.index)])
        return group

    def _opened(self, cost: _Cost, session: Session) -> MatchGroup:
        if cost.context is None:
            raise ValueError("the first match of a group keeps its request")
        return MatchGroup(session, cost.match, cost.context.request, self._proof(cost, cost.context))

    def _proof(self, cost: _Cost, context: RuleContext) -> Proof | None:
        if cost.proof is None:
            try:
                cost.proof = cost.rule.prove(context, cost.match)
            except Exception as error:  # one broken rule must not end the run
                self._failures[cost.rule.code] = described(error)
        return cost.proof


def _join(group: MatchGroup, later: MatchGroup) -> None:
    if _rank(later.worst) > _rank(group.worst):
        group.worst, group.worst_request, group.session = later.worst, later.worst_request, later.session
        group.proof = later.proof
    group.at_depth = later.at_depth
    group.count += later.count
    group.tokens += later.tokens
    group.at_most += later.at_most
    group.ns += later.ns
    for code, shared in later.shared.items():
        group.shared[code] = group.shared.get(code, 0) + shared
    group.first = [*group.first, *later.first][:FIRST]
    group.top = _worst([*group.top, *later.top])


def _copy(group: MatchGroup) -> MatchGroup:
    return msgspec.structs.replace(group, first=list(group.first), top=list(group.top), shared=dict(group.shared))


def _lost(request: Request) -> int:
    """What it could have reused of the turn before, and computed; 0 where that is not known."""
    reach = min(request.reference_tokens or 0, request.prompt_tokens or 0)
    return max(0, reach - (request.cached_tokens or 0))


def _worst(requests: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(requests, key=lambda request: -request[0])[:WORST]


def _rank(match: Match) -> tuple[bool, int, int]:
    """What is more than a note comes before notes, then what is dearer; each step of confidence counts as much as twice
    the cost."""
    sure = CONFIDENCE_ORDER[match.confidence]
    return match.severity != "note", match.tokens << sure, sure
