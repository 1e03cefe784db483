"""Hits of the rules, grouped into what becomes one finding each; the last of them can be taken back.

Knows counts and costs. Knows no rule by name and no words.
"""

from __future__ import annotations

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


class _Charge(msgspec.Struct):
    """What one rule said of one request."""

    key: Key
    hit: Hit
    ms: float


class _Charges(msgspec.Struct):
    """What all rules said of one request."""

    request: Request
    session: Session
    charges: list[_Charge] = msgspec.field(default_factory=list)
    tokens: int = 0
    ms: float = 0.0
    """The dearest of them: what the request could have saved."""


class Groups:
    """One group per cause and input; state is bounded by the causes, not by the log."""

    def __init__(self) -> None:
        self._groups: dict[Key, Group] = {}
        self._last: dict[int, _Charges] = {}
        self._speeds: dict[int, PromptSpeed] = {}
        self.avoidable_tokens = 0
        self.avoidable_ms = 0.0

    def add(self, code: str, hit: Hit, request: Request, session: Session) -> bool:
        """Count a hit; returns whether it opened a new group. No fix saves more tokens than were computed."""
        computed = request.processed_tokens
        if computed is not None and hit.tokens > computed:
            hit.tokens = computed
        key = (code, hit.key, session.path, session.origin)
        group = self._groups.get(key)
        new = group is None
        if group is None:
            group = self._groups[key] = Group(session, hit, request)
        elif _shows_better(hit, group.worst):
            group.worst, group.worst_request, group.session = hit, request, session
        speed = self.speed(session)
        ms = speed.ms_of(request, hit.tokens)
        group.at_depth = speed.slope > 0
        group.count += 1
        group.tokens += hit.tokens
        group.ms += ms
        if len(group.first) < FIRST:
            group.first.append(request.index)
        if len(group.top) < WORST or hit.tokens > group.top[-1][0]:
            group.top = sorted([*group.top, (hit.tokens, request.index)], key=lambda t: -t[0])[:WORST]
        said = self._remember(request, session)
        said.charges.append(_Charge(key, hit, ms))
        dearest = max(said.charges, key=lambda charge: charge.hit.tokens)
        self.avoidable_tokens += dearest.hit.tokens - said.tokens
        self.avoidable_ms += dearest.ms - said.ms
        said.tokens, said.ms = dearest.hit.tokens, dearest.ms
        return new

    def speed(self, session: Session) -> PromptSpeed:
        """What is known of the prompt speed of this session."""
        found = self._speeds.get(session.index)
        if found is None:
            found = self._speeds[session.index] = PromptSpeed()
        return found

    def retract(self, request: Request) -> None:
        """Take back what was said of ``request``; groups without a request disappear."""
        said = self._last.pop(request.index, None)
        if said is None:
            return
        self.avoidable_tokens -= said.tokens
        self.avoidable_ms -= said.ms
        for charge in said.charges:
            group = self._groups[charge.key]
            group.count -= 1
            group.tokens -= charge.hit.tokens
            group.ms -= charge.ms
            group.first = [number for number in group.first if number != request.index]
            group.top = [entry for entry in group.top if entry[1] != request.index]
            if not group.count:
                del self._groups[charge.key]
            elif group.worst_request is request:
                self._next_worst(charge.key, group)

    def _next_worst(self, key: Key, group: Group) -> None:
        left = [(c.hit, said) for said in self._last.values() for c in said.charges if c.key == key]
        if left:
            group.worst, said = max(left, key=lambda pair: (CONFIDENCE_ORDER[pair[0].confidence], pair[0].tokens))
            group.worst_request, group.session = said.request, said.session

    def _remember(self, request: Request, session: Session) -> _Charges:
        found = self._last.get(request.index)
        if found is None:
            if len(self._last) >= REVISABLE:
                del self._last[next(iter(self._last))]
            found = self._last[request.index] = _Charges(request, session)
        return found

    def items(self) -> Iterator[tuple[Key, Group]]:
        """Every group with its key."""
        yield from self._groups.items()


def _shows_better(hit: Hit, than: Hit) -> bool:
    """Dearer at the same confidence; a surer one may be half as dear, a less sure one must be twice as dear."""
    surer = CONFIDENCE_ORDER[hit.confidence] - CONFIDENCE_ORDER[than.confidence]
    if surer > 0:
        return 2 * hit.tokens >= than.tokens
    return hit.tokens > (than.tokens if surer == 0 else 2 * than.tokens)
