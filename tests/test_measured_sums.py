"""Reuse of servers without requests, over many of them and before and after a change: sums by hand, sure or not."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from command import one_line, run
from conftest import FIXTURES, ROOT
from measured_reports import COUNTERS, GivenRows, intervals, report, sglang, vllm
from test_measured_formats import STATS

from cachedoctor.doctor.compare import tally
from cachedoctor.doctor.compare.compare import compare
from cachedoctor.doctor.compare.metrics import by_session, read_measured, runs
from cachedoctor.doctor.compare.tally import RatioTerms
from cachedoctor.doctor.tables.statistics import MeasuredSums
from cachedoctor.model import Answer, Answers, CacheSample, Comparison, Counters, Report

STATS_SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/stats-v1.schema.json").read_text("utf-8"))
)
COMPARE_SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/compare-v1.schema.json").read_text("utf-8"))
)
LLAMA_LOG = FIXTURES / "cases" / "billing-header-hybrid" / "server.log"


def answered(*pairs: tuple[int | None, int | None]) -> Report:
    """A vLLM server with these responses: prompt and reused tokens."""
    each = [Answer(prompt, cached) for prompt, cached in pairs]
    return report(vllm(periods=[], answers=[Answers("usage.jsonl", "responses", len(each), each=each)]))


def only(found: list[object] | None) -> object:
    assert found is not None
    assert len(found) == 1
    return found[0]


# ---- pieces


def test_prefill_batches_are_summed_and_neighbours_put_together() -> None:
    """0 of 8,192, 0 of 1,000 and 9,152 of 9,280 tokens; three are put together by one (3 ** (1/3) = 1.44)."""
    assert only(read_measured(report(sglang()))) == (
        "batch", 3, [RatioTerms(0, 8192), RatioTerms(0, 1000), RatioTerms(9152, 9280)],
    )  # fmt: skip


def test_neighbours_are_put_together_by_the_cube_root() -> None:
    found = runs([RatioTerms(at, 10) for at in range(27)])
    assert len(found) == 9
    assert found[0] == RatioTerms(0 + 1 + 2, 30)


def test_intervals_tell_tokens_where_the_rate_gives_them_and_else_the_last_rate() -> None:
    """1,000 tokens looked up of which 400 were computed; a rounding that gives more computed than looked up is 0."""
    rows = GivenRows([
        CacheSample(0, "vllm.log", 40, looked_up_tokens=1000, computed_tokens=400),
        CacheSample(0, "vllm.log", 50, looked_up_tokens=100, computed_tokens=103),
        CacheSample(0, "vllm.log", 60, computed_tokens=500),
    ])  # fmt: skip
    told = report(vllm(), samples=rows)
    assert only(read_measured(told)) == ("interval", 2, [RatioTerms(600, 1000), RatioTerms(0, 100)])
    assert only(read_measured(report(vllm()))) == ("rate", 1, [RatioTerms(0.91, 1)])
    assert read_measured(report(vllm(periods=[intervals(busy=0)]))) is None


def test_what_gives_an_interval_comes_before_what_is_more_exact() -> None:
    """One period of /metrics gives none; five responses, five runs, do. Of all that give one the most exact counts."""
    five = Answers("usage.jsonl", "responses", 5, each=[Answer(100, 10 * n) for n in range(5)])
    assert [m.piece for m in read_measured(report(vllm(counters=[COUNTERS], answers=[five]))) or []] == ["response"]
    assert [m.piece for m in read_measured(report(vllm(counters=[COUNTERS]))) or []] == ["metrics"]
    both = read_measured(report(vllm(counters=[COUNTERS], answers=[five])), report(vllm(counters=[COUNTERS])))
    assert [m.piece for m in both or []] == ["metrics", "metrics"]


def test_a_response_that_does_not_say_what_was_reused_is_not_a_zero() -> None:
    assert only(read_measured(answered((100, 40), (200, None), (None, None)))) == ("response", 1, [RatioTerms(40, 100)])


def test_counters_of_sglang_have_no_look_ups() -> None:
    counters = Counters("b.txt", None, "sglang", reused=30, prompt_tokens=120)
    assert only(read_measured(report(sglang(periods=[], counters=[counters]), batches=None))) == (
        "metrics", 1, [RatioTerms(30, 120)],
    )  # fmt: skip


def test_each_server_is_read_from_its_own_best_evidence() -> None:
    found = by_session(report(vllm(counters=[COUNTERS]), sglang()))
    assert {index: m.piece for index, m in found.items()} == {0: "metrics", 1: "batch"}


# ---- before and after


def compared(before: Report, after: Report) -> Comparison:
    found = compare(before, after, ("a", "b"))
    assert found is not None
    return found


def test_a_fix_is_seen_in_responses() -> None:
    """12 responses are put together by two (12 ** (1/3) = 2.29): six runs on each side."""
    before = answered(*[(1000, 100 + at) for at in range(12)])
    after = answered(*[(1000, 900 + at) for at in range(12)])
    found = compared(before, after)
    measure = found.measures[0]
    assert (measure.name, measure.piece, measure.conversations_before) == ("reuse", "response", 6)
    assert measure.before == pytest.approx(0.1055)
    assert measure.difference == pytest.approx(0.8)
    assert found.verdict == "better"
    assert (found.before.piece, found.before.pieces, found.before.prompt_tokens) == ("response", 12, 12_000)
    assert (found.after.cached_tokens, found.after.processed_tokens) == (10_866, 1134)
    assert compared(after, before).verdict == "worse"


def test_too_few_pieces_are_not_proof() -> None:
    found = compared(answered((1000, 0), (1000, 0)), answered((1000, 900), (1000, 900)))
    assert (found.verdict, found.measures[0].low) == ("unsure", None)
    assert found.why == "only 2 runs of responses on each side, at least 5 are needed"


def test_the_same_responses_are_not_difference() -> None:
    assert compared(answered((1000, 40)), answered((1000, 40))).verdict == "same"


def test_rates_have_no_tokens() -> None:
    side = compared(report(vllm()), report(vllm())).before
    assert (side.piece, side.pieces, side.prompt_tokens) == ("rate", 1, 0)


def test_a_finding_of_a_server_without_requests_can_be_gone() -> None:
    logs = [FIXTURES / "measured" / f"sglang-{name}.log" for name in ("unshared", "healthy")]
    done = run("compare", *logs, "-f", "json")
    data = json.loads(done.stdout)
    COMPARE_SCHEMA.validate(data)
    assert [(f["code"], f["change"], f["sure"]) for f in data["findings"]] == [("CD610", "went", True)]
    assert (data["verdict"], data["measures"][0]["piece"]) == ("better", "batch")


def test_sides_that_measured_nothing_alike_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(STATS.format(s=10))
    for pair in ((log, LLAMA_LOG), (LLAMA_LOG, log)):
        done = run("compare", *pair)
        assert (done.returncode, done.stdout) == (3, b"")
        one_line(done, "vllm.log: has measurements", "no requests", "cachedoctor analyze")
    done = run("compare", log, FIXTURES / "measured" / "sglang-healthy.log")
    assert (done.returncode, done.stdout) == (3, b"")
    one_line(done, "neither input has requests", "--responses or --metrics")


# ---- sums


def test_kinds_of_evidence_are_not_added_up() -> None:
    sums = MeasuredSums()
    assert sums.add(answered((100, 40), (300, 60)))
    assert sums.add(answered((600, 500)))
    assert sums.add(report(sglang()))
    assert not sums.add(report(vllm(periods=[])))
    rows = {row.piece: row for row in sums.rows([None])}
    assert {*rows} == {"response", "batch"}
    assert (rows["response"].servers, rows["response"].pieces) == (2, 3)
    assert (rows["response"].prompt_tokens, rows["response"].cached_tokens, rows["response"].reuse) == (1000, 600, 0.6)
    assert rows["response"].low is None
    assert rows["batch"].reuse == pytest.approx(9152 / 18_472)


def test_groups_are_those_of_servers() -> None:
    sums = MeasuredSums()
    sums.add(report(vllm(model="a", counters=[COUNTERS]), vllm(model="b", counters=[COUNTERS])))
    assert [(row.by, row.group) for row in sums.rows(["model", "hour"])] == [("model", "a"), ("model", "b")]
    assert [row.group for row in sums.rows(["build"])] == ["vLLM 0.32.0"]


def test_an_interval_holds_the_ratio_and_is_the_same_each_time() -> None:
    terms = [RatioTerms(50 + at, 100) for at in range(20)]
    low, high = tally.interval(terms) or (1, 0)
    assert low < 0.595 < high
    assert tally.interval(terms) == (low, high)
    assert tally.interval(terms[:4]) is None


@pytest.mark.sweep
def test_stats_show_servers_without_requests(tmp_path: Path) -> None:
    """0 of 1,000 and 900 of 1,000 tokens."""
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    for log, cached in zip(logs, (0, 900), strict=True):
        log.write_text(
            f"[2026-07-04 04:31:24 TP0] Prefill batch, #new-seq: 1, #new-token: {1000 - cached}, "
            f"#cached-token: {cached}, token usage: 0.05, #running-req: 0, #queue-req: 0, \n"
        )
    done = run("fleet", *logs, "-f", "json")
    data = json.loads(done.stdout)
    STATS_SCHEMA.validate(data)
    assert (done.returncode, done.stderr) == (0, b"")
    overall = [row for row in data["measured"] if row["by"] is None]
    assert [(r["piece"], r["servers"], r["prompt_tokens"], r["cached_tokens"], r["reuse"]) for r in overall] == [
        ("batch", 2, 2000, 900, 0.45)
    ]
    text = run("fleet", *logs, "--by", "path").stdout.decode()
    assert "servers without requests" in text
    assert "all requests" not in text
    assert "45.0 %" in text


@pytest.mark.sweep
def test_stats_say_where_there_is_nothing_to_sum_up(tmp_path: Path) -> None:
    """A log that measured nothing of reuse: alone nothing is written; beside a log with requests there is a note."""
    log = tmp_path / "vllm.log"
    log.write_text(STATS.format(s=10).replace(", Prefix cache hit rate: 85.2%", ""))
    alone = run("fleet", log)
    assert (alone.returncode, alone.stdout) == (3, b"")
    one_line(alone, "vllm.log: has neither requests nor statistics of reuse", "cachedoctor analyze")
    both = run("fleet", log, LLAMA_LOG, "-f", "json")
    assert both.returncode == 0
    assert both.stderr.startswith(b"cachedoctor: note: ")
    assert json.loads(both.stdout)["tables"][0]["rows"][0]["requests"] == 4
    assert run("fleet", log, LLAMA_LOG, "-q").stderr == b""
