"""An output is never an input of the same run, however it is named: the log, what is beside it, settings, a pipe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import LOG, one_line, run
from conftest import FIXTURES


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A log, bodies, prompts and settings that are all read."""
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "a.txt").write_bytes(LOG)
    bodies = FIXTURES / "cases" / "requests-billing-header"
    shutil.copy(bodies / "server.log", tmp_path / "b.log")
    shutil.copy(bodies / "requests.jsonl", tmp_path / "r.jsonl")
    (tmp_path / "pd").mkdir()
    for name, number in (("a", "123"), ("b", "456")):
        prompt = FIXTURES / "prompts" / "billing-header" / f"{name}.json"
        shutil.copy(prompt, tmp_path / f"p{name}.json")
        shutil.copy(prompt, tmp_path / "pd" / f"000000000{number}.txt")
    (tmp_path / "tok.json").write_bytes((FIXTURES / "tokenizers" / "tiny.json").read_bytes())
    (tmp_path / "c.toml").write_text('color = "never"\n')
    (tmp_path / "link.log").symlink_to("a.log")
    return tmp_path


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("args", "target"),
    [
        ("analyze a.log", "a.log"),
        ("analyze a.log", "link.log"),
        ("analyze b.log --requests r.jsonl", "r.jsonl"),
        ("analyze b.log --requests r.jsonl --tokenizer tok.json", "tok.json"),
        ("analyze a.log --slots pa.json", "pa.json"),
        ("analyze a.log --prompts pd", "pd/000000000123.txt"),
        ("analyze a.log --config c.toml", "c.toml"),
        ("diff pa.json pb.json", "pb.json"),
        ("diff pd", "pd/000000000456.txt"),
        ("diff pa.json pb.json --tokenizer tok.json", "tok.json"),
        ("redact a.log", "a.log"),
        ("analyze a.log -f csv", "a.log"),
        ("fleet a.txt", "a.txt"),
        ("compare a.log b.log", "b.log"),
    ],
)
def test_an_input_is_not_written_over(args: str, target: str, files: Path) -> None:
    before = (files / target).read_bytes()
    done = run(*args.split(), "-o", target, folder=str(files), CACHEDOCTOR_NO_CONFIG="")
    assert done.returncode == 2
    one_line(done, "is an input file and would be overwritten")
    assert (files / target).read_bytes() == before


@pytest.mark.sweep
@pytest.mark.parametrize("command", ["analyze -", "analyze", "redact -", "fleet -", "diff - pb.json"])
def test_neither_is_what_comes_through_standard_input(command: str, files: Path) -> None:
    """`< a.txt` is a file like any other."""
    before = (files / "a.txt").read_bytes()
    done = run(*command.split(), "-o", "a.txt", shell="< a.txt", folder=str(files))
    assert done.returncode == 2
    one_line(done, "a.txt: is an input file and would be overwritten")
    assert (files / "a.txt").read_bytes() == before


@pytest.mark.sweep
def test_another_output_is_fine(files: Path) -> None:
    assert run("analyze", "a.log", "-o", "pd/report.txt", "--prompts", "pd", folder=str(files)).returncode == 0
    assert (files / "pd" / "report.txt").read_bytes().startswith(b"The history changed")
