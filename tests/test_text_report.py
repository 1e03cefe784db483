"""The text report: what it says, how it is laid out, and that nothing in a log can take over the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len

from cachedoctor.model import (
    Cost,
    Evidence,
    Finding,
    InputInfo,
    NotEvaluated,
    Remedy,
    Report,
    Restart,
    RuledOut,
    RuleInfo,
    Session,
    Totals,
)
from cachedoctor.report.text.text_report import render, render_finding
from cachedoctor.report.text.text_safe import cut, rows, visible
from cachedoctor.report.words.numbers import duration, percent

COMMAND = "llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 --ctx-checkpoints 32 --swa-full -np 4"
LINE = "slot update_slots: id  0 | task 27 | n_past = 58, slot.prompt.tokens.size() = 2040, seq_id = 0, pos_min = 2039"
ENABLE = "set the variable\nX=1 llama-server ..."
LRU = "slot get_availabl: id  0 | task -1 | selected slot by LRU"
URL = "https://github.com/ggml-org/llama.cpp/pull/16391"


class _NoRequests:
    def lines(self) -> list[bytes]:
        return []


def finding(**changes: object) -> Finding:
    evidence = [
        Evidence("server.log", 0, 274, LINE, "primary", "common prefix with what the slot held"),
        Evidence("server.log", 0, 62, LRU, "related", "low similarity"),
    ]
    fields: dict[str, object] = {
        "code": "CD108", "name": "prefix-diverges-early", "severity": "warning", "confidence": "high",
        "claim": "the prompt differs from the one before it after 58 tokens: 5,912 tokens recomputed over 3 requests",
        "diff": None,
        "requests": [1, 2, 3], "count": 3, "evidence": evidence, "cost": Cost(5912, 1254.9),
        "why": "The slot held 2,040 tokens, and the new prompt of 2,104 shares only its first tokens with them.",
        "ruled_out": [RuledOut("swa-threshold-misfire", "all 2 checkpoints lie beyond the common prefix of 58 tokens")],
        "remedies": [Remedy("Keep prompts in RAM.", [COMMAND])], "references": [URL],
    }  # fmt: skip
    return Finding(**{**fields, **changes})  # type: ignore[arg-type]


def report(**changes: object) -> Report:
    session = Session(0, "server.log", build=8672, build_source="line", model="hybrid.gguf", memory="hybrid", n_slots=1,
                      n_ctx_slot=16384, last_line=302, n_requests=4)  # fmt: skip
    fields: dict[str, object] = {
        "tool_version": "0", "inputs": [InputInfo("server.log", "llama.cpp", 22369, 302, 193)], "sessions": [session],
        "totals": Totals(4, 8001, 2089, 5912, 2089 / 8001, 1474.7, 5912, 1254.9),
        "requests": _NoRequests(), "findings": [finding()],
        "not_evaluated": [NotEvaluated(f"CD10{n}", name, "the log shows no text", ENABLE)
                          for n, name in [(2, "volatile-prefix"), (1, "billing-header")]],
        "rules": [RuleInfo(f"CD{n}", "r", "s", "u") for n in range(101, 121)],
    }  # fmt: skip
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


def text(of: Report, width: int = 80, *, color: bool = False, ascii_only: bool = False) -> str:
    out = io.StringIO()
    render(of, out, width, color=color, ascii_only=ascii_only)
    return out.getvalue()


EXPECTED = f"""\
server    llama.cpp b8672 · hybrid memory · 1 slot x 16,384 tokens · hybrid.gguf
traffic   4 requests, 8,001 prompt tokens
reused    2,089 tokens (26.1 %)
computed  5,912 tokens (73.9 %) in 1.5 s
avoidable 5,912 tokens (73.9 %), 1.3 s

warning[CD108] prefix-diverges-early: the prompt differs from the one before it
  after 58 tokens: 5,912 tokens recomputed over 3 requests
   --> server.log:274
      |
   62 | slot get_availabl: id  0 | task -1 | selected slot by LRU
      | - low similarity
> 274 | slot update_slots: id  0 | task 27 | n_past = 58,
      |     slot.prompt.tokens.size() = 2040, seq_id = 0, pos_min = 2039
      | ^ common prefix with what the slot held
      |
  = cost: 5,912 tokens recomputed in 3 requests, about 1.3 s, 85.1 % of all
    prompt time
  = why: The slot held 2,040 tokens, and the new prompt of 2,104 shares only its
    first tokens with them.
  = confidence: high
  = not this: swa-threshold-misfire: all 2 checkpoints lie beyond the common
    prefix of 58 tokens
  = fix: Keep prompts in RAM.
      {COMMAND}
  = see: https://github.com/ggml-org/llama.cpp/pull/16391
  = more: cachedoctor explain CD108

Could not be evaluated
  CD101 billing-header, CD102 volatile-prefix
    the log shows no text
    to enable: set the variable
      X=1 llama-server ...

