"""The command line as a user meets it: exit statuses, one-line errors, pipes, signals, live output."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = [sys.executable, "-m", "cachedoctor"]
SLOW = 1.0
"""Seconds allowed on top of the promise of 0.5 s: the machine may be busy with other tests."""

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
FIRST = HEAD + TURN.format(task=0, tokens=1900, similarity="", diff="")
SECOND = TURN.format(task=9, tokens=2035, similarity=SIMILARITY.format(tokens=2035), diff=DIFF.format(task=9))
LOG = (FIRST + SECOND).encode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(LOG)
    return path


def run(*args: object, stdin: bytes | None = None, shell: str = "", **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run cachedoctor; ``shell`` is appended to the command line and interpreted."""
    command = [*PYTHON, *map(os.fspath, args)]  # type: ignore[call-overload]
    if shell:
        command = ["bash", "-c", f'"$@" {shell}', "bash", *command]
    quiet = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, timeout=60, env={**quiet, **env}, check=False, **source)  # type: ignore[call-overload, no-any-return]


def one_line(done: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """Standard error is one line with a hint that holds ``words``."""
    error = done.stderr.decode()
    assert error.count("\n") == 1, error
    assert error.startswith("cachedoctor: error: ")
    assert "(hint: " in error
    assert all(word in error for word in words), error


# ---- what works


def test_version_is_fast_and_imports_nothing_heavy() -> None:
    """One line, no polars, no rich, under 0.4 s of CPU."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cachedoctor", "--version"], capture_output=True, check=True
    )
    after = os.times()
    assert done.stdout.startswith(b"cachedoctor ")
    assert done.stdout.count(b"\n") == 1
    imported = {line.split(b"|")[-1].strip().split(b".")[0] for line in done.stderr.splitlines()}
    assert not imported & {b"polars", b"rich", b"msgspec", b"regex"}
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.4


def test_text_report_of_a_file(log: Path) -> None:
    """Plain in a pipe, 80 columns, nothing on standard error."""
    done = run("analyze", log)
    assert done.returncode == 0
    assert done.stderr == b""
    assert b"warning[CD101]" in done.stdout
    assert b"\x1b" not in done.stdout
    assert run("analyze", log, "--color", "always").stdout.count(b"\x1b[") > 10


def test_json_report_goes_to_a_file_as_a_whole(log: Path, tmp_path: Path) -> None:
    """``-o`` replaces the file, keeps its mode and leaves nothing else behind."""
    target = tmp_path / "report.json"
    target.write_text("old")
    target.chmod(0o640)
    done = run("analyze", log, "--format", "json", "-o", target)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert json.loads(target.read_bytes())["schema"] == "cachedoctor.report/1"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json", "server.log"]


def test_standard_input_with_and_without_a_dash() -> None:
    """A piped log needs no file name; a finished one is reported once."""
    done = run("analyze", stdin=LOG)
    assert done.returncode == 0
    assert done.stdout.count(b"warning[CD101]") == 1
    assert run("analyze", "-", stdin=gzip.compress(LOG)).stdout == done.stdout


def test_fail_on(log: Path) -> None:
    """1 from the given level on, 0 below."""
    assert run("analyze", log, "--fail-on", "warning").returncode == 1
    assert run("analyze", log, "--fail-on", "error").returncode == 0


def test_build_option(log: Path) -> None:
    """The build that the log does not say."""
    assert b"b11549 (given by --build)" in run("analyze", log, "--build", "11549").stdout


def test_output_that_is_not_utf8_gets_ascii(log: Path) -> None:
    """No character is a reason to fail."""
    done = run("analyze", log, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_rules_and_explain() -> None:
    """Every rule is listed and can be asked for by code or name, in any case."""
    table = json.loads(run("rules", "--format", "json").stdout)
    assert [row["code"] for row in table] == sorted(row["code"] for row in table)
    assert {"code": "CD108", "name": "prefix-diverges-early"}.items() <= next(
        r for r in table if r["code"] == "CD108"
    ).items()
    assert b"prefix-diverges-early" in run("rules").stdout
    listed = run("explain").stdout.decode().split()
    assert listed[::2] == [row["code"] for row in table]
    by_code, by_name = run("explain", "cd108"), run("explain", "prefix-diverges-early")
    assert by_code.returncode == 0
    assert by_code.stdout == by_name.stdout != b""
    unknown = run("explain", "prefix-diverges")
    assert unknown.returncode == 2
    one_line(unknown, "did you mean CD108 prefix-diverges-early?")


# ---- bad input


def test_missing_file_directory_and_typo(log: Path) -> None:
    """Named inputs that cannot be read: 2, after reporting the rest."""
    missing = run("analyze", log.parent / "sever.log")
    assert (missing.returncode, missing.stdout) == (2, b"")
    one_line(missing, "no such file", "did you mean", "server.log")
    folder = run("analyze", log.parent, log)
    assert folder.returncode == 2
    assert b"warning[CD101]" in folder.stdout
    one_line(folder, "is a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(log: Path) -> None:
    """No permission: 2."""
    log.chmod(0)
    done = run("analyze", log)
    assert done.returncode == 2
    one_line(done, "permission denied")


@pytest.mark.parametrize(
    ("name", "content"),
    [("empty", b""), ("binary", bytes(range(256)) * 40), ("nginx", b'127.0.0.1 - - "GET / HTTP/1.1" 200\n' * 9)],
)
def test_nothing_recognised(tmp_path: Path, name: str, content: bytes) -> None:
    """Not a log of llama-server: 3, and --fail-on does not change that."""
    path = tmp_path / name
    path.write_bytes(content)
    done = run("analyze", path, "--fail-on", "note")
    assert done.returncode == 3
    one_line(done, "empty" if name == "empty" else "recognised")


def test_truncated_archive_reports_what_was_read(tmp_path: Path) -> None:
    """A cut gz or bz2: what is there is analysed, then 2."""
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress(LOG)[:-10])
    done = run("analyze", path)
    assert done.returncode == 2
    assert b"warning[CD101]" in done.stdout
    one_line(done, "the gzip data ends early")
    path.write_bytes(bz2.compress(LOG)[:-10])
    assert run("analyze", path).returncode == 2


def test_wrong_usage(log: Path) -> None:
    """Click's words, status 2."""
    for args in (["--bad"], ["--format", "xml"], ["--follow", str(log)], ["--build", "0"], ["--width", "x"]):
        done = run("analyze", log, *args)
        assert done.returncode == 2, args
        assert b"Traceback" not in done.stderr
    assert run().returncode == 2


def test_control_characters_of_a_file_name_are_shown() -> None:
    """A name cannot write to the terminal."""
    done = run("analyze", "a\x1b[31m.log")
    one_line(done, "a\\x1b[31m.log: no such file")


def test_an_unexpected_fault_is_one_line(log: Path, tmp_path: Path) -> None:
    """No traceback, unless it is asked for."""
    (tmp_path / "sitecustomize.py").write_text("import cachedoctor.doctor.run as r\nr.feed_all = lambda *a: 1 / 0\n")
    done = run("analyze", log, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith(b"cachedoctor: internal error: ZeroDivisionError: division by zero (hint: ")
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" in run("analyze", log, PYTHONPATH=str(tmp_path), CACHEDOCTOR_DEBUG="1").stderr


# ---- bad output


def test_output_file_that_cannot_be_written(log: Path, tmp_path: Path) -> None:
    """A missing folder, a folder, a full disk, the input itself: 2, one line, nothing left behind."""
    for target, words in [(tmp_path / "no" / "x", "there is no folder"), (tmp_path, "Is a directory"),
                          (Path("/dev/full"), "No space left on device"), (log, "is an input")]:  # fmt: skip
        done = run("analyze", log, "-o", target)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, words)
    assert log.read_bytes() == LOG
    assert [p.name for p in tmp_path.iterdir()] == ["server.log"]


@pytest.mark.parametrize("command", ["analyze", "rules"])
def test_full_and_closed_standard_output(log: Path, command: str) -> None:
    """``> /dev/full`` and ``>&-``: one line, no noise of the interpreter."""
    args = [command, log] if command == "analyze" else [command]
    for shell, words in [("> /dev/full", "No space left on device"), (">&-", "it is closed")]:
        done = run(*args, shell=shell)
        assert done.returncode == 2
        one_line(done, words)


def test_a_reader_that_goes_away_is_no_error(log: Path) -> None:
    """``| true`` ends us as it ends every Unix tool: silently, by SIGPIPE."""
    done = run("analyze", log, shell="| true; exit ${PIPESTATUS[0]}")
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


# ---- live


@contextlib.contextmanager
def started(*args: object, stdin: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``analyze`` in the background; a test that fails does not leave it behind."""
    command = [*PYTHON, "analyze", *map(str, args)]
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[bytes], words: bytes, seconds: float) -> float:
    """Read the output until it holds ``words``; gives the seconds that it took."""
    assert process.stdout is not None
    begun, seen = time.monotonic(), b""
    while words not in seen:
        left = begun + seconds - time.monotonic()
        assert left > 0, f"{words!r} did not come within {seconds} s, but: {seen!r}"
        if select.select([process.stdout], [], [], left)[0]:
            part = os.read(process.stdout.fileno(), 65536)
            assert part, f"ended without {words!r}: {seen!r}"
            seen += part
    return time.monotonic() - begun


def write(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode())
    process.stdin.flush()


def test_a_finding_is_printed_within_half_a_second_and_ctrl_c_gives_the_report() -> None:
    """``tail -f server.log | cachedoctor analyze -``: at once, with no further line, and the summary on Ctrl-C."""
    with started("-") as process:
        write(process, FIRST)
        time.sleep(1)  # the start of the interpreter is not part of the promise
        write(process, SECOND)
        read_until(process, b"explain CD101\n", 0.5 + SLOW)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"traffic   2 requests, 3,935 prompt tokens" in out
    assert b"warning[CD101]" in out
    assert b"Interrupted: this covers what was read until then.\n" in out
    assert error == b""


def test_a_steady_stream_is_live_as_well() -> None:
    """Findings do not wait for a silence that never comes."""
    with started("-") as process:
        write(process, FIRST)
        time.sleep(0.6)
        write(process, SECOND)
        assert process.stdout is not None
        begun = time.monotonic()
        while not select.select([process.stdout], [], [], 0.05)[0]:
            write(process, "0.00.841.591 I srv  update_slots: all slots are idle\n")
            assert time.monotonic() - begun < 0.5 + SLOW
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_follow_a_growing_file_until_sigterm(log: Path) -> None:
    """``--follow`` reads on; SIGTERM is the same as Ctrl-C."""
    log.write_text(FIRST)
    with started("--follow", log, stdin=subprocess.DEVNULL) as process:
        time.sleep(1)
        with log.open("a") as file:
            file.write(SECOND)
        read_until(process, b"explain CD101\n", 0.5 + SLOW)
        process.terminate()
        out, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Interrupted" in out
    assert error == b""


def test_an_interrupted_json_report_is_whole(tmp_path: Path) -> None:
    """Ctrl-C with ``-o``: the file is there, valid, and says that it was interrupted."""
    target = tmp_path / "report.json"
    with started("-", "-f", "json", "-o", target) as process:
        write(process, FIRST)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=20)
    assert (process.returncode, out, error) == (130, b"", b"")
    report = json.loads(target.read_bytes())
    assert report["interrupted"] is True
    assert report["totals"]["requests"] == 1


def test_follow_a_missing_file(tmp_path: Path) -> None:
    """2 at once, not an endless wait."""
    done = run("analyze", "--follow", tmp_path / "none.log")
    assert done.returncode == 2
    one_line(done, "no such file")


# ---- the command line of the server


def test_a_command_line_is_checked(log: Path) -> None:
    """Its findings stand in the report; what cannot be read is one line and status 2."""
    done = run("analyze", log, "--cmdline", "llama-server -m x --checkpoint-every-nb 3 --temp 0.7")
    assert done.returncode == 0
    assert b"note[CD406] option-unknown: llama-server does not know --checkpoint-every-nb" in done.stdout
    for bad in ("llama-server -m 'x", ""):
        done = run("analyze", log, "--cmdline", bad)
        assert done.returncode == 2
        assert done.stdout == b""
        one_line(done, "--cmdline")
