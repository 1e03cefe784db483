"""Facts of a server as they are while requests are examined, taken from its session: until requests bring their own.

What is known of a session changes while its log is read, but not while requests that ended before are examined.
"""

from __future__ import annotations

from cachedoctor.model import Facts, Session


class Snapshots:
    """The facts of each session; the same object as long as they are the same."""

    def __init__(self) -> None:
        self._facts: dict[int, Facts] = {}
        self._fresh: set[int] = set()

    def renew(self) -> None:
        """Sessions may have changed since the last time."""
        self._fresh.clear()

    def of(self, session: Session) -> Facts:
        """Give the facts of a session."""
        known = self._facts.get(session.index)
        if known is None or session.index not in self._fresh:
            facts = _facts(session)
            if facts != known:
                known = self._facts[session.index] = facts
            self._fresh.add(session.index)
        return known

    def forget(self, session: int) -> None:
        """Forget the session with this number: it is over."""
        self._facts.pop(session, None)
        self._fresh.discard(session)


def _facts(s: Session) -> Facts:
    return Facts(
        s.index, s.path, s.origin, s.build, s.build_min, s.build_max, s.build_source, s.model, s.memory, s.n_slots,
        s.n_ctx_slot, dict(s.settings), frozenset(s.seen), s.shows, s.window, tuple(s.given),
        s.starts_cold, s.several,
    )  # fmt: skip
