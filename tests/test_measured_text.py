"""The text of logs without requests: each unit in rows of its own, what is unknown called unknown."""

from __future__ import annotations

import re

import pytest
from measured_reports import ANSWERS, COUNTERS, batches, intervals, report, sglang, stored, vllm, written

from cachedoctor.model import Answers, Counters, NotEvaluated, Report, Session, Totals
from cachedoctor.report.base import Appearance

RULES = ("CD101", "CD501", "CD502", "CD601")
"""One for llama-server, two for vLLM, one for SGLang."""


def text(of: Report, width: int = 200) -> str:
    return written("text", of, Appearance(width, verbose=True)).decode()


def rows(of: Report) -> dict[str, str]:
    """The rows about servers by their keys."""
    head = next(part for part in text(of).split("\n\n") if part.startswith("server ")).splitlines()
    return {line[:10].strip(): line[10:] for line in head}


def footer(of: Report) -> str:
    """The last sentence, on one row."""
    return " ".join(re.split(r"(?s)^Read .*?\.\n", text(of).split("\n\n")[-1])[1].split())


VLLM = """\
no findings   2 rules for vLLM checked 3 intervals with traffic, metrics and 26
              responses

server    vLLM 0.32.0 · Qwen3ForCausalLM · prefix caching on · KV cache
          1,048,576 tokens
log       3 intervals with traffic (30 s), 26 requests answered
hit rate  91.0 % at the end, of the last 1,000 requests since the start (from
          85.2 % to 91.0 %), engine 000
computed  about 4,349 prompt tokens (throughput x 10 s)
memory    running requests filled at most 0.4 % of the KV cache
metrics   b.txt since a.txt, engine 0: 47,936 tokens looked up, 43,520 reused
          (90.8 %), 0 preemptions
responses 26 requests: 48,304 prompt tokens, 43,904 reused (90.9 %)

Read 90 lines, 20 recognised (the other lines: start-up and an access log).
No findings. 2 rules for vLLM checked 3 intervals with traffic, metrics and 26
  responses.
"""


def test_a_log_of_vllm_beside_metrics_and_responses() -> None:
    """Four units, four rows: 43,520 of 47,936 are 90.8 %, 43,904 of 48,304 are 90.9 %."""
    shown = text(report(vllm(counters=[COUNTERS], answers=[ANSWERS]), rules=RULES), 80)
    assert shown.rstrip("\n") + "\n" == VLLM


def test_batches_of_sglang_are_neither_requests_nor_prompts() -> None:
    """9,344 of 9,344 + 9,702 = 19,046 tokens are 49.1 %."""
    found = rows(report(sglang()))
    assert found["server"] == (
        "SGLang 0.5.11 to 0.5.20 (from its messages) · Qwen3NextForCausalLM · hybrid memory · radix cache on · "
        "KV cache 180,000 tokens"
    )
    assert found["batches"] == "12 prefill batches: 49.1 % reused (9,344 tokens), 9,702 computed"
    assert found["prompts"] == (
        "known for 5 requests that ran alone, the longest has 4,096 tokens; 1 of these requests reused nothing"
    )
    assert found["memory"] == "KV pool up to 94.0 % in use, Mamba pool up to 21.0 % in use, 2 requests retracted"
    assert "traffic" not in found


