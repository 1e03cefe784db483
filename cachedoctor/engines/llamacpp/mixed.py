"""Tells that lines of several servers are mixed, without a name in front of them."""

from __future__ import annotations

from collections import deque

import msgspec

from cachedoctor.model import Session

_CUT = 256
"""Requests without an end that are remembered."""
_SESSIONS = 16
"""Runs that may be of one of the servers: each line of another one seems to be of a new run."""
_FEW = 2
_SHARE = 10
"""One request in so many went on: one or two alone may come from a log that was put together."""


class MixedLines(msgspec.Struct):
    """What one origin has shown so far.

    A slot has one request at a time. One that goes on after the next has begun on its slot is of another server with
    such a slot.
    """

    cut: dict[tuple[int, int], None] = msgspec.field(default_factory=dict)
    """Slot and task of requests whose end was not there when another began."""
    begun: int = 0
    resumed: int = 0
    sessions: deque[Session] = msgspec.field(default_factory=lambda: deque(maxlen=_SESSIONS))

    @property
    def is_sure(self) -> bool:
        """Whether it is more than an accident."""
        return self.resumed >= _FEW and self.resumed * _SHARE >= self.begun

    def opened(self, session: Session) -> None:
        """A run begins."""
        session.mixed = self.is_sure
        self.sessions.append(session)

    def closed(self, slot: int, task: int) -> None:
        """A request is over without its end."""
        self.cut[slot, task] = None
        if len(self.cut) > _CUT:
            del self.cut[next(iter(self.cut))]

    def began(self, slot: int, task: int, *, partial: bool) -> None:
        """A request begins; ``partial``: with a line that is not its first."""
        self.begun += 1
        if (slot, task) in self.cut:
            del self.cut[slot, task]
            self.resumed += partial
            if self.is_sure:
                for session in self.sessions:
                    session.mixed = True
