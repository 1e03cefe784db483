"""What a terminal gets that a pipe does not: colours and links; and who else gets them."""

from __future__ import annotations

import io
import os
import re
import sys
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from command import LOG, run, start
from conftest import ROOT
from terminals import Stream, in_terminal

import cachedoctor
from cachedoctor.cli import terminal
from cachedoctor.diagnosis.rules import names, registry
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import RuleInfo
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import text_report

LINK = re.compile(rb"\x1b\]8;;(file://[^\x1b]*)\x1b\\((?:\x1b\[[\d;]*m)?warning\[CD101\](?:\x1b\[0m)?)\x1b\]8;;\x1b\\")


# ---- colours


@pytest.mark.parametrize(
    ("env", "in_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm-256color"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),  # empty is as if it were not set (no-color.org)
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TTY_COMPATIBLE": "1"}, True, True),
        ({"TTY_COMPATIBLE": "0"}, False, False),
        ({"TTY_COMPATIBLE": "1", "NO_COLOR": "1"}, False, False),
        ({"TTY_COMPATIBLE": "0", "FORCE_COLOR": "1"}, True, True),
    ],
)
def test_when_there_are_colours(
    bare: pytest.MonkeyPatch, env: dict[str, str], in_terminal: bool, in_pipe: bool
) -> None:
    for name, value in env.items():
        bare.setenv(name, value)
    for tty, wanted in ((True, in_terminal), (False, in_pipe)):
        bare.setattr(sys, "stdout", Stream(tty))
        assert terminal.look(False).color is wanted
        assert terminal.look(False, "always").color is True
        assert terminal.look(False, "never").color is False
        assert terminal.look(True).color is False  # nobody looks at a file through a terminal


