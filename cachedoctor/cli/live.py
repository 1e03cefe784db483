"""Findings of a live log, printed as they turn up. Knows findings and the sink; knows no source and no rule."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cachedoctor.cli.sink import Sink
    from cachedoctor.model import Finding
    from cachedoctor.report.base import Look

_PATIENCE = 0.05
"""Seconds that a finding waits while the input has never fallen silent: it may be a finished log that is piped in,
which needs no more than its report."""


class Live:
    """Is told of every step of the analysis, and prints each finding once."""

    def __init__(self, sink: Sink, look: Look) -> None:
        # Imported now: the first finding must not wait for it.
        from cachedoctor.report.text import render_finding

        self._render = render_finding
        self._sink = sink
        self._look = look
        self._silent = False
        self._since: float | None = None
        self._printed: set[tuple[object, ...]] = set()

    def step(self, new: list[str], silent: bool, findings: Callable[[], list[Finding]]) -> None:
        """Take notice of the codes of new findings, and of silence; print what is due."""
        self._silent = self._silent or silent
        now = time.monotonic()
        if new and self._since is None:
            self._since = now
        if self._since is not None and (self._silent or now - self._since >= _PATIENCE):
            self._since = None
            self._print(findings())

    def _print(self, findings: list[Finding]) -> None:
        text = io.StringIO()
        for finding in findings:
            # A rule hits a request at most once, so its first request tells one finding of a code from another.
            key = (finding.code, *finding.requests[:1])
            if key not in self._printed:
                self._printed.add(key)
                look = self._look
                self._render(finding, text, look.width, color=look.color, ascii_only=look.ascii_only)
        with self._sink.writing() as out:
            out.write(self._look.encode(text.getvalue()))