Read 302 lines, 63.9 % recognised.
1 finding: 1 warning; 2 rules could not be evaluated.
"""


def test_the_whole_report_at_80_columns() -> None:
    """What a reader sees, to the letter."""
    assert text(report()) == EXPECTED


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_only_what_must_be_copied_is_wider_than_the_page(width: int) -> None:
    """Commands, paths and addresses stay whole; all else is wrapped."""
    for row in text(report(), width).splitlines():
        longest = max(map(cell_len, row.split()), default=0)
        assert cell_len(row) <= width or row.strip() in (COMMAND, "X=1 llama-server ...") or longest > width - 12, row


def test_commands_are_never_broken() -> None:
    """A command can be copied whatever the width is."""
    assert f"\n      {COMMAND}\n" in text(report(), 20)


def test_plain_and_coloured_say_the_same() -> None:
    """Meaning is never in the colour, and without colour there is no escape code."""
    colored = text(report(), color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text(report())
    assert "\x1b" not in text(report())


def test_ascii_only() -> None:
    """An output that is not UTF-8 gets ASCII, log text included."""
    line = Evidence("server.log", 0, 1, "new: ... Grüße 日本 | ✓", "primary", "the bar")
    out = text(report(findings=[finding(evidence=[line])]), ascii_only=True)
    assert out.isascii()
    assert "Gr\\xfc\\xdfe \\u65e5\\u672c | \\u2713" in out


HOSTILE = (
    "[bold]x[/] :smile: \x1b[31mred\x1b]0;title\x07 \x9b31m a\u202eb\u200bc \r\b\t\x00\u2028 [link=file:///etc]y[/link]"
)


def test_log_text_cannot_take_over_the_terminal() -> None:
    """Markup, emoji names, escape codes, bidirectional and invisible characters are shown, never obeyed."""
    hostile = finding(
        claim=HOSTILE, why=HOSTILE, evidence=[Evidence(f"a{HOSTILE}", 0, 7, HOSTILE, "primary", HOSTILE)],
        ruled_out=[RuledOut(HOSTILE, HOSTILE)], remedies=[Remedy(HOSTILE, [HOSTILE])], references=[HOSTILE],
    )  # fmt: skip
    session = Session(0, HOSTILE, origin=HOSTILE, model=HOSTILE)
    out = text(report(
        findings=[hostile], sessions=[session, session], inputs=[InputInfo(HOSTILE, error=HOSTILE)],
        not_evaluated=[NotEvaluated(HOSTILE, HOSTILE, HOSTILE, HOSTILE)],
    ), 200)  # fmt: skip
    assert all(c.isprintable() or c == "\n" for c in out)
    assert "[bold]x[/] :smile: \\x1b[31mred\\x1b]0;title\\x07 \\x9b31m a\\u202eb\\u200bc" in out


def test_long_lines_are_cut_in_the_middle() -> None:
    """A line of a megabyte shows its head, its tail and how much is left out."""
    line = Evidence("s.log", 0, 1, "slot head " + "x" * 1_000_000 + " the end", "primary", "here")
    out = io.StringIO()
    render_finding(finding(evidence=[line]), out, 80)
    assert len(out.getvalue()) < 3000
    assert "> 1 | slot head\n    |     xxx" in out.getvalue()
    assert "the end" in out.getvalue()
    assert re.search(r"\[\.\.\. 999,\d\d\d characters \.\.\.\]", out.getvalue())


def test_combining_marks_do_not_make_a_line_endless() -> None:
    """Characters without width are bounded as well."""
    assert len(cut("a" + "\u0301" * 1_000_000, 160)) < 2000


def test_one_restart_stands_behind_what_it_enables() -> None:
    """Its rules have no option of their own; what it cannot enable keeps its way."""
    rules = [
        NotEvaluated("CD101", "billing-header", "the log shows no text", ENABLE),
        NotEvaluated("CD103", "tools-changed", "no prompts", "give them\ncachedoctor analyze x --requests y"),
    ]
    one = Restart("X=1 Y=2 llama-server ... -lv 4", "Prompts will stand in the log.", ["CD101"])
    out = text(report(not_evaluated=rules, restart=one))
    assert "to enable: set the variable" not in out
    assert "    to enable: give them\n      cachedoctor analyze x --requests y\n" in out
    end = "  One restart enables CD101. Prompts will stand in the log.\n      X=1 Y=2 llama-server ... -lv 4\n\nRead"
    assert end in out


def test_no_findings_says_what_was_checked() -> None:
    """Silence is not "all is well": the rules that ran are counted."""
    out = text(report(findings=[]))
    assert "No findings. 18 rules checked 4 requests; 2 rules could not be evaluated.\n" in out
    assert "nothing was checked" in text(report(findings=[], totals=Totals(), sessions=[]))


def test_faults_and_interrupts_are_in_the_report() -> None:
    """A report of half an input says so."""
    out = text(report(inputs=[InputInfo("a.gz", error="a.gz: the gzip data ends early")], interrupted=True))
    assert "\ninput     error: a.gz: the gzip data ends early\n" in out
    assert "Interrupted: this covers what was read until then.\n" in out


def test_unknown_facts_are_called_unknown() -> None:
    """A server of which nothing is known, whose requests have no lengths."""
    out = text(report(sessions=[Session(0, "s.log", build_min=8354, build_source="wording")], totals=Totals(2)))
    said = " ".join(out.split())
    assert "llama.cpp b8354 or newer (from its messages) · model type: not in this log · slots: not in this log" in said
    assert "2 requests; the log does not say how long their prompts were" in out
    assert "1 request; the log does not say how long its prompt was" in text(report(totals=Totals(1)))


@pytest.mark.parametrize(
    ("count", "expected"), [(2, "2. llama.cpp b2 "), (5, "5. llama.cpp b2 "), (6, "4 x llama.cpp b2 ")]
)
def test_many_sessions_are_summed_up(count: int, expected: str) -> None:
    """Up to five servers are listed; of more, each kind once."""
    sessions = [Session(i, "s.log", build=1 + i % 2 if i != 4 else 2, n_requests=1) for i in range(count)]
    out = text(report(sessions=sessions))
    assert expected in out
    assert out.count("server    ") == min(count, 5 if count < 6 else 2)


def test_a_finding_names_its_server_when_there_are_several() -> None:
    """The port of a router, else the number in the head of the report."""
    router = Session(0, "s.log", origin="8081")
    assert "--> server.log:274 (8081)\n" in text(report(sessions=[router, Session(1, "s.log")]))
    assert "--> server.log:274 (server 1)\n" in text(report(sessions=[Session(0, "s.log"), Session(1, "s.log")]))
    out = io.StringIO()
    render_finding(finding(origin="llama-0"), out)
    assert "--> server.log:274 (llama-0)\n" in out.getvalue(), "live, when nobody knows of others yet"


def test_evidence_of_two_files_names_both() -> None:
    """A line number without its file would mislead."""
    evidence = [Evidence("b.log", 0, 3, "x", "primary", "here"), Evidence("a.log", 0, 9, "y", "related", "before")]
    out = io.StringIO()
    render_finding(finding(evidence=evidence), out)
    assert " --> b.log:3\n" in out.getvalue()
    assert " ::: a.log:9\n" in out.getvalue()


@pytest.mark.parametrize(
    ("ms", "expected"),
    [(0, "0 ms"), (999.4, "999 ms"), (999.6, "1.0 s"), (59_949, "59.9 s"), (59_951, "1 min 00 s"),
     (680_000, "11 min 20 s"), (3_599_600, "1 h 00 min"), (360_000_000, "100 h 00 min")],
)  # fmt: skip
def test_durations(ms: float, expected: str) -> None:
    """Every time in the unit that fits it."""
    assert duration(ms) == expected


@pytest.mark.parametrize(
    ("part", "expected"), [(0, "0 %"), (1, "< 0.1 %"), (5000, "50.0 %"), (9999, "> 99.9 %"), (10_000, "100 %")]
)
def test_shares(part: int, expected: str) -> None:
    """Almost all is not all."""
    assert percent(part, 10_000) == expected


def test_visible_leaves_readable_text_alone() -> None:
    """Letters of any script, accents and wide characters are no danger."""
    assert visible("Grüße, 日本語, e\u0301, ✓ C:\\x") == "Grüße, 日本語, e\u0301, ✓ C:\\x"


def test_rows_keep_runs_of_spaces() -> None:
    """A log line is quoted, not reformatted."""
    assert rows("id  0 |  task 27 | x", 12, 12) == ["id  0 |", "task 27 | x"]
    assert rows("日本語日本語", 4, 4, fold=True) == ["日本", "語日", "本語"]
    assert rows("", 4, 4) == [""]


def test_a_number_and_its_per_cent_sign_stay_on_one_row() -> None:
    assert rows("the slot held 96.9 % of it", 18, 18) == ["the slot held", "96.9 % of it"]
    assert rows("a printf of 5 %d bytes", 13, 13) == ["a printf of 5", "%d bytes"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it took 1,475 ms in all", ["it took", "1,475 ms in", "all"]),
        ("all of 12 requests", ["all of", "12 requests"]),
        ("the CD106 cut-off one", ["the CD106", "cut-off one"]),  # 13 cells are too many for one row
        ("and CD101 early", ["and", "CD101 early"]),
        ("from 5 x 4 tokens", ["from 5 x", "4 tokens"]),
    ],
)
def test_a_number_and_its_noun_stay_on_one_row_where_there_is_room(text: str, expected: list[str]) -> None:
    assert rows(text, 11, 11) == expected


def test_a_bar_of_a_log_line_begins_no_row() -> None:
    """There it would look like the edge of the excerpt."""
    assert rows("task 32 | old: ... cch= | 0ed9c;", 12, 12, fold=True) == ["task 32 |", "old: ...", "cch= |", "0ed9c;"]


def test_facts_are_as_wide_as_the_page_and_sentences_are_not() -> None:
    """A list of facts is scanned, a sentence is read."""
    rules = [NotEvaluated(f"CD{n}", "a-rule-with-a-rather-long-name", "why " * 60, "x") for n in range(100, 108)]
    out = text(report(not_evaluated=rules), 200).splitlines()
    assert max(len(row) for row in out if "a-rule-with" in row) > 150
    assert max(len(row) for row in out if "why why" in row) <= 100
