"""Turns the numbers that a program logs per request into answers of its sessions.

Each program has its own tracker.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.engine_record import Look
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import (
    Answer,
    Answers,
    CacheSample,
    Incident,
    IncidentName,
    Mark,
    PrefillBatch,
    Session,
)
from cachedoctor.model.bounds import COUNT

_KEPT = 10_000
"""Answers of a session that are listed one by one; the sums are over all."""
_OPEN = 256
"""Requests for which more lines may come."""
LOGGING = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?+ - [A-Z]{4,8}+ - "
"""Prefix of programs that log as Python does by default: ``2026-08-27 11:54:27,120 - INFO - ``."""
_Key = TypeVar("_Key")
_Request = TypeVar("_Request")
_VERSION = late(r"\d[\w.+-]{0,31}", re.ASCII)


class Told(NamedTuple):
    """A counted request, kept because later lines may add to it."""

    answers: Answers
    answer: Answer


def keep_open(known: dict[_Key, _Request], key: _Key, request: _Request) -> None:
    """Keep a request that may get more lines; if there are too many, their last lines were not printed, and all go."""
    if len(known) >= _OPEN:
        known.clear()
    known[key] = request


class AnswerTracker:
    """Processes the events of one origin. A session begins with its first request: other lines prove no server."""

    engine: ClassVar[str]
    """Name of the program in sessions."""
    program: ClassVar[str]
    """Name of the program as it writes it."""

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
        """Line of the open file with which another run of the program began."""
        self._version: str | None = None
        self._fresh = True
        """The next request is the first one of a run."""
        self._listed = 0
        self.session: Session | None = None
        self.prepare()

    def prepare(self) -> None:
        """Create the state that a program keeps between its lines; none by default."""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        self.read(event)
        if self.session is not None:
            self.session.last_line = event.line
            if not self._fresh:
                self.session.seen.add(event.message)

    def read(self, event: Event) -> None:
        """Process an event; every program implements this."""
        raise NotImplementedError

    def continue_in(self, path: str) -> None:
        """The log continues in another file."""
        self._path, self._answers, self._begun = path, None, None

    def starts(self, line: int) -> None:
        """Note that the program starts with this line."""
        self._fresh, self._begun, self._version = True, line, None

    def is_of(self, version: str) -> None:
        """Set the version of the running program; other text is ignored, because reports print the version."""
        if _VERSION.fullmatch(version) is None:
            return
        self._version = version
        if self.session is not None and not self._fresh:
            self.session.version = version
            self.session.learn(build_source="line")

    def answered(self, line: int, prompt: int | None, cached: int | None, matched: int | None = None) -> Told | None:
        """Count a request, in tokens; a value that is not a number of tokens is unknown.

        ``matched``: common prefix with an earlier prompt, restored or not, if the program prints it.
        """
        answers = self._opened(line)
        answers.requests += 1
        prompt = COUNT.of(prompt)
        if prompt is None:
            return None
        if cached is not None and not 0 <= cached <= prompt:
            cached = None
        if cached is not None:
            answers.told += 1
            answers.prompt_tokens += prompt
            answers.cached_tokens += cached
        known = matched is not None and 0 <= matched <= prompt
        answer = Answer(prompt, cached, line, *((matched, prompt) if known else ()))
        if self._listed < _KEPT:
            self._listed += 1
            answers.each.append(answer)
        return Told(answers, answer)

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


_LEAST = 512
"""Tokens: fewer are lost wherever a conversation continues, at the end of a block or of a reply."""
_EARLY = 10
"""A common beginning shorter than one part in this many is one that most prompts have."""


class JudgedTracker(AnswerTracker):
    """A tracker for rules: it keeps what the lines prove about requests, with the line of the worst request."""

    _alone: list[Told | None] | None = None
    """Requests of which an excerpt has only the line on an unused match; None from the first complete line on."""

    def lookup(self, event: Event, prompt: int | None, matched: int, held: int, why: str = "") -> None:
        """Record a line about a match that could not be used; the line of its request comes later.

        An excerpt may contain only this line, so it counts until the first line of a request comes.
        """
        if self._alone is None and self.session is not None:
            return
        told = super().answered(event.line, prompt, None, matched)
        self._alone = [*(self._alone or ()), told]
        if matched >= _LEAST:
            self.state("match_alone", event, matched, why, place=matched, held=held, prompt=prompt or 0)

    def answered(self, line: int, prompt: int | None, cached: int | None, matched: int | None = None) -> Told | None:
        """Count a request; it replaces requests that were counted by their lookup lines only."""
        alone, self._alone = self._alone, None
        if alone and self.session is not None and self._answers is not None:
            self.session.incidents.pop("match_alone", None)
            self._answers.requests -= len(alone)
            self._answers.each.clear()
            self._listed = 0
        return super().answered(line, prompt, cached, matched)

    def state(self, name: IncidentName, event: Event, tokens: int, why: str = "", **numbers: int | float) -> None:
        """Record what a line proves: add to the sum, and keep line, numbers and reason of the worst request."""
        if self.session is None or tokens <= 0:
            return
        found = self.session.incidents.get(name)
        mark, worst = Mark(event.line, event.text), {"most": float(tokens), **{k: float(v) for k, v in numbers.items()}}
        if found is None:
            self.session.incidents[name] = Incident(mark, {"tokens": float(tokens), **worst}, field=why)
            return
        found.count += 1
        found.numbers["tokens"] += tokens
        if tokens > found.numbers["most"]:
            found.mark, found.field = mark, why
            found.numbers.update(worst)

    def compare(self, event: Event, told: Told | None, held: int, why: str = "") -> None:
        """Record losses from the printed common prefix with the cached content, a sequence of ``held`` tokens.

        Common tokens that were not reused are lost by the server. Tokens after the divergence, up to the shorter of
        content and prompt, follow a change of the prompt. ``why``: the reason that the program prints.
        """
        if told is None:
            return
        matched, prompt, cached = told.answer.prefix, told.answer.prompt_tokens, told.answer.cached_tokens
        if matched is None or prompt is None or cached is None:
            return
        numbers = {"place": matched, "held": held, "prompt": prompt, "cached": cached}
        if matched - cached >= _LEAST:
            self.state("not_restored", event, matched - cached, why, **numbers)
        behind = min(held, prompt) - matched
        if behind >= _LEAST and prompt - cached >= _LEAST:
            early = matched * _EARLY < min(held, prompt)
            self.state("parted_early" if early else "parted", event, behind, why, **numbers)

    def weigh(self, event: Event, told: Told | None) -> None:
        """Keep the line of the request with the most computed tokens, except for the first request of a run."""
        if self.session is None or told is None or sum(a.requests for a in self.session.answers) < 2:
            return
        prompt, cached = told.answer.prompt_tokens, told.answer.cached_tokens
        if prompt is not None and cached is not None:
            self.state("computed", event, prompt - cached, prompt=prompt, cached=cached)

    @staticmethod
    def amend(told: Told, cached: int | None = None, matched: int | None = None) -> None:
        """Update a request with the numbers of a later line; impossible numbers are ignored."""
        answers, answer = told
        prompt = answer.prompt_tokens
        if prompt is None:
            return
        if cached is not None and answer.cached_tokens is not None and 0 <= cached <= prompt:
            answers.cached_tokens += cached - answer.cached_tokens
            answer.cached_tokens = cached
        if matched is not None and 0 <= matched <= prompt:
            answer.prefix, answer.length = matched, prompt


class Program(msgspec.Struct, frozen=True):
    """The record of a program that logs numbers of each request."""

    tracker: type[AnswerTracker]
    looks: Look
    """Finds something in any block that holds a line which the tracker needs; led by a literal."""
    rows: list[Message]
    prefix: bytes
    """Pattern from the beginning of a line to its message, without groups, and possessive."""
    fork: bool = False
    """A fork of llama-server, whose lines look like it: from the first line that is found all are the fork's."""
