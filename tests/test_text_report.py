"""The text report: what it says, how it is laid out, and that nothing in a log can take over the terminal."""

from __future__ import annotations

import io
import re
import shlex

import pytest
from rich.cells import cell_len
from rich.style import Style

from cachedoctor.model import (
    Account,
    AccountEntry,
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
from cachedoctor.report.text import page, proof, text_finding
from cachedoctor.report.text.page import TextPage, readable
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
        Evidence("server.log", 0, 274, LINE, "primary", "common prefix with the slot's content"),
        Evidence("server.log", 0, 62, LRU, "related", "low similarity"),
    ]
    fields: dict[str, object] = {
        "code": "CD108", "name": "prefix-diverges-early", "severity": "warning", "confidence": "high",
        "claim": "the prompt differs from the one before it after 58 tokens: 5,912 tokens recomputed in 3 requests",
        "diff": None,
        "requests": [1, 2, 3], "count": 3, "evidence": evidence, "cost": Cost(5912, 1254.9),
        "why": "The slot held 2,040 tokens, and the new prompt of 2,104 shares only its first tokens with them.",
        "ruled_out": [RuledOut("swa-threshold-misfire", "all 2 checkpoints are beyond the common prefix of 58 tokens")],
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


def text(of: Report, width: int = 80, *, color: bool = False, ascii_only: bool = False, verbose: bool = False) -> str:
    out = io.StringIO()
    render(of, out, width, color=color, ascii_only=ascii_only, verbose=verbose)
    return out.getvalue()


EXPECTED = """\
The prompt differs from the one before it after 58 tokens: 74 % recomputed
fix    llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 \\
           --ctx-checkpoints 32 --swa-full -np 4
       Keep prompts in RAM.
cost   about 1.3 s of 1.5 s (5,912 of 8,001 prompt tokens), in 3 of 4 requests
proof  server.log:274
        62  ... selected slot by LRU  - low similarity
       274  ... n_past = 58, slot.prompt.tokens.size() ... = 0, pos_min = 2039
            ^ common prefix with the slot's content
why    The slot held 2,040 tokens, and the new prompt of 2,104 shares only its
       first tokens with them.
ruled out  swa-threshold-misfire
rule   warning[CD108] high confidence: cachedoctor explain CD108

server    llama.cpp b8672 · hybrid memory · 1 slot x 16,384 tokens · hybrid.gguf
traffic   4 requests, 8,001 prompt tokens, 26.1 % reused, 1.5 s of prompt time
1 cause. Do now:
  llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 \\
      --ctx-checkpoints 32 --swa-full -np 4
"""

VERBOSE = """\
The prompt differs from the one before it after 58 tokens: 74 % recomputed
fix    llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 \\
           --ctx-checkpoints 32 --swa-full -np 4
       Keep prompts in RAM.
warning[CD108] prefix-diverges-early: the prompt differs from the one before it
  after 58 tokens: 5,912 tokens recomputed in 3 requests
   --> server.log:274
      |
   62 | slot get_availabl: id  0 | task -1 | selected slot by LRU
      | - low similarity
> 274 | slot update_slots: id  0 | task 27 | n_past = 58,
      |     slot.prompt.tokens.size() = 2040, seq_id = 0, pos_min = 2039
      | ^ common prefix with the slot's content
      |
  = cost: about 1.3 s (85.1 % of all prompt time) for 5,912 tokens recomputed in
    3 requests
  = why: The slot held 2,040 tokens, and the new prompt of 2,104 shares only its
    first tokens with them.
  = confidence: high
  = ruled out: swa-threshold-misfire: all 2 checkpoints are beyond the common
    prefix of 58 tokens
  = fix: Keep prompts in RAM.
      llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 \\
          --ctx-checkpoints 32 --swa-full -np 4
  = see: https://github.com/ggml-org/llama.cpp/pull/16391
  = more: cachedoctor explain CD108

server    llama.cpp b8672 · hybrid memory · 1 slot x 16,384 tokens · hybrid.gguf
traffic   4 requests, 8,001 prompt tokens
reused    2,089 tokens (26.1 %)
computed  5,912 tokens (73.9 %) in 1.5 s
avoidable 5,912 tokens (73.9 %), 1.3 s

Not checked
  CD101 billing-header, CD102 volatile-prefix
    the log shows no text
    to check: set the variable
      X=1 llama-server ...

Read 302 lines, 193 recognised (the other lines: start-up and samplers).
1 finding: 1 warning; 2 rules could not be checked.
1 cause. Do now:
  llama-server -m /models/a-model-with-a-long-name.gguf --cache-ram 8192 \\
      --ctx-checkpoints 32 --swa-full -np 4
"""


def test_the_whole_report_at_80_columns() -> None:
    """What a reader sees, to the letter."""
    assert text(report()) == EXPECTED
    assert text(report(), verbose=True) == VERBOSE


@pytest.mark.sample(5)
@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_only_a_word_that_must_be_copied_is_wider_than_the_page(width: int, verbose: bool) -> None:
    """Words of commands, paths and addresses stay whole; all else is wrapped."""
    for row in text(eight(), width, verbose=verbose).splitlines():
        longest = max(map(cell_len, row.split()), default=0)
        assert cell_len(row) <= width or (width < 60 and longest > width - 14) or "https://" in row, row


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_a_shell_puts_a_broken_command_together_again(width: int) -> None:
    """It can be copied whatever the width is."""
    shown = text(report(), width).partition("Do now:")[2].replace("\\\n", "")  # as a shell does
    assert shlex.split(shown) == shlex.split(COMMAND)
    quoted = 'curl -d \'{"a": "x y"}\' --header "b: c d" http://localhost:8080/slots/0?action=restore'
    assert shlex.split("\n".join(text_finding.rows_of_command(quoted, 30)).replace("\\\n", "")) == shlex.split(quoted)
    assert text_finding.rows_of_command("a b # as it was " + "c " * 40, 30) == ["a b # as it was " + "c " * 40], (
        "a comment"
    )
    assert text_finding.rows_of_command("echo 'it is open " + "c " * 40, 30) == ["echo 'it is open " + "c " * 40]
    assert text_finding.rows_of_command("services:\n  llama:", 5) == ["services:", "  llama:"], "part of a file"


def eight() -> Report:
    """A report with eight findings: errors, warnings, notes."""
    found = []
    for n in range(8):
        severity = "error" if n < 2 else "warning" if n < 6 else "note"
        claim = f"thing {n} happened to the prompt: {6000 - 700 * n:,} tokens recomputed in 3 requests; and so on"
        cost = Cost(6000 - 700 * n, 1200.0 - 100 * n)
        found.append(finding(code=f"CD10{n}", name=f"cause-{n}", severity=severity, claim=claim, cost=cost))
    return report(findings=found)


@pytest.mark.parametrize(
    ("tokens", "is_shown"),
    [
        ({"new": 2000, "client": 6000}, False),  # the row of the cost says it
        ({"new": 2000, "client": 5800, "server": 200}, False),
        ({"new": 2000, "client": 4000, "server": 2000}, True),
        ({"new": 2000, "undecided": 6000}, True),
        ({"new": 8000}, False),
    ],
)
def test_the_account_is_shown_where_it_says_more_than_the_cost(tokens: dict[str, int], is_shown: bool) -> None:
    entries = [AccountEntry(row, None, n, 1) for row, n in tokens.items()]  # type: ignore[arg-type]
    accounts = [Account("log", None, None, None, 4, 0, 8000, entries)]
    assert ("\naccount " in text(report(accounts=accounts))) is is_shown
    assert "\naccount " in text(report(accounts=accounts), verbose=True)


def test_what_to_do_now_names_its_finding_where_that_is_not_the_first() -> None:
    """Nothing is to be done about the first one."""
    of = report(findings=[finding(remedies=[]), finding(code="CD109", cost=Cost(100, 1.0))])
    assert "\n2 causes. Do now, for CD109:\n" in text(of)
    assert "\n2 causes. Do now:\n" in text(report(findings=[finding(), finding(code="CD109", remedies=[])]))


def test_a_further_cause_with_the_first_fix_is_a_row() -> None:
    """Of one server, with the same command: its block would only repeat the fix."""
    same = finding(code="CD109")
    row = "\nwarning[CD109] The prompt differs from the one before it after 58 tokens: 74 % recomputed (same fix)\n"
    assert row in text(report(findings=[finding(), same]), 120)
    assert " recomputed (same fix)\n" in text(report(findings=[finding(), same]))
    for other in (
        finding(code="CD109", remedies=[Remedy("Keep more.", ["llama-server -c 8192"])]),
        finding(code="CD109", path="other.log"),
    ):
        assert "same fix" not in text(report(findings=[finding(), other]))


def test_what_was_not_checked_is_shown_where_it_may_change_the_answer() -> None:
    assert "not checked" not in text(report())
    for confidence in ("medium", "low"):  # of a further finding the confidence is said where it is not high
        further = finding(
            code="CD109", confidence=confidence, remedies=[Remedy("Keep more.", ["llama-server -c 8192"])]
        )
        assert f"\nrule   warning[CD109] prefix-diverges-early, {confidence} confidence\n" in text(
            report(findings=[finding(), further]), 160
        )
        shown = text(report(findings=[finding(confidence=confidence)]))
        assert "\nnot checked: 2 rules (the log shows no text); see cachedoctor explain blind\n" in shown
    assert "\nnot checked: 2 rules" in text(report(findings=[]))


def test_of_many_findings_there_is_a_list_and_a_few_blocks() -> None:
    """One whole, the others in a row each; of three, the others in short as well; what to do at both ends."""
    rows_ = text(eight()).splitlines()
    assert rows_[0] == "Thing 0 happened to the prompt: 75 % of all prompt tokens were recomputed"
    assert rows_[1].startswith("fix    llama-server -m /models/")
    assert rows_[-3].startswith("6 causes and 2 notes. Do now:")
    named = [row.split()[0] for row in rows_ if row.startswith(("error[", "warning[", "note["))]
    listed = ["error[CD101]", "warning[CD102]", "warning[CD103]", "warning[CD104]", "warning[CD105]"]
    assert named == [*listed, "note[CD106]", "note[CD107]"]
    assert [row.split()[1] for row in rows_ if row.startswith("rule ")] == ["error[CD100]"]
    assert sum(row.startswith("fix ") for row in rows_) == 1
    assert all(f"[CD10{n}] cause-{n}: " in text(eight(), verbose=True) for n in range(8))


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
    assert "1  slot head xxx" in out.getvalue()
    shown = text(report(findings=[finding(evidence=[line])]), verbose=True)
    assert "> 1 | slot head\n    |     xxx" in shown
    assert "the end" in shown
    assert re.search(r"\[\.\.\. 999,\d\d\d characters \.\.\.\]", shown)


def test_combining_marks_do_not_make_a_line_endless() -> None:
    """Characters without width are bounded as well."""
    assert len(cut("a" + "\u0301" * 1_000_000, 160)) < 2000


def test_one_restart_comes_after_what_it_enables() -> None:
    """Its rules have no option of their own; what it cannot enable keeps its way."""
    rules = [
        NotEvaluated("CD101", "billing-header", "the log shows no text", ENABLE),
        NotEvaluated("CD103", "tools-changed", "no prompts", "give them\ncachedoctor analyze x --requests y"),
    ]
    one = Restart("X=1 Y=2 llama-server ... -lv 4", "Prompts will stand in the log.", ["CD101"])
    out = text(report(not_evaluated=rules, restart=one), verbose=True)
    assert "to check: set the variable" not in out
    assert "    to check: give them\n      cachedoctor analyze x --requests y\n" in out
    end = "  One restart enables CD101. Prompts will stand in the log.\n      X=1 Y=2 llama-server ... -lv 4\n\nRead"
    assert end in out


def test_no_findings_says_what_was_checked() -> None:
    """Silence is not "all is well": the rules that ran are counted."""
    of = report(findings=[])
    out, blind = text(of), len(of.not_evaluated)
    checked = f"{len(of.rules) - blind} rules checked 4 requests; {blind} rules could not be checked"
    assert f"No findings. {checked}.\n" in out
    assert "nothing was checked" in text(report(findings=[], totals=Totals(), sessions=[]))


def test_faults_and_interrupts_are_in_the_report() -> None:
    """A report of half an input says so."""
    out = text(report(inputs=[InputInfo("a.gz", error="a.gz: the gzip data ends early")], interrupted=True))
    assert "\ninput     error: a.gz: the gzip data ends early\n" in out
    assert "Interrupted: this covers the part read until then.\n" in out


def test_unknown_facts_are_called_unknown() -> None:
    """A server of which nothing is known, whose requests have no lengths."""
    of = report(sessions=[Session(0, "s.log", build_min=8354, build_source="wording")], totals=Totals(2))
    out = text(of, verbose=True)
    assert "llama.cpp b8354 or newer (from its messages) · model type: not in this log" in " ".join(out.split())
    assert "· slots: not in this log\n" in out
    assert "server    llama.cpp b8354 or newer\n" in text(of)
    assert "2 requests; the log does not show the length of their prompts" in out
    assert "1 request; the log does not show the length of its prompt" in text(report(totals=Totals(1)))


@pytest.mark.parametrize(
    ("count", "expected"), [(2, "2. llama.cpp b2 "), (5, "5. llama.cpp b2 "), (6, "4 x llama.cpp b2 ")]
)
def test_many_sessions_are_summed_up(count: int, expected: str) -> None:
    """Up to five servers are listed; of more, each kind once."""
    sessions = [Session(i, "s.log", build=1 + i % 2 if i != 4 else 2, n_requests=1) for i in range(count)]
    out = text(report(sessions=sessions), verbose=True)
    assert expected in out
    assert out.count("server    ") == min(count, 5 if count < 6 else 2)


def test_a_finding_names_its_server_when_there_are_several() -> None:
    """The port of a router, else the number in the head of the report."""
    router = Session(0, "s.log", origin="8081")
    two = [report(sessions=[router, Session(1, "s.log")]), report(sessions=[Session(0, "s.log"), Session(1, "s.log")])]
    for of, name in zip(two, ("8081", "server 1"), strict=True):
        assert f"proof  server.log:274 ({name})\n" in text(of)
        assert f"--> server.log:274 ({name})\n" in text(of, verbose=True)
    out = io.StringIO()
    render_finding(finding(origin="llama-0"), out)
    assert "proof  server.log:274 (llama-0)\n" in out.getvalue(), "live, when nobody knows of others yet"


def test_what_is_not_excluded_does_not_stand_under_ruled_out() -> None:
    """It is still possible, with what leaves it open."""
    both = [RuledOut("kv-purged", "no slot was emptied"), RuledOut("tools-changed", "not excluded by this: no bodies")]
    of = report(findings=[finding(ruled_out=both)])
    assert "ruled out  kv-purged\nstill possible  tools-changed\n" in text(of)
    assert "  = ruled out: kv-purged: no slot was emptied\n" in text(of, verbose=True)
    assert "  = still possible: tools-changed: no bodies\n" in text(of, verbose=True)


def test_evidence_of_two_files_names_both() -> None:
    """A line number without its file would mislead."""
    evidence = [Evidence("b.log", 0, 3, "x", "primary", "here"), Evidence("a.log", 0, 9, "y", "related", "before")]
    of = report(findings=[finding(evidence=evidence)])
    assert " --> b.log:3\n" in text(of, verbose=True)
    assert " ::: a.log:9\n" in text(of, verbose=True)
    assert "proof  b.log:3\n       3  x\n          ^ here\nwhy" in text(of), "one file in the short form"


def test_the_token_that_changed_is_marked() -> None:
    """After the bar of a printed prompt; the caret is below it."""
    line = "0.00.868.204 W slot   operator(): id  0 | task 32 | new: ... 01.e51; cch= | ee661; cc_x=1"
    plain = proof.one_row(line, 200)
    assert plain.text[plain.start : plain.end] == "ee661;"
    tight = proof.one_row("x" * 300 + " new: ... " + "y" * 300 + " cch= | ee661; and more" * 3, 40)
    assert tight.text[tight.start : tight.end] == "ee661;"
    assert cell_len(tight.text) <= 40
    assert proof.one_row("slot a: | new b", 40).end == 0, "no printed prompt"
    out = text(report(findings=[finding(evidence=[Evidence("s.log", 0, 9, line, "primary", "it parts")])]), 120)
    row, below = out.partition("9  ")[2].split("\n")[:2]
    assert below.index("^ it parts") - len("       9  ") == row.index("ee661;")


def luminance(color: str) -> float:
    """Relative luminance of a style's colour, as WCAG has it."""
    found = Style.parse(color).color
    assert found is not None
    parts = [c / 255 for c in found.get_truecolor()]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("style", page.ALL)
def test_every_colour_can_be_read_on_black_and_on_white(style: str) -> None:
    """A contrast of 4.5, with a colour that no theme changes."""
    number = Style.parse(style).color
    assert number is not None
    assert (number.number or 0) >= 16
    assert (luminance(style) + 0.05) / 0.05 >= 4.5
    assert 1.05 / (luminance(style) + 0.05) >= 4.5


@pytest.mark.parametrize("name", ["red", "green", "yellow", "blue", "cyan", "magenta", "dim"])
def test_a_colour_that_a_theme_decides_reaches_no_terminal(name: str) -> None:
    """What stands for it can be read, too; this holds for every command that writes a page."""
    out = io.StringIO()
    TextPage(out, 80, color=True).row(("words", f"bold {name}"))
    assert re.fullmatch(r"\x1b\[1;38;5;\d+mwords\x1b\[0m\n", out.getvalue())
    assert readable(name) in {word for style in page.ALL for word in style.split()}


def test_no_colour_is_used_that_is_not_in_the_palette() -> None:
    """Of everything that the text formats write."""
    shown = text(eight(), color=True) + text(eight(), color=True, verbose=True)
    used = set(re.findall(r"38;5;(\d+)", shown))
    known = {str(found.number) for style in page.ALL if (found := Style.parse(style).color) is not None}
    assert used
    assert used <= known
    assert not re.search(r"\x1b\[(?:[\d;]*;)?(?:3[0-7]|4\d|9[0-7])(?:;\d+)*m", re.sub(r"38;5;\d+", "", shown))


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
    """Letters of any script, accents and wide characters are not danger."""
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
    out = text(report(not_evaluated=rules), 200, verbose=True).splitlines()
    assert max(len(row) for row in out if "a-rule-with" in row) > 150
    assert max(len(row) for row in out if "why why" in row) <= 100
