"""Logs without requests in every other format, from memory and read back; what they may quote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from command import run
from conftest import FIXTURES, MEASURED, ROOT
from measured_reports import (
    ANSWERS,
    COUNTERS,
    GivenRows,
    as_json,
    everything,
    intervals,
    prefills,
    report,
    samples,
    sglang,
    stored,
    vllm,
    written,
)
from test_stream import VALIDATOR as STREAM

from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.event_stream import EventStream
from cachedoctor.doctor.analysis.live_view import Observer
from cachedoctor.doctor.analysis.run import analyze_paths
from cachedoctor.doctor.compare.reports import tables_of, without_requests
from cachedoctor.doctor.findings.session_findings import not_evaluated
from cachedoctor.doctor.tables.tables import measured_rows
from cachedoctor.model import (
    Answer,
    Answers,
    CacheSample,
    Cost,
    Evidence,
    Finding,
    InputInfo,
    LiveView,
    MeasuredView,
    Session,
    Totals,
)
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import FORMATS
from cachedoctor.report.html.reuse_chart import ChartSeries
from cachedoctor.report.live.screen import draw
from cachedoctor.report.tables.columns import BATCHES, SAMPLES
from cachedoctor.report.words.measured_table import lowest

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schemas/report-v1.schema.json").read_text("utf-8")))
KEY = "sk-proj-Zq81kkTTvv29sLLm0pQx"
STATS = (
    "(APIServer pid=1) INFO 11-20 23:44:{s} [loggers.py:335] Engine 000: Avg prompt throughput: 212.9 tokens/s, "
    "Avg generation throughput: 4.1 tokens/s, Running: 0 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.0%, "
    "Prefix cache hit rate: 85.2%\n"
)


# ---- JSON and the stream


def test_the_report_keeps_the_contract_and_is_read_back_as_it_was() -> None:
    data = as_json(everything())
    SCHEMA.validate(data)
    assert written("json", stored(everything())) == written("json", everything())
    first, second = data["sessions"]
    assert [period["unit"] for period in (*first["periods"], *second["periods"])] == ["interval"] * 2 + ["batch"] * 2
    assert "marks" not in first["periods"][0]
    assert first["counters"][0]["looked_up"] == 47_936
    assert first["answers"][0]["each"][1]["cached_tokens"] is None
    assert data["samples"][2]["hit_rate"] == 0.91
    assert (data["batches"][1]["whole"], data["batches"][1]["continues"]) == (False, True)
    assert data["inputs"][0]["engine"] == "vllm"


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMATS)
def test_a_stored_report_gives_the_same_in_every_format(name: str) -> None:
    assert written(name, stored(everything())) == written(name, everything())


@pytest.mark.sweep
@pytest.mark.parametrize("log", sorted({case["log"] for case in MEASURED})[::2])
def test_real_logs_keep_the_contract_and_look_the_same_when_read_back(log: str) -> None:
    found = analyze_paths([str(FIXTURES / log)])
    SCHEMA.validate(as_json(found))
    again = stored(found)
    assert [name for name in FORMATS if written(name, again) != written(name, found)] == []


@pytest.mark.spread(9)
@pytest.mark.sweep
@pytest.mark.parametrize("log", sorted({case["log"] for case in MEASURED}))
def test_the_stream_of_real_logs_is_valid_and_knows_a_session_before_its_rows(log: str) -> None:
    data = (FIXTURES / log).read_bytes()
    known: set[int] = set()
    for line in map(json.loads, told(data, len(data))):
        STREAM.validate(line)
        if line["type"] == "session":
            known.add(line["index"])
        if line["type"] in ("sample", "batch"):
            assert line["session"] in known


def test_the_stream_of_a_stored_report_is_valid() -> None:
    lines = [json.loads(line) for line in written("jsonl", stored(everything())).splitlines()]
    for line in lines:
        STREAM.validate(line)
    assert [line["type"] for line in lines].count("sample") == 3
    assert [line["type"] for line in lines].count("batch") == 3


def told(log: bytes, size: int) -> list[bytes]:
    narration = EventStream()
    analyzer = Analyzer(listener=narration)
    analyzer.open("vllm.log")
    for at in range(0, len(log), size):
        analyzer.feed(log[at : at + size])
    return b"".join(narration.close(analyzer.finish())).splitlines()


def test_a_session_is_told_before_its_first_sample_and_a_sample_after_its_line() -> None:
    """However the bytes arrive."""
    log = "".join(STATS.format(s=s) for s in (10, 20, 30)).encode()
    lines = told(log, len(log))
    found = [json.loads(line) for line in lines]
    for line in found:
        STREAM.validate(line)
    kinds = [line["type"] for line in found]
    assert kinds.index("session") < kinds.index("sample")
    for at, line in enumerate(found):
        if line["type"] == "sample":
            before = [event["line"] for event in found[:at] if event["type"] == "event"]
            assert line["line"] in before
    assert kinds.count("sample") == 3
    assert told(log, 7) == lines


# ---- what may be quoted


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMATS)
def test_secrets_in_names_are_hidden_in_every_format(name: str) -> None:
    session = vllm(model=f"m-{KEY}", periods=[intervals(engine=KEY)] * 2, counters=[COUNTERS])
    session.counters = [
        type(COUNTERS)("m", None, "vllm", engine=KEY, model=KEY, config={"x": KEY}, cached_by_tier={KEY: 1})
    ]
    session.settings["chat_template"] = type(session.settings["kv_tokens"])(f"/t/{KEY}", 3, f"text {KEY}".encode())
    rows = GivenRows([CacheSample(0, "vllm.log", 40, KEY, hit_rate=0.5, computed_tokens=1)])
    for of in (report(session, samples=rows), stored(report(session, samples=rows))):
        assert KEY.encode() not in written(name, of)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "line",
    [
        "Received request chatcmpl-1: prompt: 'PROMPT', params: SamplingParams(n=1)",
        "Request chatcmpl-1 details: prompt: \"PROMPT\", prompt_token_ids: [1, 2]",
        "Received request cmpl-1: prompt: None, params: SamplingParams(n=1), prompt_token_ids: [PROMPT]",
        "Receive: obj=GenerateReqInput(rid='1', text='PROMPT', input_ids=None)",
        "Receive: obj=GenerateReqInput(rid='1', text=None, input_ids=[PROMPT])",
        "{\"event\": \"request.received\", \"obj\": {\"text\": \"PROMPT\"}}",
    ],
)  # fmt: skip
def test_of_a_logged_prompt_only_its_first_words_are_shown_and_none_is_published(line: str) -> None:
    prompt = "You are helpful. " + "secret business of ours " * 40
    evidence = Evidence("vllm.log", 0, 7, line.replace("PROMPT", prompt), "primary", "the prompt")
    found = Finding("CD501", "some-rule", "note", "high", "a claim", [], 1, [evidence], Cost(0, None), "why", [], None,
                    [], [])  # fmt: skip
    of = report(vllm(), rules=["CD501"], findings=[found])
    for name in FORMATS:
        assert written(name, of).count(b"secret business") <= 4, name
    assert "secret business" not in written("markdown", of).decode()
    assert sanitize.withheld(evidence.text).endswith("(text withheld)")


# ---- pages for people


def test_markdown_names_the_engine_and_withholds_nothing_it_measured() -> None:
    shown = written("markdown", everything()).decode()
    assert shown.startswith("## vLLM, SGLang: no findings\n")
    assert "- Cache: prefix caching on, KV cache 1,048,576 tokens" in shown
    assert "GGML" not in shown
    assert "| engine | intervals busy | hit rate at the end |" in shown
    assert "- Batches: 24 prefill batches: 49.1 % reused (18,688 tokens), 19,404 computed" in shown
    assert "Traffic" not in shown


def test_html_draws_rates_and_batches_and_has_no_table_of_requests() -> None:
    page = written("html", everything()).decode()
    assert "Measurements of 2 servers" in page
    assert page.count('id="h-rate-') == 1
    assert page.count('id="h-sum-') == 1
    assert 'id="requests"' not in page
    assert "No requests in this log" not in page
    one = written("html", report(vllm())).decode()
    assert "The hit rate was 91.0&nbsp;% at the end" in one
    assert "No cache statistics in this log" in written("html", report(vllm(periods=[]), samples=None)).decode()


def test_steps_have_gaps_where_no_rate_is_printed_and_many_become_few() -> None:
    series = ChartSeries()
    for at in range(1000):
        series.add(CacheSample(0, "v", at + 1, hit_rate=None if 400 <= at < 600 else 0.5))
    drawing = series.rates()
    assert drawing is not None
    assert drawing.each == 8  # 1,000 lines in at most 200 steps: 500, 250, 125
    assert len(drawing.chart.hits) == 125
    assert drawing.chart.line.count("M") == 2
    assert drawing.chart.hits[0][2] == "lines 1 to 8: 50.0 %"
    assert drawing.chart.hits[60][2] == "lines 481 to 488: no hit rate"


def test_bars_add_up() -> None:
    """Batches that become one bar are added up, which rates are not."""
    series = ChartSeries()
    for batch in prefills() * 100:
        series.add(batch)
    drawing = series.sums()
    assert drawing is not None
    assert drawing.each == 2
    words = [said for _, _, said in drawing.chart.hits]
    assert sum(int(re.findall(r"([\d,]+) computed", said)[0].replace(",", "")) for said in words) == 932_000
    assert sum(int(re.findall(r"([\d,]+) reused,", said)[0].replace(",", "")) for said in words) == 915_200


def test_github_sums_up_what_one_server_measured() -> None:
    shown = written("github", report(vllm(), rules=["CD501"])).decode()
    assert "1 rule for vLLM checked 3 intervals with traffic. Log: 3 intervals with traffic (30 s)" in shown
    assert "##[" not in written("github", report(vllm(periods=[intervals(engine="##[error]x")]))).decode()


# ---- tables


def test_samples_and_batches_become_tables_session_by_session() -> None:
    reports = [everything(), everything()]
    found = [json.loads(row) for row in measured_rows(SAMPLES, reports)]
    assert [row["session"] for row in found] == [0, 0, 0, 2, 2, 2]
    assert [row["hit_rate"] for row in found[:3]] == [0.852, 0.91, 0.91]
    assert {row["version"] for row in found} == {"0.32.0"}
    assert list(found[0]) == [column.name for column in SAMPLES.columns]
    assert {*CacheSample.__struct_fields__} <= {*found[0]}
    found = [json.loads(row) for row in measured_rows(BATCHES, reports)]
    assert [row["cached_tokens"] for row in found[:3]] == [0, 0, 9152]
    assert {*type(prefills()[0]).__struct_fields__} <= {*found[0]}


def test_which_tables_a_report_has() -> None:
    llama = Session(0, "server.log", n_requests=1)
    assert tables_of(report(llama, vllm(), sglang())) == ["requests", "samples", "batches"]
    assert without_requests(report(vllm()))
    assert not without_requests(report(llama, vllm()))
    assert not without_requests(report())
    assert len(list(measured_rows(SAMPLES, [report(llama, samples=None)]))) == 0
    assert len(samples()) == 3


# ---- what could not be checked


def left(*sessions: Session) -> list[tuple[str, str, list[str]]]:
    """Rules of causes of clients: code, reason, commands."""
    rules, broken = registry.load()
    found = not_evaluated(rules, broken, {}, list(sessions), lost=False)
    return [(rule.code, rule.reason, rule.enable.split("\n")[1:]) for rule in found if rule.code < "CD5"]


def test_causes_of_clients_are_one_group_and_those_of_llama_server_are_left_out() -> None:
    found = left(vllm(periods=[]))
    assert {code[:3] for code, _, _ in found} == {"CD1"}
    assert len({(reason, *commands) for _, reason, commands in found}) == 1
    assert found[0][1] == "the log has no per-request counts and no prompts"


@pytest.mark.parametrize(
    ("session", "commands"),
    [
        (vllm(), ["export VLLM_LOGGING_LEVEL=DEBUG", "--enable-log-requests"]),
        (vllm(version="0.11.0"), ["--enable-log-requests"]),
        (vllm(version="0.10.0"), []),
        (vllm(version=None), ["export VLLM_LOGGING_LEVEL=DEBUG", "--enable-log-requests"]),
        (sglang(), ["--log-requests --log-requests-level 2"]),
    ],
)
def test_what_makes_a_server_log_prompts_goes_by_its_version(session: Session, commands: list[str]) -> None:
    """vLLM logs requests by itself up to 0.10.0, and their prompts at DEBUG only from 0.11.1 on."""
    given = [
        f"cachedoctor analyze {session.engine}.log --requests bodies.jsonl",
        "cachedoctor diff first.json second.json",
    ]
    assert left(session)[0][2] == [*given, *commands]


def test_the_reason_goes_by_what_is_there() -> None:
    assert left(vllm(answers=[ANSWERS]))[0][1] == "the log has counts per request but no prompts"
    prefixes = Answers("vllm.log", "log", 1, 0, each=[Answer(None, None, 1, 120)])
    assert left(vllm(answers=[prefixes]))[0][1].startswith("only the length of the common prefix")


def test_beside_a_log_with_requests_nothing_is_said_of_the_others() -> None:
    assert left(Session(0, "server.log", n_requests=3, seen={"launch"}), vllm()) == []


# ---- commands


LLAMA_LOG = str(ROOT / "fixtures" / "cases" / "billing-header-hybrid" / "server.log")


@pytest.fixture
def vllm_log(tmp_path: Path) -> Path:
    path = tmp_path / "vllm.log"
    path.write_text("".join(STATS.format(s=s) for s in (10, 20, 30)))
    return path


@pytest.mark.sweep
def test_export_writes_the_table_that_was_asked_for_and_names_the_other(vllm_log: Path) -> None:
    done = run("analyze", vllm_log, "--table", "samples", "-f", "ndjson", "-o", "-")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, b"")
    assert [(row["line"], row["prompt_rate"]) for row in found] == [(1, 212.9), (2, 212.9), (3, 212.9)]
    for table in ("requests", "batches"):
        other = run("analyze", vllm_log, "--table", table, "-f", "ndjson", "-o", "-")
        assert (other.returncode, other.stdout) == (0, b"")
        assert other.stderr.startswith(b"cachedoctor: note: the table is empty")
        assert b"--table samples" in other.stderr
    events = run("analyze", vllm_log, "--table", "events", "-f", "ndjson", "-o", "-")
    assert (events.returncode, events.stderr) == (0, b"")
    assert [json.loads(line)["engine"] for line in events.stdout.splitlines()] == ["vllm"] * 3


# ---- watch


def drawn(view: LiveView, width: int = 100, height: int = 12) -> list[str]:
    return [row.plain.rstrip() for row in draw(view, width, height)]


def test_watch_shows_the_last_sample_of_each_engine(vllm_log: Path) -> None:
    log = vllm_log.read_text()
    observer = Observer()
    analyzer = Analyzer(listener=observer)
    analyzer.open("vllm.log")
    analyzer.feed((log + log.replace("Engine 000", "Engine 001").replace("85.2%", "7.0%")).encode())
    view = observer.view(analyzer)
    (server,) = view.measured
    assert not view.servers
    assert [row.line for row in server.rows] == [3, 6]
    rows = drawn(view)
    assert rows[1].startswith("server    vLLM ")
    assert "engine 000 hit rate 85.2 % (last 1,000 requests), prompts 212.9 tokens/s, 0 running, 0 waiting" in rows[2]
    assert rows[3].startswith("engine 001 hit rate 7.0 % (last 1,000 requests)")
    assert not any("slot" in row or row.startswith("traffic") for row in rows)


def test_watch_says_of_what_it_does_not_know_that_it_is_unknown() -> None:
    view = LiveView(InputInfo("x"), [], Totals(), [], [MeasuredView(vllm(), [CacheSample(0, "x", 1)]),
                                                    MeasuredView(sglang(), prefills()[:1])])  # fmt: skip
    rows = drawn(view)
    assert rows[2] == "server 1 engine hit rate unknown"
    assert rows[3].startswith(
        "server 1 prefill last batch 0 reused, 8,192 tokens computed, 0 running, 0 waiting, KV 5.0 %"
    )
    assert drawn(view, height=4)[2] == "and 2 other rows"


def test_of_many_servers_the_lowest_hit_rates_are_named() -> None:
    """Those that print none have none; of few each has rows of its own."""
    rates = (0.91, 0.0, 0.5, None, 0.4)
    found = [(f"pod-{at}", vllm(periods=[intervals(last_rate=share)])) for at, share in enumerate(rates)]
    assert lowest(found) == "0.0 % to 91.0 % at the end; lowest: pod-1 0.0 %, pod-4 40.0 %, pod-2 50.0 %"
    assert lowest(found[:4]) == ""
