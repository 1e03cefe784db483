"""The first screen: the benchmark counts what it should; healthy and unclear logs are called what they are."""

from __future__ import annotations

import sys

import pytest
from answered import report_of
from conftest import FIXTURES, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import first_screen

from cachedoctor.model import Account, AccountEntry, Finding, Report, Totals
from cachedoctor.report.report_view import FindingView, ReportView

RULES = ROOT / "cachedoctor/diagnosis/rules"
OF_LLAMA = ("client", "memory", "slots", "lifetime", "input")
"""Families of rules that are about requests of llama-server."""


def rows(name: str, width: int = 80) -> list[str]:
    log = FIXTURES / name
    return first_screen._page(first_screen.analysed(log), width)


@pytest.mark.parametrize(
    "log", ["cases/billing-header-hybrid/server.log", "cases/slot-contention-dense-b8672/server.log", "excerpts/B1.log",
            "vllm/vllm032_hybrid_gdn.log", "measured/sglang-kv-pressure.log"],
)  # fmt: skip
def test_the_fix_is_at_the_top_and_at_the_end(log: str) -> None:
    found = first_screen.screen(FIXTURES / log, first_screen.analysed(FIXTURES / log))
    assert found.causes
    assert (found.fix or 99) <= first_screen.FIX
    assert (found.do_now or 99) <= first_screen.FROM_END
    assert not any(found.wide.values())
    assert found.rows <= first_screen.SCREEN


def test_the_benchmark_names_what_does_not_hold() -> None:
    bad = first_screen.Screen(FIXTURES, 1, 6, None, 41, {80: ["x" * 81]})
    assert len(first_screen.missed([bad])) == 5
    assert first_screen.missed([bad._replace(fix=4, do_now=3, rows=22, wide={80: []})]) == []


def test_the_benchmark_counts_reports_that_do_not_fit_a_screen() -> None:
    fits = first_screen.Screen(FIXTURES, 1, 2, 1, 20, {80: []})
    tall = fits._replace(rows=25)
    assert first_screen.missed([fits] * 19 + [tall]) == []
    assert first_screen.missed([fits] * 18 + [tall]) == ["18 of 19 reports fit 24 rows"]


def test_a_healthy_log_shows_that_the_cache_works() -> None:
    """12,536 prompt tokens, 8,998 reused: 3,538 were computed, all of them new."""
    rules = sum(len(list(RULES.glob(f"{family}/cd*_*.py"))) for family in OF_LLAMA)
    shown = " ".join(" ".join(rows("cases/healthy-dense-b6301/server.log")).split())
    assert shown.startswith("cache works every request reused all it could: 3,538 computed tokens were new text ")
    assert (
        "slowest turn task 0: 875 ms = 869 ms prompt (2,715 tokens new, 3,124 tokens/s) + 5 ms reply (6 tokens)"
        in shown
    )
    assert shown.endswith(f"No findings. {rules} rules checked 4 requests.")


def test_a_log_that_cannot_tell_says_what_to_give() -> None:
    cold = rows("excerpts/healthy-first.log")
    assert cold[0].startswith("cannot tell   1 request, cold: the slot was empty, so nothing could be reused")
    assert any(row.startswith("to be sure    also give the lines of the next turn") for row in cold)
    shown = rows("excerpts/slot-fits.log")
    assert shown[0].startswith("cannot tell   1 request; the previous request is missing")
    assert any("the slot matches: nearly the whole prompt can be reused" in row for row in shown)
    assert any(row.startswith("to be sure    give the last two turns") for row in shown)
    assert shown[-1] == "Cannot tell. Do now: give the last two turns, or better the whole log."
    assert not any("cache works" in row for row in shown)


def report_with(open_requests: int = 0, not_placed: int = 0, **tokens: int) -> Report:
    entries = [AccountEntry(row, None, n, 1) for row, n in tokens.items()]  # type: ignore[arg-type]
    whole = Account("log", None, None, None, 4, not_placed, sum(tokens.values()), entries)
    totals = Totals(4, sum(tokens.values()), tokens.get("reused", 0), open_requests=open_requests)
    return Report("0", [], [], totals, None, [], [], [], accounts=[whole])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "key", "words"),
    [
        (report_with(reused=900, new=100), "cache works", "every request reused all it could: 100 computed tokens"),
        (
            report_with(reused=900, new=80, rounding=20),
            "cache works",
            "80 computed tokens were new text, and 20 unchanged tokens had to be recomputed too",
        ),
        (report_with(new=100), "cache works", "no request had anything to reuse: 100 computed tokens were new"),
        (report_with(reused=991, server=9), "cache works", "9 of 1,000 prompt tokens (0.9 %) were lost, too few for"),
        (report_with(reused=989, server=11), "no cause", "98.9 % reused, 1.1 % lost by the server"),
        (report_with(reused=500, undecided=500), "no cause", "50.0 % undecided"),
        (report_with(2, reused=900, new=100), "cache works", "; unknown for 2 requests"),
        (report_with(0, 3, reused=900, new=100), "cache works", "; unknown for 3 requests"),
    ],
)
def test_the_cache_works_only_where_nothing_was_lost(of: Report, key: str, words: str) -> None:
    said = ReportView(of).healthy
    assert said is not None
    assert said.key == key
    assert words in said.words


def test_the_cache_works_so_far_where_no_request_has_its_end() -> None:
    """Its last lines may be those of a request that failed later: the whole log of this one says that it did."""
    whole = (FIXTURES / "cases/rollback-failed-b8672/server.log").read_text().splitlines()
    begun = [line for line in whole if "| task 4 |" in line][:5]
    report = report_of("\n".join(begun) + "\n")
    said = ReportView(report).healthy
    assert said is not None
    assert said.key == "so far"
    assert said.words.endswith("; this log does not show the end of the request, or whether it failed")
    twice = begun + [line.replace("task 4 ", "task 9 ") for line in begun]
    several = ReportView(report_of("\n".join(twice) + "\n")).healthy
    assert several is not None
    assert several.words.endswith("; this log does not show the end of any request, or whether it failed")


def finding(**changes: object) -> Finding:
    from test_text_report import finding as made

    return made(**changes)


def test_a_claim_is_a_sentence_with_its_share() -> None:
    """What it cost is in the row of the cost; the rest of the claim with the proof."""
    totals = Totals(4, 8001, 0, 8001, prompt_ms=1474.7)
    found = finding()
    assert FindingView(found, totals).headline(200) == (
        "The prompt differs from the one before it after 58 tokens: 74 % of all prompt tokens were recomputed"
    )
    assert FindingView(found, totals).headline(80).endswith(": 74 % recomputed")
    assert FindingView(found).headline(200).endswith(": 5,912 tokens were recomputed")
    assert FindingView(found, totals).cost == "about 1.3 s of 1.5 s (5,912 of 8,001 prompt tokens), in 3 of 4 requests"
    odd = finding(claim="--x has no effect: 1,374 tokens recomputed; and more", count=1)
    assert FindingView(odd).claim == ("--x has no effect", "more")
    long = finding(claim="it is " + "long " * 40)
    assert FindingView(long, summary="In short").claim.sentence == "In short"
    assert FindingView(long).claim.sentence.startswith("It is long")
    nearly = finding(cost=found.cost.__class__(7999, None))
    assert "99 % of all" in FindingView(nearly, totals).headline(200), "almost all is not all"
