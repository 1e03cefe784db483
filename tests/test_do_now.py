"""What to do first: the launcher's form, what fixes before what looks, a suspicion is checked; fleets said once."""

from __future__ import annotations

import io
import re
import sys

import msgspec
import pytest
from answered import report_of
from conftest import FIXTURES, ROOT
from reports import written
from test_text_report import finding

sys.path.insert(0, str(ROOT / "benchmarks"))
import first_screen

from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
from cachedoctor.model import Cost, Finding, Launcher, OptionChange, Remedy, Report, RuledOut, Session, Totals
from cachedoctor.redaction import sanitize
from cachedoctor.report.report_view import ReportView
from cachedoctor.report.text import text_finding
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.text.text_report import render
from cachedoctor.report.words import do_now

LOOK = Remedy("Look at it.", ["cachedoctor explain CD108"], purpose="look")
MORE = Remedy("Give it more.", options=[OptionChange("--cache-ram", "8192")])


def rows(name: str, launcher: Launcher | None = None, width: int = 80) -> list[str]:
    found = first_screen.found_in(FIXTURES / name)
    return first_screen._page(
        sanitize.report(found) if launcher is None else first_screen.launched(found, launcher), width
    )


ACTIONS = ("Give", "If", "Keep", "LM Studio has no", "Raise", "Set", "Start", "Try", "With")
"""How what can be set in a program begins: with the action or its condition, or with what cannot be set."""


def test_what_to_do_now_is_an_action() -> None:
    assert rows("measured/koboldcpp-window.log")[-2].startswith("1 cause. Do now: Start without --useswa")
    for words in (*own_settings._ROOM.values(), *(remedy for _, remedy in own_settings.BACK.values())):
        assert words.startswith(ACTIONS), words


@pytest.mark.parametrize(
    ("checks", "words"),
    [(1, "(it covers 2,422 tokens)"), (2, "(the lowest covers 2,422 tokens)")],
    ids=["one", "two"],
)
def test_one_checkpoint_has_no_lowest_one(checks: int, words: str) -> None:
    log = (FIXTURES / "days/hybrid-rag_shuffled-b9713-lv4/server.log").read_text()
    row = next(row for row in log.splitlines(True) if "[2421, 2421] against 1071" in row)
    why = next(f.why for f in report_of(log.replace(row, row * checks)).findings if f.code == "CD201")
    assert words in why


def test_bare_options_say_where_they_belong() -> None:
    shown = rows("cases/checkpoints-disabled-hybrid/server.log")
    at = shown.index("fix    --ctx-checkpoints 32")
    assert shown[at + 1].startswith("       Add this option to the llama-server command. ")
    assert any("--launcher compose" in row for row in shown)
    assert shown[-1].endswith("Do now: start llama-server with --ctx-checkpoints 32")


@pytest.mark.parametrize(
    ("launcher", "change", "last"),
    [
        ("compose", '           LLAMA_ARG_CTX_CHECKPOINTS: "32"', "make the change above, then docker compose up -d"),
        ("systemd", "         Environment=LLAMA_ARG_CTX_CHECKPOINTS=32", "systemctl restart llama-server"),
        ("kubernetes", "           - name: LLAMA_ARG_CTX_CHECKPOINTS", "llama-server starts with --ctx-checkpoints 32"),
        ("docker", "fix    add to docker run, before the image: -e LLAMA_ARG_CTX_CHECKPOINTS=32",
         "start the container with -e LLAMA_ARG_CTX_CHECKPOINTS=32"),
    ],
)  # fmt: skip
def test_the_change_has_the_form_of_the_launcher(launcher: Launcher, change: str, last: str) -> None:
    shown = rows("cases/checkpoints-disabled-hybrid/server.log", launcher)
    assert change in shown
    assert " ".join(" ".join(shown[-3:]).split()).endswith(last)
    assert not any("--launcher" in row for row in shown), "no hint where it is known"


def test_what_cannot_be_set_there_is_not_told_to_be_done() -> None:
    """What ollama's llama-server does not read from its environment; an option with a variable it does."""
    found = finding(remedies=[Remedy("Match more.", options=[OptionChange("--slot-prompt-similarity", "0.5")])])
    fix = fixes([found], [Session(0, "server.log", build=8672)], [], StartInfo("ollama"))
    (one,) = fix
    cannot = do_now.of_finding(found, one)
    assert cannot is not None
    assert (cannot.kind, cannot.text) == ("no fix", "Ollama has no setting for --slot-prompt-similarity 0.5")
    shown = rows("cases/cache-ram-evicts-b9294/server.log", "ollama")
    assert shown[-2:] == [
        "1 cause. Do now: in the environment of ollama serve, then restart ollama:", "  export LLAMA_ARG_CACHE_RAM=256"
    ]  # fmt: skip


