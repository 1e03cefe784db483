"""What was given and would have been ignored without a word: names of outputs, files in the place of other things.

And how the help says what can be given.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command import one_line, run, start
from conftest import FIXTURES
from terminals import in_terminal

from cachedoctor.cli.sink import Sink
from cachedoctor.doctor.tables.tables import is_log
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import CacheDoctorError
from cachedoctor.report.base import FORMATS, format_of


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("report.html", "html"),
        ("REPORT.HTM", "html"),
        ("a.b/report.json", "json"),
        ("report.jsonl", "jsonl"),
        ("report.ndjson", None),
        ("report.md", "markdown"),
        ("report.sarif", "sarif"),
        ("report.sarif.json", "sarif"),
        ("report.txt", "text"),
        ("report", None),
        ("html", None),
        ("report.log", None),
        (None, None),
    ],
)
def test_the_ending_names_the_format(name: str | None, format: str | None) -> None:
    assert format_of(name, FORMATS) == format
    assert format_of(name, ("text",)) == (format if format == "text" else None)


def test_help_has_what_starts_the_server_in_a_group() -> None:
    for command in ("analyze", "fix", "watch"):
        groups = run(command, "--help-all").stdout.decode().split("\n\n")
        assert [group.split(":")[0] for group in groups if "  --launcher" in group] == ["Output"]


@pytest.mark.parametrize("name", ["report.txt.gz", "report.html.GZ", "x.xz", "x.bz2", "x.json.zst"])
def test_what_would_not_be_packed_is_refused(tmp_path: Path, name: str) -> None:
    """Its name would promise what nobody wrote; one that ends otherwise stays what it is."""
    with pytest.raises(CacheDoctorError, match="does not compress its output"):
        Sink(str(tmp_path / name))
    Sink(str(tmp_path / "report.gz.txt"))
    Sink(str(tmp_path / "gz"))


@pytest.mark.sweep
def test_an_output_is_written_in_the_format_of_its_name(log: Path, tmp_path: Path) -> None:
    """What was asked for comes before the name, and the name before a file of settings."""
    page = tmp_path / "report.html"
    assert run("analyze", log, "-o", page, "-q").returncode == 0
    assert page.read_bytes().startswith(b"<!doctype html>")
    assert run("analyze", log, "-o", page, "-f", "json").returncode == 0
    assert json.loads(page.read_bytes())["schema"] == "cachedoctor.report/1"
    (tmp_path / "cachedoctor.toml").write_text('format = "html"\n')
    stored = tmp_path / "report.json"
    assert run("analyze", log, "-o", stored, "--config", tmp_path / "cachedoctor.toml").returncode == 0
    assert run("analyze", stored, "-o", tmp_path / "report.md").returncode == 0
    assert (tmp_path / "report.md").read_text().startswith("## ")
    assert run("compare", stored, stored, "-o", tmp_path / "both.json").returncode == 0
    assert json.loads((tmp_path / "both.json").read_bytes())["schema"] == "cachedoctor.compare/1"


def test_a_page_is_not_poured_over_a_terminal(log: Path) -> None:
    """It needs a file; a pipe and ``-o -`` take it as before."""

    def begin(**streams: object) -> subprocess.Popen[bytes]:
        return start("analyze", log, "-f", "html", **streams)  # type: ignore[arg-type, return-value]

    status, error, shown = in_terminal(begin, "stdout")
    assert (status, shown) == (2, b"")
    assert b"-o report.html" in error
    assert run("analyze", log, "-f", "html").stdout.startswith(b"<!doctype html>")


def test_a_tokenizer_without_prompts_is_refused(log: Path) -> None:
    for option in ("--tokenizer", "--template"):
        done = run("analyze", log, option, "nowhere.json")
        assert (done.returncode, done.stdout) == (2, b"")
        one_line(done, option, "--requests FILE")


def test_a_file_that_starts_no_server_is_refused_as_a_command_line(log: Path, tmp_path: Path) -> None:
    compose = tmp_path / "compose.yaml"
    compose.write_text("services:\n  llama:\n    command: -c 32768\n")
    done = run("analyze", log, "--cmdline", compose)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, f"{compose}: nothing in the file starts llama-server", "give the command line")


def test_bodies_in_several_files_are_all_read(tmp_path: Path) -> None:
    """Not the last of them alone: a client's author has a file for each."""
    case = FIXTURES / "cases/requests-timestamp"
    options: list[str | Path] = []
    for at, body in enumerate((case / "requests.jsonl").read_text("utf-8").splitlines()):
        (tmp_path / f"{at}.json").write_text(body)
        options += ["--requests", tmp_path / f"{at}.json"]
    together, apart = (
        json.loads(run("analyze", case / "server.log", "-f", "json", *given).stdout)["findings"]
        for given in (["--requests", case / "requests.jsonl"], options)
    )
    assert [(f["code"], f["cost"]) for f in together] == [(f["code"], f["cost"]) for f in apart]
    assert "CD102" in {f["code"] for f in apart}


