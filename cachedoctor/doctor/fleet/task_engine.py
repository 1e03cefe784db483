"""What runs the tasks of a fleet has to do: take some, and say what became of them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cachedoctor.doctor.fleet.log_task import LogResult, LogTask
from cachedoctor.knowledge.libraries import install
from cachedoctor.model import CacheDoctorError


class Lost(NamedTuple):
    """The process that worked at a log is gone, and nothing of it is left."""

    reason: str


class WorkerPool(Protocol):
    """Several processes, here or elsewhere, each of which does one task at a time."""

    @property
    def width(self) -> int:
        """Tasks that it should have at a time."""

    def submit(self, task: LogTask) -> None:
        """Take a task."""

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait until one of its tasks ended, or for some seconds; gives those that did."""


def missing(name: str) -> CacheDoctorError:
    """Say how to get what an engine is on."""
    return CacheDoctorError(f"--engine {name} needs {name}", install(name, "tables"))