@pytest.mark.sweep
@pytest.mark.parametrize(
    "command",
    [
        ("analyze", "LOG"),
        ("analyze", "LOG", "-f", "concise"),
        ("analyze", "REPORT"),
        ("diff", "fixtures/prompts/billing-header/a.json", "fixtures/prompts/billing-header/b.json"),
        ("explain", "CD101"),
        ("explain", "--line", "slot update_slots: id  0 | task 20 | n_tokens = 18, memory_seq_rm [18, end)"),
        ("explain",),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_command_that_prints_text_knows_colours(command: tuple[str, ...], log: Path, tmp_path: Path) -> None:
    """The same words, with the variables, with ``--color`` of ``analyze``, or without."""
    report = tmp_path / "report.json"
    run("analyze", log, "-f", "json", "-o", report)
    args = [{"LOG": str(log), "REPORT": str(report)}.get(word, word) for word in command]
    args = [str(ROOT / word) if word.startswith("fixtures/") else word for word in args]
    plain = run(*args).stdout
    assert plain
    assert b"\x1b" not in plain
    has_options = command[0] == "analyze"
    for colored in (run(*args, *["--color", "always"] * has_options, FORCE_COLOR="" if has_options else "1").stdout,
                    run(*args, FORCE_COLOR="1").stdout):  # fmt: skip
        assert b"\x1b[1" in colored
        assert re.sub(rb"\x1b\[[\d;]*m", b"", colored) == plain
    assert run(*args, FORCE_COLOR="1", NO_COLOR="1").stdout == plain
    if has_options:
        assert run(*args, "--color", "never", FORCE_COLOR="1").stdout == plain
        assert run(*args, "--width", "19").returncode == 2


@pytest.mark.sweep
def test_the_width_of_lists_and_lines() -> None:
    for command in (("explain",), ("explain", "--line", "slot update_slots: id  0 | task 20 | n_tokens = 18")):
        wide, narrow = (run(*command, COLUMNS=width).stdout.decode() for width in ("200", "60"))
        assert narrow.count("\n") > wide.count("\n") > 0


# ---- links


def linked(args: tuple[object, ...], **env: str) -> bytes:
    """What ``analyze`` prints on a terminal."""
    status, _, out = in_terminal(partial(start, "analyze", *args), "stdout", **env)
    assert status == 0
    return out


@pytest.mark.sweep
def test_on_a_terminal_the_code_of_a_finding_leads_to_its_page(log: Path) -> None:
    out = linked((log,))
    (found,) = LINK.finditer(out)
    page = Path(unquote(urlsplit(found[1].decode()).path))
    assert page.read_text("utf-8").startswith("# CD101 billing-header")
    assert LINK.sub(rb"\2", out) == run("analyze", log, "--color", "always").stdout


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("env", "option", "links"),
    [
        ({"TERM": "dumb"}, (), False),
        ({"NO_COLOR": "1"}, (), False),
        ({"FORCE_HYPERLINK": "0"}, (), False),
        ({}, ("--color", "never"), False),
        ({"FORCE_HYPERLINK": "1", "NO_COLOR": "1"}, (), True),
        ({"FORCE_HYPERLINK": "1", "TERM": "dumb"}, (), False),
    ],
)
def test_when_a_terminal_gets_links(log: Path, env: dict[str, str], option: tuple[str, ...], links: bool) -> None:
    assert (b"\x1b]8;" in linked((log, *option), **env)) is links


@pytest.mark.sweep
def test_a_pipe_gets_links_only_when_forced_and_a_file_never(log: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    assert b"\x1b]8;" not in run("analyze", log, "--color", "always").stdout
    assert LINK.search(run("analyze", log, FORCE_HYPERLINK="1").stdout)
    assert b"\x1b]8;" not in run("analyze", log, "--color", "never", FORCE_HYPERLINK="1").stdout
    run("analyze", log, "-o", target, "--color", "always", FORCE_HYPERLINK="1")
    assert b"\x1b]8;" not in target.read_bytes()


def test_every_rule_has_the_page_that_its_address_names() -> None:
    """They lie in the package, so they are there wherever it is installed."""
    rules, _ = registry.load()
    assert dict(names.urls()) == {rule.code: rule.url for rule in rules}
    folder = Path(cachedoctor.__file__).parent.parent
    assert all((folder / rule.url).is_file() for rule in rules)


@pytest.mark.parametrize(
    "url", ["../../etc/passwd.md", "/etc/x.md", "a/../b.md", "x\x1b\\.md", "http://x/y.md", "x.sh", ""]
)
def test_the_address_in_a_stored_report_leads_nowhere_else(url: str) -> None:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(LOG)
    report = analyzer.finish()
    report.rules = [RuleInfo("CD101", "billing-header", "", url)]
    out = io.StringIO()
    text_report.render(sanitize.report(report), out, pages="file:///p/")
    assert "\x1b" not in out.getvalue()
    report.rules = [RuleInfo("CD101", "billing-header", "", "cachedoctor/diagnosis/rules/a.md")]
    text_report.render(sanitize.report(report), out, pages="file:///p/")
    assert out.getvalue().count("\x1b]8;;file:///p/cachedoctor/diagnosis/rules/a.md\x1b\\") == 1


# ---- errors


def test_on_a_terminal_the_hint_of_an_error_is_below_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are broken at spaces, so that no command is."""
    monkeypatch.setattr(terminal.sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(terminal.shutil, "get_terminal_size", lambda _: os.terminal_size((40, 24)))
    terminal.complain("a.log: is empty", "check the path")
    assert capsys.readouterr().err == "cachedoctor: error: a.log: is empty\n  hint: check the path\n"
    terminal.complain("http://h: is an address", "test it: cachedoctor probe http://h; show its requests: proxy --to x")
    assert capsys.readouterr().err.splitlines() == [
        "cachedoctor: error: http://h: is an",
        "    address",
        "  hint: test it: cachedoctor probe",
        "          http://h",
        "        show its requests: proxy --to x",
    ]
    terminal.complain("nothing to add")
    assert capsys.readouterr().err == "cachedoctor: error: nothing to add\n"


def test_an_error_that_quotes_a_value_without_end_loses_its_middle(capsys: pytest.CaptureFixture[str]) -> None:
    path = "/x" * 2_000
    terminal.complain(f"{path}: cannot be read", "check the path")
    terminal.complain(f"settings.toml: {'word ' * 200_000}is no format", "one of text, json")
    whole, cut = capsys.readouterr().err.splitlines()
    assert whole == f"cachedoctor: error: {path}: cannot be read (hint: check the path)"
    assert len(cut) < 10_000
    assert cut.startswith("cachedoctor: error: settings.toml: word word ")
    assert " characters ...] " in cut
    assert cut.endswith("word is no format (hint: one of text, json)")
