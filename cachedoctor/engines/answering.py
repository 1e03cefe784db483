"""Turns per-request numbers that a program logs into answers of its sessions.

A tracker of each program reads its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

import msgspec

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.engine_record import Look
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Answer, Answers, CacheSample, PrefillBatch, Session
from cachedoctor.model.bounds import COUNT

_KEPT = 10_000
"""Answers of a session that are listed one by one; the sums are over all."""
_VERSION = late(r"\d[\w.+-]{0,31}", re.ASCII)


class AnswerTracker:
    """Feeds on the events of one origin. A session begins with its first request: other lines prove no server."""

    engine: ClassVar[str]
    """As sessions call the program."""
    program: ClassVar[str]
    """As the program writes itself."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        self._path = path
        self._origin = origin
        self._new_session = new_session
        self._answers: Answers | None = None
        self._begun: int | None = None
        """Line of the file that is open, with which another life of the program began."""
        self._version: str | None = None
        self._fresh = True
        """The next request is the first one of a life."""
        self._listed = 0
        self.session: Session | None = None

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self.read(event)
        if self.session is not None:
            self.session.last_line = event.line
            if not self._fresh:
                self.session.seen.add(event.message)

    def read(self, event: Event) -> None:
        """Understand an event; to be written for each program."""
        raise NotImplementedError

    def continue_in(self, path: str) -> None:
        """The log goes on in another file."""
        self._path, self._answers, self._begun = path, None, None

    def starts(self, line: int) -> None:
        """The program starts, as this line says."""
        self._fresh, self._begun, self._version = True, line, None

    def is_of(self, version: str) -> None:
        """The program that runs is of this version; what is none is passed over, as reports show it."""
        if _VERSION.fullmatch(version) is None:
            return
        self._version = version
        if self.session is not None and not self._fresh:
            self.session.version = version
            self.session.learn(build_source="line")

    def answered(self, line: int, prompt: int | None, cached: int | None, matched: int | None = None) -> None:
        """Take a request, in tokens; what is no number of tokens is unknown.

        ``matched``: what the prompt has in common with an earlier one, restored or not, where the program says it.
        """
        answers = self._opened(line)
        answers.requests += 1
        prompt = COUNT.of(prompt)
        if prompt is None:
            return
        if cached is not None and not 0 <= cached <= prompt:
            cached = None
        if cached is not None:
            answers.told += 1
            answers.prompt_tokens += prompt
            answers.cached_tokens += cached
        if self._listed < _KEPT:
            self._listed += 1
            known = matched is not None and 0 <= matched <= prompt
            answers.each.append(Answer(prompt, cached, line, *((matched, prompt) if known else ())))

    def _opened(self, line: int) -> Answers:
        if self._fresh or self.session is None:
            before, begun = self.session, line if self._begun is None else self._begun
            if before is not None and before.path == self._path:
                before.last_line = begun - 1  # lines of the next run were its own until it answered something
            self.session = self._new_session(self._path, self._origin)
            self.session.engine, self.session.program = self.engine, self.program
            self.session.first_line = begun
            self._fresh, self._answers, self._listed = False, None, 0
            if self._version is not None:
                self.is_of(self._version)
        if self._answers is None:
            self._answers = Answers(self._path, "log")
            self.session.answers.append(self._answers)
        return self._answers


class Program(msgspec.Struct, frozen=True):
    """A program that logs numbers of each request: all that is known of it."""

    tracker: type[AnswerTracker]
    looks: Look
    """Finds something in any block that holds a line which the tracker needs; led by a literal."""
    rows: list[Message]
    prefix: bytes
    """Pattern from the begin of a line to its message, without groups, and possessive."""
    fork: bool = False
    """A fork of llama-server, whose lines look like it: from the first line that is found all are the fork's."""
