"""Replays the decision that a server took on a request: what its build had to reuse, given what the log says it held.

Knows which field of a request or session carries which number of the decision. Knows no cause, and not what the
server really reused: that is what the answer is compared with.
"""

from __future__ import annotations

import msgspec

from cachedoctor.knowledge import decision
from cachedoctor.knowledge.builds import NEWEST, SAMPLED
from cachedoctor.knowledge.decision import Decision, Held, Saved
from cachedoctor.model import Request, Session

PRINTS_CHECKS = 8352
"""From this build on every checkpoint that is looked at is printed (PR #19849 came between b8156 and b8352)."""


class Replay(msgspec.Struct, frozen=True):
    """What the server had to reuse."""

    least: int | None = None
    most: int | None = None
    """Bounds of the tokens reused: they differ by the rounding of the common prefix; None when the log lacks a number."""
    missing: tuple[str, ...] = ()
    """The numbers that the log lacks, of: build, memory, prompt length, common prefix, slot length, window,
    oldest position, checkpoints held."""
    decision: Decision | None = None
    """The whole decision, where one common prefix and one answer of all possible builds are known."""

    @property
    def expected(self) -> int | None:
        """Tokens reused, when they are known exactly."""
        return self.least if self.least == self.most else None


class _Lacks(Exception):
    """A number that the decision depends on is not in the log."""


def replay(request: Request, session: Session) -> Replay:
    """Decide again, for every build that the server may be and both ends of the common prefix."""
    missing: set[str] = set()
    found: list[Decision] = []
    for build in _builds(session):
        try:
            found += [_decide(request, session, build, common) for common in _common(request, session, build)]
        except _Lacks as lack:
            missing.add(str(lack))
    if missing:
        return Replay(missing=tuple(sorted(missing)))
    least, most = min(d.reused for d in found), max(d.reused for d in found)
    between = request.prefix_between
    if least != most and between is not None and between[0] == between[1]:
        return Replay(missing=("build",))
    if most - least > decision.LEAST:
        return Replay(missing=("common prefix",))
    return Replay(least, most, decision=found[0] if len(set(found)) == 1 else None)


def _builds(session: Session) -> list[int]:
    """One build for each set of rules that may apply."""
    if session.build is not None:
        return [session.build]
    low, high = session.build_min or SAMPLED[0], session.build_max or NEWEST
    return [low, *(change for change in decision.CHANGES if low < change <= high)]


def shown(request: Request, session: Session) -> bool:
    """Whether a search for checkpoints would be in this log."""
    return request.tried is not None or session.at_least(9873) is False


def _searched(request: Request) -> bool:
    return bool(request.checks or request.forced or request.restored or request.oldest_position is not None)


def _common(request: Request, session: Session, build: int) -> tuple[int, ...]:
    """The common prefix, or the ends of what it may be."""
    if request.held_tokens == 0 and not request.restored_from_ram:
        return (0,)
    if request.prefix_between is not None:
        low, high = request.prefix_between
        low, high = low + request.reused_chunks, high + request.reused_chunks
        return (low,) if low == high else (low, high)
    raise _Lacks("common prefix")


def _decide(request: Request, session: Session, build: int, common: int) -> Decision:
    new = request.prompt_tokens
    if new is None:
        raise _Lacks("prompt length")
    if common == 0:
        return Decision(0, 0, False)
    projector = session.setting("mmproj") is True
    return decision.decide(build, _held(request, session, build, common), common, new, projector)


def _held(request: Request, session: Session, build: int, common: int) -> Held:
    memory, window = _memory(request, session, build)
    tokens = request.held_tokens
    if memory == "attention":
        return Held(memory, common if tokens is None else tokens, 0, window=window)
    if tokens is None and not shown(request, session):
        raise _Lacks("slot length")
    oldest = request.oldest_position
    if oldest is None and tokens is not None and memory != "swa":
        oldest = tokens - 1
    if oldest is None:
        if not shown(request, session):
            raise _Lacks("oldest position")
        oldest = common if _searched(request) else -1  # printed is not where it begins, but whether that was too late
    return Held(memory, common + 1 if tokens is None else tokens, oldest, _saved(request, session, build), window)


def _memory(request: Request, session: Session, build: int) -> tuple[str, int]:
    """Kind of memory, and its window where it has one."""
    memory, window = session.memory, session.window
    if window is None:
        window = session.setting("n_swa")
    if memory is None:
        if window is not None and window > 1:
            memory = "swa"
        elif request.checks or request.restored_at or request.held_positions:
            spans = [(c.pos_min, c.pos_max) for c in request.checks] + request.held_positions
            spans += [request.restored_at] if request.restored_at else []
            memory = "recurrent" if all(low == high for low, high in spans) else "swa"
        else:
            raise _Lacks("memory")
    if memory != "swa":
        return memory, 0
    if session.setting("swa_full") is True:
        return "attention", 0 if build >= 8929 else window or 0
    if window is None:
        raise _Lacks("window")
    return memory, window


def _saved(request: Request, session: Session, build: int) -> list[Saved]:
    """Checkpoints that the slot held, the newest first, down to the one that the server took."""
    if build < 6180:
        return []
    if build >= PRINTS_CHECKS:
        if not shown(request, session):
            raise _Lacks("checkpoints held")
        return [Saved(c.pos_min, c.pos_max, c.pos_max + 1) for c in request.checks]
    if request.restored_from_ram:
        raise _Lacks("checkpoints held")
    return [Saved(low, high, high + 1) for low, high in reversed(request.held_positions)]
