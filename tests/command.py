"""cachedoctor as a process of its own, and a small log for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from forks import FORKS, PATIENCE, Process, Stream, early

PYTHON = [sys.executable, "-m", "cachedoctor"]

HEAD = """\
0.00.000.272 I srv          init: initializing ...
0.00.006.179 I srv    load_model: loading model '/models/hybrid.gguf'
0.00.045.884 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'false'
0.00.052.415 I srv          init: listening on http://127.0.0.1:8080
"""
TURN = """\
{similarity}\
0.00.153.756 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = {task}
0.00.153.904 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0
0.00.153.920 I slot   operator(): id  0 | task {task} | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {tokens}
{diff}\
0.00.153.932 I slot   operator(): id  0 | task {task} | cached n_tokens = 0, memory_seq_rm [0, end)
0.00.343.870 I slot print_timing: id  0 | task {task} | prompt eval time =     183.08 ms /  {tokens} tokens (    0.10 ms per token, 10356.35 tokens per second)
0.00.343.903 I slot print_timing: id  0 | task {task} |        eval time =       6.86 ms /     6 tokens (    1.37 ms per token,   728.97 tokens per second)
0.00.344.040 I slot      release: id  0 | task {task} | stop processing: n_tokens = {tokens}, truncated = 0
"""  # noqa: E501
SIMILARITY = """\
0.00.371.357 I slot get_availabl: id  0 | task -1 |  - checking sim = 0.030 (58/{tokens}) > 0.100
"""
DIFF = """\
0.00.637.407 W slot   operator(): id  0 | task {task} | old: ... 01.e51; cc_entrypoint=cli; cch= | b791f;
0.00.637.415 W slot   operator(): id  0 | task {task} | new: ... 01.e51; cc_entrypoint=cli; cch= | 0ed9c;
"""
OTHER_DIFF = """\
0.00.637.407 W slot   operator(): id  0 | task {task} | old: ... Current time: 2026-11-20 14:02: | 14 UTC
0.00.637.415 W slot   operator(): id  0 | task {task} | new: ... Current time: 2026-11-20 14:02: | 59 UTC
"""
FIRST = HEAD + TURN.format(task=0, tokens=1900, similarity="", diff="")
SECOND = TURN.format(task=9, tokens=2035, similarity=SIMILARITY.format(tokens=2035), diff=DIFF.format(task=9))
THIRD = TURN.format(task=19, tokens=2135, similarity=SIMILARITY.format(tokens=2135), diff=OTHER_DIFF.format(task=19))
"""The header of Claude Code changes in the second turn (CD101), a time in the third (CD102)."""
LOG = (FIRST + SECOND).encode()


Started = subprocess.Popen[bytes] | Process


def start(
    *args: object,
    stdin: Stream = subprocess.PIPE,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    folder: str | None = None,
    env: Mapping[str, str] | None = None,
    preexec_fn: Callable[[], object] | None = None,
) -> Started:
    """Start cachedoctor, in ``folder``: forked from a warm process, unless something may change how it starts."""
    words = [os.fsdecode(os.fspath(arg)) for arg in args]  # type: ignore[call-overload]
    variables = dict(os.environ if env is None else env)
    if FORKS and preexec_fn is None and early(variables) == early(os.environ):
        return Process(words, folder or os.getcwd(), variables, stdin, stdout, stderr)
    return subprocess.Popen(
        [*PYTHON, *words], stdin=stdin, stdout=stdout, stderr=stderr, cwd=folder, env=variables,
        preexec_fn=preexec_fn,  # noqa: PLW1509
    )  # fmt: skip


def run(
    *args: object, stdin: bytes | None = None, shell: str = "", folder: str | None = None, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run cachedoctor, in ``folder``; ``shell`` is appended to the command line of a real start and interpreted."""
    quiet = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    if shell:
        command = ["bash", "-c", f'"$@" {shell}', "bash", *PYTHON, *map(os.fspath, args)]  # type: ignore[call-overload]
        source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            command, capture_output=True, timeout=PATIENCE, cwd=folder, env={**quiet, **env}, check=False, **source
        )  # type: ignore[call-overload, no-any-return]
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    with start(*args, stdin=source, folder=folder, env={**quiet, **env}) as process:
        try:
            out, error = process.communicate(stdin, timeout=PATIENCE)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def wait_for(happened: Callable[[], object], what: str) -> None:
    """Wait until something happened."""
    ends = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < ends, f"no {what}"
        time.sleep(0.01)


def one_line(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """Standard error is one line with a hint that holds ``words``."""
    error = done.stderr.decode()
    assert error.count("\n") == 1, error
    assert error.startswith("cachedoctor: error: ")
    assert "(hint: " in error
    assert all(word in error for word in words), error
