"""The engine that was asked for; only its library is imported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from cachedoctor.doctor.fleet.task_engine import WorkerPool

EngineName = Literal["local", "ray"]


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


def _local(jobs: int, _: str | None) -> AbstractContextManager[WorkerPool]:
    from cachedoctor.doctor.fleet.local_engine import running

    return running(jobs)


def _ray(jobs: int, address: str | None) -> AbstractContextManager[WorkerPool]:
    from cachedoctor.doctor.fleet.ray_engine import connected

    return connected(jobs, address)


_ENGINES: dict[EngineName, Callable[[int, str | None], AbstractContextManager[WorkerPool]]] = {
    "local": _local,
    "ray": _ray,
}
