"""Which requests of a report are shown: those of a task, a slot or a time. Nothing is diagnosed again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import IO

import msgspec

from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, Filtered, Finding, Report, RequestLines, RequestRow

_AFTER_START = late(r"\+(?=\d)(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s?)?")
_GIVEN = late(
    r"(?:(?P<date>\d{4}-\d\d-\d\d)(?:[T ](?P<clock>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?))?"
    r"|(?P<alone>\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?))(?P<zone>Z|[+-]\d\d:\d\d)?"
)
_LOGGED = late(r"(\d{4}-|--)(\d\d-\d\d)T([\d:.]+)(Z|[+-]\d\d:\d\d)?")
_END = "~"
"""Sorts after every digit and colon: ``10:00~`` is the end of that minute."""
_FORMS = "give 2026-05-01T10:00, 10:00, or a time since the server start: +90s, +1h30m"
_NAMED = 8
"""Slots that a hint names."""
_NOTHING = 3
"""Exit status: nothing could be checked."""


class RequestFilter(msgspec.Struct, frozen=True):
    """What the user asked for; the empty one shows all."""

    tasks: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    since: str | None = None
    """``2026-05-01T10:00``, ``10:00``, ``+90s``; of the log's own clock."""
    until: str | None = None
    """The same; the second, minute or day that it names is shown to its end."""

    def __bool__(self) -> bool:
        return self != RequestFilter()

    def check(self) -> None:
        """Refuse a time that cannot be read, before a log is.

        Raises:
            CacheDoctorError: it is none.
        """
        for option, text in (("--since", self.since), ("--until", self.until)):
            if text is None or _AFTER_START.fullmatch(text) or _is_time(text):
                continue
            raise CacheDoctorError(f"{option}: {text!r} is not a time", _FORMS)


def _is_time(text: str) -> bool:
    found = _GIVEN.fullmatch(text)
    if found is None:
        return False
    try:
        clock = f"{found['clock'] or found['alone'] or '00:00'}{found['zone'] or ''}"
        datetime.fromisoformat(f"{found['date'] or '2026-05-01'}T{clock}")
    except ValueError:
        return False
    return True


def filtered(report: Report, wanted: RequestFilter) -> Report:
    """Return a report of the same log that shows only the requests that are wanted, and their findings.

    Raises:
        CacheDoctorError: there are no such requests, or the log has no clock to choose them by.
    """
    if report.filtered is not None:
        raise CacheDoctorError("the report is already filtered", "filter the report of the whole log")
    if not report.totals.requests:
        raise CacheDoctorError("the log has no requests to filter", "remove --task, --slot, --since, --until")
    report.requests.check()
    choice = _Choice(report, wanted)
    found = _Found(report)
    for row in report.requests:
        found.take(row, choice.has(row))
    if not found.shown:
        raise CacheDoctorError(f"no request in the log matches {choice.words()}", found.hint(), _NOTHING)
    findings = [found.renumbered(f) for f in report.findings if f.identity in found.hit]
    about = Filtered(
        list(wanted.tasks), list(wanted.slots), wanted.since, wanted.until,
        found.shown, found.all, len(findings), len(report.findings), choice.timeless,
    )  # fmt: skip
    return msgspec.structs.replace(
        report, requests=_Chosen(report.requests, choice.has), findings=findings, filtered=about
    )


