"""The analysis step by step, and who hears of each step: text, plain lines, or a JSON stream.

Imported when an analysis begins, since it brings all stages with it.
"""

from __future__ import annotations

import io
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.model.terms import DEFAULTS

if TYPE_CHECKING:
    from cachedoctor.cli.ending import Interrupts
    from cachedoctor.cli.sink import Sink
    from cachedoctor.doctor.analysis.listener import Shard
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import StartInfo
    from cachedoctor.doctor.redact.redact import UnknownLines
    from cachedoctor.model import AnalysisOptions, Finding, GivenOption, InputInfo, Judged, Report, Session
    from cachedoctor.report.base import Appearance, FormatName


class Hearer(Protocol):
    """Who shows something while the analysis runs."""

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Hear that bytes were taken, or that the input is silent; ``new`` are the codes of new findings."""


class Stepwise(Analyzer):
    """An analyzer whose steps are held together."""

    def __init__(
        self,
        interrupts: Interrupts,
        hearers: Sequence[Hearer],
        listener: Listener | None = None,
        build: int | None = None,
        prompts: GivenPrompts | None = None,
        given: list[GivenOption] | None = None,
        *,
        keeps_requests: bool = False,
        options: AnalysisOptions = DEFAULTS,
        extras: ExtraInputs | None = None,
        unknown: UnknownLines | None = None,
        told: StartInfo | None = None,
    ) -> None:
        """``hearers`` hear of steps, ``listener`` of what happens in them, ``unknown`` reads what is read here; the
        others are the analyzer's own."""
        super().__init__(
            build, prompts, given, keeps_requests=keeps_requests, listener=listener, options=options, extras=extras,
            told=told,
        )  # fmt: skip
        self._interrupts = interrupts
        self._hearers = hearers
        self._unknown = unknown

    def open(self, path: str, *, continues: bool = False, line: int = 1) -> InputInfo:
        """Begin an input."""
        with self._interrupts.held():
            info = super().open(path, continues=continues, line=line)
            if self._unknown is not None:  # only now: what was open before is closed first
                self._unknown.open(path)
            return info

    def merge(self, part: Shard, path: str, line: int = 1) -> None:
        """Take what another analyzer found."""
        with self._interrupts.held():
            super().merge(part, path, line)

    def close(self) -> None:
        """End of the open input."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.close()
            super().close()

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes of the open input."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.feed(chunk)
            return self._heard(super().feed(chunk), False)

    def idle(self) -> list[str]:
        """The live input fell silent."""
        with self._interrupts.held():
            if self._unknown is not None:
                self._unknown.idle()
            return self._heard(super().idle(), True)

    def _heard(self, new: list[str], silent: bool) -> list[str]:
        for hearer in self._hearers:
            hearer.step(new, silent, self.findings)
        return new


_PATIENCE = 0.05
"""Seconds that a finding waits if the input has never paused: it may be a finished log that is piped in, which needs
only its report. A short line waits for a pause in the input: scripts count these lines."""


class Live:
    """Is told of every step of the analysis, and prints each finding once."""

    def __init__(
        self, sink: Sink, look: Appearance, format: FormatName = "text", before: Callable[[], None] = lambda: None
    ) -> None:
        """``before``: is called before something is printed."""
        # Imported now: the first finding must not wait for it.
        from cachedoctor.report.base import write
        from cachedoctor.report.text import concise
        from cachedoctor.report.text import text_report as text

        self._text, self._concise, self._write = text, concise, write
        self._short = format == "concise"
        self._before = before
        self._sink = sink
        self._look = look
        self._silent = False
        self._since: float | None = None
        self._printed: dict[tuple[object, ...], bytes] = {}
        self._urls: dict[str, str] = {}
        self._summaries: dict[str, str] = {}
        if look.pages is not None:
            from cachedoctor.diagnosis.rules import names

            self._urls = dict(names.urls())

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Take notice of the codes of new findings, and of silence; print what is due."""
        self._silent = self._silent or silent
        now = time.monotonic()
        if new and self._since is None:
            self._since = now
        patience = math.inf if self._short else _PATIENCE
        if self._since is not None and (self._silent or now - self._since >= patience):
            self._since = None
            self._print(findings())

    def _print(self, findings: list[Finding]) -> None:
        self._before()
        with self._sink.writing() as out:
            for finding in findings:
                key = finding.identity
                if key not in self._printed:
                    self._printed[key] = self._finding_bytes(finding)
                    out.write(self._printed[key])

    def _finding_bytes(self, finding: Finding) -> bytes:
        look = self._look
        if self._short:
            return self._concise.line(finding, look)
        text = io.StringIO()
        url = self._urls.get(finding.code)
        self._text.render_finding(
            finding, text, look.width, color=look.color, ascii_only=look.ascii_only, pages=look.pages, url=url,
            summary=self._summary(finding.code),
        )  # fmt: skip
        return look.encode(text.getvalue())

    def _summary(self, code: str) -> str:
        """What a rule is about; the rules were imported long before the first finding."""
        if not self._summaries:
            from cachedoctor.diagnosis.rules.registry import load

            self._summaries = {rule.code: rule.summary for rule in load()[0]}
        return self._summaries.get(code, "")

    def end(self, report: Report, out: IO[bytes]) -> None:
        """Write the report; of short lines those that are new or whose numbers changed since they were printed."""
        if not self._short:
            self._write("text", report, out, self._look)
            return
        lines = io.BytesIO()
        self._write("concise", report, lines, self._look)
        printed = set(self._printed.values())
        out.writelines(line for line in lines.getvalue().splitlines(keepends=True) if line not in printed)


_TOLD = 256
"""Number of printed requests to remember: more than can be judged again."""


class Lines(Listener):
    """Prints when a step ends what happened in it."""

    def __init__(self, sink: Sink, look: Appearance) -> None:
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
        from cachedoctor.redaction import sanitize
        from cachedoctor.report.text.concise import lost, sentence

        for one, session in judged:
            number = one.request.index
            if lost(one.request) and number not in self._told:
                self._told.append(number)
                self._row((sentence(one, sanitize.mask(session).origin), ""))
        for found in findings:
            key = found.identity
            if key not in self._findings:
                self._findings.add(key)
                self._finding(sanitize.mask(found))

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Print what was worded."""
        self._flush()

    def _finding(self, found: Finding) -> None:
        from cachedoctor.report.text.concise import cost, fix

        advice = fix(found)
        server = f"{found.origin}, " if found.origin else ""
        words = [f"{found.severity}[{found.code}] {found.name}: {server}{cost(found) or found.claim}"]
        self._row(("; fix: ".join([*words, advice] if advice else words), "bold"))

    def _row(self, part: tuple[str, str]) -> None:
        from cachedoctor.report.text.page import TextPage

        TextPage(self._text, self._look.width, self._look.color, self._look.ascii_only).row(part)

    def _flush(self) -> None:
        text = self._text.getvalue()
        if text:
            self._text = io.StringIO()
            with self._sink.writing() as out:
                out.write(self._look.encode(text))


class StreamWriter:
    """Writes what happens at every step, as lines of ``cachedoctor.stream/1``."""

    def __init__(self, sink: Sink) -> None:
        from cachedoctor.doctor.analysis.event_stream import EventStream

        self.listener = EventStream()
        self._sink = sink

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Write what happened; whoever reads the other end of a pipe gets it at once."""
        lines = self.listener.take()
        if lines:
            with self._sink.writing() as out:
                out.write(lines)

    def close(self, report: Report) -> None:
        """Write the end."""
        with self._sink.writing() as out:
            out.writelines(self.listener.close(report))
