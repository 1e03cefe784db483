"""``watch``: a log that is still written, slot by slot, on terminals of any size and without one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from command import FIRST, HEAD, LOG, SECOND, THIRD, TURN, Started, one_line, run, start
from conftest import CASES, FIXTURES, content_of
from rich.cells import cell_len
from screens import ENTER, LEAVE, PATIENCE, Terminal, on_terminal
from test_cli_live import read_until

from cachedoctor.cli import live_screen as screen_module
from cachedoctor.cli.ending import Interrupts
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.live_view import Observer
from cachedoctor.model import LiveView
from cachedoctor.report.base import Appearance
from cachedoctor.report.live.screen import Screenful, draw

STEP = "0.00.153.940 I slot print_timing: id  0 | task {task} | "
BATCH = "0.00.153.940 I slot   operator(): id  0 | task {task} | cached n_tokens = {n}, memory_seq_rm [{n}, end)\n"
BEFORE_TIMINGS = "0.00.343.870"


def view_of(log: bytes | str, path: str = "server.log", end: bool = False) -> LiveView:
    observer = Observer()
    analyzer = Analyzer(listener=observer)
    analyzer.open(path)
    analyzer.feed(log.encode() if isinstance(log, str) else log)
    if end:
        analyzer.idle()
    return observer.view(analyzer)


def rows_of(view: LiveView, width: int = 80, height: int = 24, ascii_only: bool = False) -> list[str]:
    return [row.plain for row in draw(view, width, height, ascii_only)]


def begun(*more: str) -> str:
    """A log that ends inside its first request, after lines of ``more``."""
    return FIRST[: FIRST.index(BEFORE_TIMINGS)] + "".join(more)


# ---- what is known of a slot


def test_a_slot_is_idle_before_its_first_request_and_after_each() -> None:
    (server,) = view_of(HEAD).servers
    assert [(slot.slot, slot.state, slot.request, slot.last) for slot in server.slots] == [(0, "idle", None, None)]
    (slot,) = view_of(FIRST).servers[0].slots
    assert (slot.state, slot.request) == ("idle", None)
    assert slot.last is not None
    assert (slot.last.request.task, slot.last.request.prompt_tokens) == (0, 1900)


def test_a_slot_of_which_no_line_shows_is_unknown() -> None:
    """The log begins in the middle: four slots are known of, one was seen."""
    log = LOG.decode()
    middle = log[log.index("0.00.153.756") :].replace("id  0", "id  3")
    (server,) = view_of(middle).servers
    assert [(slot.slot, slot.state) for slot in server.slots] == [(3, "idle")]
    load = "0.00.045.945 I slot   load_model: id  3 | task -1 | new slot, n_ctx = 16384\n"
    (server,) = view_of(load + middle).servers
    assert [(slot.slot, slot.state) for slot in server.slots] == [
        (0, "unknown"), (1, "unknown"), (2, "unknown"), (3, "idle")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "state", "shown"),
    [
        ([], "prompt", "0 % of the prompt"),
        ([BATCH.format(task=0, n=1024)], "prompt", "53.9 % of the prompt"),
        ([STEP + "prompt processing, n_tokens =   1140, progress = 0.60, t =   3.03 s / 2409.24 tokens per second\n"],
         "prompt", "60.0 % of the prompt"),
        ([STEP + "prompt processing progress, n_tokens = 950, batch.n_tokens = 950, progress = 0.500000\n"],
         "prompt", "50.0 % of the prompt"),
        ([STEP + "prompt processing done, n_tokens = 1900, batch.n_tokens = 4\n"], "reply", "prompt done"),
        ([STEP + "n_gen = 1500, tg = 20.00 t/s, tg_3s = 20.00 t/s\n"], "reply", "1,500 tokens generated"),
        ([STEP + "prompt processing progress, n_tokens = 950, batch.n_tokens = 950, progress = nan\n"],
         "prompt", "50.0 % of the prompt"),
        ([STEP + "n_decoded = 15, tg = 20.00 t/s\n"], "reply", "15 tokens generated"),
    ],
)  # fmt: skip
def test_progress_comes_from_the_lines_that_the_build_prints(lines: list[str], state: str, shown: str) -> None:
    view = view_of(begun(*(line.replace("{task}", "0") for line in lines)))
    (slot,) = view.servers[0].slots
    assert (slot.state, slot.request and slot.request.prompt_tokens) == (state, 1900)
    assert any(f"task 0: {shown}" in row for row in rows_of(view))


def test_progress_of_an_earlier_task_says_nothing_of_this_one() -> None:
    first = FIRST.replace(
        BEFORE_TIMINGS, STEP.format(task=0) + "n_gen = 5, tg = 2.0 t/s, tg_3s = 2.0 t/s\n" + BEFORE_TIMINGS
    )
    launch = SECOND.splitlines(keepends=True)[:3]
    (slot,) = view_of(first + "".join(launch)).servers[0].slots
    assert (slot.state, slot.generated, slot.tokens) == ("busy", None, None)
    assert slot.request is not None
    assert slot.request.task == 9
    assert slot.last is not None
    assert slot.last.request.task == 0


def test_a_terse_log_shows_unknown_and_never_0() -> None:
    """Builds that print neither the prompt's length nor what was reused until the end."""
    terse = [row for row in begun().splitlines() if "new prompt" not in row and "memory_seq_rm" not in row]
    (row,) = (row for row in rows_of(view_of("\n".join(terse) + "\n")) if "task 0" in row)
    assert row.split() == ["0", "processing", "unknown", "unknown", "task", "0:", "progress", "unknown"]


