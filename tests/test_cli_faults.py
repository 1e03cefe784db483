"""Interrupts and faults of the system: what could be read is reported, the status is right, nothing is left behind."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command import FIRST, HEAD, LOG, SECOND, THIRD, TURN, Started, one_line, run, start

from cachedoctor.cli.ending import Interrupts
from cachedoctor.cli.sink import Sink
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.report.base import FORMATS

PATIENCE = 120
"""Seconds after which a test gives up; nothing here measures."""
MANY = HEAD + "".join(TURN.format(task=9 * n, tokens=1900, similarity="", diff="") for n in range(2500))
"""More requests than are kept in memory."""


@contextlib.contextmanager
def started(*args: object, **options: object) -> Iterator[Started]:
    """Run cachedoctor in the background; a test that fails does not leave it behind."""
    with start(*args, **{"stdin": subprocess.DEVNULL, **options}) as process:  # type: ignore[arg-type]
        try:
            yield process
        finally:
            process.kill()


def read_until(process: Started, words: bytes) -> bytes:
    """Read the output until it holds ``words``."""
    assert process.stdout is not None
    seen, end = b"", time.monotonic() + PATIENCE
    while words not in seen:
        assert select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0], seen
        part = os.read(process.stdout.fileno(), 65536)
        assert part, seen
        seen += part
    return seen


def wait_for_bytes(pipe: int, wanted: int) -> None:
    """Wait until a pipe holds that many bytes."""
    held, end = array.array("i", [0]), time.monotonic() + PATIENCE
    while held[0] < wanted:
        assert time.monotonic() < end, held
        time.sleep(0.01)
        fcntl.ioctl(pipe, termios.FIONREAD, held)


def left(folder: Path) -> list[str]:
    """Names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


# ---- signals


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_report_and_130(log: Path, tmp_path: Path, number: int) -> None:
    target = tmp_path / "report.json"
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    # Opening the pipe waits for its reader: by then the log is analysed.
    with started("analyze", log, fifo, "-f", "json", "-o", target) as process, fifo.open("wb"):
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, error) == (130, b"", b"")
    report = json.loads(target.read_bytes())
    assert report["interrupted"] is True
    assert [finding["code"] for finding in report["findings"]] == ["CD101"]
    assert left(tmp_path) == ["pipe", "report.json", "server.log"]


@pytest.mark.sweep
def test_a_signal_that_is_ignored_stays_ignored(log: Path) -> None:
    """``nohup cachedoctor analyze --follow`` continues without its terminal."""
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    with started("analyze", "--follow", log, preexec_fn=ignore) as process:
        read_until(process, b"explain CD101\n")
        process.send_signal(signal.SIGHUP)
        with log.open("a") as file:
            file.write(THIRD)
        read_until(process, b"explain CD102\n")
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130


@pytest.mark.sweep
def test_sigterm_while_a_long_file_is_read(tmp_path: Path) -> None:
    """The report covers what was read until then."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with started("analyze", fifo, "--format", "json") as process, fifo.open("wb", buffering=0) as pipe:
        pipe.write(LOG)
        for _ in range(40):  # more than a pipe holds: the first of it has been taken in
            pipe.write(MANY[len(HEAD) :][:65536].encode())
        process.terminate()
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (130, b"")
    report = json.loads(out)
    assert report["interrupted"] is True
    assert report["inputs"][0]["bytes"] > len(LOG)


@pytest.mark.sweep
def test_a_second_interrupt_does_not_wait_for_the_report(tmp_path: Path) -> None:
    """Nobody takes the report: it stays stuck in the pipe, and the second Ctrl-C ends it without a word."""
    log, fifo = tmp_path / "server.log", tmp_path / "pipe"
    log.write_text(MANY)
    os.mkfifo(fifo)
    out, into = os.pipe()
    with started("analyze", log, fifo, "-f", "json", stdout=into) as process, fifo.open("wb"):
        os.close(into)
        process.send_signal(signal.SIGINT)
        assert select.select([out], [], [], PATIENCE)[0]  # the report is being written
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""
    os.close(out)


@pytest.mark.sweep
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_first_interrupt_waits_for_a_report_that_is_being_written(tmp_path: Path, unbuffered: str) -> None:
    """Everything was read; what is written is whole, also where Python does not buffer."""
    log = tmp_path / "server.log"
    log.write_text(MANY)
    out, into = os.pipe()
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with started("analyze", log, "-f", "json", stdout=into, env=env) as process:
        os.close(into)
        wait_for_bytes(out, 32 * 1024)  # more does not fit: it is in the middle of a write
        process.send_signal(signal.SIGINT)
        with open(out, "rb") as pipe:
            report = json.loads(pipe.read())
        assert process.wait(timeout=PATIENCE) == 130
    assert len(report["requests"]) == 2500
    assert report["interrupted"] is False


@pytest.mark.parametrize("held", [False, True])
def test_a_signal_that_is_noted_strikes_when_it_comes_again(held: bool, request: pytest.FixtureRequest) -> None:
    """The second one does not wait for a step that is held together, either: it may be stuck."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with Interrupts() as interrupts, interrupts.deferred() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with interrupts.held() if held else contextlib.nullcontext(), pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("second", [False, True])
