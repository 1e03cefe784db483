"""The processes of a Dask cluster: one that runs, or one on this machine for as long as it is needed."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator
from typing import Any

from cachedoctor.doctor.fleet.engine import Lost, missing
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.parallel.parallel import pipes_may_break
from cachedoctor.model import CacheDoctorError

_PATIENCE = 30
"""Seconds in which a scheduler has to answer."""


class DaskEngine:
    """Futures of Dask, one on each thread of its workers."""

    def __init__(self, client: Any, wait: Any) -> None:
        self._client = client
        self._wait = wait
        self._busy: dict[Any, LogTask] = {}
        self._number = itertools.count()

    @property
    def width(self) -> int:
        """As many as threads: what waits at a worker is lost with it. A cluster may grow and shrink."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, sum(threads.values()))

    def submit(self, task: LogTask) -> None:
        """Take a task; its key is its own, as a log that is given out once more is no result that is known."""
        key = f"{task.log.part}-{next(self._number)}"
        self._busy[self._client.submit(run_log, task, key=key, pure=False, retries=0)] = task

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait until at least one of its tasks ended."""
        done = self._wait(list(self._busy), return_when="FIRST_COMPLETED").done
        return [(self._busy.pop(one), self._result(one)) for one in done]

    def _result(self, one: Any) -> LogResult | Lost:
        if one.status != "finished":
            return Lost(f"the process that read it was lost ({type(one.exception()).__name__})")
        result: LogResult = one.result()
        one.release()
        return result


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
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # a worker that dies is told by us
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
