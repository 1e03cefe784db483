"""The live view where the output is no terminal: a line for every request that lost tokens, and for every finding.

Knows the sink and the words of requests and findings; knows no layout.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from cachedoctor.cli.sink import Sink
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.text.concise import cost, fix, lost, sentence
from cachedoctor.report.text.page import Page

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.model import Finding, Judged, Session

_TOLD = 256
"""Requests of which it is remembered that they were printed: more than can be judged anew."""


class Lines(Listener):
    """Prints when a step ends what happened in it."""

    def __init__(self, sink: Sink, look: Look) -> None:
        super().__init__()
        self.listener = self
        self.analyzer: Analyzer | None = None
        self._sink = sink
        self._look = look
        self._text = io.StringIO()
        self._told: deque[int] = deque(maxlen=_TOLD)
        self._findings: set[tuple[object, ...]] = set()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._told or self._findings:
            self._text.write("\n")  # before the report
        self._flush()

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Word the requests that lost tokens, each once, and the findings that are new."""
        for one, session in judged:
            number = one.request.index
            if lost(one.request) and number not in self._told:
                self._told.append(number)
                self._row((sentence(one, sanitize.session(session).origin), ""))
        for found in findings:
            key = found.identity
            if key not in self._findings:
                self._findings.add(key)
                self._finding(sanitize.finding(found))

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Print what was worded."""
        self._flush()

    def _finding(self, found: Finding) -> None:
        advice = fix(found)
        server = f"{found.origin}, " if found.origin else ""
        words = [f"{found.severity}[{found.code}] {found.name}: {server}{cost(found) or found.claim}"]
        self._row(("; fix: ".join([*words, advice] if advice else words), "bold"))

    def _row(self, part: tuple[str, str]) -> None:
        Page(self._text, self._look.width, self._look.color, self._look.ascii_only).row(part)

    def _flush(self) -> None:
        text = self._text.getvalue()
        if text:
            self._text = io.StringIO()
            with self._sink.writing() as out:
                out.write(self._look.encode(text))
