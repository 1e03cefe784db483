"""How an analysis ends: its report, what is said beside it, the exit status; signals strike between two steps only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Literal

from cachedoctor.cli import terminal
from cachedoctor.knowledge.engines import ENGINES, SERVERS
from cachedoctor.knowledge.late_patterns import late

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.model import CacheDoctorError, Report


try:
    import fcntl
    import termios
except ImportError:  # Windows: the view has no keys there
    _ABLE = False
else:
    _ABLE = hasattr(signal, "SIGIO") and hasattr(fcntl, "F_SETOWN")

_KEY = late(rb"\x1b(?:\[|O)([A-D])|\x1b\[[0-9;]*[~A-Za-z]|([ -~])")
"""An arrow key, another key that is ignored, or a character."""
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}


class Keys:
    """Hears of keys between ``begin`` and ``end``, which may alternate; the signal that tells of one is SIGIO."""

    def __init__(self, pressed: Callable[[str], None]) -> None:
        """``pressed`` is called inside a signal handler, with ``q``, ``?``, ``up`` ..."""
        self._pressed = pressed
        self._fd: int | None = None
        self._mode: list[Any] = []
        self._before: Any = None

    def begin(self) -> bool:
        """Take the keyboard; returns whether there is one."""
        if not _ABLE:
            return False
        try:
            self._fd = os.open(os.ttyname(sys.stdout.fileno()), os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            if not _is_ours(self._fd):
                raise OSError(0, "another job uses the keyboard")
            self._mode = termios.tcgetattr(self._fd)
            self._before = signal.signal(signal.SIGIO, self._heard)
            fcntl.fcntl(self._fd, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) | os.O_ASYNC)
            mode = termios.tcgetattr(self._fd)
            mode[3] &= ~(termios.ICANON | termios.ECHO)  # signals stay: Ctrl-C, Ctrl-Z
            termios.tcsetattr(self._fd, termios.TCSANOW, mode)
        except (OSError, termios.error, AttributeError, ValueError):
            self.end()
            return False
        return True

    def end(self) -> None:
        """Give the keyboard back as it was; what was typed ahead and not read is discarded with the view."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        with contextlib.suppress(OSError, termios.error):
            if self._mode:
                termios.tcsetattr(fd, termios.TCSAFLUSH, self._mode)
        self._mode = []
        os.close(fd)
        if self._before is not None:
            signal.signal(signal.SIGIO, self._before)
            self._before = None

    def _heard(self, _: int, __: FrameType | None) -> None:
        if self._fd is None:
            return
        try:
            data = os.read(self._fd, 64)
        except OSError:  # nothing is left to read
            return
        for found in _KEY.finditer(data):
            key = _ARROWS.get(found[1] or b"") or (found[2] or b"").decode()
            if key:
                self._pressed(key)


def _is_ours(fd: int) -> bool:
    """Whether this job is in the foreground of its terminal: to set one up from the background would stop it."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal that nobody is logged in to
        return True


_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupts:
    """In its ``with`` block these signals raise KeyboardInterrupt, as soon as no step is held together."""

    def __init__(self) -> None:
        self._held = False
        self._pending = False
        self._is_deferring = False
        self._asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            # A job started in the background or by nohup ignores the signal, and must continue doing so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._strike)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a step, and the steps within, together: a signal waits for its end.

        A second one does not wait.
        """
        if self._held:
            yield
            return
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def deferred(self) -> Iterator[Callable[[], bool]]:
        """Only take note of the first signal in the block, which is to end soon when what is given turns true."""
        self._is_deferring = True
        try:
            yield lambda: self._asked
        finally:
            self._is_deferring = False

    @property
    def holding(self) -> bool:
        """Whether a step is under way: nobody may look at what it changes."""
        return self._held

    def _strike(self, _: int, __: FrameType | None) -> None:
        if self._is_deferring and not self._asked:
            self._asked = True
            return
        if self._held and not self._pending and not self._asked:
            self._pending = True
            return
        self._pending = False
        raise KeyboardInterrupt


INTERRUPTED, FAULT, NOTHING, FOUND = 130, 2, 3, 1
_MEASURED = " or ".join(f"{known.table} ({known.title})" for known in ENGINES.values())
_NAMED = 3
"""Inputs that a message names."""
UNWRITTEN = "nothing was written; give a JSON report as a file, not through a pipe"
_PIPE = "llama-server logs to standard error: append 2>&1 | cachedoctor analyze - to its command"


def named(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def no_requests(paths: Sequence[str]) -> tuple[str, str]:
    """Say that these logs have measurements instead of requests, and what shows them: a message and a hint."""
    has = "has" if len(paths) == 1 else "have"
    what = f"{named(paths)}: {has} measurements of the whole server but no requests, and this command needs requests"
    return what, f"cachedoctor analyze shows these measurements; --table {_MEASURED} -o samples.csv writes them"


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
            "a rule or a log reader failed; the report shows which one failed",
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
        what = "the input is empty" if empty else f"the input does not look like a log of {SERVERS}"
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
    said = "cachedoctor explain unknown-format shows the expected input"
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
