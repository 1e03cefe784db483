"""The processes of a Dask cluster: one that runs, or one on this machine for as long as it is needed."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import logging
import time
from collections.abc import Iterator
from typing import Any

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.fleet.task_engine import Lost, missing
from cachedoctor.model import CacheDoctorError

_PATIENCE = 30
"""Seconds in which a scheduler has to answer, and a worker to give a result that it has."""
_WITHOUT_WORKERS = 300
"""Seconds in which a cluster that shrank to nothing may grow again."""
_ASK = 5.0
"""Seconds between two questions for the size of the cluster."""
_GIVEN_UP = (TimeoutError, asyncio.CancelledError, concurrent.futures.CancelledError)
"""What Dask raises where a future will not end, or not soon."""
_GONE, _GOES_ON = "Dask: the scheduler is gone", "start the same command again: it goes on"


class DaskEngine:
    """Futures of Dask, one on each thread of its workers."""

    def __init__(self, client: Any, wait: Any) -> None:
        self._client = client
        self._wait = wait
        self._busy: dict[Any, LogTask] = {}
        self._number = itertools.count()
        self._had_workers = time.monotonic()
        self._width = 0
        self._asked = -_ASK
        """When the cluster was asked for its size."""

    @property
    def width(self) -> int:
        """As many as threads: what waits at a worker is lost with it. A cluster may grow and shrink."""
        now = time.monotonic()
        if now - self._asked >= _ASK:
            self._width, self._asked = max(1, self._threads()), now
        return self._width

    def _threads(self) -> int:
        with self._in_reach():
            threads: dict[str, int] = self._client.nthreads()
        return sum(threads.values())

    def submit(self, task: LogTask) -> None:
        """Take a task; its key is its own, as a log that is given out once more is no result that is known."""
        key = f"{task.log.part}-{next(self._number)}"
        with self._in_reach():
            self._busy[self._client.submit(run_log, task, key=key, pure=False, retries=0)] = task

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait until at least one of its tasks ended; Dask itself would wait for ever for one that was lost.

        Raises:
            CacheDoctorError: the scheduler is gone, or all workers are.
        """
        ended: list[Any] = []
        while not ended:
            with self._in_reach(), contextlib.suppress(*_GIVEN_UP):  # what is wrong is seen below
                self._wait(list(self._busy), timeout=_PATIENCE, return_when="FIRST_COMPLETED")
            if self._client.status != "running":
                raise CacheDoctorError(_GONE, _GOES_ON)
            ended = [one for one in self._busy if one.status != "pending"]
            if not ended:
                self._ask_for_workers()
        self._had_workers = time.monotonic()
        return [(self._busy.pop(one), self._result(one)) for one in ended]

    @contextlib.contextmanager
    def _in_reach(self) -> Iterator[None]:
        """Say in one line that the scheduler is gone, in whatever way the library does."""
        try:
            yield
        except Exception as fault:
            if isinstance(fault, OSError) or self._client.status != "running":
                raise CacheDoctorError(_GONE, _GOES_ON) from fault
            raise

    def _ask_for_workers(self) -> None:
        now = time.monotonic()
        if self._threads():
            self._had_workers = now
        elif now - self._had_workers > _WITHOUT_WORKERS:
            raise CacheDoctorError(f"Dask: has had no worker for {_WITHOUT_WORKERS} seconds", f"add some; {_GOES_ON}")

    def _result(self, one: Any) -> LogResult | Lost:
        if one.status == "error":
            return Lost(f"the process that read it was lost ({type(one.exception()).__name__})")
        if one.status == "finished":
            with contextlib.suppress(*_GIVEN_UP):
                result: LogResult = one.result(timeout=_PATIENCE)
                one.release()
                return result
        return Lost("its result was lost, with the process that had it")


@contextlib.contextmanager
def reached(jobs: int, address: str | None) -> Iterator[DaskEngine]:
    """Use the scheduler at ``address``, else a cluster of ``jobs`` processes on this machine.

    Raises:
        CacheDoctorError: Dask is not installed, or nobody answers at the address.
    """
    try:
        import dask
        import distributed
    except ImportError:
        raise missing("dask") from None
    for name in ("distributed", *(name for name in logging.root.manager.loggerDict if name.startswith("distributed."))):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a worker or a scheduler that dies is told by us
    # A log is given out once more by us, who say so, and not by the scheduler.
    settings = {"distributed.scheduler.allowed-failures": 0, "distributed.comm.timeouts.connect": f"{_PATIENCE}s"}
    with pipes_may_break(), dask.config.set(settings), contextlib.ExitStack() as stack:
        try:
            cluster = address or stack.enter_context(
                distributed.LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
            )
            client = stack.enter_context(distributed.Client(cluster, timeout=_PATIENCE))
        except (OSError, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())[:200]
            raise CacheDoctorError(f"Dask: {said}", "check --address, tcp://HOST:8786") from error
        yield DaskEngine(client, distributed.wait)
