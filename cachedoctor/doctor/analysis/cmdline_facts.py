"""What a server was given, and what its traffic would have needed: facts for the advice."""

from __future__ import annotations

from cachedoctor.knowledge import cmdline
from cachedoctor.model import Given, Request, Session, Setting

_KEPT = 64
"""Conversations remembered per session, as the tracker remembers them; and sessions."""


def add_cmdline_facts(session: Session, given: list[Given]) -> None:
    """Take the options of the command line as facts without a line; lines of the log replace them."""
    session.given = given
    for name, value in cmdline.settings(given).items():
        session.settings[name] = Setting(value, None)
        if name == "n_slots" and isinstance(value, int):
            session.n_slots = value


class PeakConversations:
    """Counts how many conversations were in use between two requests of one."""

    def __init__(self) -> None:
        self._order: dict[int, list[int]] = {}

    def note(self, request: Request, session: Session) -> None:
        """Take the next request.

        Slots are taken from the conversation unused for longest. So one that returns after others has kept its slot if
        there were as many slots as conversations from its last request on, itself included.
        """
        thread = request.thread
        if thread is None:
            return
        order = self._order.get(session.index)
        if order is None:
            order = self._order[session.index] = []
            if len(self._order) > _KEPT:
                del self._order[next(iter(self._order))]
        if order and order[-1] == thread:
            return
        if thread in order:
            at = order.index(thread)
            session.at_once = max(session.at_once, len(order) - at)
            del order[at]
        order.append(thread)
        if len(order) > _KEPT:
            del order[0]