def test_every_server_of_a_log_has_its_slots() -> None:
    rows = [f"[{port}] {row}" for row in FIRST.splitlines(keepends=True) for port in (5001, 5002)]
    view = view_of("".join(rows))
    assert [server.session.origin for server in view.servers] == ["5001", "5002"]
    shown = "\n".join(rows_of(view))
    assert "servers   2: 5001, 5002" in shown
    assert "5002           0  idle" in shown


# ---- the picture


@pytest.mark.sample(1)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (120, 40), (20, 4), (300, 6), (24, 100)])
def test_no_picture_is_larger_than_the_screen(width: int, height: int) -> None:
    for case in CASES[::5]:
        view = view_of(content_of(case)[:200_000], "/var/log/" + "x" * 300, end=True)
        for ascii_only in (False, True):
            rows = rows_of(view, width, height, ascii_only)
            assert 0 < len(rows) <= height
            assert max(map(cell_len, rows)) <= width
            assert not ascii_only or all(map(str.isascii, rows))


def test_the_sums_and_findings_are_those_of_the_report() -> None:
    rows = rows_of(view_of(LOG))
    assert rows[0].startswith("cachedoctor server.log")
    assert rows[0].endswith(f" {len(LOG.splitlines())} lines")
    text = "\n".join(rows)
    assert "traffic   2 requests, 3,935 prompt tokens" in text
    assert "1 finding, the costliest first" in text
    assert "warning[CD101] billing-header: 1,900 tokens" in text
    assert "  fix: export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n       Turn the header off in Claude Code" in text
    assert rows[-1] == "Ctrl-C quits and prints the whole report"


def test_the_command_of_every_finding_comes_before_its_words() -> None:
    """At 80 columns a row that begins with words would be cut before the command."""
    rows = rows_of(view_of(content_of(FIXTURES / "cases" / "slot-contention-dense-b8672")))
    first = next(at for at, row in enumerate(rows) if "[CD302]" in row)
    assert rows[first + 1] == "  fix: --cache-ram 8192"
    assert rows[first + 2].startswith("       Add this option to the llama-server command. ")
    second = next(at for at, row in enumerate(rows) if "[CD303]" in row)
    assert rows[second + 1].startswith("  fix: --cache-ram 8192  Keep a RAM copy of prompts ")