@pytest.mark.parametrize(
    ("session", "key", "words"),
    [
        (vllm(periods=[]), "log", "no cache statistics in this log"),
        (sglang(periods=[]), "log", "no prefill batches in this log"),
        (vllm(periods=[intervals(busy=0, answered=None)]), "log", "4 intervals, none with traffic"),
        (vllm(periods=[intervals(rates=0, last_rate=None, least_rate=None, most_rate=None)]), "hit rate",
         "unknown: the lines show no hit rate, engine 000"),
        (vllm(periods=[intervals(computed_tokens=None)]), "computed",
         "unknown: whether throughput includes reused tokens depends on the version"),
        (vllm(periods=[intervals(computed_tokens=None, prompt_tokens=5000)]), "prompts",
         "about 5,000 tokens, including reused tokens (throughput x 10 s)"),
        (vllm(periods=[intervals(within=44, seconds=31.0)]), "computed",
         "about 4,349 prompt tokens ± 44 (throughput x time)"),
        (vllm(periods=[intervals(since="reset")]), "hit rate",
         "91.0 % at the end, of the last 1,000 requests since a reset of the cache (from 85.2 % to 91.0 %), "
         "engine 000"),
        (vllm(periods=[intervals(engine=None)]), "hit rate", "91.0 % at the end (from 85.2 % to 91.0 %)"),
        (vllm(periods=[intervals(last_rate=0.0, least_rate=0.0, most_rate=0.0)]), "hit rate",
         "0.0 % at the end, of the last 1,000 requests since the start, engine 000"),
        (vllm(answers=[Answers("u.log", "log", 5, 0)]), "requests",
         "5 requests; reuse unknown: the lines of the log do not show it"),
        (sglang(periods=[batches(cold=0)]), "prompts",
         "known for 5 requests that ran alone, the longest has 4,096 tokens; all of these requests reused something"),
        (vllm(answers=[Answers("u.json", "responses", 5, 0)]), "responses",
         "5 requests; reuse unknown: the responses do not show it"),
        (vllm(answers=[Answers("u.json", "log", 5, 3, 100, 50)]), "requests",
         "5 requests, 3 of them with counts: 100 prompt tokens, 50 reused (50.0 %)"),
        (vllm(counters=[Counters("m", None, "vllm", looked_up=0, prompt_tokens=4000)]), "metrics",
         "m since the start of the server: 0 tokens looked up, although 4,000 prompt tokens were sent"),
        (vllm(counters=[Counters("m", None, "vllm")]), "metrics",
         "m since the start of the server: no prefix cache counters in the dump"),
        (vllm(counters=[Counters("m", None, "vllm", reused=9, cached_external=7, cached_by_tier=
              {"device": 9, "host": 4, "disk": 0, "p2p": 1, "external_unspecified": 2, "moon": 5})]), "metrics",
         "m since the start of the server: 9 reused, found 9 in GPU memory, 4 in host memory, 1 with "
         "another server, 2 outside, place unknown, 5 in moon"),
        (vllm(counters=[Counters("m", None, "vllm", reused=9, cached_by_tier={"device": 9, "host": 0})]), "metrics",
         "m since the start of the server: 9 reused"),
        (sglang(counters=[Counters("m", "l", "sglang", prompt_tokens=4000, reused=1000, preemptions=2)]), "metrics",
         "m since l: 4,000 prompt tokens, 1,000 reused (25.0 %), 2 retractions"),
    ],
)  # fmt: skip
def test_what_is_unknown_is_not_zero(session: Session, key: str, words: str) -> None:
    assert rows(report(session))[key] == words


@pytest.mark.parametrize(
    ("session", "words"),
    [
        (vllm(version=None, version_min="0.31.0", build_source="source"), "vLLM 0.31.0 or newer (from source line"),
        (vllm(version=None, version_max="0.8.5"), "vLLM 0.8.5 or older"),
        (vllm(version=None), "vLLM unknown version"),
        (vllm(settings={}), "· prefix caching: unknown whether on · size of the KV cache unknown"),
        (Session(0, "o.log", engine="ollama", answers=[Answers("o.log", "log", 2, 2, 20, 10)]), "ollama"),
        (Session(0, "u.json", engine="unknown", answers=[ANSWERS]), "an unknown server"),
    ],
)
def test_the_server_is_said_as_far_as_it_is_known(session: Session, words: str) -> None:
    assert words in rows(report(session))["server"]


def test_each_engine_and_period_has_a_row() -> None:
    """A rolling rate is of one engine and one cache: nothing is added up. All engines count the same answers."""
    periods = [
        intervals(), intervals(engine="001", last_rate=0.5, least_rate=0.0, most_rate=0.5, computed_tokens=None),
        intervals(since="reset", first_line=60, busy=1, seconds=10.0, answered=4, last_rate=None, least_rate=None,
                  most_rate=None),
    ]  # fmt: skip
    lines = text(report(vllm(periods=periods))).split("\n\n", 1)[1].splitlines()
    assert lines[1] == "log       7 intervals with traffic of 2 engines, 30 requests answered"
    assert [line.split() for line in lines[4:7]] == [
        ["000", "3", "(30", "s)", "91.0", "%", "85.2", "%", "to", "91.0", "%", "4,349", "0.4", "%"],
        ["001", "3", "(30", "s)", "50.0", "%", "0.0", "%", "to", "50.0", "%", "unknown", "0.4", "%"],
        ["000,", "reset,", "line", "60", "1", "(10", "s)", "unknown", "unknown", "4,349", "0.4", "%"],
    ]


