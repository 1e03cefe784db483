"""One line per finding: for grep, and live for scripts."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import FIRST, LOG, PATIENCE, SECOND, run, start
from conftest import CASES

from cachedoctor.cli import live
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Cost, Evidence, Finding, InputInfo, Report, Session, Totals
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance
from cachedoctor.report.text import concise
from cachedoctor.report.wire.stored import StoredRequests

LOOK = Appearance(20)
CASE = next(case for case in CASES if case.name == "billing-header-hybrid") / "server.log"


def found(**changes: object) -> Finding:
    evidence = [Evidence("b.log", 0, 9, "x", "related", ""), Evidence("a.log", 0, 7, "y", "primary", "")]
    fields: dict[str, object] = {
        "code": "CD108", "name": "a-name", "severity": "warning", "confidence": "low", "claim": "it was so",
        "requests": [1], "count": 1, "evidence": evidence, "cost": Cost(5, 1500.0), "why": "", "ruled_out": [],
        "diff": None, "remedies": [], "references": [],
    }  # fmt: skip
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def lines(*findings: Finding, look: Appearance = LOOK, paths: tuple[str, ...] = ("a.log",)) -> str:
    report = Report("0", [InputInfo(p) for p in paths], [], Totals(), StoredRequests([]), list(findings), [], [])
    out = io.BytesIO()
    concise.write(sanitize.report(report), out, look)
    return out.getvalue().decode(look.encoding)


@pytest.mark.sweep
def test_a_real_log() -> None:
    """The line of the log, and nothing of its own; however narrow the terminal is."""
    done = run("analyze", CASE, "-f", "concise", "--width", "20")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == (
        f"{CASE}:344: warning[CD101] billing-header: Claude Code's billing header changes between requests (cch): "
        "5,912 tokens recomputed in 3 requests; only the first 58 of 2,104 tokens matched (636 ms, confidence high); "
        "fix: export CLAUDE_CODE_ATTRIBUTION_HEADER=0\n"
    )


@pytest.mark.sweep
def test_nothing_is_printed_without_a_finding(tmp_path: Path) -> None:
    """And the status is that of any format."""
    (tmp_path / "server.log").write_text(FIRST)
    done = run("analyze", tmp_path / "server.log", "-f", "concise", "--fail-on", "note")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    target = tmp_path / "findings"
    target.write_text("those of yesterday")
    assert run("analyze", tmp_path / "server.log", "-f", "concise", "-o", target).returncode == 0
    assert target.read_bytes() == b""


@pytest.mark.sweep
def test_fail_on_and_colours(log: Path) -> None:
    assert run("analyze", log, "-f", "concise", "--fail-on", "warning").returncode == 1
    assert b"\x1b" not in run("analyze", log, "-f", "concise").stdout
    colored = run("analyze", log, "-f", "concise", "--color", "always").stdout
    assert re.search(rb"\x1b\[1;38;5;\d+mwarning\[CD101\]\x1b\[0m billing-header: ", colored)


def test_the_line_that_proves_it_is_named_and_the_time_where_it_is_known() -> None:
    assert lines(found()) == "a.log:7: warning[CD108] a-name: it was so (1.5 s, confidence low)\n"
    assert lines(found(cost=Cost(5, None))).endswith(": it was so (confidence low)\n")
    stdin = [Evidence("-", 0, 3, "x", "primary", "")]
    assert lines(found(evidence=stdin)).startswith("<stdin>:3: warning")


def test_without_a_line_the_input_is_named() -> None:
    """The one that the claim names, which need not say it twice; the first where it names none."""
    bare = found(evidence=[], cost=Cost(0, None))
    assert lines(bare, paths=("a.log", "b.log")) == "a.log: warning[CD108] a-name: it was so (confidence low)\n"
    named = found(evidence=[], cost=Cost(0, None), claim="b.log: no line is known")
    assert lines(named, paths=("a.log", "b.log")).startswith("b.log: warning[CD108] a-name: no line is known (")
    assert lines(named, paths=()).startswith("warning[CD108] a-name: b.log: no line is known (")


def session(index: int, origin: str | None) -> Session:
    return Session(index, "a.log", origin)


def servers(*origins: str | None, **changes: object) -> str:
    """The line of a finding of the first of these servers."""
    report = Report("0", [InputInfo("a.log")], [], Totals(), StoredRequests([]), [found(**changes)], [], [])
    report.sessions = [session(index, origin) for index, origin in enumerate(origins)]
    out = io.BytesIO()
    concise.write(sanitize.report(report), out, LOOK)
    return out.getvalue().decode(LOOK.encoding)


def test_the_server_is_named_where_there_are_several() -> None:
    """As in the text report: what the wrapper calls it, else its number; editors still find the line in front."""
    assert servers("gpu1", "gpu2") == "a.log:7: warning[CD108] a-name: it was so (gpu1, 1.5 s, confidence low)\n"
    assert servers(None, "gpu2").endswith("(server 1, 1.5 s, confidence low)\n")
    assert servers("gpu1").endswith("it was so (1.5 s, confidence low)\n")
    of_none = servers("gpu1", "gpu2", evidence=[], origin="gpu2", cost=Cost(5, None))
    assert of_none == "a.log: warning[CD108] a-name: it was so (gpu2, confidence low)\n"
    assert "\x1b" not in servers("gpu\x1b[1m", "gpu2")


def test_a_live_line_names_the_server_that_its_wrapper_names() -> None:
    assert concise.line(found(origin="gpu1"), LOOK).endswith(b"it was so (gpu1, 1.5 s, confidence low)\n")
    assert concise.line(found(), LOOK).endswith(b"it was so (1.5 s, confidence low)\n")


def test_a_hostile_finding_is_one_harmless_line() -> None:
    evil = "a\n\x1b]0;x\x07\r\u202e[bold]é sk-ant-api03-0123456789abcdefghij"
    line = lines(found(claim=evil, evidence=[Evidence(evil, 0, 1, evil, "primary", evil)]))
    assert line.count("\n") == 1
    assert all(c.isprintable() for c in line[:-1])
    assert "a\\x0a\\x1b]0;x\\x07\\x0d\\u202e[bold]é" in line
    assert "0123456789abcdefghij" not in line.split("warning")[1]
    assert lines(found(claim="é·"), look=Appearance(20, ascii_only=True, encoding="ascii")).isascii()


# ---- live


def test_live_lines_wait_for_a_silence_and_only_what_changed_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished log that is piped in gives each finding once; a live one at once, and again with other numbers."""
    clock, out, shown = [50.0], io.BytesIO(), []
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sink = SimpleNamespace(writing=lambda: contextlib.nullcontext(out))
    printer = live.Live(sink, LOOK, "concise", before=lambda: shown.append(out.tell()))
    analyzer = Analyzer()
    analyzer.open("-")
    analyzer.feed(FIRST.encode() + SECOND.encode())
    printer.step(analyzer.idle(), False, analyzer.findings)
    clock[0] += 60
    printer.step([], False, analyzer.findings)
    assert (out.getvalue(), shown) == (b"", [])
    printer.step([], True, analyzer.findings)
    first = out.getvalue()
    assert first.startswith(b"<stdin>:17: warning[CD101] billing-header: ")
    assert (first.count(b"\n"), shown) == (1, [0])
    assert b" 1,900 tokens recomputed in 1 request;" in first
    printer.end(analyzer.finish(), out)
    assert out.getvalue() == first  # nothing changed since

    again = SECOND.replace("task 9 ", "task 19 ").replace("b791f", "0ed9c").replace("| 0ed9c;\n0", "| 11111;\n0")
    analyzer = Analyzer()
    analyzer.open("-")
    analyzer.feed((FIRST + SECOND + again).encode())
    printer.end(analyzer.finish(), out)
    changed = out.getvalue().removeprefix(first)
    assert changed.count(b"warning[CD101]") == 1
    assert b" tokens recomputed in 2 requests;" in changed


def test_a_pipe_that_pauses() -> None:
    """The line is there before the end of the input."""
    with start("analyze", "-f", "concise", stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(LOG)
        process.stdin.flush()
        line = process.stdout.readline()
        process.stdin.close()
        rest = process.stdout.read()
    assert b": warning[CD101] billing-header: " in line
    assert (rest, process.wait(PATIENCE)) == (b"", 0)


@pytest.mark.sweep
def test_from_a_stored_report(log: Path, tmp_path: Path) -> None:
    stored = tmp_path / "report.json"
    run("analyze", log, "-f", "json", "-o", stored)
    assert run("analyze", stored, "-f", "concise").stdout == run("analyze", log, "-f", "concise").stdout != b""
