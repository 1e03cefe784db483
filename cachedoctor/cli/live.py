"""Findings of a live log, printed as they turn up. Knows findings and the sink; knows no source and no rule."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from cachedoctor.cli.sink import Sink
    from cachedoctor.model import Finding, Report
    from cachedoctor.report.base import FormatName, Look

FORMATS = ("text", "concise")
"""Formats in which a finding can stand alone."""
_PATIENCE = 0.05
"""Seconds that a finding waits while the input has never fallen silent: it may be a finished log that is piped in,
which needs no more than its report. A short line waits until there was a silence: scripts count them."""


class Live:
    """Is told of every step of the analysis, and prints each finding once."""

    def __init__(
        self, sink: Sink, look: Look, format: FormatName = "text", before: Callable[[], None] = lambda: None
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