def test_of_many_periods_those_with_most_traffic_are_listed() -> None:
    periods = [intervals(engine=f"{n:03}", busy=n + 1) for n in range(9)]
    lines = text(report(vllm(periods=periods))).split("\n\n", 1)[1].splitlines()
    assert [line.split()[0] for line in lines[4:10]] == ["003", "004", "005", "006", "007", "008"]
    assert lines[10] == "and 3 more"


def test_batches_of_several_ranks_are_added_up_and_listed() -> None:
    shown = text(report(sglang(periods=[batches(rank="DP0"), batches(rank="DP1", mamba_usage=None)])))
    assert "24 prefill batches: 49.1 % reused (18,688 tokens), 19,404 computed" in shown
    assert "4 requests retracted" in shown
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("DP")] == ["DP0", "DP1"]
    assert "unknown" in next(line for line in shown.splitlines() if line.startswith("DP1"))


def test_several_servers_each_in_its_unit() -> None:
    llama = Session(0, "server.log", build=8672, build_source="line", n_requests=4)
    totals = Totals(4, 8001, 2089, 5912, 2089 / 8001, 1474.7)
    mixed = report(llama, vllm(), sglang(), rules=RULES, totals=totals)
    lines = text(mixed).split("\n\n", 1)[1].splitlines()
    assert lines[0].endswith("4 requests, server.log lines 1 to 1")
    assert lines[1].endswith("vllm.log lines 1 to 90")
    starts = [line[:8].strip() for line in lines[3 : lines.index("")]]
    assert starts == [
        "llama.cp", "traffic", "reused", "computed", "vllm.log", "log", "hit rate", "computed", "memory", "sglang.l",
        "batches", "prompts", "memory",
    ]  # fmt: skip
    assert footer(mixed) == (
        "No findings. 1 rule checked 4 requests; 2 rules for vLLM checked 3 intervals with traffic; "
        "1 rule for SGLang checked 12 prefill batches."
    )


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (report(vllm(periods=[]), rules=RULES), "2 rules for vLLM checked the settings of 1 server and found nothing."),
        (report(vllm(), rules=RULES, ignored=["CD502"]), "1 rule for vLLM checked 3 intervals with traffic."),
        (report(vllm(), rules=RULES, not_evaluated=[NotEvaluated(c, "r", "r", "e") for c in ("CD101", "CD501")]),
         "1 rule for vLLM checked 3 intervals with traffic; 2 rules could not be checked."),
        (report(vllm(periods=[intervals(busy=0)]), rules=RULES),
         "2 rules for vLLM checked 4 intervals without traffic and found nothing."),
        (report(Session(0, "o", engine="ollama", answers=[Answers("o", "log", 2, 2, 900, 800)]), rules=RULES),
         "No findings. No rule covers ollama (2 responses)."),
        (report(Session(0, "o", engine="ollama", answers=[Answers("o", "log", 2)]), rules=RULES),
         "cannot tell 2 responses, but no line shows how much was reused"),
        (report(rules=RULES), "cannot tell no requests in the input, so nothing was checked"),
    ],
)  # fmt: skip
def test_the_footer_says_what_was_checked(of: Report, words: str) -> None:
    """Only the rules of an engine count for it."""
    assert words in " ".join(text(of).split())


def test_no_name_of_a_log_controls_the_terminal_or_holds_a_secret() -> None:
    key = "sk-proj-Zq81kkTTvv29sLLm0pQx"
    session = vllm(
        model=f"m-{key}", version=f"1\x1b[31m {key}", periods=[intervals(engine=f"\x1b[31m {key}")] * 2,
        counters=[Counters("m", None, "vllm", engine=key)],
    )  # fmt: skip
    session.settings["architecture"].value = f"Arch-{key}\x1b]0;x"
    for of in (report(session), stored(report(session)), report(sglang(periods=[batches(rank=key)] * 2))):
        shown = text(of)
        assert "\x1b" not in shown
        assert key not in shown
