"""What becomes of a vLLM log: sessions, periods and samples; stories counted by hand."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from answered import sessions_of
from conftest import FIXTURES, json_of

HEALTHY = (FIXTURES / "vllm" / "vllm032_dense_healthy.log").read_bytes()
MUTATION = (FIXTURES / "vllm" / "vllm032_dense_mutation.log").read_bytes()
START = b"""\
(APIServer pid=7) INFO 11-20 23:44:10 [api_utils.py:286] non-default args: {'model': 'm', 'max_model_len': 8192}
(EngineCore pid=8) INFO 11-20 23:44:25 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='m', \
speculative_config=None, max_seq_len=8192, data_parallel_size=1, device_config=cuda, enable_prefix_caching=True
"""
ACCESS = b'INFO:     127.0.0.1:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'


def stats(
    clock: str, prompt: str, hit: str | None, engine: str = "000", place: str = "loggers.py:335", day: str = "11-20"
) -> bytes:
    """One statistics line of 0.30 and newer."""
    rate = "" if hit is None else f", Prefix cache hit rate: {hit}%"
    return (
        f"(APIServer pid=7) INFO {day} {clock} [{place}] Engine {engine}: Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: 4.1 tokens/s, Running: 1 reqs, Waiting: 3 reqs, GPU KV cache usage: 12.5%{rate}\n"
    ).encode()


def report_of(log: bytes) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(json_of([log]))
    return report


def periods_of(log: bytes) -> list[dict[str, Any]]:
    return [p for session in report_of(log)["sessions"] for p in session["periods"]]


WRAPPERS = {
    "compose": lambda line: b"vllm-1  | " + line,
    "docker json-file": lambda line: json.dumps(
        {"log": line.decode() + "\n", "stream": "stdout", "time": "x"}
    ).encode(),
    "journald": lambda line: b"Nov 20 23:44:10 box vllm[3047]: " + line,
    "docker logs -t": lambda line: b"2026-11-20T23:44:10.123456789Z " + line,
    "kubectl --prefix": lambda line: b"[pod/vllm-0/server] " + line,
    "ray": lambda line: b"(ServeReplica:default:LLM pid=88) " + line,
    "colours": lambda line: re.sub(rb"^(\(\w+ pid=\d+\))", b"\x1b[0;36m\\1\x1b[0;0m", line),
    "the process before every line": lambda line: line if line[:1] == b"(" else b"(APIServer pid=7) " + line,
    "a prefix of the user's": lambda line: b"[prod-gpu-7] " + line,
    "a progress bar": lambda line: b"Loading safetensors: 100% Completed | 4/4 [00:10<00:00,  2.5s/it]\r" + line,
    "Windows line ends": lambda line: line + b"\r",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("log", [HEALTHY, MUTATION], ids=["healthy", "mutation"])
def test_wrappers_change_nothing(name: str, log: bytes) -> None:
    """Periods and findings of the log as it is."""
    wrapped = b"".join(WRAPPERS[name](line) + b"\n" for line in log.split(b"\n") if line)
    plain, packed = report_of(log), report_of(wrapped)
    keys = ("busy", "computed_tokens", "answered", "last_rate", "first_rate", "seconds")
    assert [[p[k] for k in keys] for p in packed["sessions"][0]["periods"]] == [
        [p[k] for k in keys] for p in plain["sessions"][0]["periods"]
    ]
    assert [f["code"] for f in packed["findings"]] == [f["code"] for f in plain["findings"]]
    assert [s["version"] for s in packed["sessions"]] == ["0.32.0"]


def test_rates_become_tokens_of_their_interval() -> None:
    """100.0 tokens/s over 10 s are 1,000 tokens; from 0.16 on they are the computed ones."""
    (period,) = periods_of(START + stats("23:50:00", "100.0", "0.0") + stats("23:50:10", "50.5", "40.0"))
    assert (period["computed_tokens"], period["prompt_tokens"]) == (1000 + 505, None)
    assert (period["busy"], period["seconds"]) == (2, 20.0)
    assert (period["first_rate"], period["last_rate"], period["kv_usage"], period["waiting"]) == (0.0, 0.4, 0.125, 3)


def test_a_gap_without_traffic_is_not_an_interval() -> None:
    """Idle engines print nothing: the line after the gap speaks of its own ten seconds."""
    log = (
        START
        + stats("23:50:00", "100.0", "0.0")
        + stats("23:50:10", "100.0", "0.0")
        + stats("23:59:40", "100.0", "0.0")
    )
    (period,) = periods_of(log)
    assert (period["computed_tokens"], period["seconds"]) == (3000, 30.0)


def test_a_shorter_interval_is_learnt() -> None:
    """VLLM_LOG_STATS_INTERVAL=2: no line shows so, the times do."""
    log = START + b"".join(stats(f"23:50:{s:02d}", "100.0", "0.0") for s in range(0, 20, 2))
    (period,) = periods_of(log)
    assert (period["computed_tokens"], period["seconds"]) == (10 * 200, 20.0)


def test_a_longer_interval_is_learnt() -> None:
    """VLLM_LOG_STATS_INTERVAL=30: after a line that tells of work the next one comes after one interval."""
    log = START + b"".join(stats(f"23:5{s // 60}:{s % 60:02d}", "100.0", "0.0") for s in range(0, 120, 30))
    (period,) = periods_of(log)
    assert (period["computed_tokens"], period["seconds"]) == (4 * 3000, 120.0)


def test_pauses_between_single_requests_are_not_intervals() -> None:
    """An interval of 2 s and a request every 12 s: each line of work is followed by one of zeros, then by none."""
    at = [line for s in range(0, 48, 12) for line in ((s, "100.0"), (s + 2, "0.0"))]
    log = START + b"".join(
        stats(f"23:50:{s:02d}", rate, "0.0").replace(b"4.1", b"0.0" if rate == "0.0" else b"4.1") for s, rate in at
    )
    (period,) = periods_of(log)
    assert (period["computed_tokens"], period["busy"], period["seconds"]) == (4 * 200, 4, 8.0)


def test_up_to_014_the_rate_counts_all_prompt_tokens() -> None:
    log = START.replace(b"v0.32.0", b"v0.14.1") + stats("23:50:00", "100.0", "50.0", place="loggers.py:257")
    (period,) = periods_of(log)
    assert (period["computed_tokens"], period["prompt_tokens"]) == (None, 1000)


def test_without_a_version_tokens_are_unknown() -> None:
    """A log that begins in the middle, printed from a line of the source that nobody knows."""
    report = report_of(stats("23:50:00", "100.0", "50.0", place="loggers.py:999"))
    (session,) = report["sessions"]
    assert (session["version"], session["version_min"]) == (None, None)
    (period,) = session["periods"]
    assert (period["since"], period["computed_tokens"], period["prompt_tokens"]) == ("log", None, None)


def test_the_line_of_the_source_tells_the_version() -> None:
    """loggers.py:310 printed the statistics from 0.26.0 to 0.29.0."""
    (session,) = report_of(stats("23:50:00", "100.0", "50.0", place="loggers.py:310"))["sessions"]
    assert (session["version"], session["version_min"], session["version_max"]) == (None, "0.26.0", "0.29.0")


def test_a_reset_begins_a_new_period() -> None:
    reset = b"(EngineCore pid=8) INFO 11-20 23:50:12 [block_pool.py:861] Successfully reset prefix cache\n"
    log = START + stats("23:50:00", "100.0", "80.0") + reset + stats("23:50:20", "10.0", "0.0")
    assert [(p["since"], p["computed_tokens"]) for p in periods_of(log)] == [("start", 1000), ("reset", 100)]


def test_engines_are_told_apart() -> None:
    """Two engines in turn, each with its own rate."""
    log = START + b"".join(
        stats(f"23:50:{t}0", "100.0", rate, engine)
        for t in (0, 1)
        for engine, rate in (("000", "10.0"), ("001", "90.0"))
    )
    assert [(p["engine"], p["last_rate"], p["busy"]) for p in periods_of(log)] == [("000", 0.1, 2), ("001", 0.9, 2)]


def test_a_restart_is_another_session() -> None:
    """Only after traffic: a start-up prints several of its lines."""
    log = START + ACCESS + stats("23:50:00", "100.0", "80.0")
    report = report_of(log + log)
    assert [(s["index"], s["first_line"], len(s["periods"])) for s in report["sessions"]] == [(0, 1, 1), (1, 5, 1)]
    assert len(report_of(START + START + stats("23:50:00", "1.0", "0.0"))["sessions"]) == 1


def test_requests_are_counted_between_the_lines() -> None:
    """Answered ones that ask for text; health checks and errors are none."""
    others = ACCESS.replace(b"200 OK", b"400 Bad Request") + ACCESS.replace(
        b"POST /v1/chat/completions", b"GET /health"
    )
    log = START + 3 * ACCESS + others + stats("23:50:00", "9.0", "0.0") + 2 * ACCESS + stats("23:50:10", "9.0", "0.0")
    report = report_of(log)
    assert [s["answered"] for s in report["samples"]] == [3, 2]
    assert report["sessions"][0]["periods"][0]["answered"] == 5


def test_without_access_lines_their_number_is_unknown() -> None:
    (period,) = periods_of(START + stats("23:50:00", "9.0", "0.0"))
    assert period["answered"] is None


def test_no_rate_is_not_a_rate_of_zero() -> None:
    """0.31 and newer print none when nothing was looked up."""
    (period,) = periods_of(START + stats("23:50:00", "9.0", None))
    assert (period["rates"], period["last_rate"]) == (0, None)


def test_new_year_is_ten_seconds_long() -> None:
    """vLLM writes no year."""
    log = START + stats("23:59:55", "10.0", "0.0", day="12-31") + stats("00:00:05", "10.0", "0.0", day="01-01")
    (period,) = periods_of(log)
    assert period["seconds"] == 20.0


def test_lmcache_says_what_each_request_reused() -> None:
    """What the engine had plus what was loaded; a request that is looked up twice counts once."""
    line = (
        b"(EngineCore pid=8) [2026-11-20 10:12:01,455] LMCache INFO: Reqid: %b, Total tokens 3335, Inference Engine "
        b"computed tokens: %d, LMCache hit tokens: %d, need to load: %d (vllm_v1_adapter.py:1476:lmcache.integration)\n"
    )
    log = START + line % (b"a", 512, 3328, 2816) + line % (b"b", 0, 0, 0) + line % (b"b", 512, 512, 0)
    (answers,) = report_of(log)["sessions"][0]["answers"]
    assert [(a["prompt_tokens"], a["cached_tokens"]) for a in answers["each"]] == [(3335, 3328), (3335, 512)]
    assert (answers["requests"], answers["prompt_tokens"], answers["cached_tokens"]) == (2, 6670, 3840)


OLD_LOOKUP = (
    b"(EngineCore_DP0 pid=349) [2026-02-04 13:55:39,651] LMCache INFO: Reqid: chatcmpl-%b, Total tokens %d, LMCache "
    b"hit tokens: %d, need to load: %d (vllm_v1_adapter.py:1602:lmcache.integration.vllm.vllm_v1_adapter)\n"
)
SHORT = (
    b"(VllmWorker rank=4 engine_index=0 pid=31778)[2025-06-21 20:59:57,675] LMCache ERROR:Num retrieved tokens: 0, num "
    b"expected tokens: 253 (vllm_v1_adapter.py:558:lmcache.integration.vllm.vllm_v1_adapter)\n"
)


def test_an_engine_that_has_more_than_lmcache_is_told_by_what_is_left_to_load() -> None:
    """512 + 192 of 713, as its maintainers read the line; nothing to load may be anything."""
    log = START + OLD_LOOKUP % (b"a", 713, 512, -192) + OLD_LOOKUP % (b"b", 713, 0, 0)
    (answers,) = report_of(log)["sessions"][0]["answers"]
    assert [a["cached_tokens"] for a in answers["each"]] == [704, None]
    assert (answers["requests"], answers["told"], answers["cached_tokens"]) == (2, 1, 704)


def test_what_lmcache_could_not_load_is_not_reused() -> None:
    """The line names no request: of the last ones the reuse is unknown, of others it stays."""
    log = START + b"".join(OLD_LOOKUP % (b"%032d" % at, 263, 256, 256) for at in range(20)) + SHORT + SHORT
    (answers,) = report_of(log)["sessions"][0]["answers"]
    assert [a["cached_tokens"] for a in answers["each"]] == [256] * 4 + [None] * 16
    assert (answers["requests"], answers["told"], answers["cached_tokens"]) == (20, 4, 1024)
    assert report_of(START + SHORT)["sessions"][0]["answers"] == []


HOSTILE = [
    stats("23:50:00", "9" * 400, "0.0"),
    stats("23:50:00", "inf", "0.0"),
    stats("23:50:00", "1e300", "0.0"),
    stats("99:99:99", "10.0", "0.0"),
    stats("23:50:00", "10.0", "0.0", day="02-31"),
    stats("23:50:00", "10.0", "9999999.0"),
    stats("23:50:00", "10.0", "-5.0"),
    stats("23:50:00", "10.0", "0.0", engine="\x1b[2J<script>"),
    b"[loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.0 tokens/s, "
    b"Running: 1 reqs, Waiting: 1 reqs, " + b"a: 1, " * 20_000 + b"\n",
    b"(APIServer pid=7) INFO 11-20 23:44:10 [api_utils.py:286] non-default args: {" + b"'block_size': " * 5000 + b"\n",
    b"(EngineCore pid=8) INFO 11-20 23:44:25 [core.py:1] Initializing a V1 LLM engine (v\xff\xfe) with config: \x00\n",
    b"INFO 11-20 23:44:25 [x.py:1] Received request a: prompt: '" + b"'" * 50_000 + b"\n",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_values_end_nothing(line: bytes) -> None:
    """The lines around are read as if it were not there, or it counts with what it has."""
    report = report_of(START + stats("23:50:00", "100.0", "0.0") + line + stats("23:50:10", "100.0", "50.0"))
    samples = [s["computed_tokens"] for s in report["samples"] if s["prompt_rate"] == 100.0]
    assert samples == [1000, 1000]
    for session in report["sessions"]:
        for period in session["periods"]:
            assert period["last_rate"] is None or 0.0 <= period["last_rate"] <= 1.0


def test_a_prompt_that_looks_like_a_log_is_none() -> None:
    """A logged prompt holds lines of this very log."""
    prompt = stats("23:50:00", "777.0", "99.0").decode().strip()
    log = START + f"INFO 11-20 23:49:59 [logger.py:41] Received request a: prompt: '{prompt}', params: x\n".encode()
    report = report_of(log + stats("23:50:00", "100.0", "0.0"))
    assert [s["prompt_rate"] for s in report["samples"]] == [100.0]


def test_names_of_adapters_are_those_that_the_log_shows_as_loaded() -> None:
    modules = ", ".join(f"LoRAModulePath(name='{name}', path='/m/x', base_model_name=None)" for name in ("sql", "chat"))
    given = START.decode().replace("'max_model_len'", f"'lora_modules': [{modules}], 'max_model_len'")
    later = "(APIServer pid=7) INFO 11-20 23:50:00 [serving.py:229] Loaded new LoRA adapter: name '{}', path '/m/x'\n"
    [session] = sessions_of(given + later.format("sql") + later.format("prose"))
    assert session.incidents["adapters"].field == "sql\nchat\nprose"
    assert session.incidents["adapters"].mark.line == 1
    [without] = sessions_of(START.decode())
    assert "adapters" not in without.incidents
