"""How much of its prompts each slot reused, along the requests of the busiest run of a server: a few cells per slot.

Whole numbers, and every run of a server is counted by itself, so that parts of a log add up to the whole exactly.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Request, Session, SlotReuse

CELLS = 64
"""Cells of a slot; when they are full, two become one and each then holds twice as many requests."""
SLOTS = 8
"""Slots with cells of their own; those with higher numbers, however many, share one more row."""


class Series(msgspec.Struct):
    """The requests of one slot, in the order in which they finished."""

    requests: int = 0
    step: int = 1
    prompt: list[int] = msgspec.field(default_factory=list)
    cached: list[int] = msgspec.field(default_factory=list)
    """Prompt tokens and reused ones of each cell, where both are known."""

    def add(self, prompt: int, cached: int) -> None:
        """Count a request; of an unknown one both are 0."""
        at = self.requests // self.step
        self.requests += 1
        if at == len(self.prompt):
            if at == CELLS:
                self.prompt = [a + b for a, b in zip(self.prompt[::2], self.prompt[1::2], strict=True)]
                self.cached = [a + b for a, b in zip(self.cached[::2], self.cached[1::2], strict=True)]
                self.step *= 2
                at //= 2
            self.prompt.append(prompt)
            self.cached.append(cached)
        else:
            self.prompt[at] += prompt
            self.cached[at] += cached


class Life(msgspec.Struct):
    """The slots of one life of a server process."""

    session: int
    requests: int = 0
    slots: dict[int, Series] = msgspec.field(default_factory=dict)
    """By number; ``SLOTS`` stands for all from there on."""

    def busier(self, other: Life) -> bool:
        """Whether it is the one to show; of two alike the earlier is."""
        return (self.requests, -self.session) > (other.requests, -other.session)


class Reuse(msgspec.Struct):
    """Counts the requests of every life of a server that goes on, and keeps the busiest of those that are over."""

    best: Life | None = None
    going: dict[int, Life] = msgspec.field(default_factory=dict)
    """By session."""
    servers: dict[tuple[str, str | None], int] = msgspec.field(default_factory=dict)
    """Session that goes on, by path and origin."""

    def add(self, request: Request, session: Session) -> None:
        """Count a request; children of ``n > 1`` requests are left out."""
        if request.parent is not None:
            return
        life = self.going.get(request.session)
        if life is None:
            life = self._begin(session)
        life.requests += 1
        number = request.slot if 0 <= request.slot < SLOTS else SLOTS
        series = life.slots.get(number)
        if series is None:
            series = life.slots[number] = Series()
        prompt, cached = request.prompt_tokens, request.cached_tokens
        if prompt is None or cached is None:
            series.add(0, 0)
        else:
            series.add(prompt, cached)

    def _begin(self, session: Session) -> Life:
        server = (session.path, session.origin)
        before = self.servers.get(server)
        if before is not None:
            self._end(before)
        self.servers[server] = session.index
        life = self.going[session.index] = Life(session.index)
        return life

    def _end(self, session: int) -> None:
        life = self.going.pop(session)
        if self.best is None or life.busier(self.best):
            self.best = life

    def finish(self) -> None:
        """No server goes on."""
        for session in list(self.going):
            self._end(session)
        self.servers.clear()

    def merge(self, more: Reuse, sessions: int) -> None:
        """Take the busiest life of a later part, which is finished; ``sessions`` came before that part."""
        self.finish()
        if more.best is not None:
            more.best.session += sessions
            if self.best is None or more.best.busier(self.best):
                self.best = more.best

    def slots(self) -> list[SlotReuse]:
        """Give the slots of the busiest life so far, the shared row last."""
        best = self.best
        for life in self.going.values():
            if best is None or life.busier(best):
                best = life
        if best is None:
            return []
        return [_row(best.session, number, best.slots[number]) for number in sorted(best.slots)]


def _row(session: int, number: int, series: Series) -> SlotReuse:
    cells = [pair if pair[0] > 0 else None for pair in zip(series.prompt, series.cached, strict=True)]
    return SlotReuse(session, number if number < SLOTS else None, series.requests, series.step, cells)
