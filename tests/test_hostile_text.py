"""Text that wants to be more than text: shown visibly on every output path, executed nowhere, believed nowhere."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from command import DIFF, FIRST, SIMILARITY, TURN, run
from conftest import report_of

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.explain.explain import explain
from cachedoctor.doctor.tables.tables import request_rows, write
from cachedoctor.prompts import compare_prompts, inputs
from cachedoctor.prompts.tokenizers import base
from cachedoctor.redaction import sanitize
from cachedoctor.report.tables.columns import REQUESTS
from cachedoctor.report.text import diff_text, explain_text, text_report
from cachedoctor.report.wire import diff_v1, line_v1, report_v1

PAYLOADS = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil.example/\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "clear": "\x1b[2J\x1b[1;1H\x1bc",
    "c1": "\x9b31m \x9d0;t\x9c \x85 \x90q\x9c",
    "backspace": "safe\x08\x08\x08\x08evil\x7f\x0b\x0c\r over",
    "bidi": "a\u202egnp.exe\u202c \u2066x\u2069 \u061c\u200f",
    "zero-width": "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg\u034fh",
    "wide": "e" + "\u0301" * 300 + "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 40,
    "tags": "x\U000e0041\U000e0042\U000e007f \ufe0f\U000e0100",
    "lines": "a\u2028b\u2029c\u0085d",
    "markup": "[bold]loud[/bold] [link=http://evil.example]x[/link] [/] [red",
    "html": "</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;",
    "formula": "=cmd|' /C calc'!A0",
    "markdown": "![x](http://evil.example) `rm -rf /` | a | b |\\| ::error::x ##[error]",
    "template": "{{ 7*7 }} {% x %} ${HOME} $(id) `id` %s %n {0}",
}
ALL = pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
_CONTROL = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_INVISIBLE = re.compile("[\u034f\ufe00-\ufe0f\U000e0100-\U000e01ef]")


def harmless(out: str) -> str:
    """No character that controls a terminal, turns text around or is not seen; newlines are ours."""
    bad = {c for c in out if c != "\n" and (unicodedata.category(c) in _CONTROL or _INVISIBLE.match(c))}
    assert not bad, [hex(ord(c)) for c in bad]
    return out


def log_with(payload: str) -> str:
    """A log with a finding whose evidence, model and wrapper hold the payload."""
    diff = DIFF.format(task=9).replace("cc_entrypoint=cli", payload)
    second = TURN.format(task=9, tokens=2035, similarity=SIMILARITY.format(tokens=2035), diff=diff)
    first = FIRST.replace("/models/hybrid.gguf", f"/models/{payload.replace('/', '')}.gguf")
    return first + second


def analyzed(payload: str, path: str = "server.log") -> Analyzer:
    analyzer = Analyzer()
    analyzer.open(path)
    analyzer.feed(log_with(payload).encode())
    return analyzer


def page(render: Callable[..., None], *args: object, **look: object) -> str:
    out = io.StringIO()
    render(*args, out, **look)
    return out.getvalue()


@pytest.mark.sample(5)
@ALL
@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_text_report(payload: str, width: int) -> None:
    """At all widths, with and without ASCII, colours or not; the name of the file is hostile, too."""
    report = analyzed(payload, f"{payload}.log").finish()
    shown = harmless(page(text_report.render, report, width=width))
    assert report.findings
    assert page(text_report.render, report, width=width, ascii_only=True).isascii()
    for finding in report.findings:
        harmless(page(text_report.render_finding, finding, width=width))
    coloured = page(text_report.render, report, width=width, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == shown  # nothing but colours of our own


def test_markup_is_literal() -> None:
    """Rich would make it bold, or a link."""
    shown = page(text_report.render, analyzed("[bold]x[/bold][link=http://y]z").finish(), width=200)
    assert "[bold]x[/bold][link=http://y]z" in shown


@ALL
def test_the_json_report(payload: str) -> None:
    """What is in it is data; control characters are escaped by JSON, and the text comes back as far as it is quoted."""
    out = io.BytesIO()
    report_v1.render(sanitize.report(analyzed(payload).finish()), out)
    raw = out.getvalue()
    assert not re.search(rb"[\x00-\x09\x0b-\x1f]", raw)
    evidence = [e["text"] for f in json.loads(raw)["findings"] for e in f["evidence"]]
    plain = payload.split("\x1b")[0].split("\r")[0]  # escape sequences are taken off as wrappers are
    assert any(plain[-40:] in line for line in evidence)


@pytest.mark.sample(6)
@ALL
def test_a_line_explained(payload: str) -> None:
    line = f"slot update_slots: id  0 | task 9 | old: ... {payload} | x\nsrv x: {payload}\n"
    for answer in explain(line.encode()):
        harmless(page(explain_text.render_line, answer, width=60))
        out = io.BytesIO()
        line_v1.render(answer, out, "0")
        assert not re.search(rb"[\x00-\x09\x0b-\x1f]", out.getvalue())


@pytest.mark.sample(6)
@ALL
def test_the_difference_of_two_prompts(payload: str) -> None:
    """In the prompt, its field names and the names of files."""
    body = {"messages": [{"role": "user", "content": f"{payload} 1"}], "tools": [{"name": payload}]}
    other = {"messages": [{"role": payload[:30], "content": f"{payload} 2"}]}
    a, b = (inputs.parse(json.dumps(value).encode(), f"{payload}.json")[0] for value in (body, other))
    found = compare_prompts.compare(a, b, base.pieces(), compare_prompts.DiffOptions(full=True))
    harmless(page(diff_text.render, found, width=80))
    out = io.BytesIO()
    diff_v1.render([found], out, "0")
    assert not re.search(rb"[\x00-\x09\x0b-\x1f]", out.getvalue())
    json.loads(out.getvalue())


@pytest.mark.sweep
@ALL
@pytest.mark.parametrize("ending", [".csv", ".ndjson"])
def test_the_table_of_requests(tmp_path: Path, payload: str, ending: str) -> None:
    """The path, and what the log shows of the server; a spreadsheet must not take it for a formula."""
    report = analyzed(payload, payload).finish()
    target = tmp_path / f"t{ending}"
    with target.open("wb") as out:
        write(REQUESTS, request_rows([report]), out, "csv" if ending == ".csv" else "ndjson")
    raw = target.read_text("utf-8")
    if ending == ".csv":
        cells = [cell.strip('"') for cell in raw.split("\n")[1].split(",")]
        assert not any(cell.startswith(("=", "+", "@")) for cell in cells)
        harmless(raw)
    else:
        assert json.loads(raw.split("\n")[0])["path"] == payload


@pytest.mark.sweep
@pytest.mark.parametrize("third", range(3))
def test_errors_on_standard_error(third: int) -> None:
    """Of every command, with hostile names of files, rules and lines."""
    name = "\n".join(payload.replace("/", "_")[:25] for payload in list(PAYLOADS.values())[third::3])
    for args in (["analyze", name], ["explain", name], ["explain", "--line", name], ["diff", name, name]):
        done = run(*args)
        assert done.returncode in (2, 3)
        harmless(done.stderr.decode())
        harmless(done.stdout.decode())


def test_a_log_line_quoted_in_a_body_is_not_believed() -> None:
    """Bodies are printed as JSON: the newline in them is an escape, and the quoted line is not a line."""
    fake = "\nslot launch_slot_: id  0 | task 99 | processing task, is_child = 0\n"
    body = json.dumps({"messages": [{"role": "user", "content": fake}]})
    log = FIRST + f"0.00.400.000 D srv  log_server_r: request: {body}\n"
    assert [r["task"] for r in report_of(log)["requests"]] == [0]


def test_a_log_line_inside_another_line_is_not_believed() -> None:
    """Only the beginning of a line is read."""
    fake = "slot launch_slot_: id  0 | task 99 | processing task, is_child = 0"
    log = log_with("x").replace("01.e51;", fake).replace("b791f", f"\r{fake}")
    assert log.count(fake) == 3
    assert [r["task"] for r in report_of(log)["requests"]] == [0, 9]