class _Found:
    """What a pass over the requests finds."""

    def __init__(self, report: Report) -> None:
        self.shown = self.all = 0
        self.hit: set[tuple[str, str, str | None, str | None]] = set()
        self._servers = {session.index: (session.path, session.origin) for session in report.sessions}
        self._of_code: dict[str, list[Finding]] = {}
        for finding in report.findings:
            self._of_code.setdefault(finding.code, []).append(finding)
        self._numbers = dict.fromkeys(number for finding in report.findings for number in finding.requests)
        """Number of a request among the shown ones, for requests that findings name."""
        self._tasks: list[int] = []
        self._slots: set[int] = set()

    def take(self, row: RequestRow, wanted: bool) -> None:
        """Count a request, in the order of the report."""
        self.all += 1
        self._slots.add(row.slot)
        self._tasks = [min([*self._tasks, row.task]), max([*self._tasks, row.task])]
        if not wanted:
            return
        if row.index in self._numbers:
            self._numbers[row.index] = self.shown
        self.shown += 1
        for code in row.codes:
            self.hit.update(finding.identity for finding in self._findings(row, code))

    def _findings(self, row: RequestRow, code: str) -> list[Finding]:
        """Findings of a code that a request belongs to; of many requests a finding names the first and the worst."""
        path, origin = self._servers.get(row.session, (row.path, None))
        known = [f for f in self._of_code.get(code, []) if f.path in (None, path) and f.origin in (None, origin)]
        naming = [finding for finding in known if row.index in finding.requests]
        return naming or [finding for finding in known if finding.count > len(finding.requests)]

    def renumbered(self, finding: Finding) -> Finding:
        """Return a finding whose requests are numbered as they are shown."""
        numbers = [at for number in finding.requests if (at := self._numbers[number]) is not None]
        return msgspec.structs.replace(finding, requests=numbers)

    def hint(self) -> str:
        """Say which tasks and slots there are."""
        slots = ", ".join(map(str, sorted(self._slots)[:_NAMED])) + (" ..." if len(self._slots) > _NAMED else "")
        where = f"the log has tasks {self._tasks[0]} to {self._tasks[-1]}, and slots {slots}"
        return f"{where}; cachedoctor analyze LOG -o requests.csv lists all requests with their times"


class _Choice:
    """Says of a request whether it is wanted."""

    def __init__(self, report: Report, wanted: RequestFilter) -> None:
        wanted.check()
        self._wanted = wanted
        self.timeless = 0
        """Requests that are left out because the log does not show their time."""
        limits = [(option, text) for option, text in (("--since", wanted.since), ("--until", wanted.until)) if text]
        clock = _Clock(report.requests) if limits else None
        self._limits = [clock.limit(option, text) for option, text in limits] if clock is not None else []
        self.timeless = clock.missing([text for _, text in limits]) if clock is not None else 0

    def has(self, row: RequestRow) -> bool:
        """Whether a request is shown; those of ``n > 1`` belong to the task that asked for them."""
        tasks, slots = self._wanted.tasks, self._wanted.slots
        if tasks and row.task not in tasks and row.parent not in tasks:
            return False
        return (not slots or row.slot in slots) and all(limit(row) for limit in self._limits)

    def words(self) -> str:
        """Write the wanted options, as on the command line."""
        wanted = self._wanted
        parts = [f"--task {task}" for task in wanted.tasks]
        parts += [f"--slot {slot}" for slot in wanted.slots]
        parts += [f"--since {wanted.since}"] if wanted.since else []
        parts += [f"--until {wanted.until}"] if wanted.until else []
        return " ".join(parts)


