"""The engine that was asked for: processes of this machine, or Ray, whose library is imported for nobody else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Literal

from cachedoctor.doctor import processes
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.fleet.task_engine import Lost, WorkerPool
from cachedoctor.doctor.processes import Killed, Workers

EngineName = Literal["local", "ray"]


class LocalEngine:
    """Processes that read a log each."""

    def __init__(self, workers: Workers[LogTask, LogResult]) -> None:
        self._workers = workers
        self.width, self.submit = workers.width, workers.submit

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait until at least one of its tasks ended."""
        ended = self._workers.wait()
        lost = Lost("the process that read the log was killed")
        return [(task, lost if isinstance(result, Killed) else result) for task, result in ended]


def engine(name: EngineName, jobs: int, address: str | None) -> AbstractContextManager[WorkerPool]:
    """Return an engine, which starts its processes when it is entered.

    Args:
        name: which one.
        jobs: processes that it starts, where it starts any.
        address: of a cluster that runs already, which has processes of its own.

    Raises:
        CacheDoctorError: its library is not installed.
    """
    return _ENGINES[name](jobs, address)


@contextlib.contextmanager
def _local(jobs: int, _: str | None) -> Iterator[LocalEngine]:
    # Spawned: this process has read tables with threads of polars, which a fork would not have.
    with processes.running(run_log, jobs, "spawn") as workers:
        yield LocalEngine(workers)


def _ray(jobs: int, address: str | None) -> AbstractContextManager[WorkerPool]:
    from cachedoctor.doctor.fleet.ray_engine import connected

    return connected(jobs, address)


_ENGINES: dict[EngineName, Callable[[int, str | None], AbstractContextManager[WorkerPool]]] = {
    "local": _local,
    "ray": _ray,
}
