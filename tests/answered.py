"""Analyses a short log, cut into pieces of any size, for tests of programs that log numbers of each request."""

from __future__ import annotations

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report, Session


def report_of(text: str | bytes, step: int = 1 << 20) -> Report:
    """The report of a log that arrives in pieces of ``step`` bytes."""
    data = text if isinstance(text, bytes) else text.encode()
    analyzer = Analyzer()
    analyzer.open("server.log")
    for at in range(0, len(data), step):
        analyzer.feed(data[at : at + step])
    return analyzer.finish()


def sessions_of(text: str | bytes, step: int = 1 << 20) -> list[Session]:
    """Sessions of a log; how it was cut makes no difference."""
    whole = report_of(text, step)
    assert whole.sessions == report_of(text, 7).sessions
    assert whole.inputs == report_of(text, 7).inputs
    return whole.sessions


def numbers(session: Session) -> list[tuple[int, int | None, int | None]]:
    """Prompt and cached tokens and line of every request that is listed."""
    return [(a.prompt_tokens, a.cached_tokens, a.line) for answers in session.answers for a in answers.each]
