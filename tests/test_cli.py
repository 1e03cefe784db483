"""The command line as a user meets it: exit statuses, one-line errors, output that cannot be written."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import LOG, one_line, run
from conftest import ROOT

from cachedoctor import cli

MOST_IMPORTED = 163
"""Modules of ours that an analysis of one log imports. It only falls.

Rules and programs aside: a report lists all rules, and a line that is not llama-server's may be any program's.
"""

# ---- what works


def test_wrong_usage_is_told_from_a_fault_with_any_typer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to 0.26 what it raises is a class of click, which newer versions do not have."""

    class ClickError(Exception):
        def format_message(self) -> str:
            return "No such option: --x."

    def refuse(standalone_mode: bool) -> int:
        raise ClickError

    monkeypatch.setattr(cli, "make_app", lambda imported: refuse)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # else a broken pipe later ends all tests of this process
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    assert capsys.readouterr().err.startswith("cachedoctor: error: no such option: --x (")


def test_version_imports_nothing_heavy() -> None:
    """One line; typer alone would take ten times as long as the rest."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cachedoctor", "--version"], capture_output=True, check=True
    )
    assert done.stdout.startswith(b"cachedoctor ")
    assert done.stdout.count(b"\n") == 1
    imported = {line.split(b"|")[-1].strip().split(b".")[0] for line in done.stderr.splitlines()}
    assert not imported & {b"typer", b"polars", b"rich", b"msgspec", b"regex", b"jinja2", b"backports"}
    ours = {line.split(b"|")[-1].strip() for line in done.stderr.splitlines() if b"cachedoctor." in line}
    assert ours <= {b"cachedoctor.__main__"}


def test_analyze_imports_nothing_that_it_does_not_need(log: Path) -> None:
    """typer 0.29 converts defaults by pydantic, which takes longer than the log."""
    command = [sys.executable, "-X", "importtime", "-m", "cachedoctor", "analyze", str(log), "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.startswith(b'{"schema":"cachedoctor.report/1"')
    imported = {line.split(b"|")[-1].strip().split(b".")[0] for line in done.stderr.splitlines()}
    assert b"msgspec" in imported
    assert not imported & {b"polars", b"rich", b"pydantic", b"jinja2"}


def test_few_modules_are_imported_for_one_log(log: Path) -> None:
    code = (
        "import atexit, sys, cachedoctor.__main__ as start\n"
        "atexit.register(lambda: print(*(m for m in sys.modules if m.startswith('cachedoctor')), file=sys.stderr))\n"
        "start.main()"
    )
    command = [sys.executable, "-c", code, "analyze", str(log), "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    imported = done.stderr.decode().splitlines()[-1].split()
    others = [
        name
        for name in imported
        if not name.rpartition(".")[2].startswith("cd") and not name.startswith("cachedoctor.engines.programs.")
    ]
    print(f"{len(others)} modules and {len(imported) - len(others)} rules and programs are imported")
    assert "cachedoctor.diagnosis.rules.client.cd101_billing_header" in imported
    assert "cachedoctor.engines.llamacpp.lines" in others
    assert len(others) <= MOST_IMPORTED, "import a module where it is used, or merge some"


@pytest.mark.sweep
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


@pytest.mark.sweep
def test_build_option(log: Path) -> None:
    """The build that the log does not show."""
    assert b"llama.cpp b11549 " in run("analyze", log, "--build", "11549").stdout


@pytest.mark.sweep
def test_output_that_is_not_utf8_gets_ascii(log: Path) -> None:
    """No character is a reason to fail."""
    done = run("analyze", log, PYTHONIOENCODING="latin-1", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()


@pytest.mark.sweep
def test_rules_and_explain() -> None:
    """Every rule is listed and can be asked for by code or name, in any case."""
    table = json.loads(run("explain", "--format", "json").stdout)
    assert [row["code"] for row in table] == sorted(row["code"] for row in table)
    assert {"code": "CD108", "name": "prefix-diverges-early"}.items() <= next(
        r for r in table if r["code"] == "CD108"
    ).items()
    listed = run("explain", COLUMNS="200").stdout.decode().splitlines()
    rows = [line.split()[:2] for line in listed if line.startswith("CD")]
    assert rows == [[row["code"], row["name"]] for row in table]
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
    for command in ("analyze", "watch"):
        address = run(command, "http://127.0.0.1:8080/a b")
        assert address.returncode == 2
        one_line(address, "is an address, not a log file", "cachedoctor probe 'http://127.0.0.1:8080/a b'; watch its")
    (log.parent / "empty").mkdir()
    folder = run("analyze", log.parent / "empty", log)
    assert folder.returncode == 2
    assert b"warning[CD101]" in folder.stdout
    one_line(folder, "empty: contains no log of llama-server, vLLM or SGLang", "with any name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(log: Path) -> None:
    """No permission: 2."""
    log.chmod(0)
    done = run("analyze", log)
    assert done.returncode == 2
    one_line(done, "permission denied")


@pytest.mark.sample(1)
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
    one_line(done, "empty" if name == "empty" else "does not look like a log")


@pytest.mark.sweep
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


@pytest.mark.sweep
def test_wrong_usage(log: Path) -> None:
    """Status 2, and no traceback."""
    for args in (["--bad"], ["--format", "xml"], ["--follow", str(log)], ["--build", "0"], ["--width", "x"]):
        done = run("analyze", log, *args)
        assert done.returncode == 2, args
        assert b"Traceback" not in done.stderr
    assert run().returncode == 2


@pytest.mark.sweep
def test_control_characters_of_a_file_name_are_shown() -> None:
    """A name cannot write to the terminal."""
    done = run("analyze", "a\x1b[31m.log")
    one_line(done, "a\\x1b[31m.log: no such file")


@pytest.mark.sweep
def test_an_unexpected_fault_is_one_line(log: Path, tmp_path: Path) -> None:
    """No traceback, unless it is asked for."""
    (tmp_path / "sitecustomize.py").write_text(
        "import cachedoctor.doctor.analysis.run as r\nr.feed_all = lambda *a: 1 / 0\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run("analyze", log, PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"cachedoctor: internal error: ZeroDivisionError: division by zero (hint: ")
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" in run("analyze", log, PYTHONPATH=path, CACHEDOCTOR_DEBUG="1").stderr


# ---- bad output


@pytest.mark.sweep
def test_output_file_that_cannot_be_written(log: Path, tmp_path: Path) -> None:
    """A missing folder, a folder, a full disk, the input itself: 2, one line, nothing left behind."""
    for target, words in [(tmp_path / "no" / "x", "does not exist"), (tmp_path, "Is a directory"),
                          (Path("/dev/full"), "No space left on device"), (log, "is an input")]:  # fmt: skip
        done = run("analyze", log, "-o", target)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, words)
    assert log.read_bytes() == LOG
    assert [p.name for p in tmp_path.iterdir()] == ["server.log"]


@pytest.mark.sweep
@pytest.mark.parametrize("command", ["analyze", "explain"])
def test_full_and_closed_standard_output(log: Path, command: str) -> None:
    """``> /dev/full`` and ``>&-``: one line, no noise of the interpreter."""
    args = [command, log] if command == "analyze" else [command]
    for shell, words in [("> /dev/full", "No space left on device"), (">&-", "it is closed")]:
        done = run(*args, shell=shell)
        assert done.returncode == 2
        one_line(done, words)


def test_a_reader_that_goes_away_is_not_an_error(log: Path) -> None:
    """``| true`` ends us as it ends every Unix tool: silently, by SIGPIPE."""
    done = run("analyze", log, shell="| true; exit ${PIPESTATUS[0]}")
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


# ---- the command line of the server


@pytest.mark.sweep
def test_a_command_line_is_checked(log: Path) -> None:
    """Its findings are in the report; what cannot be read is one line and status 2."""
    done = run("analyze", log, "--cmdline", "llama-server -m x --checkpoint-every-nb 3 --temp 0.7")
    assert done.returncode == 0
    assert b"note[CD406] " in done.stdout
    assert b"The command line has an option that this build does" in done.stdout
    for bad in ("llama-server -m 'x", ""):
        done = run("analyze", log, "--cmdline", bad)
        assert done.returncode == 2
        assert done.stdout == b""
        one_line(done, "--cmdline")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["analyze", "-f", "pdf", "x"], "'pdf' is not one of 'text'"),
        (["analyze", "--jobs", "x", "y"], "invalid value for '--jobs'"),
        (["analyze", "--jbos", "2", "y"], "no such option: --jbos"),
        (["analyze", "x", "-f"], "option '-f' requires an argument"),
        (["diff"], "missing argument"),
        (["analyze", "--color", "\x1b[31m\u202e", "x"], "is not one of 'auto'"),
    ],
)
def test_wrong_usage_is_one_line_with_a_hint(args: list[str], said: str) -> None:
    """No page of usage, and nothing of what was typed reaches the terminal as it is."""
    done = run(*args)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, said, "--help lists the options")
    assert b"\x1b" not in done.stderr
    assert "\u202e".encode() not in done.stderr