def test_a_healthy_view_shows_the_last_requests_the_newest_first() -> None:
    rows = rows_of(view_of(content_of(FIXTURES / "cases" / "parallel-agents-b6301")))
    at = rows.index("no findings yet")
    shown = [row.split() for row in rows[at + 3 : at + 9]]
    assert [row[:5] for row in shown] == [
        ["3", "task", "24", "2,015", "1,940"],
        ["2", "task", "23", "1,798", "1,721"],
        ["2", "task", "16", "1,716", "1,638"],
        ["3", "task", "9", "1,935", "1,858"],
        ["2", "task", "2", "1,633", "0"],
        ["3", "task", "0", "1,853", "0"],
    ]
    assert rows[at + 3].endswith("345 ms, reused")
    assert rows[at + 8].endswith("570 ms, nothing to reuse")


def test_more_requests_than_rows_leave_the_end_of_the_view() -> None:
    case = content_of(FIXTURES / "cases" / "checkpoint-evicted-hybrid-b8672")
    rows = rows_of(view_of(case))
    at = next(at for at, row in enumerate(rows) if "newest first" in row)
    assert [row.split()[2] for row in rows[at + 1 : -2]] == ["57"]
    assert rows[-2:] == ["", "Ctrl-C quits and prints the whole report"]


def test_a_cut_row_is_marked() -> None:
    """A number that lost its end would be another number."""
    (row,) = (row for row in rows_of(view_of(LOG), 40, 10) if "CD101" in row and "tokens" in row and "lost" not in row)
    assert row.startswith("CD101 1,900 tokens")
    assert row.endswith("…")
    (row,) = (r for r in rows_of(view_of(LOG), 40, 10, True) if "CD101" in r and "tokens" in r and "lost" not in r)
    assert row.endswith("...")


def test_of_many_slots_those_that_compute_are_shown() -> None:
    log = HEAD.replace("n_slots = 1", "n_slots = 64") + begun().removeprefix(HEAD).replace("id  0", "id 40")
    rows = rows_of(view_of(log), 80, 12)
    assert any(row.startswith("  40  prompt") for row in rows)
    (left,) = (row for row in rows if row.startswith("and "))
    shown = sum(row[:4].strip().isdigit() for row in rows)
    assert left == f"and {64 - shown} other slots"


def test_log_text_cannot_control_the_terminal() -> None:
    hostile = HEAD.replace("hybrid.gguf", "\x1b[2J[bold]evil\u202e:smile:.gguf")
    shown = "\n".join(rows_of(view_of(hostile, "\x1b]0;title\x07.log"), 200, 30))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "[bold]evil\\u202e:smile:.gguf" in shown
    assert shown.startswith("cachedoctor \\x1b]0;title\\x07.log ")
    assert shown.splitlines()[0].endswith(" 4 lines")


def test_names_of_servers_of_any_length() -> None:
    log = "".join(f"llama-server-of-room-12 | {row}" for row in FIRST.splitlines(keepends=True)) + "".join(
        f"b-1 | {row}" for row in FIRST.splitlines(keepends=True)
    )
    shown = "\n".join(rows_of(view_of(log)))
    assert "...room-12     0  idle" in shown
    assert "b-1            0  idle" in shown


def test_replicas_are_named_by_where_their_names_differ() -> None:
    names = ("llama-6d5c9b7f4-2xk8q/llama-server", "llama-6d5c9b7f4-2fh2q/llama-server")
    log = "".join(f"[pod/{name}] {row}" for name in names for row in FIRST.splitlines(keepends=True))
    shown = "\n".join(rows_of(view_of(log)))
    assert "2xk8q          0  idle" in shown
    assert "2fh2q          0  idle" in shown


