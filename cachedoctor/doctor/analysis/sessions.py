"""The server runs of all inputs, a session each, in the order of their start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING

from cachedoctor.knowledge import cmdline
from cachedoctor.model import GivenOption, Judged, Session, Setting
from cachedoctor.model.session import Incident
from cachedoctor.report.words.traffic_words import LLAMA

if TYPE_CHECKING:
    from cachedoctor.engines.llamacpp.pasted_issue import Issue
    from cachedoctor.engines.sentences import CertainLine


_KEPT = 64
"""Conversations to remember per session, as the tracker does, and sessions to remember."""


def add_cmdline_facts(session: Session, given: list[GivenOption]) -> None:
    """Take the options of the command line as facts without a line; lines of the log replace them."""
    session.learn(given=given)
    for name, value in cmdline.settings(given).items():
        session.settings[name] = Setting(value, None)
        if name == "n_slots" and isinstance(value, int):
            session.learn(n_slots=value)


class PeakConversations:
    """Counts how many conversations were in use between two requests of one."""

    def __init__(self) -> None:
        self._order: dict[int, list[int]] = {}
        """Conversations by session, the one used last first: most return soon, and are found at once."""

    def take(self, judged: Iterable[Judged], sessions: Sequence[Session]) -> None:
        """Take the next requests.

        Slots are taken from the conversation unused for longest. So one that returns after others has kept its slot if
        there were as many slots as conversations from its last request on, itself included.
        """
        for one in judged:
            r = one.request
            thread, order = r.thread, self._order.get(r.session)
            if thread is None:
                continue
            if order is None:
                order = self._order[r.session] = []
                if len(self._order) > _KEPT:
                    del self._order[next(iter(self._order))]
            elif order[0] == thread:
                continue
            if thread in order:
                at, session = order.index(thread), sessions[r.session]
                if session.at_once <= at:
                    session.at_once = at + 1
                del order[at]
            elif len(order) >= _KEPT:
                del order[-1]
            order.insert(0, thread)


_LATEST = 16
"""Latest sessions that are searched for one with requests, which shows that the server was restarted."""


class Sessions:
    """Makes sessions, and knows them all."""

    def __init__(self, given: list[GivenOption]) -> None:
        """``given``: options of the command line that started llama-server."""
        self._given = given
        self.issue: Issue | None = None
        """What the text above the log of the open input says."""
        self.sessions: list[Session] = []
        self.follows = False
        """Before the first line of the open input, another run of its server was written."""

    def begin(self, path: str, origin: str | None) -> Session:
        """Make a session."""
        session = Session(len(self.sessions), path, origin)
        self.sessions.append(session)
        return session

    def begin_llama(self, path: str, origin: str | None) -> Session:
        """Make one of llama-server."""
        before = self.sessions[-_LATEST:]
        follows = self.follows and origin is None and len(self.sessions) < _LATEST
        session, issue = self.begin(path, origin), self.issue
        apart = issue is not None and issue.blocks > 1  # a good run and a bad one are not restart
        if follows or (not apart and any(s.path == path and s.origin == origin and s.n_requests for s in before)):
            session.settings["restarted"] = Setting(True, None)
        add_cmdline_facts(session, self._given or ([] if issue is None else issue.given))
        if issue is not None:
            session.cmdline = None if self._given else issue.cmdline
            if issue.build is not None:
                session.learn(build=issue.build, build_source="paste")
        return session

    def place(self, paths: list[str], certain: list[tuple[str | None, CertainLine]]) -> None:
        """Give lines that are certain by themselves to the servers that they are about; a server is begun for the rest.

        That the system ended a server for lack of memory is known of all servers of the input.
        """
        for origin, one in certain:
            incident = one.row.incident
            if incident is None or not (one.engine or self._begun(paths, one)):
                continue
            owner = self._owner(paths, origin, one)
            found = owner.incidents.get(incident)
            if found is None:
                owner.incidents[incident] = Incident(one.mark, dict(one.numbers), field=one.row.engine)
            else:
                found.count += 1
            owner.last_line = max(owner.last_line, one.line)
            if incident == "killed":
                for session in self.sessions:
                    if session.path in paths and session is not owner:
                        session.incidents.setdefault("memory_short", Incident(one.mark))

    def _owner(self, paths: list[str], origin: str | None, one: CertainLine) -> Session:
        """The last server of the input that had begun before a line, of its engine and origin if there is one."""
        before = self._begun(paths, one)
        if before:
            return max(before, key=lambda s: (s.engine == one.engine, s.origin == origin, s.first_line))
        session = (self.begin_llama if one.engine == LLAMA else self.begin)(paths[-1], origin)
        session.engine = one.engine
        if one.engine != LLAMA:
            session.program = one.engine
        session.first_line = session.last_line = one.line
        return session

    def _begun(self, paths: list[str], one: CertainLine) -> list[Session]:
        """Servers of the input that had begun before a line."""
        return [s for s in self.sessions if s.path in paths and s.first_line <= one.line]

    def reported(self) -> list[Session]:
        """Copies of those of which something was seen, to which a report adds what it finds."""
        rows = [copy(session) for session in self.sessions]
        others = {(s.path, s.origin) for s in rows if s.engine != LLAMA}
        doubled = _joined(rows)
        return [
            s
            for s in rows
            if s.index not in doubled
            and (
                s.n_requests
                or s.counters
                or s.answers
                or s.kv_events
                or s.incidents
                or (s.seen and not _library(s, others))
            )
        ]


def _joined(rows: list[Session]) -> set[int]:
    """Numbers of the sessions of forks whose requests another one has, as llama-server's tracker reads them.

    What it has not, those without a line about the memory, it is given with the answers.
    """
    found: set[int] = set()
    for fork in rows:
        if fork.engine == LLAMA or fork.program is None:
            continue
        server = (fork.path, fork.origin, fork.program)
        lives = [s for s in rows if s.engine == LLAMA and (s.path, s.origin, s.program) == server and s.n_requests]
        if len(lives) != 1:
            continue
        found.add(fork.index)
        lives[0].last_line = max(lives[0].last_line, fork.last_line)
        if sum(answers.requests for answers in fork.answers) > lives[0].n_requests:
            lives[0].answers = fork.answers
    return found


def _library(session: Session, others: set[tuple[str, str | None]]) -> bool:
    """Whether its lines are those of a library that one of ``others``, programs by input and origin, has loaded."""
    return session.engine == LLAMA and not session.n_requests and (session.path, session.origin) in others
