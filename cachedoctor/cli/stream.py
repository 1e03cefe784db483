"""``-f jsonl``: what happens is written at every step. Knows the sink; knows no line of the stream.

Imported when a stream begins, since it brings its format with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cachedoctor.doctor.analysis.event_stream import EventStream

if TYPE_CHECKING:
    from cachedoctor.cli.sink import Sink
    from cachedoctor.model import Finding, Report


class Stream:
    """Writes what happens at every step, as lines of ``cachedoctor.stream/1``."""

    def __init__(self, sink: Sink) -> None:
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