def test_a_finding_of_no_request_counts_none() -> None:
    lines = (FIXTURES / "vllm" / "vllm032_dense_mutation.log").read_text("utf-8")
    shown = "\n".join(rows_of(view_of(lines), 120))
    assert "note[CD510] prefix-not-shared: prompts" in shown
    assert "1 request" not in shown


def test_what_is_not_read_yet_is_said() -> None:
    assert any("waiting for the first line" in row for row in rows_of(view_of("")))
    assert any("no server log line recognised yet" in row for row in rows_of(view_of("hello\n")))


def test_a_picture_at_most_every_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is ours; what came in between is drawn in the silence after it."""
    now, drawn = [50.0], [0]
    monkeypatch.setattr(screen_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown = screen_module.Screen(Appearance(), Interrupts())
    shown.analyzer = Analyzer(listener=shown.listener)

    def count(*_: object, refresh: bool) -> None:
        drawn[0] += refresh

    monkeypatch.setattr(shown._live, "update", count)
    for wait, silent, expected in [
        (0.0, False, 1), (0.05, False, 1), (0.04, False, 1), (0.02, False, 2), (0.01, False, 2), (0.01, True, 3),
        (5.0, True, 3), (5.0, False, 4),
    ]:  # fmt: skip
        now[0] += wait
        shown.step([], silent, list)
        assert drawn[0] == expected, (wait, silent)


# ---- on a terminal


@pytest.mark.sweep
def test_slots_and_findings_on_a_terminal_and_the_report_at_the_end(tmp_path: Path) -> None:
    """As the lines come; Ctrl-C gives back the screen and prints what analyze prints."""
    path = tmp_path / "server.log"
    path.write_text(begun())
    with on_terminal("watch", path) as terminal:
        terminal.wait_for("task 0: 0 % of the prompt", "no findings yet")
        with path.open("a") as file:
            file.write(FIRST[FIRST.index(BEFORE_TIMINGS) :] + SECOND)
        terminal.wait_for("task 9: lost 1,900 tokens (CD101)", "warning[CD101] billing-header")
        report = terminal.end(signal.SIGINT)
    assert terminal.process.returncode == 130
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1
    assert terminal.written.index(ENTER) < terminal.written.index(LEAVE)
    assert report.startswith("Claude Code's billing header changes between requests (cch): 48 % recomputed\nfix ")
    assert "Interrupted: this covers the part read until then.\n" in report
    assert b"\x1b[?25h" in terminal.written[terminal.written.rindex(b"\x1b[?25l") :]  # the cursor is back


@pytest.mark.sweep
def test_a_terminal_that_changes_its_size(log: Path) -> None:
    """While nothing is written to the log."""
    with on_terminal("watch", log) as terminal:
        before = terminal.wait_for("q quits")
        assert len(before) == 24
        terminal.resize(40, 10)
        small = terminal.wait_for("48.3 % avoidable", "CD101 1,900 tokens")
        assert max(map(len, small)) <= 40
        assert len(small) <= 10
        terminal.resize(200, 60)
        large = terminal.wait_for("last request", "q quits")
        assert len(large) == 60
        report = terminal.end(signal.SIGTERM)
    assert terminal.process.returncode == 130
    assert "1 cause. Do now: export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in report


@pytest.mark.sweep
def test_a_pipe_is_watched_until_it_ends() -> None:
    """Status 0, and the report on the normal screen."""
    ours, theirs = os.pipe()
    with on_terminal("watch", "-", stdin=ours) as terminal, os.fdopen(theirs, "wb") as pipe:
        pipe.write(LOG)
        pipe.flush()
        terminal.wait_for("standard input", "warning[CD101]")
        pipe.close()
        report = terminal.end()
    os.close(ours)
    assert terminal.process.returncode == 0
    assert "Interrupted" not in report
    assert "warning[CD101] billing-header" in report


@pytest.mark.sweep
def test_a_missing_file_gives_the_screen_back(tmp_path: Path) -> None:
    with on_terminal("watch", tmp_path / "none.log", columns=400) as terminal:
        error = terminal.end()
    assert terminal.process.returncode == 2
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE)
    assert error.startswith("cachedoctor: error: ")
    assert error.endswith(": no such file\n  hint: check the path\n")


@pytest.mark.sweep
def test_without_colours_no_colour_is_drawn(log: Path) -> None:
    with on_terminal("watch", log, "--color", "never") as terminal:
        terminal.wait_for("warning[CD101]")
        terminal.end(signal.SIGINT)
    assert b"\x1b[3" not in terminal.written
    assert b"\x1b[1;3" not in terminal.written


# ---- without a terminal


@contextlib.contextmanager
def watching(*args: object) -> Iterator[Started]:
    with start("watch", *args, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


LOSS = (
    b": slot 0, task 9: 2,035 prompt tokens = 0 reused + 2,035 computed in 183 ms; "
    b"lost 1,900 tokens (CD101), reprocessed"
)


@pytest.mark.sweep
def test_rules_that_are_switched_off_are_not_named() -> None:
    """Neither as findings nor after the requests."""
    done = run("watch", "-", "--ignore", "CD1", stdin=FIRST.encode() + SECOND.encode())
    assert b"lost 1,900 tokens, reprocessed" in done.stdout
    assert b"CD101 " not in done.stdout.split(b"server ")[0]
    assert b"(CD101)" not in done.stdout


@pytest.mark.sweep
def test_plain_lines_through_rotations(tmp_path: Path) -> None:
    """A line for each request that lost tokens and for each finding, at once; then the report."""
    path = tmp_path / "server.log"
    path.write_text(FIRST)
    with watching(path) as process:
        with path.open("a") as file:
            file.write(SECOND)
        read_until(process, LOSS + b"\nwarning[CD101] billing-header: 1,900 tokens")
        path.rename(tmp_path / "server.log.1")
        path.write_text(THIRD)
        read_until(process, b"warning[CD102] volatile-prefix: ")
        with path.open("r+") as file:
            file.truncate()
        path.write_text(TURN.format(task=29, tokens=2300, similarity="", diff=""))
        read_until(process, b"task 29: 2,300 prompt tokens")
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"\x1b" not in out
    assert b"traffic   4 requests" in out
    assert error == b""


@pytest.mark.sweep
def test_a_log_in_a_pipe_as_plain_lines() -> None:
    """Each request and each finding once; a request without loss is not a line."""
    done = run("watch", "-", stdin=LOG)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith(LOSS)
    assert lines[1].startswith(b"warning[CD101] billing-header: 1,900 tokens")
    assert b"; fix: Turn the header off" in lines[1]
    assert lines[2] == b""
    assert lines[3].startswith(b"Claude Code's billing header changes")
    assert done.stderr == b""


@pytest.mark.sweep
@pytest.mark.parametrize("content", [None, b"\x1f\x8b\x08\x00packed"])
def test_what_cannot_be_followed_is_one_line_and_status_2(content: bytes | None, tmp_path: Path) -> None:
    """A missing file, and a packed one, which nobody appends to."""
    path = tmp_path / "server.log"
    if content is not None:
        path.write_bytes(content)
    done = run("watch", path)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "server.log")


@pytest.mark.sweep
def test_a_folder_and_nothing_at_all(tmp_path: Path) -> None:
    assert run("watch", tmp_path).returncode == 2
    done = run("watch", "-", stdin=b"")
    assert done.returncode == 3
    one_line(done, "empty")


@pytest.mark.sweep
def test_ctrl_z_gives_the_screen_back_for_a_while(log: Path) -> None:
    """And ``fg`` shows the view again."""
    with on_terminal("watch", log, forks=False) as terminal:
        terminal.wait_for("warning[CD101]")
        terminal.process.send_signal(signal.SIGTSTP)
        while terminal.written.count(LEAVE) < 1:
            terminal.read()
        while terminal.written.count(ENTER) < 2:
            terminal.process.send_signal(signal.SIGCONT)
            terminal.read(0.1)
        terminal.wait_for("warning[CD101]")
        report = terminal.end(signal.SIGINT)
    assert terminal.process.returncode == 130
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 2
    assert "Interrupted" in report


# ---- keys


def _mode(terminal: Terminal) -> list[object]:
    return termios.tcgetattr(terminal.fd)


def test_keys_help_and_end_and_the_terminal_is_given_back(log: Path) -> None:
    """Nothing that is typed is echoed; q prints the report as Ctrl-C does."""
    with on_terminal("watch", log) as terminal:
        before = _mode(terminal)
        terminal.wait_for("q quits", "warning[CD101]")
        assert not _mode(terminal)[3] & (termios.ECHO | termios.ICANON)  # type: ignore[operator]
        terminal.type(b"?")
        terminal.wait_for("? goes back to the view", "reused from the cache")
        terminal.type(b"x\x1b[5~?")
        terminal.wait_for("q quits", "warning[CD101]")
        terminal.type(b"q")
        report = terminal.end(after=lambda: before == _mode(terminal))
    assert terminal.process.returncode == 130
    assert "Interrupted: this covers the part read until then.\n" in report


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signals_give_the_keyboard_back(log: Path, number: int) -> None:
    with on_terminal("watch", log) as terminal:
        before = _mode(terminal)
        terminal.wait_for("q quits")
        assert _mode(terminal) != before
        terminal.end(number, after=lambda: before == _mode(terminal))
    assert terminal.written.count(ENTER) == terminal.written.count(LEAVE) == 1


def test_arrows_go_through_the_findings() -> None:
    """The first one that is shown has its whole fix, and nothing is cut at 80 columns."""
    view = view_of(content_of(FIXTURES / "cases" / "billing-header-hybrid"))
    finding = view.findings[0]
    view.findings = [finding, msgspec.structs.replace(finding, code="CD102", name="second"), finding]
    whole = rows_of(view)
    assert "  fix: export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in whole
    assert "       Turn the header off in Claude Code: set this variable in the environment," in whole
    assert '       or under "env" in ~/.claude/settings.json' in whole
    second = [row.plain for row in draw(view, 80, 24, False, Screenful(first=1, keyed=True))]
    at = second.index("3 findings, the costliest first, from number 2 on")
    assert second[at + 1].startswith("warning[CD102] second")
    assert "CLAUDE_CODE" in "".join(second[at + 2 : at + 5])
    assert second[-1].startswith("q quits")
    last = [row.plain for row in draw(view, 80, 24, False, Screenful(first=99))]
    assert "3 findings, the costliest first, from number 3 on" in last


@pytest.mark.parametrize(("width", "height"), [(20, 4), (40, 10), (80, 24), (200, 60)])
def test_the_help_fits(width: int, height: int) -> None:
    rows = draw(view_of(LOG), width, height, False, Screenful(helps=True))
    assert len(rows) == height
    assert max(row.cell_len for row in rows) <= width
    assert rows[-1].plain.startswith("? goes back")


@pytest.mark.sweep
def test_advice_has_the_form_of_what_starts_the_server() -> None:
    """As analyze gives it."""
    log = FIXTURES / "cases" / "cache-ram-off-hybrid" / "server.log"
    watched = run("watch", "-", "--launcher", "compose", stdin=log.read_bytes()).stdout
    told = [line for line in run("analyze", log, "--launcher", "compose").stdout.splitlines() if b"compose" in line]
    assert told
    assert set(told) <= set(watched.splitlines())
    without = run("watch", "-", stdin=log.read_bytes()).stdout
    assert not set(told) <= set(without.splitlines())
