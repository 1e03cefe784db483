"""Sums of what servers without requests measured: a row for each group and kind of evidence, none added to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cachedoctor.doctor.compare import bootstrap
from cachedoctor.doctor.compare.measured import Measured, by_session
from cachedoctor.model import By, MeasuredRow, Report, Session
from cachedoctor.report.words import server_words

_GROUP: dict[By | None, Callable[[Session], str | None]] = {
    None: lambda session: None,
    "model": lambda session: session.model,
    "build": lambda session: f"{server_words.program(session)} {server_words.version(session)}",
    "memory": lambda session: session.memory,
    "path": lambda session: session.path,
    "origin": lambda session: session.origin,
}
"""What these servers can be grouped by; the rest is known of requests alone."""


class MeasuredSums:
    """Gathers servers of any number of reports."""

    def __init__(self) -> None:
        self._found: list[tuple[Session, Measured]] = []

    def add(self, report: Report) -> bool:
        """Take what its servers measured; gives whether that was anything."""
        found = by_session(report)
        self._found += [(session, found[session.index]) for session in report.sessions if session.index in found]
        return bool(found)

    def rows(self, by: Sequence[By | None]) -> list[MeasuredRow]:
        """Sum up over all and by each of these, the most prompt tokens first."""
        return [row for kind in by if kind in _GROUP for row in self._rows(kind)]

    def _rows(self, by: By | None) -> list[MeasuredRow]:
        groups: dict[tuple[str | None, str], list[Measured]] = {}
        for session, measured in self._found:
            groups.setdefault((_GROUP[by](session), measured.piece), []).append(measured)
        rows = [_row(by, group, found) for (group, _), found in groups.items()]
        return sorted(rows, key=lambda row: (-(row.prompt_tokens or 0), row.group or ""))


def _row(by: By | None, group: str | None, found: list[Measured]) -> MeasuredRow:
    terms = [term for measured in found for term in measured.terms]
    reused, prompt = sum(term.upper for term in terms), sum(term.lower for term in terms)
    interval = bootstrap.interval(terms)
    low, high = interval or (None, None)
    row = MeasuredRow(
        by, group, found[0].piece, len(found), sum(m.pieces for m in found), None, None, reused / prompt, low, high
    )
    if row.piece != "rate":
        row.prompt_tokens, row.cached_tokens = round(prompt), round(reused)
    return row
