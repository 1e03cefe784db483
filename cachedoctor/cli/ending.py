"""How an analysis ends: its report, what is said beside it, the exit status."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from cachedoctor.cli import terminal
from cachedoctor.cli.keys import Interrupts
from cachedoctor.knowledge.engines import ENGINES, SERVERS

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.model import CacheDoctorError, Report

INTERRUPTED, FAULT, NOTHING, FOUND = 130, 2, 3, 1
_MEASURED = " or ".join(f"{known.table} ({known.title})" for known in ENGINES.values())
_NAMED = 3
"""Inputs that a message names."""
UNWRITTEN = "nothing was written; a JSON report is read from a file, not from a pipe"
_PIPE = "llama-server logs to standard error: put 2>&1 | cachedoctor analyze - behind its command line"


def named(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def no_requests(paths: Sequence[str]) -> tuple[str, str]:
    """Say that these logs have measurements instead of requests, and what shows them: a message and a hint."""
    has = "has" if len(paths) == 1 else "have"
    what = f"{named(paths)}: {has} measurements of the whole server, and no requests, which this command is about"
    return what, f"cachedoctor analyze shows them, --table {_MEASURED} -o samples.csv writes them"


def conclude(
    analyzer: Analyzer,
    interrupted: bool,
    interrupts: Interrupts,
    write: Callable[[Report], None],
    choose: Callable[[Report], Report] = lambda report: report,
) -> tuple[Report, bool]:
    """Make the report and have it written; gives it, and whether an interrupt came before the end.

    ``choose``: gives the part of the report that is to be shown.
    """
    written = False
    try:
        # Who interrupts for the second time does not want to wait for the report.
        with contextlib.nullcontext() if interrupted else interrupts.held():
            report = choose(analyzer.finish(interrupted))
            write(report)
            written = True
    except KeyboardInterrupt:
        if not written:
            raise
        interrupted = True
    return report, interrupted


def complain(errors: Iterable[CacheDoctorError], analyzer: Analyzer) -> None:
    """Name inputs that could not be read, and say that a part of us failed, on the standard error."""
    for error in errors:
        terminal.complain(error.message, error.hint)
    if analyzer.crashed:
        terminal.complain(
            "a rule, or what reads a server, failed; the report names it",
            "this is a bug: please report it",
            "internal error",
        )


def status(
    report: Report,
    crashed: bool,
    fail_on: Literal["never", "note", "warning", "error"] = "never",
    begin: bytes = b"",
) -> int:
    """Give the exit status of an analysis that was not interrupted; ``begin``: the first bytes of its last input."""
    from cachedoctor.model import SEVERITY_ORDER

    if crashed or any(i.error is not None for i in report.inputs):
        return FAULT
    if not any(i.recognised for i in report.inputs) and not (_extras(report) and not report.inputs):
        empty = not any(i.bytes for i in report.inputs)
        what = "the input is empty" if empty else f"nothing in the input was recognised as a log of {SERVERS}"
        terminal.complain(what, _PIPE if empty else _expected(report, begin))
        return NOTHING
    levels = [SEVERITY_ORDER[f.severity] for f in report.findings]
    if not _causes(report) and _is_unchecked(report):
        return NOTHING
    return FOUND if fail_on != "never" and max(levels, default=-1) >= SEVERITY_ORDER[fail_on] else 0


def _is_unchecked(report: Report) -> bool:
    from cachedoctor.report.words.coverage import nothing_checked

    return nothing_checked(report)


def _causes(report: Report) -> bool:
    """Whether a finding says more than that the log is cut, or has an error line that is not understood."""
    return any(finding.code not in ("CD902", "CD905") for finding in report.findings)


def _expected(report: Report, begin: bytes) -> str:
    from cachedoctor.doctor.extras.extra_inputs import hint

    extras = next((found for i in report.inputs if (found := hint(i.path)) is not None), None)
    if extras is not None:
        return extras
    begin = begin or next((head for i in report.inputs if (head := _begin(i.path))), b"")
    return expected(begin, max(i.bytes for i in report.inputs))


def expected(begin: bytes, size: int = 0) -> str:
    """Say what an input of so many bytes that begins so looks like, and where it is said what is expected."""
    from cachedoctor.doctor.analysis.resemblance import resemblance

    looks = resemblance(begin, size)
    said = "cachedoctor explain unknown-format says what is expected"
    return said if looks is None else f"it looks like {looks}; {said}"


def _begin(path: str) -> bytes:
    from cachedoctor.doctor.analysis.intake import BEGIN
    from cachedoctor.inputs.sources.file import FileSource
    from cachedoctor.model import CacheDoctorError

    try:
        return next(FileSource(path).chunks(), b"")[:BEGIN] if os.path.isfile(path) else b""
    except CacheDoctorError:
        return b""


def has_content(report: Report) -> bool:
    """Whether anything was read; else the errors on the standard error say it all."""
    return any(i.error is None or i.lines for i in report.inputs) or _extras(report)


def _extras(report: Report) -> bool:
    """Whether anything is known from beside the logs."""
    return any(session.counters or session.answers or session.kv_events for session in report.sessions)
