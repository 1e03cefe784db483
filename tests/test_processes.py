"""Processes that work for the first one: none that ends, at any moment, keeps anybody waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from command import PATIENCE, wait_for

from cachedoctor.doctor.processes import Killed, Workers, running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")
LARGE = 1 << 22
"""Bytes of a result, more than a pipe holds: its writer waits in the middle until somebody reads."""


def work(task: str) -> bytes:
    if task == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "fault":
        raise ValueError("no good")
    return task.encode() if task != "large" else b"x" * LARGE


def test_each_task_has_its_own_result() -> None:
    found: list[tuple[str, object]] = []
    with running(work, 2, "fork") as workers:
        for task in ("a", "b"):
            workers.submit(task)
        while len(found) < 2:
            found += workers.wait()
        workers.submit("large")
        found += workers.wait()
    assert sorted(found[:2]) == [("a", b"a"), ("b", b"b")]
    assert found[2] == ("large", b"x" * LARGE)


def test_a_process_that_is_killed_is_replaced() -> None:
    with running(work, 1, "fork") as workers:
        workers.submit("killed")
        assert workers.wait() == [("killed", Killed())]
        workers.submit("a")
        assert workers.wait() == [("a", b"a")]


def test_an_error_of_a_task_is_raised_here() -> None:
    with running(work, 1, "fork") as workers:
        workers.submit("fault")
        with pytest.raises(ValueError, match="no good"):
            workers.wait()
        workers.submit("a")
        assert workers.wait() == [("a", b"a")]


@pytest.mark.sample(1)
@pytest.mark.parametrize("tasks", [["large"], ["large", "large", "a"]])
def test_processes_end_in_the_middle_of_a_result(tasks: list[str]) -> None:
    """In a process of its own: where it waits for ever, the test ends all the same."""
    code = f"""
import time
from test_processes import running, work
with running(work, 3, "fork") as workers:
    for task in {tasks}:
        workers.submit(task)
    time.sleep(0.3)
print("ended")
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE, env=env, check=True)
    assert done.stdout == b"ended\n"


def test_a_process_that_is_killed_in_the_middle_of_a_result_is_lost() -> None:
    with running(work, 2, "fork") as workers:
        workers.submit("large")
        [(worker, _)] = workers._busy.values()
        wait_for(worker.pipe.poll, "first bytes of the result")
        worker.process.kill()
        assert workers.wait() == [("large", Killed())]


def test_a_process_whose_result_nobody_takes_ends_without_an_error() -> None:
    worker = Workers(work, 1, "spawn")._started()
    worker.pipe.send("large")
    wait_for(worker.pipe.poll, "first bytes of the result")
    worker.pipe.close()
    worker.process.join(PATIENCE)
    assert worker.process.exitcode == 0


def test_processes_end_with_the_first_one() -> None:
    code = """
import os, sys, time
from test_processes import running, work
def sleep(task):
    print(os.getpid(), flush=True)
    time.sleep(999)
with running(sleep, 1, "fork") as workers:
    workers.submit("a")
    workers.wait()
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as first:
        assert first.stdout is not None
        worker = int(first.stdout.readline())
        first.kill()
        first.wait(PATIENCE)
        wait_for(lambda: _ended(worker), "end of the other process")


def _ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return True
    time.sleep(0.01)
    with open(f"/proc/{process}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"
