"""The processes of a Ray cluster: one that runs, or one on this machine for as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.fleet.task_engine import Lost, missing
from cachedoctor.model import CacheDoctorError

_STORE = 256 << 20
"""Bytes of shared memory of a cluster that is started here: a result is there only until it is written."""

_ASK = 5.0
"""Seconds between two queries for the size of the cluster: each takes 2 ms of all processes."""
_PATIENCE = 5.0
"""Seconds without a result after which other due work may run."""


class RayEngine:
    """Tasks of Ray, one on each core."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # A log is given out once more by us, who say so, and not by Ray.
        self._task = ray.remote(max_retries=0, num_cpus=1)(run_log)
        self._busy: dict[Any, LogTask] = {}
        self._width = 0
        self._asked = -_ASK
        """When the size of the cluster was queried last."""

    @property
    def width(self) -> int:
        """Twice the cores, so that one that is done need not wait for us; a cluster may grow and shrink."""
        now = time.monotonic()
        if now - self._asked >= _ASK:
            with self._in_reach():
                cores = int(self._ray.cluster_resources().get("CPU", 1))
            self._width, self._asked = max(2, 2 * cores), now
        return self._width

    def submit(self, task: LogTask) -> None:
        """Take a task."""
        with self._in_reach():
            self._busy[self._task.remote(task)] = task

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait a little for tasks that end.

        Where the cluster's head is gone Ray ends this process after a minute.

        Raises:
            CacheDoctorError: the cluster is gone.
        """
        with self._in_reach():
            done, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=_PATIENCE)
            return [(self._busy.pop(one), self._result(one)) for one in done]

    @contextlib.contextmanager
    def _in_reach(self) -> Iterator[None]:
        """Say in one line that the cluster is gone; a client of ``ray://`` raises what gRPC does."""
        try:
            yield
        except Exception as fault:
            of_grpc = type(fault).__module__.partition(".")[0] == "grpc"
            if of_grpc or isinstance(fault, (OSError, self._ray.exceptions.RayError)):
                what = f"Ray: the cluster is gone ({type(fault).__name__})"
                raise CacheDoctorError(
                    what, "run the same command again when the cluster is back; the run then continues"
                ) from fault
            raise

    def _result(self, one: Any) -> LogResult | Lost:
        try:
            result: LogResult = self._ray.get(one)
        except self._ray.exceptions.LocalRayletDiedError:  # of each task that is left, and no fault of any
            raise
        except self._ray.exceptions.OutOfMemoryError:
            return Lost("the process that read the log was killed because the machine ran out of memory")
        except self._ray.exceptions.RayError as error:
            return Lost(f"the process that read the log was lost ({type(error).__name__})")
        return result


@contextlib.contextmanager
def connected(jobs: int, address: str | None) -> Iterator[RayEngine]:
    """Use the cluster at ``address``, or that of RAY_ADDRESS, else one of ``jobs`` processes on this machine.

    Raises:
        CacheDoctorError: Ray is not installed, or there is no such cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what it warns of concerns GPUs
    try:
        import ray
    except ImportError:
        raise missing("ray") from None
    where = address or os.environ.get("RAY_ADDRESS")
    own = {} if where else {"num_cpus": jobs, "object_store_memory": _STORE, "include_dashboard": False}
    with pipes_may_break():
        try:
            ray.init(address=where, log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise CacheDoctorError(f"Ray: {said}", "check --address; ray status shows the cluster's state") from error
        try:
            # What Ray prints of a process that died would stand among our own words, which tell of it as well.
            with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
                yield RayEngine(ray)
                ray.shutdown()
        finally:
            ray.shutdown()