def test_a_json_list_is_a_command_line() -> None:
    """As compose files and ``docker inspect`` have it, with the program or without."""
    shell = parse("llama-server -m 'a b.gguf' -c 32768 --cache-ram 0")
    assert [given.value for given in shell if given.option == "ctx_size"] == [32768]
    assert parse('["/app/llama-server", "-m", "a b.gguf", "-c", "32768", "--cache-ram", "0"]') == shell
    assert parse(' ["-m", "a b.gguf", "-c", "32768", "--cache-ram", "0"]') == shell
    assert parse('["LLAMA_ARG_CACHE_RAM=0"]') == parse("LLAMA_ARG_CACHE_RAM=0 llama-server")


@pytest.mark.parametrize("line", ["[", "[1, 2]", '["-c"', "[llama-server, -c]", "[]", "hello there", "nowhere.yaml"])
def test_a_command_line_that_says_nothing_is_refused(line: str) -> None:
    with pytest.raises(CacheDoctorError) as caught:
        parse(line)
    assert caught.value.hint


def test_logs_are_not_compared_as_prompts(log: Path, tmp_path: Path) -> None:
    """One is analysed, two are compared; what a person asks about a log is a prompt."""
    done = run("diff", log, log)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "are logs, not prompts", f"cachedoctor compare {log} {log}")
    one_line(run("diff", log), "is a log", f"cachedoctor analyze {log}")
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"<|im_start|>user\nWhat does this say?\n" + log.read_bytes())
    assert run("diff", prompt, prompt).returncode == 0


def test_logs_are_known_by_their_lines(tmp_path: Path) -> None:
    """Also packed, wrapped and of other servers; no prompt of ours is one."""
    logs = [
        *(FIXTURES / "cases" / name / "server.log" for name in ("wrapped-docker-json", "billing-header-dense-b6900")),
        FIXTURES / "vllm" / "vllm032_preemption.log",
    ]
    assert [path for path in logs if not is_log(str(path))] == []
    prompts = [path for path in (FIXTURES / "prompts").glob("*/*") if path.is_file()]
    assert len(prompts) >= 5
    assert [path for path in prompts if is_log(str(path))] == []
    assert not is_log(str(tmp_path))
    assert not is_log("-")
    assert not is_log(str(tmp_path / "nowhere"))


def test_the_help_of_analyze_has_its_options_in_groups() -> None:
    """Every option once, and two examples in the last rows."""
    rows = run("analyze", "--help-all", COLUMNS="80").stdout.decode().rstrip().split("\n")
    headings = [row for row in rows if row.endswith(":") and not row.startswith(" ")]
    assert headings[:2] == ["Arguments:", "Options:"]
    assert {"Input:", "Other evidence:", "Rules and gate:", "Output:", "Terminal:"} <= set(headings)
    named = [row.split()[1 if row[4:5] == "," else 0].rstrip(",") for row in rows if row.startswith("  -")]
    assert len(named) == len(set(named)) >= 25
    assert [row.split()[0] for row in rows[-2:]] == ["cachedoctor", "docker"]
    assert max(map(len, rows)) <= 80