def lm_studio(name: str, begin: str = "") -> Report:
    """A log of a case as LM Studio's developer log has it, from the first line on that holds ``begin``."""
    lines = (FIXTURES / "cases" / name / "server.log").read_text("utf-8").splitlines()
    lines = lines[next(at for at, line in enumerate(lines) if begin in line) :]
    return report_of("".join(f"2026-07-04 14:15:37 [DEBUG]\n{line}\n" for line in lines))


def text_of(report: Report) -> list[str]:
    out = io.StringIO()
    render(sanitize.report(report), out)
    return out.getvalue().splitlines()


def test_a_healthy_paste_reads_healthy() -> None:
    """It begins inside a request, which is told, and not what to do first; a lost reuse still comes first."""
    report = lm_studio("healthy-hybrid-b9294", "created context checkpoint 3")
    assert [found.code for found in report.findings] == ["CD902"]
    shown = text_of(report)
    assert shown[0].startswith("cache works   every request reused all it could")
    assert "1 request is incomplete in this log" in " ".join(" ".join(shown[:3]).split())
    assert not any("Do now" in row or "server.log" in row for row in shown)
    assert " ".join(shown[-2:]).startswith("No cause found. ")
    assert "No cause found" in written("html", report).decode()
    assert written("markdown", report).decode().startswith("## llama-server: no cause found\n")
    ill = text_of(lm_studio("billing-header-without-text", "n_tokens = 1901"))
    assert "recomputed" in ill[0]
    assert "Do now" in " ".join(ill[-2:])


def test_rows_of_a_file_are_rows_in_what_the_page_copies() -> None:
    """Their ends are not control characters to be shown."""
    found = first_screen.found_in(FIXTURES / "cases/cache-ram-evicts-b9294/server.log")
    found.fix = fixes(found.findings, found.sessions, found.inputs, StartInfo("compose"))
    page = written("html", found).decode()
    assert "<code data-copy>environment:\n  LLAMA_ARG_CACHE_RAM: &#34;256&#34;</code>" in page
    assert "\\x0a" not in page


def test_lines_that_are_not_messages_are_counted() -> None:
    """Only where they are more than those that are known."""
    shown = text_of(lm_studio("healthy-hybrid-b9294"))
    (read,) = (row for row in shown if row.startswith("read "))
    lines, known = (int(number) for number in re.findall(r"\d+", read))
    assert lines == 186
    assert known < 93, "every record begins with a row of its own"
    assert read.endswith("recognised (the other lines: dates on separate rows)")
    assert not any(row.startswith("read ") for row in rows("cases/healthy-hybrid-b9294/server.log"))
    whole = report_of((FIXTURES / "excerpts/healthy-append-b11549.log").read_bytes())
    assert not any(row.startswith("read ") for row in text_of(whole))


def test_the_page_of_a_measured_server_is_headed_by_its_claim() -> None:
    """A note, which claims no cause, stays below the hit rate."""

    def head(name: str) -> str:
        page = written("html", first_screen.found_in(FIXTURES / name)).decode()
        return page.partition('<h1 id="headline">')[2].partition("</p>")[0].replace("&nbsp;", " ")

    claimed = head("vllm/vllm032_hybrid_gdn.log")
    assert claimed.startswith("Prompts share less than a block, and only whole blocks are reused</h1>")
    assert "Hit rates were from 0.0 % to 86.9 % at the end. The log has measurements" in claimed
    assert head("measured/vllm-client-billing-header.log").startswith("The hit rate was 0.6 % at the end</h1>")


def test_the_page_claims_the_main_cause_once() -> None:
    """Beside it stands why; what is not a cause does not be there."""
    page = written("html", first_screen.found_in(FIXTURES / "cases/billing-header-hybrid/server.log")).decode()
    cause = page.partition('<div class="cause" id="cause">')[2].partition("</section>")[0]
    assert cause.count("billing header changes between requests") == 1
    assert "Only the first 58 of 2,104 tokens matched. Claude Code puts x-anthropic-billing-header" in cause
    healthy = written("html", lm_studio("healthy-hybrid-b9294", "created context checkpoint 3")).decode()
    assert '<div class="cause"' not in healthy


def test_nobody_is_told_to_set_what_lm_studio_has_not() -> None:
    """The client comes first, then what LM Studio shows of the prompts; started from a shell it is the variable."""
    shown = text_of(lm_studio("billing-header-without-text"))
    assert shown[1:4] == [
        "try    export CLAUDE_CODE_ATTRIBUTION_HEADER=0",
        "       PowerShell: $env:CLAUDE_CODE_ATTRIBUTION_HEADER = '0'",
        "       With Claude Code, first rule out its billing header.",
    ]  # fmt: skip
    assert "to be sure  lms log stream --source model --filter input" in shown
    assert shown[-1].endswith("Do now: with Claude Code: export CLAUDE_CODE_ATTRIBUTION_HEADER=0")
    assert not any("restart" in row or "LLAMA_" in row or "-lv" in row for row in shown)
    alone = rows("cases/billing-header-without-text/server.log")
    assert alone[1] == "try    export CLAUDE_CODE_ATTRIBUTION_HEADER=0"


