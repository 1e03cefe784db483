"""Sums over requests in whole numbers, the slowest requests, and the reuse of each slot over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cachedoctor.diagnosis.account.from_numbers import place, rows_of
from cachedoctor.model import Judged, Request, Session, SlotReuse, SlowTurn, Totals
from cachedoctor.model.terms import MIN_PROMPT_TOKENS

_JUDGED = frozenset({"cold", "reused", "partial", "reprocessed", "failed"})
"""Outcomes for which the log shows what was possible and what was done; a client's disconnect is not one of them."""

_LOST = frozenset({"partial", "reprocessed"})


class Sums:
    """Tokens and nanoseconds of the requests with known accounting; children of ``n > 1`` requests are left out."""

    __slots__ = (
        "cached_tokens", "checked", "judged", "left_open", "passed_over", "processed_tokens", "prompt_ns",
        "prompt_tokens", "requests", "unknown_requests", "unknown_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = self.prompt_tokens = self.cached_tokens = self.processed_tokens = 0
        self.unknown_tokens = self.unknown_requests = self.prompt_ns = 0
        self.judged = self.left_open = self.passed_over = self.checked = 0

    def add(
        self, judged: Iterable[Judged], least: int = MIN_PROMPT_TOKENS.default
    ) -> tuple[list[Judged], list[Judged]]:
        """Count requests.

        ``least``: tokens of the shortest prompt of which the rules say something.
        Returns those that computed enough to matter, and of which it is open what they could have reused; and those
        that came before the first of which the log shows it.
        """
        left_open: list[Judged] = []
        before: list[Judged] = []
        requests = decided = checked = prompts = reused = computed = ns = 0
        known = self.judged
        for one in judged:
            r = one.request
            if r.parent is None:
                prompt, cached, outcome = r.prompt_tokens, r.cached_tokens, r.outcome
                requests += 1
                if prompt is not None:
                    if prompt < least and (outcome in _LOST or (r.cut and r.lost_tokens)):
                        self.passed_over += 1
                    if cached is not None:
                        prompts += prompt
                        reused += cached
                        processed, ms = r.processed_tokens, r.prompt_ms
                        if processed is None:
                            self.unknown_tokens += prompt - cached
                            self.unknown_requests += 1
                        else:
                            computed += processed
                        if ms:
                            ns += round(ms * 1e6)
                if outcome == "reused" or (outcome in _JUDGED and (r.facts.starts_cold or not _begins(r))):
                    decided += 1
                    checked += prompt is None or prompt >= least
                elif outcome != "cancelled" and _matters(prompt, cached):
                    left_open.append(one)
            if not (known or decided):
                before.append(one)
        self.requests += requests
        self.judged += decided
        self.checked += checked
        self.prompt_tokens += prompts
        self.cached_tokens += reused
        self.processed_tokens += computed
        self.prompt_ns += ns
        self.left_open += len(left_open)
        return left_open, before

    def merge(self, more: Sums) -> None:
        """Count the requests of another part."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(more, name))

    def totals(self, avoidable_tokens: int, avoidable_ms: float, least: int = MIN_PROMPT_TOKENS.default) -> Totals:
        """Give the totals of a report; ``least`` as for ``add``."""
        return Totals(
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            processed_tokens=self.processed_tokens,
            unknown_tokens=self.unknown_tokens,
            unknown_requests=self.unknown_requests,
            reuse=self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None,
            prompt_ms=round(self.prompt_ns / 1e6, 3),
            avoidable_tokens=avoidable_tokens,
            avoidable_ms=round(avoidable_ms, 3) if self.requests else None,
            judged_requests=self.judged,
            open_requests=self.left_open,
            short_requests=self.passed_over,
            short_below=least,
            checked_requests=self.checked,
        )


def _matters(prompt: int | None, cached: int | None) -> bool:
    """Whether a request may have computed as many tokens as are worth a word."""
    return prompt is None or prompt - (cached or 0) >= MIN_PROMPT_TOKENS.default


def _begins(request: Request) -> bool:
    """Whether what came before it may be missing in a log whose start is: an empty slot may have been emptied, and what
    a slot held may be another conversation's."""
    taken = request.outcome in ("partial", "reprocessed") and not request.thread_turn and request.held_thread is None
    return request.outcome == "cold" or taken


_KEPT = 3
_SUMMED: dict[str, str] = {"reused": "reused", "new": "new", "rounding": "new", "undecided": "undecided"}
"""Rows of the account that are not loss; the tokens of all others were recomputed."""


class Slowest(msgspec.Struct, gc=False):
    """The slowest requests so far, by their number."""

    kept: dict[int, SlowTurn] = msgspec.field(default_factory=dict)
    least: float = 0.0
    """Milliseconds that another request must exceed, once there are enough."""

    def take(self, judged: Iterable[Judged]) -> None:
        """Take requests: few take longer than the slowest so far."""
        least, kept = self.least, self.kept
        for one in judged:
            r = one.request
            ms = r.prompt_ms
            if ms and ((r.seen.reply_ms or 0.0) + ms > least or r.index in kept):
                self.add(one)
                least = self.least

    def add(self, judged: Judged) -> None:
        """Take a request, or one in the place of what it was."""
        request = judged.request
        spent = request.prompt_ms
        if not spent or ((request.seen.reply_ms or 0.0) + spent <= self.least and request.index not in self.kept):
            return
        if request.parent is None:
            self.kept[request.index] = _turn(judged)
            self._shorten()

    def merge(self, more: Slowest, requests: int, sessions: int) -> None:
        """Take those of a later part; before it came so many requests and sessions."""
        for number, turn in more.kept.items():
            self.kept[number + requests] = msgspec.structs.replace(
                turn, request=number + requests, session=turn.session + sessions
            )
        while len(self.kept) > _KEPT:
            self._shorten()

    def _shorten(self) -> None:
        if len(self.kept) > _KEPT:
            del self.kept[max(self.kept.values(), key=_rank).request]
        if len(self.kept) == _KEPT:
            self.least = min(turn.ms for turn in self.kept.values())

    def turns(self) -> list[SlowTurn]:
        """Return them, the slowest first."""
        return sorted(self.kept.values(), key=_rank)


def _rank(turn: SlowTurn) -> tuple[float, int]:
    return -turn.ms, turn.request


def _turn(judged: Judged) -> SlowTurn:
    r, sums = judged.request, dict.fromkeys(("reused", "new", "again", "undecided"), 0)
    placed = place(judged)
    for row, _, tokens in rows_of(placed):
        sums[_SUMMED.get(row, "again")] += tokens
    reused, new, again, undecided = sums.values() if placed else (r.cached_tokens, None, None, None)
    return SlowTurn(
        r.index, r.session, r.path, r.first_line - r.before, r.slot, r.task, r.prompt_ms or 0.0, reused, new, again,
        undecided, r.generated_tokens, r.seen.reply_ms,
    )  # fmt: skip


CELLS = 64
"""Cells of a slot; when they are full, two become one and each then holds twice as many requests."""
SLOTS = 8
"""Slots with cells of their own; those with higher numbers, however many, share one more row."""


class SlotSeries(msgspec.Struct, gc=False):
    """The requests of one slot, in the order in which they finished."""

    requests: int = 0
    step: int = 1
    prompt: list[int] = msgspec.field(default_factory=list)
    cached: list[int] = msgspec.field(default_factory=list)
    """Prompt tokens and reused ones of each cell, where both are known."""

    def begin(self, prompt: int, cached: int) -> None:
        """Begin a cell; once there are too many, two become one."""
        if len(self.prompt) == CELLS:
            self.prompt = [a + b for a, b in zip(self.prompt[::2], self.prompt[1::2], strict=True)]
            self.cached = [a + b for a, b in zip(self.cached[::2], self.cached[1::2], strict=True)]
            self.step *= 2
        self.prompt.append(prompt)
        self.cached.append(cached)


class RunSlots(msgspec.Struct, gc=False):
    """The slots of one life of a server process."""

    session: int
    slots: dict[int, SlotSeries] = msgspec.field(default_factory=dict)
    """Series by slot number; ``SLOTS`` stands for all from there on."""

    def busier(self, other: RunSlots) -> bool:
        """Whether it is the one to show; of two alike the earlier is."""
        return (self._requests, -self.session) > (other._requests, -other.session)

    @property
    def _requests(self) -> int:
        return sum(series.requests for series in self.slots.values())


class Reuse(msgspec.Struct, gc=False):
    """Counts the requests of every life of a server that continues, and keeps the busiest of those that are over."""

    best: RunSlots | None = None
    going: dict[int, RunSlots] = msgspec.field(default_factory=dict)
    """Slots of the runs that continue, by session."""
    servers: dict[tuple[str, str | None], int] = msgspec.field(default_factory=dict)
    """Session that continues, by path and origin."""

    def add(self, judged: Iterable[Judged], sessions: Sequence[Session]) -> None:
        """Count requests; children of ``n > 1`` requests are left out."""
        for one in judged:
            r = one.request
            if r.parent is not None:
                continue
            slot, prompt, cached = r.slot, r.prompt_tokens, r.cached_tokens
            life = self.going.get(r.session) or self._begin(sessions[r.session])
            series = life.slots.get(slot)
            if series is None:
                series = life.slots.setdefault(slot if 0 <= slot < SLOTS else SLOTS, SlotSeries())
            if prompt is None or cached is None:
                prompt = cached = 0
            if series.requests % series.step:
                series.prompt[-1] += prompt
                series.cached[-1] += cached
            else:
                series.begin(prompt, cached)
            series.requests += 1

    def _begin(self, session: Session) -> RunSlots:
        server = (session.path, session.origin)
        before = self.servers.get(server)
        if before is not None:
            self._end(before)
        self.servers[server] = session.index
        life = self.going[session.index] = RunSlots(session.index)
        return life

    def _end(self, session: int) -> None:
        life = self.going.pop(session)
        if self.best is None or life.busier(self.best):
            self.best = life

    def finish(self) -> None:
        """No server continues."""
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


def _row(session: int, number: int, series: SlotSeries) -> SlotReuse:
    cells = [pair if pair[0] > 0 else None for pair in zip(series.prompt, series.cached, strict=True)]
    return SlotReuse(session, number if number < SLOTS else None, series.requests, series.step, cells)