class _Clock:
    """The clocks of a log: the one of its wrapper, and the one that runs since the start of the server."""

    def __init__(self, rows: RequestLines) -> None:
        self._dates: set[str] = set()
        self._zones: set[str] = set()
        self._untimed = self._unclocked = self._all = 0
        for row in rows:
            self._all += 1
            self._unclocked += row.uptime_ms is None
            found = None if row.time is None else _LOGGED.fullmatch(row.time)
            if found is None:
                self._untimed += 1
                continue
            self._dates.add(found[1] + found[2])
            self._zones.add(found[4] or "")

    def missing(self, texts: list[str]) -> int:
        """Requests without a time on one of the clocks that are used."""
        kinds = {self._unclocked if text.startswith("+") else self._untimed for text in texts}
        return max(kinds, default=0)

    def limit(self, option: str, text: str) -> Callable[[RequestRow], bool]:
        """Return what says whether a request started on the right side of a time.

        Raises:
            CacheDoctorError: the log has no such clock.
        """
        if text.startswith("+"):
            return self._after_start(option, text)
        if self._untimed == self._all:
            since_start = self._unclocked < self._all
            hint = (
                "the log's clock counts from the server start; give +90s or +1h30m"
                if since_start
                else "select requests with --task"
            )
            raise CacheDoctorError(f"{option}: the log has no timestamps with a date", hint)
        given = _GIVEN.fullmatch(text)
        if given is None:
            raise CacheDoctorError(f"{option}: {text!r} is not a time", _FORMS)
        if given["alone"] and len(self._dates) > 1:
            days = f"{min(self._dates)} to {max(self._dates)}"
            raise CacheDoctorError(f"{option}: the log covers several days, {days}", f"give the day as well: {_FORMS}")
        if given["zone"] and "" in self._zones:
            raise CacheDoctorError(f"{option}: the log's clock has no time zone", "remove the time zone")
        return _wall_limit(option, given, next(iter(self._dates)))

    def _after_start(self, option: str, text: str) -> Callable[[RequestRow], bool]:
        if self._unclocked == self._all:
            hint = "give a date or a time of day" if self._untimed < self._all else "select requests with --task"
            raise CacheDoctorError(f"{option}: the log's clock does not count from the server start", hint)
        found = _AFTER_START.fullmatch(text)
        if found is None:
            raise CacheDoctorError(f"{option}: {text!r} is not a time", _FORMS)
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        wanted = ((hours * 60 + minutes) * 60 + seconds) * 1000
        if option == "--since":
            return lambda row: row.uptime_ms is not None and row.uptime_ms >= wanted
        return lambda row: row.uptime_ms is not None and row.uptime_ms <= wanted


def _wall_limit(option: str, given: re.Match[str], day: str) -> Callable[[RequestRow], bool]:
    """Compare as text, in the zone that was given, else in that of the log; years only where the log has them."""
    date = (given["date"] or day).removeprefix("--")
    clock = given["clock"] or given["alone"]
    wanted = f"{date}T{clock}" if clock else date
    zone = datetime.fromisoformat(f"2026-05-01T00:00{given['zone']}").tzinfo if given["zone"] else None

    def started(row: RequestRow) -> tuple[str, str] | None:
        found = None if row.time is None else _LOGGED.fullmatch(row.time)
        if found is None or row.time is None:
            return None
        if zone is not None:
            try:
                moved = datetime.fromisoformat(row.time).astimezone(zone)
            except (ValueError, OverflowError):  # a day that no calendar has, or the first of all
                return None
            return moved.replace(tzinfo=None).isoformat(), wanted
        if found[1] == "--":
            return f"{found[2]}T{found[3]}", wanted[5:] if given["date"] else wanted
        return f"{found[1]}{found[2]}T{found[3]}", wanted

    def since(row: RequestRow) -> bool:
        pair = started(row)
        return pair is not None and pair[0] >= pair[1]

    def until(row: RequestRow) -> bool:
        pair = started(row)
        return pair is not None and pair[0] <= pair[1] + _END

    return since if option == "--since" else until


class _Chosen:
    """The requests of a report that are wanted, numbered again."""

    def __init__(self, rows: RequestLines, has: Callable[[RequestRow], bool]) -> None:
        self._rows, self._has = rows, has

    def check(self) -> None:
        """Raise ``CacheDoctorError`` when some of them were lost."""
        self._rows.check()

    def __iter__(self) -> Iterator[RequestRow]:
        """Yield them."""
        for number, row in enumerate(filter(self._has, self._rows)):
            yield msgspec.structs.replace(row, index=number)

    def lines(self) -> Iterator[bytes]:
        """Yield one JSON object each, without newline."""
        yield from map(msgspec.json.encode, self)

    def copy_to(self, out: IO[bytes]) -> None:
        """Write them all, one a line, with a comma between them as in a JSON array."""
        for number, line in enumerate(self.lines()):
            out.write(b",\n" * (number > 0) + line)


def shown_part(report: Report, wanted: RequestFilter | None, told: StartInfo | None) -> Report:
    """Return the report with the requests that are wanted, and with the fixes of their findings.

    Raises:
        CacheDoctorError: there are no such requests, or the log has no clock to choose them by.
    """
    if wanted is not None:
        report = filtered(report, wanted)
    report.fix = fixes(report.findings, report.sessions, report.inputs, told, replayed=report.fix)
    return report