def test_a_second_way_has_the_form_of_the_launcher() -> None:
    """Bare options only where nobody knows what starts the server."""
    found, out = first_screen.found_in(FIXTURES / "cases/cache-ram-evicts-b9294/server.log"), io.StringIO()
    text_finding.first(TextPage(out, 80), ReportView(first_screen.launched(found, "compose")).causes[0])
    shown = out.getvalue().splitlines()
    at = shown.index("or     compose.yaml, at the service:")
    assert shown[at + 1 : at + 4] == [
        "         environment:", '           LLAMA_ARG_N_PARALLEL: "4"', '           LLAMA_ARG_CTX_SIZE: "65536"',
    ]  # fmt: skip
    assert "or     --parallel 4 --ctx-size 65536" in rows("cases/cache-ram-evicts-b9294/server.log", width=160)
    seen = rows("cases/billing-header-without-text/server.log", "systemd")
    assert "         Environment=LLAMA_SERVER_SLOTS_DEBUG=1" in seen


def of(confidence: str, *remedies: Remedy) -> do_now.DoNow:
    found = do_now.of_finding(finding(confidence=confidence, remedies=list(remedies)))
    assert found is not None
    return found


def test_what_fixes_it_comes_before_what_looks() -> None:
    assert of("medium", LOOK, MORE).commands == ["--cache-ram 8192"]
    assert of("medium", LOOK).kind == "to be sure"
    assert of("high", Remedy("It depends.", purpose="depends")).kind == "try"


def test_a_suspicion_gets_no_memory_before_it_is_checked() -> None:
    assert of("low", MORE, LOOK).commands == LOOK.commands
    alone = of("low", MORE)
    assert (alone.kind, alone.commands) == ("to be sure", ["cachedoctor explain CD108"])
    assert of("low", MORE, Remedy("Or tell the client.")).text == "Tell the client."


def fleet() -> Report:
    """Three servers: two have the same cause, and one another one."""
    servers = [("a.log", None), ("b.log", None), ("pods.log", "vllm-1")]
    found = [
        finding(path=path, origin=origin, count=n, cost=Cost(n * 100, n * 2.0, "mean"), code=code)
        for (path, origin), n, code in zip(servers, (1, 3, 2), ("CD108", "CD108", "CD503"), strict=True)
    ]
    sessions = [Session(at, path, origin) for at, (path, origin) in enumerate(servers)]
    return Report("0", [], sessions, Totals(10, 1000), None, found, [], [])  # type: ignore[arg-type]


def test_one_cause_on_many_servers_is_said_once() -> None:
    report = fleet()
    both, other = ReportView(report).causes
    assert both.servers == "2 of 3 servers: b.log, a.log", "the costliest first"
    assert both.first.path == "b.log"
    assert (both.finding.count, both.finding.cost.tokens, both.finding.cost.ms) == (4, 400, 8.0)
    assert (other.servers, other.finding) == ("1 of 3 servers: vllm-1", report.findings[2])
    report.findings = [report.findings[0], msgspec.structs.replace(report.findings[0], key="another")]
    assert len(ReportView(report).causes) == 2, "two causes of one server stay two"


def test_what_many_lose_together_comes_before_what_one_loses() -> None:
    report = fleet()
    report.findings = [report.findings[2], report.findings[0], report.findings[1]]
    report.findings[0].cost = Cost(350, None)
    assert [one.finding.code for one in ReportView(report).causes] == ["CD108", "CD503"]


def test_a_part_of_the_times_is_not_a_sum() -> None:
    report = fleet()
    report.findings[0].cost = Cost(100, None)
    assert ReportView(report).causes[0].finding.cost.ms is None


def test_every_server_is_called_so() -> None:
    report = fleet()
    report.findings[2].code = "CD108"
    (one,) = ReportView(report).causes
    assert one.servers == "all 3 servers: b.log, vllm-1, a.log"
    assert one.many == "all 3 servers"


def test_what_looks_alike_is_named_where_nothing_can_be_checked() -> None:
    found: Finding = finding(confidence="low", remedies=[MORE], still_possible=[RuledOut("log-cut", "it may be")])
    said = do_now.of_finding(found)
    assert said is not None
    assert said.text == "First rule out similar causes (log-cut)."


def test_what_is_known_comes_before_a_suspicion_that_costs_more() -> None:
    """In real logs: of two warnings, or of two notes, the first one to act on leads the report."""
    for case, code in (("swa-threshold-misfire-b8672", "CD205"), ("history-truncated-hybrid-b6900", "CD201")):
        view = ReportView(report_of((FIXTURES / "cases" / case / "server.log").read_bytes()))
        first, second = (one.finding for one in view.causes[:2])
        assert (first.code, first.confidence, second.confidence) == (code, "high", "low")
        assert second.cost.tokens > first.cost.tokens
        assert view.first_to_do is view.causes[0]
        assert view.next_step_of == ""
