"""The processes of this machine. Each has a pool of its own, so that one that is killed takes nobody with it."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.doctor.analysis.parallel import prepare
from cachedoctor.doctor.fleet.log_task import LogResult, LogTask, run_log
from cachedoctor.doctor.fleet.task_engine import Lost

_MOST = 64
"""Processes that are started however many are asked for."""


class LocalEngine:
    """Pools of one process each."""

    def __init__(self, jobs: int) -> None:
        # Spawned: this process has read tables with threads of polars, which a fork would not have.
        self._context = multiprocessing.get_context("spawn")
        self.width = min(jobs, _MOST)
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: dict[Future[LogResult], tuple[LogTask, ProcessPoolExecutor]] = {}

    def submit(self, task: LogTask) -> None:
        """Take a task. A process may have been killed while it had none."""
        while self._idle:
            pool = self._idle.pop()
            try:
                self._busy[pool.submit(run_log, task)] = task, pool
            except BrokenProcessPool:
                pool.shutdown(wait=False)
            else:
                return
        pool = ProcessPoolExecutor(1, self._context, prepare)
        self._busy[pool.submit(run_log, task)] = task, pool

    def wait(self) -> list[tuple[LogTask, LogResult | Lost]]:
        """Wait until at least one of its tasks ended."""
        return [self._ended(future) for future in wait_for(self._busy, return_when=FIRST_COMPLETED).done]

    def _ended(self, future: Future[LogResult]) -> tuple[LogTask, LogResult | Lost]:
        task, pool = self._busy.pop(future)
        try:
            result = future.result()
        except BrokenProcessPool:
            pool.shutdown(wait=False)
            return task, Lost("the process that read it was killed")
        self._idle.append(pool)
        return task, result

    def close(self) -> None:
        """End all processes, at work or not."""
        for process in multiprocessing.active_children():
            process.terminate()
        for pool in (*self._idle, *(pool for _, pool in self._busy.values())):
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def running(jobs: int) -> Iterator[LocalEngine]:
    """Start processes when there is work for them, and end them behind the block."""
    with pipes_may_break():
        engine = LocalEngine(jobs)
        try:
            yield engine
        finally:
            engine.close()
