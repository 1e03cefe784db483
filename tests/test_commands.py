"""The commands as a whole: how many there are, how many options, what their help shows, and wrong names."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from command import one_line, run
from typer.main import get_command

from cachedoctor.cli import make_app
from cachedoctor.cli.wrong_names import COMMAND_LINES, suggestion

COMMANDS: dict[str, Any] = vars(get_command(make_app()))["commands"]
NAMES = (
    "analyze", "fix", "watch", "compare", "diff", "lint", "redact", "explain", "probe", "proxy", "tune", "fleet",
    "exporter",
)  # fmt: skip
MOST_OPTIONS = 150
ROWS, COLUMNS = 24, 80


def options(command: Any) -> list[str]:
    """The longest name of every option that is not about the help."""
    found = [param for param in command.params if param.param_type_name == "option"]
    return [max(param.opts, key=len) for param in found if "--help" not in param.opts]


def test_the_log_doctor_stands_apart_from_what_needs_a_server_or_many_logs() -> None:
    assert tuple(COMMANDS) == NAMES
    shown = run("--help", COLUMNS="80").stdout.decode()
    rows = shown.splitlines()
    headings = [row for row in rows if row.endswith(":") and not row.startswith(" ")]
    doctor, around = "The log doctor:", "For running servers and many logs (* needs a pip extra):"
    assert headings == ["Options:", doctor, around]
    assert [row.split()[0] for row in rows[rows.index(doctor) :] if row.startswith("  ")] == list(NAMES)
    assert {row.split()[0] for row in rows if row.endswith(" *")} == {"proxy", "fleet", "exporter"}
    assert max(map(len, rows)) <= COLUMNS


def test_every_command_has_one_file() -> None:
    folder = Path(str(__import__("cachedoctor.cli").__file__)).parent / "cli"
    assert all((folder / f"{name}.py").is_file() for name in NAMES)


def test_there_are_at_most_150_options() -> None:
    """Of all commands, and those before a command."""
    before = options(get_command(make_app()))
    assert "--version" in before
    counts = {name: len(options(command)) for name, command in COMMANDS.items()}
    assert all(len(set(options(command))) == counts[name] for name, command in COMMANDS.items())
    assert sum(counts.values()) + len(before) <= MOST_OPTIONS, counts


@pytest.mark.sample(7)
@pytest.mark.spread(2)
@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_screen_and_help_all_has_every_option(name: str) -> None:
    short = run(name, "--help", COLUMNS=str(COLUMNS)).stdout.decode().splitlines()
    whole = run(name, "--help-all", COLUMNS=str(COLUMNS)).stdout.decode()
    assert len(short) <= ROWS
    assert max(map(len, [*short, *whole.splitlines()])) <= COLUMNS
    assert [option for option in options(COMMANDS[name]) if option not in whole] == []
    assert "Exit status:" in " ".join(whole.split())
    left_out = [option for option in options(COMMANDS[name]) if f"{option} " not in "\n".join(short)]
    assert not left_out or any("--help-all" in row for row in short)
    assert all(option in options(COMMANDS[name]) for option in COMMANDS[name].most)


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("stats", "cachedoctor fleet logs/*.log --by model"),
        ("export", "cachedoctor analyze server.log -o requests.csv"),
        ("report", "cachedoctor analyze report.json -o report.html"),
        ("simulate", "cachedoctor tune server.log --set cache-ram=8192"),
        ("rules", "cachedoctor explain"),
        ("config", "cachedoctor explain settings"),
        ("record-kv", "cachedoctor watch --kv-events tcp://HOST:5557 -o kv.jsonl"),
        ("monitor", "cachedoctor watch server.log"),
        ("doctor", "cachedoctor analyze server.log"),
        ("analyse", "cachedoctor analyze server.log"),
        ("Stats", "cachedoctor fleet logs/*.log --by model"),
        ("analize", "cachedoctor analyze --help"),
        ("quux", "cachedoctor --help"),
    ],
)
def test_a_wrong_name_is_answered_with_the_command_line(tmp_path: Path, word: str, line: str) -> None:
    done = run(word, "server.log", folder=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, f"no such command '{word}'", f"(hint: {line})")
    assert suggestion(word, [*NAMES]) == line


def test_natural_names_are_known_and_lead_to_options_that_exist() -> None:
    tried = (
        "doctor check capture monitor serve stats export simulate report rules config metrics help version summary "
        "table record-kv"
    )
    assert set(tried.split()) <= set(COMMAND_LINES)
    assert not set(COMMAND_LINES) & set(NAMES)
    for line in COMMAND_LINES.values():
        name, *words = shlex.split(line)
        if name.startswith("--"):
            assert name in ("--help", "--version", "--install-completion")
            continue
        known = {opt for param in COMMANDS[name].params for opt in param.opts}
        assert [word for word in words if word.startswith("-") and word not in known] == [], line


def test_a_file_of_a_wrong_name_is_a_log(log: Path) -> None:
    os.rename(log, log.parent / "stats")
    assert b"warning[CD101]" in run("stats", folder=str(log.parent)).stdout


# ---- one command for several tasks


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("analyze", "LOG", "-o", "t.csv", "--fail-on", "note"), "--fail-on: cannot be combined with a table (csv)"),
        (("analyze", "-f", "ndjson", "--follow", "LOG"), "--follow: cannot be combined with a table (ndjson)"),
        (("fleet", "LOG", "--engine", "ray"), "--engine: cannot be combined with sums"),
        (("fleet", "LOG", "-o", "out", "--by", "model"), "--by: cannot be combined with -o DIR"),
        (("fleet", "LOG", "-o", "sums.csv", "--no-reports"), "--reports: cannot be combined with sums"),
        (
            ("tune", "LOG", "--set", "parallel=2", "--memory", "1G"),
            "--memory limits the search for settings, but --set replays only the given settings",
        ),
        (
            ("watch", "LOG", "--kv-events", "tcp://127.0.0.1:1", "-o", "kv.jsonl"),
            "log: cannot be combined with --kv-events",
        ),
        (("watch", "--kv-events", "tcp://127.0.0.1:1"), "--kv-events needs -o FILE"),
        (("watch", "LOG", "-o", "x"), "--replay and --output need --kv-events"),
        (("explain", "CD101", "-f", "json"), "--format"),
    ],
)
def test_options_of_another_task_are_refused(log: Path, words: tuple[str, ...], says: str) -> None:
    done = run(*(str(log) if word == "LOG" else word for word in words), folder=str(log.parent))
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, says)
    assert os.listdir(log.parent) == ["server.log"]


@pytest.mark.sweep
def test_fleet_sums_up_a_folder_a_pattern_and_into_a_file(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "host"
    folder.mkdir(parents=True)
    os.rename(log, folder / "server.log")
    (folder / "other.log").write_bytes((folder / "server.log").read_bytes())
    whole = run("fleet", folder / "server.log", folder / "other.log", "-f", "csv")
    assert whole.returncode == 0
    assert whole.stdout.splitlines()[1].startswith(b"all,,4,0,7870,0,7870,")  # twice 1,900 + 2,035
    for inputs in (tmp_path / "logs", str(tmp_path / "logs" / "*" / "*.log")):
        assert run("fleet", inputs, "-f", "csv").stdout == whole.stdout
    target = tmp_path / "sums.csv"
    assert run("fleet", tmp_path / "logs", "-o", target).stdout == b""
    assert target.read_bytes() == whole.stdout


def test_what_ran_is_said_for_a_replay_as_well() -> None:
    """The log prints the limit of the RAM cache: what contradicts it is refused in both tasks."""
    day = Path(__file__).parent.parent / "fixtures/days/dense-eight_on_four-b9713-default/server.log"
    for more in ((), ("--set", "cache-ram=64")):
        done = run("tune", day, "--ran", "parallel=9", *more)
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, "--ran: the log contradicts slots")


def test_a_default_is_not_read_as_a_word() -> None:
    """Some versions of typer pass defaults to the parser of an option, which reads text."""
    done = run("proxy", "--upstream", "http://127.0.0.1:1", "--listen", "nowhere")
    assert done.returncode == 2
    assert b"is not an address" in done.stderr
