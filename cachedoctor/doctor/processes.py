"""Processes of this machine that do one task at a time, each with a pipe of its own.

A pool of the standard library has one pipe for the results of all: when a process is ended in the middle of a result,
its reader waits for the rest for ever, as the pipe is still open elsewhere. Here a process and its pipe end together.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, Literal, NamedTuple, TypeVar

from cachedoctor.broken_pipes import pipes_may_break

Task = TypeVar("Task")
Result = TypeVar("Result")
MOST = 64
"""Maximum number of processes to start, however many are requested; each takes some 45 MB."""


LARGE = 5_000
"""Number of requests from which on processing all of them takes longer than starting a process for it."""


def cores_for(requests: int) -> int:
    """Processes that may work at once on what was read of so many requests; 1 is this one alone.

    They share it by fork, which is safe on Linux alone.
    """
    return cores() if requests >= LARGE and sys.platform == "linux" else 1


def cores() -> int:
    """Cores that this process may use: a container or a batch system often gives it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Killed(NamedTuple):
    """The process that worked at a task is gone, and nothing of it is left."""


class _Raised(NamedTuple):
    error: Exception


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


class Workers(Generic[Task, Result]):
    """Processes that are started when there is work for them."""

    def __init__(self, run: Callable[[Task], Result], most: int, method: Literal["fork", "spawn"]) -> None:
        self.width = min(most, MOST)
        """Tasks to give at a time."""
        self._run = run
        self._context = multiprocessing.get_context(method)
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, tuple[_Worker, Task]] = {}

    @property
    def busy(self) -> int:
        """Number of processes at work, without those killed before they got a task."""
        return len(self._busy)

    def submit(self, task: Task) -> None:
        """Give a task to a process.

        One may have been killed while it had none.
        """
        while self._idle:
            if self._given(self._idle.pop(), task):
                return
        self._given(self._started(), task)

    def wait(self) -> list[tuple[Task, Result | Killed]]:
        """Wait until at least one task ended.

        Raises:
            Exception: what a task raised.
        """
        ready = wait(self._busy)
        return [self._ended(pipe) for pipe in list(self._busy) if pipe in ready]

    def close(self) -> None:
        """End all processes, at work or not."""
        workers = [*self._idle, *(worker for worker, _ in self._busy.values())]
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            _end(worker)

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(self._run, theirs), daemon=True)  # type: ignore[attr-defined]
        process.start()
        theirs.close()  # held by the process alone, its end is the end of the pipe
        return _Worker(process, ours)

    def _given(self, worker: _Worker, task: Task) -> bool:
        try:
            worker.pipe.send(task)
        except OSError:
            _end(worker)
            return False
        self._busy[worker.pipe] = worker, task
        return True

    def _ended(self, pipe: Connection) -> tuple[Task, Result | Killed]:
        worker, task = self._busy[pipe]
        try:
            answer = pipe.recv()
        except (EOFError, OSError):
            answer = Killed()
            _end(worker)
        else:
            self._idle.append(worker)
        del self._busy[pipe]
        if isinstance(answer, _Raised):
            raise answer.error
        return task, answer


@contextlib.contextmanager
def running(
    run: Callable[[Task], Result], most: int, method: Literal["fork", "spawn"]
) -> Iterator[Workers[Task, Result]]:
    """Start processes when there is work for them, and end them after the block."""
    with pipes_may_break():
        workers = Workers(run, most, method)
        try:
            yield workers
        finally:
            workers.close()


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join()
    worker.pipe.close()


def _serve(run: Callable[[Task], Result], pipe: Connection) -> None:
    """Do tasks until the pipe ends."""
    _prepare()
    while True:
        try:
            task = pipe.recv()
        except (EOFError, ConnectionError):
            return
        try:
            answer: Result | _Raised = run(task)
        except Exception as error:
            answer = _Raised(error)
        try:
            pipe.send(answer)
        except ConnectionError:  # Ctrl-C came before the process was noted as busy: nobody is left to take the answer
            return


def _prepare() -> None:
    """Ctrl-C, and a terminal that is closed, reach every process; the first one says when to stop."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """The first process may be killed without a chance to end the others: nobody would wait for them."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
