"""Gives out the logs of a fleet to an engine and puts what comes back into the folder of the result.

A log whose process was killed is given out once more; when that one is killed as well, its row says so. Nothing else
waits for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

import cachedoctor
from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.fleet.fleet_inputs import Log, Unfound, logs_at, part_of
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, failed, unfound
from cachedoctor.doctor.fleet.result_folder import ResultFolder, checked, is_done
from cachedoctor.doctor.fleet.task_engine import Lost, WorkerPool
from cachedoctor.doctor.stored_fleet import CUT, FAILED, parts
from cachedoctor.inputs.sources.base import Told, unheard
from cachedoctor.model.stats import FleetPage
from cachedoctor.report.tables import fleet_sums
from cachedoctor.report.tables.columns import FLEET

_TRIES = 2
"""Processes that one log may take with it."""


class Amiss(msgspec.Struct, frozen=True):
    """A log that could not be read, or not to its end."""

    log: str
    reason: str


class FleetRun(msgspec.Struct):
    """What one run did."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """Logs by what became of them."""
    done_before: int = 0
    """Logs that are as they were when an earlier run read them."""
    waiting: int = 0
    """Logs that are still to be read."""
    again: int = 0
    """Logs that were given out once more, as their process was killed."""
    amiss: list[Amiss] = msgspec.field(default_factory=list)
    bugs: int = 0
    """Logs at which a part of cachedoctor failed."""


class Fleet:
    """The logs at some paths, and the folder for what is found in them."""

    def __init__(
        self, paths: Sequence[str], folder: ResultFolder, build: int | None, max_unpacked: int, *, reports: bool = True
    ) -> None:
        """Look for the logs.

        Args:
            paths: files, folders, patterns, addresses.
            folder: for the result.
            build: of llama.cpp, of the logs that do not say it.
            max_unpacked: bytes that each file may unpack to.
            reports: each log gets a page of its own.
        """
        self._folder, self._paths = folder, paths
        self.logs: list[Log]
        self._unfound: list[Unfound]
        self.logs, self._unfound = logs_at(paths, folder.path)
        self._terms = build, max_unpacked, reports
        self.run = FleetRun()
        """What was done so far."""

    def due(self) -> list[LogTask]:
        """Return what is to be read, the largest first: a large one that came last would be waited for."""
        done = self._folder.done()
        self._forget(done)
        tasks = [LogTask(log, *self._terms) for log in self.logs]
        due = [task for task in tasks if not is_done(task, done.get(task.log.part, []))]
        self.run.done_before, self.run.waiting = len(tasks) - len(due), len(due)
        return sorted(due, key=lambda task: -task.log.size)

    def _forget(self, done: dict[str, list[dict[str, Any]]]) -> None:
        """Take back what was said of paths at which nothing was found before, and something is now."""
        missing = {part_of(path.path) for path in self._unfound}
        for part in {part_of(path) for path in self._paths} - missing:
            if part in done and all(row["size"] is None for row in done[part]):
                self._folder.forget(part)

    def read(
        self, due: list[LogTask], engine: WorkerPool, told: Told = unheard, paused: Callable[[], None] = lambda: None
    ) -> None:
        """Have all of them read.

        Args:
            due: the logs.
            engine: reads them.
            told: hears of the bytes of a log when it is done.
            paused: is called now and then, between two logs.
        """
        waiting, tries, running = deque(due), Counter[str](), 0
        while waiting or running:
            while waiting and running < engine.width:
                engine.submit(waiting.popleft())
                running += 1
            for task, outcome in engine.wait():
                running -= 1
                if isinstance(outcome, Lost):
                    tries[task.log.part] += 1
                    if tries[task.log.part] < _TRIES:
                        self.run.again += 1
                        waiting.appendleft(task)
                        continue
                    outcome = failed(task, f"{outcome.reason}, twice; the log may need more memory than available")
                result = checked(task, outcome)
                self._take(result)
                self.run.waiting -= 1
                told(result.size)
            paused()

    def note_unfound(self) -> None:
        """Give each path that leads nowhere its row."""
        for path in self._unfound:
            self._take(unfound(path, part_of(path.path)))

    def page(self) -> FleetPage:
        """Sum up all that lies in the folder, of earlier runs as well."""
        tables = {name: parts(self._folder.path, name) for name in FLEET}
        page = fleet_sums.page(cachedoctor.__version__, tables)
        page.waiting = self.run.waiting
        summaries = {rule.code: rule.summary for rule in registry.load()[0]}
        for cause in page.causes:
            cause.summary = summaries.get(cause.code, "")
        return page

    def _take(self, result: LogResult) -> None:
        self._folder.put(result)
        self.run.counts[result.status] += 1
        self.run.bugs += result.is_bug
        if result.status in (FAILED, CUT):
            self.run.amiss.append(Amiss(result.log, result.reason or "it cannot be read"))