def test_a_folder_stands_for_the_logs_in_it(log: Path, tmp_path: Path) -> None:
    """Rotations are one log, the oldest first; what no server wrote is named, and what is hidden is not checked."""
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = log.read_bytes().splitlines(keepends=True)
    (folder / "server.log.1").write_bytes(b"".join(lines[:8]))
    (folder / "server.log").write_bytes(b"".join(lines[8:]))
    (folder / "access.log").write_bytes(b"127.0.0.1 - - [01/May/2026:10:00:00 +0000] GET / 200\n" * 9)
    (folder / ".hidden.log").write_bytes(log.read_bytes())
    (folder / "notes.md").write_text("nothing")
    (folder / "inner").mkdir()
    done = run("analyze", folder, "-f", "json")
    report = json.loads(done.stdout)
    assert [info["path"] for info in report["inputs"]] == [str(folder / "server.log.1"), str(folder / "server.log")]
    whole = json.loads(run("analyze", log, "-f", "json").stdout)
    assert [row["prompt_tokens"] for row in report["requests"]] == [row["prompt_tokens"] for row in whole["requests"]]
    assert b"not read: access.log" in done.stderr
    assert run(folder, "-q").stderr == b""
    empty = run("analyze", folder / "inner")
    assert empty.returncode == 2
    one_line(empty, "inner: contains no log of llama-server, vLLM or SGLang (hint", "with any name")
    (folder / "inner" / "access.log").write_text("127.0.0.1 GET / 200\n" * 9)
    one_line(run("analyze", folder / "inner"), "contains no log of llama-server, vLLM or SGLang: access.log (hint")


def test_logs_of_several_programs_in_one_folder(tmp_path: Path) -> None:
    """ollama's own lines alone or above its runner's, a chat program beside the server, and a report of ours."""
    lines = (FIXTURES / "cases/volatile-prefix-dense/server.log").read_text("utf-8").splitlines()
    slog = 'time=2026-08-19T19:35:53.590+02:00 level=WARN source=runner.go:154 msg="truncating input prompt" '
    cut = f"{slog}limit=4096 prompt=22739 keep=4 new=4096\n"
    chat = 'open-webui    | 2026-11-20 10:00:00.123 | INFO     | "POST /api/chat/completions HTTP/1.1" 200\n'
    (tmp_path / "runner.log").write_text(cut + "\n".join(lines) + "\n")
    (tmp_path / "alone.log").write_text(cut)
    (tmp_path / "compose.log").write_text("".join(f"{chat}llama-server  | {line}\n" for line in lines))
    (tmp_path / "app.log").write_text("INFO: ready\n" * 30)
    report = run("analyze", tmp_path / "runner.log", "-v").stdout
    (tmp_path / "report.log").write_bytes(report)
    done = run("analyze", tmp_path, "-f", "json")
    found = json.loads(done.stdout)
    assert [Path(info["path"]).name for info in found["inputs"]] == ["alone.log", "compose.log", "runner.log"]
    assert b"not read: app.log, report.log" in done.stderr
    assert [(s["engine"], s["origin"], s["n_requests"]) for s in found["sessions"]] == [
        ("ollama", None, 0), ("llama.cpp", "llama-server", 4), ("llama.cpp", None, 4),
    ]  # fmt: skip
    assert sorted(f["code"] for f in found["findings"]) == ["CD102", "CD102", "CD401", "CD401"]
    assert all("num_ctx" in f["remedies"][0]["text"] for f in found["findings"] if f["code"] == "CD401")