def test_steps_within_a_step_are_held_together(second: bool, request: pytest.FixtureRequest) -> None:
    """A signal in the inner step waits for the end of the outer one, another one does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    done = []

    def step() -> None:
        with interrupts.held():
            with interrupts.held():
                signal.raise_signal(signal.SIGINT)
            done.append("inner")
            if second:
                signal.raise_signal(signal.SIGINT)
            done.append("outer")

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            step()
        assert done == (["inner"] if second else ["inner", "outer"])
        with interrupts.held():  # nothing is left of it
            done.append("next")
    assert done[-1] == "next"


@pytest.mark.sweep
def test_ctrl_c_while_modules_are_imported(tmp_path: Path) -> None:
    """Before a command runs there is nothing to report, and no traceback either."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = run("analyze", "-", stdin=LOG, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


# ---- inputs


@pytest.mark.sweep
@pytest.mark.parametrize("where", ["/dev/stdin", "/proc/self/fd/0"])
def test_the_standard_input_by_its_path(log: Path, where: str) -> None:
    """A pipe and a redirected file are read through these names as well."""
    for done in (run("analyze", where, stdin=LOG), run("analyze", where, shell=f"< '{log}'")):
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.count(b"warning[CD101]") == 1


@pytest.mark.sweep
def test_process_substitution(log: Path) -> None:
    done = run("analyze", shell=f"<(cat '{log}')")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"warning[CD101]") == 1


def test_a_named_pipe_is_live(tmp_path: Path) -> None:
    """A finding is printed while the writer is silent."""
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with started("analyze", fifo) as process:
        with fifo.open("wb", buffering=0) as pipe:
            pipe.write(LOG)
            read_until(process, b"explain CD101\n")
            assert process.poll() is None
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (0, b"")
    assert b"warning[CD101]" in out


@pytest.mark.sweep
def test_a_writer_that_is_killed_in_the_middle_of_a_line() -> None:
    """The unfinished line counts as far as it goes."""
    script = "import os, sys, time; os.write(1, sys.stdin.buffer.read()); time.sleep(999)"
    writer = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdin is not None
    with started("analyze", "-", "-v", stdin=writer.stdout) as process:
        writer.stdin.write(LOG + SECOND[:200].encode())
        writer.stdin.close()
        read_until(process, b"explain CD101")
        writer.kill()
        out, error = process.communicate(timeout=PATIENCE)
    writer.wait()
    assert (process.returncode, error) == (0, b"")
    assert b"Read %d lines" % len((LOG + SECOND[:200].encode()).splitlines()) in out


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    """What was there when it was read counts; touching what is gone kills nobody."""
    path = tmp_path / "server.log"
    path.write_text(MANY)
    chunks = FileSource(str(path)).chunks()
    first = next(chunks)
    assert len(first) < len(MANY)
    os.truncate(path, 100)
    assert list(chunks) == []
    assert MANY.encode().startswith(first)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda folder: folder / "empty", "empty: contains no log of llama-server, vLLM or SGLang"),
        (lambda folder: folder / "gone.log", "no such file"),
        (lambda folder: Path("/proc/self/mem"), "cannot be read further (Input/output error, after 0 bytes)"),
    ],
)
def test_what_cannot_be_read_in_the_middle_of_a_list(tmp_path: Path, bad: Callable[[Path], Path], words: str) -> None:
    """The others are read, before and after it."""
    first, last = tmp_path / "a.log", tmp_path / "z.log"
    (tmp_path / "empty").mkdir()
    first.write_bytes(LOG)
    last.write_text(FIRST)
    done = run("analyze", first, bad(tmp_path), last, "-f", "json")
    assert done.returncode == 2
    one_line(done, words)
    inputs = json.loads(done.stdout)["inputs"]
    lines = [LOG.count(b"\n"), 0, FIRST.count("\n")]
    assert [(i["error"] is None, i["lines"]) for i in inputs] == list(zip([True, False, True], lines, strict=True))


