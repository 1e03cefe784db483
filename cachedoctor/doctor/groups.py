"""Hits of the rules, grouped into what becomes one finding each.

What was said of the last requests can be taken back: it waits, and is counted into its group once it is final. Sums are
whole numbers, and the worst hit is the first in one order of all, so that groups of parts of a log add up to those of
the whole. Knows counts and costs. Knows no rule by name and no words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from cachedoctor.doctor.speed import PromptSpeed
from cachedoctor.model import CONFIDENCE_ORDER, Request, Session
from cachedoctor.rules.base import Group, Hit

FIRST, WORST = 20, 5
"""Requests listed by a finding: the first and the worst."""
REVISABLE = 64
"""Requests with hits that can still be taken back."""

Key = tuple[str, str, str, str | None]
"""(code, key of the hit, path, origin)."""


class _Charge(msgspec.Struct, gc=False):
    """What one rule said of one request."""

    key: Key
    hit: Hit
    ns: int
    at_depth: bool


class _Charges(msgspec.Struct, gc=False):
    """What all rules said of one request."""

    request: Request
    session: Session
    charges: list[_Charge] = msgspec.field(default_factory=list)


class Groups:
    """One group per cause and input; state is bounded by the causes, not by the log."""

    def __init__(self, ignored: frozenset[str] = frozenset()) -> None:
        """Begin without a hit.

        Args:
            ignored: codes whose hits count for nothing that could have been avoided.
        """
        self._ignored = ignored
        self._final: dict[Key, Group] = {}
        self._waiting: dict[int, _Charges] = {}
        self._waiting_keys: Counter[Key] = Counter()
        self._speeds: dict[int, PromptSpeed] = {}
        self._tokens = self._ns = 0

    def add(self, code: str, hit: Hit, request: Request, session: Session) -> bool:
        """Count a hit; returns whether it opened a new group. No fix saves more tokens than were computed."""
        computed = request.processed_tokens
        if computed is not None and hit.tokens > computed:
            hit.tokens = computed
        key = (code, hit.key, session.path, session.origin)
        new = key not in self._final and key not in self._waiting_keys
        said = self._waiting.get(request.index)
        if said is None:
            if len(self._waiting) >= REVISABLE:
                self._settle(self._waiting.pop(next(iter(self._waiting))))
            said = self._waiting[request.index] = _Charges(request, session)
        speed = self.speed(session)
        ns = round(speed.ms_of(request, hit.tokens) * 1e6)
        said.charges.append(_Charge(key, hit, ns, speed.slope > 0))
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

    def retract(self, request: Request) -> None:
        """Take back what was said of ``request``, unless it is final."""
        said = self._waiting.pop(request.index, None)
        if said is not None:
            self._forget(said)

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Every group with its key, with what is not final yet."""
        groups = {key: _copy(group) if key in self._waiting_keys else group for key, group in self._final.items()}
        for said in self._waiting.values():
            _count(groups, said)
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
        for request in {id(group.worst_request): group.worst_request for group in self._final.values()}.values():
            request.index += requests
            request.session += sessions

    def finish(self) -> None:
        """Make all final; nothing more is learnt of the sessions so far."""
        for said in list(self._waiting.values()):
            self._settle(said)
        self._waiting.clear()
        self._speeds.clear()

    def _settle(self, said: _Charges) -> None:
        _count(self._final, said)
        tokens, ns = self._dearest(said)
        self._tokens += tokens
        self._ns += ns
        self._forget(said)

    def _dearest(self, said: _Charges) -> tuple[int, int]:
        """Tokens and nanoseconds of the dearest cause that is reported."""
        reported = [charge for charge in said.charges if charge.key[0] not in self._ignored]
        if not reported:
            return 0, 0
        charge = reported[0] if len(reported) == 1 else max(reported, key=lambda charge: charge.hit.tokens)
        return charge.hit.tokens, charge.ns

    def _forget(self, said: _Charges) -> None:
        for charge in said.charges:
            self._waiting_keys[charge.key] -= 1
            if not self._waiting_keys[charge.key]:
                del self._waiting_keys[charge.key]


def _count(groups: dict[Key, Group], said: _Charges) -> None:
    request, number = said.request, said.request.index
    for charge in said.charges:
        hit = charge.hit
        group = groups.get(charge.key)
        if group is None:
            group = groups[charge.key] = Group(said.session, hit, request)
        elif _rank(hit) > _rank(group.worst):
            group.worst, group.worst_request, group.session = hit, request, said.session
        group.at_depth = charge.at_depth
        group.count += 1
        group.tokens += hit.tokens
        group.ns += charge.ns
        if len(group.first) < FIRST:
            group.first.append(number)
        if len(group.top) < WORST or hit.tokens > group.top[-1][0]:
            group.top = _worst([*group.top, (hit.tokens, number)])


def _join(group: Group, later: Group) -> None:
    if _rank(later.worst) > _rank(group.worst):
        group.worst, group.worst_request, group.session = later.worst, later.worst_request, later.session
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


def _rank(hit: Hit) -> tuple[int, int]:
    """The dearer the higher; each step of confidence counts as much as twice the cost."""
    sure = CONFIDENCE_ORDER[hit.confidence]
    return hit.tokens << sure, sure
