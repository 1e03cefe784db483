"""What logs without requests measured, as Markdown. Decides no words; makes those of the log harmless."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.model import Session
from cachedoctor.report.markdown.markdown_safe import cell, code, prose, table
from cachedoctor.report.secrets import hidden
from cachedoctor.report.words.measurements import grid, largest, measures, said
from cachedoctor.report.words.numbers import count, number

MOST = 5
"""Servers; of more, those of which most was measured."""


def show(sessions: Sequence[Session]) -> list[str]:
    """Return a list for each server, and a table where it has several engines or periods."""
    found = [session for session in sessions if measures(session)]
    parts = []
    for session in largest(found, MOST):
        if len(sessions) > 1:
            origin = f" {code(hidden(session.origin))}" if session.origin else ""
            parts.append(f"Server {session.index + 1}{origin}:")
        parts += _session(session)
    if len(found) > MOST:
        parts.append(f"And {count(len(found) - MOST, 'other server')} with measurements.")
    return parts


def _session(session: Session) -> list[str]:
    parts = ["\n".join(f"- {key.capitalize()}: {prose(hidden(words))}" for key, words in said(session))]
    found = grid(session)
    if found is not None:
        head = [found.key, *(" ".join(filter(None, heading)) for heading in found.headings)]
        parts.append(table(head, [[cell(row.name), *row.cells] for row in found.rows], left=1))
        if found.more:
            parts.append(f"And {number(found.more)} more.")
    return parts