REFUSE = """\
from cachedoctor.inputs.sources import file
real = file.FileIO
def refuse(name, mode):
    if name.endswith("b.log"):
        raise PermissionError(13, "Permission denied")
    return real(name, mode)
file.FileIO = refuse
"""


@pytest.mark.sweep
def test_no_permission_in_the_middle_of_a_list(tmp_path: Path) -> None:
    """Tests may run as root, who may read everything: the refusal is made."""
    (tmp_path / "sitecustomize.py").write_text(REFUSE)
    names = [tmp_path / f"{name}.log" for name in "abc"]
    for name in names:
        name.write_bytes(LOG)
    done = run("analyze", *names, "-f", "json", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    one_line(done, "b.log: permission denied")
    lines = LOG.count(b"\n")
    assert [i["lines"] for i in json.loads(done.stdout)["inputs"]] == [lines, 0, lines]


@pytest.mark.sweep
def test_a_file_that_is_deleted_before_its_turn(tmp_path: Path) -> None:
    fifo, gone = tmp_path / "pipe", tmp_path / "z.log"
    os.mkfifo(fifo)
    gone.write_bytes(LOG)
    with started("analyze", fifo, gone) as process:
        with fifo.open("wb") as pipe:
            gone.unlink()
            pipe.write(LOG)
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert b"z.log: no such file" in error
    assert b"warning[CD101]" in out


@pytest.mark.sweep
def test_a_closed_standard_input(tmp_path: Path) -> None:
    """Its number is not mistaken for that of the output file, and an old report stays."""
    target = tmp_path / "report.txt"
    target.write_text("old")
    for args in (["-"], ["-", "-o", target]):
        done = run("analyze", *args, shell="<&-")
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, "standard input is closed")
    assert target.read_text() == "old"
    assert left(tmp_path) == ["report.txt"]


# ---- outputs

UNCOMPILED = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
"""Python puts a file of bytecode that was cut off in the place of a whole one."""


