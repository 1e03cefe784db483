"""All logs of a host, read in turn: new ones are found, and one that cannot be read does not stop the others."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from cachedoctor.live.exporter.followed_log import Begin, FollowedLog, SavedLog, SavedState
from cachedoctor.live.exporter.log_places import FollowedPath, Places
from cachedoctor.live.exporter.request_counts import Counts, LabelledCount, LabelValues
from cachedoctor.model import CacheDoctorError, Severity

LOOK = 5.0
"""Seconds between two searches for new logs, and for those that could not be read."""
FINDINGS = 5.0
"""Minimum seconds between two computations of the findings."""
GONE = 300.0
"""Seconds after which a discovered log that is gone is no longer exported; Prometheus looks back as far."""
MOST_GONE = 256
"""Number of missing logs whose read position is kept, the latest ones: one that comes back continues there."""
_STEPS = 16
"""Steps of one log before the next one is read."""

Complain = Callable[[str, str], None]
"""Takes a message and a hint, for one line."""


class FindingLabels(NamedTuple):
    """Labels by which findings are counted."""

    cause: str
    severity: Severity
    server: str


class Numbers(NamedTuple):
    """All numbers exported at one time."""

    counts: Counts
    findings: Counter[FindingLabels]
    readable: dict[str, bool]
    """Whether each log can be read, by the value of its label ``server``."""
    hit_rates: dict[tuple[str, str], float]
    """Last hit rates of vLLM, by server and engine."""


class _Followed:
    """A log, and how its reading goes."""

    def __init__(self, log: FollowedLog, now: float) -> None:
        self.log = log
        self.seen = now
        """Time at which the log last existed."""
        self.is_there = True
        self.failed: float | None = None
        """Time at which it could not be read; None if it can."""
        self.told = ""
        """The last message printed about it."""
        self.has_begun = False
        """True if it was read to its end once, or cannot be read."""
        self.changed = True
        """True if something came since the findings were computed."""
        self.asked = -FINDINGS
        self.findings: Counter[FindingLabels] = Counter()


class ManyLogs:
    """Reads a little of every log at each call."""

    def __init__(
        self,
        places: Places,
        begin: Begin,
        values: LabelValues,
        saved: SavedState,
        complain: Complain,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``begin`` makes an analyzer; ``saved``: state of the last run; ``complain`` is called once per fault."""
        self._places = places
        self._begin = begin
        self._values = values
        self._complain = complain
        self._clock = clock
        self._started = clock()
        self._saved = {log.path: log for log in saved.logs if not log.gone}
        self._gone = {log.path: log for log in saved.logs if log.gone}
        self._logs: dict[str, _Followed] = {}
        self._looked: float | None = None
        self._came = self._started
        """Time of the last change."""
        self.shown: Numbers | None = None
        """What is exported; None until all initial logs are read, because counters would start too low."""

    def round(self) -> bool:
        """Read a little of every log; returns whether there was anything to read."""
        now = self._clock()
        if self._looked is None or now - self._looked >= LOOK:
            self._looked = now
            self._look(now)
        came = [self._turn(followed, now) for followed in self._logs.values()]
        return any(came)

    def show(self) -> None:
        """Update the exported numbers."""
        if self.shown is None:
            if not all(followed.has_begun for followed in self._logs.values()):
                return
        elif self._clock() - self._came > 2 * FINDINGS:
            return  # nothing comes, and all that came is shown
        counts: Counts = Counter()
        findings: Counter[FindingLabels] = Counter()
        readable: dict[str, bool] = {}
        hit_rates: dict[tuple[str, str], float] = {}
        for followed in self._logs.values():
            counts.update(followed.log.counts())
            self._ask(followed)
            findings.update(followed.findings)
            name = followed.log.server(None)
            readable[name] = readable.get(name, True) and followed.is_there and followed.failed is None
            hit_rates |= followed.log.hit_rates()
        self.shown = Numbers(counts, findings, readable, hit_rates)

    def state(self) -> SavedState:
        """Return the state for the next run."""
        logs = [followed.log.saved() for followed in self._logs.values()]
        return SavedState(labels=self._values.known(), logs=[*logs, *self._saved.values(), *self._gone.values()])

    def __len__(self) -> int:
        return len(self._logs)

    def _look(self, now: float) -> None:
        for place in self._places.found():
            followed = self._logs.get(place.path)
            if followed is None:
                saved = self._saved.pop(place.key, None) or self._back(place.key)
                followed = self._logs[place.path] = _Followed(FollowedLog(place, self._begin, self._values, saved), now)
                self._places.followed.add(place.path)
            followed.seen = now
        if self._saved and now - self._started >= GONE:
            lost = {series.server for log in self._saved.values() for series, _, _ in log.counts}
            for log in self._saved.values():  # logs of the last run that did not come back
                self._let_go(log)
            self._saved.clear()
            self._make_room(lost)
        for path, followed in list(self._logs.items()):
            is_there = os.path.exists(path)
            if is_there != followed.is_there:
                followed.is_there, self._came = is_there, now
            if now - followed.seen >= GONE:
                self._forget(path, followed)

    def _forget(self, path: str, followed: _Followed) -> None:
        """Drop a discovered log; its counts stay as long as the same server writes to another one."""
        del self._logs[path]
        self._came = self._clock()
        self._places.followed.discard(path)
        counts, place, saved = followed.log.counts(), followed.log.place, followed.log.saved()
        heir = next((other.log for other in self._logs.values() if other.log.place.name == place.name), None)
        if heir is not None:
            heir.inherit(counts)
            self._let_go(msgspec.structs.replace(saved, counts=[]))
            return
        self._let_go(saved)
        self._make_room({followed.log.server(None), *(series.server for series in counts)})

    def _let_go(self, log: SavedLog) -> None:
        """Keep how far a log was read, and its counts unless another log has them now."""
        if log.files:
            self._gone[log.path] = msgspec.structs.replace(log, gone=True)
        while len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _back(self, key: str) -> SavedLog | None:
        """Return the saved state of a log that is back; its labels need space again."""
        log = self._gone.pop(key, None)
        if log is None:
            return None
        counted, shown = Counter[LabelledCount](), Counter[LabelledCount]()
        for series, count, seen in log.counts:
            series = series._replace(server=self._values.bounded("server", series.server))
            counted[series] += count
            shown[series] += seen
        return SavedLog(key, log.files, log.quiet, [(series, counted[series], shown[series]) for series in counted])

    def _make_room(self, servers: set[str]) -> None:
        """Drop servers that no log belongs to any more."""
        used = {series.server for followed in self._logs.values() for series in followed.log.counts()}
        used |= {followed.log.server(None) for followed in self._logs.values()}
        for server in servers - used:
            self._values.forget("server", server)

    def _turn(self, followed: _Followed, now: float) -> bool:
        if followed.failed is not None and now - followed.failed < LOOK:
            return False
        try:
            return self._read(followed)
        except CacheDoctorError as error:
            self._fault(followed, now, error.message, error.hint)
        except Exception as error:  # one log must not end the others
            place: FollowedPath = followed.log.place
            self._fault(
                followed,
                now,
                f"{place.name}: {type(error).__name__}: {error}",
                "this is a bug of cachedoctor; report the bug",
            )
        return False

    def _read(self, followed: _Followed) -> bool:
        some = False
        for _ in range(_STEPS):
            came = followed.log.step()
            if followed.failed is not None:
                followed.failed, followed.told = None, ""
            some = some or came
            if not came:
                break
        if some:
            followed.changed, self._came = True, self._clock()
        followed.has_begun = followed.has_begun or followed.log.is_current
        return some

    def _fault(self, followed: _Followed, now: float, message: str, hint: str) -> None:
        if followed.failed is None:
            self._came = now
        followed.failed, followed.has_begun = now, True
        if followed.told != message:
            followed.told = message
            self._complain(message, hint)

    def _ask(self, followed: _Followed) -> None:
        """Compute the findings of a log if something came, but not too often."""
        log, now = followed.log, self._clock()
        if not log.is_current or not followed.changed or now - followed.asked < FINDINGS:
            return
        followed.changed, followed.asked = False, now
        followed.findings = Counter(
            FindingLabels(finding.name, finding.severity, log.server(finding.origin)) for finding in log.findings()
        )