def limited(size: int) -> Callable[[], None]:
    """No file may grow beyond ``size``: a disk that is full, for a process of its own, ``UNCOMPILED``."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("size", [0, 100])
def test_a_disk_that_fills_up_keeps_the_old_report(log: Path, tmp_path: Path, form: str, size: int) -> None:
    target = tmp_path / "report"
    target.write_text("old")
    with started("analyze", log, "-f", form, "-o", target, preexec_fn=limited(size), env=UNCOMPILED) as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert error.startswith(b"cachedoctor: error: ")
    assert error.endswith(
        b"cannot be written (File too large) (hint: free some space, or write elsewhere with -o FILE)\n"
    )
    assert target.read_text() == "old"
    assert left(tmp_path) == ["report", "server.log"]


@pytest.mark.sweep
def test_no_room_for_temporary_files(tmp_path: Path) -> None:
    """The text report does without the list of requests; the JSON report does not begin without it."""
    log = tmp_path / "server.log"
    log.write_text(MANY)
    with started("analyze", log, preexec_fn=limited(4096), env=UNCOMPILED) as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, error) == (0, b"")
    assert b"traffic   2,500 requests" in out
    with started("analyze", log, "-f", "json", preexec_fn=limited(4096), env=UNCOMPILED) as process:
        out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, b"")
    assert b"error: the list of requests cannot be kept on disk (File too large) (hint: " in error
    assert error.count(b"\n") == 1


@pytest.mark.sweep
def test_no_folder_for_temporary_files(tmp_path: Path) -> None:
    """As if every folder of temporary files were missing or could not be written; an old report stays."""
    log, target = tmp_path / "server.log", tmp_path / "report.json"
    log.write_text(MANY)
    target.write_text("old")
    (tmp_path / "sitecustomize.py").write_text(
        "import tempfile\ntempfile._candidate_tempdir_list = lambda: ['/none']\n"
    )
    done = run("analyze", log, "-f", "json", "-o", target, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "No usable temporary directory found", "set TMPDIR")
    assert target.read_text() == "old"
    done = run("analyze", log, "-o", tmp_path / "table.csv", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    one_line(done, "No usable temporary directory found")
    assert {name for name in left(tmp_path) if "tmp" in name or "csv" in name} == set()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if not form.always])
def test_a_report_that_is_not_written_leaves_the_old_one(name: str, tmp_path: Path) -> None:
    """Where no input could be read, there is nothing to put in its place that a person would read."""
    target = tmp_path / "report.txt"
    target.write_text("old")
    done = run("analyze", tmp_path / "none.log", "-f", name, "-o", target)
    assert done.returncode == 2
    assert target.read_text() == "old"
    assert left(tmp_path) == ["report.txt"]


def test_a_sink_left_by_an_interrupt_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("old")

    def write() -> None:
        with Sink(str(target)) as sink, sink.writing() as out:
            out.write(b"half of")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert target.read_text() == "old"
    assert left(tmp_path) == ["report"]


@pytest.mark.sweep
@pytest.mark.parametrize("shell", ["2>&-", "2> /dev/full", "2> >(exec <&-)"])
def test_a_standard_error_that_takes_nothing(log: Path, tmp_path: Path, shell: str) -> None:
    """Closed, full, or without a reader: the report is written all the same, nothing else goes to the output."""
    target = tmp_path / "report.json"
    done = run("analyze", log, tmp_path / "none.log", "-f", "json", "-o", target, shell=shell)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
    assert len(json.loads(target.read_bytes())["findings"]) == 1
    assert left(tmp_path) == ["report.json", "server.log"]


@pytest.mark.sweep
def test_everything_closed(log: Path) -> None:
    done = run("analyze", log, shell="<&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.sweep
def test_a_reader_that_takes_one_line(tmp_path: Path) -> None:
    """``| head -1`` of a report that no pipe holds: the signal SIGPIPE, and not a word."""
    log = tmp_path / "server.log"
    log.write_text(MANY)
    done = run("analyze", log, "-f", "json", shell="| head -1; exit ${PIPESTATUS[0]}")
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stdout.startswith(b'{"schema":"cachedoctor.report/1"')
    assert (done.stdout.count(b"\n"), done.stderr) == (1, b"")


@pytest.mark.sweep
def test_a_live_reader_that_goes_away() -> None:
    """The next finding ends the command."""
    out, into = os.pipe()
    with started("analyze", "-", stdin=subprocess.PIPE, stdout=into) as process:
        os.close(into)
        os.close(out)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(LOG)
            process.stdin.flush()
        assert process.wait(timeout=PATIENCE) == -signal.SIGPIPE
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.sweep
def test_a_server_that_hangs_up_in_the_middle_of_a_request_is_one_line(tmp_path: Path) -> None:
    """A broken connection is not a broken standard output: it ends nobody silently."""
    for name in "ab":
        (tmp_path / name).write_text(f"{name} word " * 2_000_000)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        def hang_up() -> None:
            while True:
                connected, _ = listening.accept()
                with connected:
                    asked = connected.recv(1 << 16)
                    while len(asked) < 2000 and not asked.endswith(b"}"):
                        asked += connected.recv(1 << 16)
                    if len(asked) >= 2000:
                        connected.shutdown(socket.SHUT_WR)
                        time.sleep(0.2)  # what is sent meanwhile stays unread: the connection breaks
                        return
                    connected.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"tokens": []}')

        server = threading.Thread(target=hang_up)
        server.start()
        done = run(
            "diff", tmp_path / "a", tmp_path / "b", "--tokenizer", f"http://127.0.0.1:{listening.getsockname()[1]}"
        )
        server.join()
    assert done.returncode == 2
    one_line(done, "cannot reach http://127.0.0.1:", "Broken pipe")
