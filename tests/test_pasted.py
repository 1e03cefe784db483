"""Logs of vLLM and SGLang as people paste them: from web pages and terminals, or written by other programs."""

from __future__ import annotations

from typing import Any

import pytest
from test_vllm_tracker import report_of

V0 = (
    "Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 3.6 tokens/s, Running: 1 reqs, Swapped: 0 reqs, "
    "Pending: 0 reqs, GPU KV cache usage: 1.4%, CPU KV cache usage: 0.0%."
)


def v1(clock: str, place: str, hit: str, waiting: int = 0) -> str:
    """A statistics line of 0.8.5 to 0.29."""
    return (
        f"INFO 05-19 {clock} [loggers.py:{place}] Engine 000: Avg prompt throughput: 12068.8 tokens/s, Avg generation "
        f"throughput: 7.5 tokens/s, Running: 8 reqs, Waiting: {waiting} reqs, GPU KV cache usage: 87.7%, "
        f"Prefix cache hit rate: {hit}%"
    )


def session_of(*lines: str) -> dict[str, Any]:
    (session,) = report_of("".join(f"{line}\n" for line in lines).encode())["sessions"]
    found: dict[str, Any] = session
    return found


def findings_of(*lines: str) -> dict[str, str]:
    found = report_of("".join(f"{line}\n" for line in lines).encode())["findings"]
    return {finding["code"]: finding["claim"] for finding in found}


# ---- which version


def test_sources_without_tags_have_no_version() -> None:
    """They build 0.1.devN, whatever they are; the line that prints the statistics knows better."""
    banner = "INFO 03-17 11:33:58 [utils.py:297]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.1.dev14845+g57a314d15.d20260316"
    session = session_of(banner, v1("11:40:00", "259", "0.0"))
    assert (session["version"], session["version_min"], session["version_max"]) == (None, "0.15.0", "0.19.1")
    assert session_of(banner.replace("0.1.dev14845", "0.19.2rc1.dev12"))["version"] == "0.19.2rc1.dev12"


def test_the_banner_names_the_model() -> None:
    assert (
        session_of("INFO 08-19 18:30:11 [api_utils.py:345]   █▄█▀ █     █     █     █  model   org/tiny")["model"]
        == "org/tiny"
    )


def test_lmcache_names_the_version_of_vllm() -> None:
    line = (
        "(EngineCore_DP0 pid=102) [2025-10-08 06:08:18,621] LMCache INFO: LMCache initialized for role "
        "KVConnectorRole.SCHEDULER with version 0.3.7, vllm version 0.10.2, lmcache cache_engine metadata: None "
        "(vllm_v1_adapter.py:693:lmcache.integration.vllm.vllm_v1_adapter)"
    )
    assert (
        session_of(
            "INFO 10-08 06:08:17 [core.py:218] init engine (profile, create kv cache, warmup model) took 13.90 seconds",
            line,
        )["version"]
        == "0.10.2"
    )


# ---- who writes the lines


def test_dynamo_writes_messages_with_a_logger_of_its_own() -> None:
    start = (
        "Initializing a V0 LLM engine (v0.8.4) with config: model='org/tiny', speculative_config=None, "
        "max_seq_len=16384, device_config=cuda, enable_prefix_caching=False, chunked_prefill_enabled=False"
    )
    time, coloured = (
        "2025-06-25T10:49:46.116Z ",
        "0: \x1b[2m2025-06-25T10:50:46.116Z\x1b[0m \x1b[32m INFO\x1b[0m \x1b[2mmetrics.log\x1b[0m\x1b[2m:\x1b[0m ",
    )
    for logged in (f"{time} INFO metrics.log: ", f"{time}DEBUG dynamo_run::subprocess: [metrics.py:489] ", coloured):
        session = session_of(f"{time} INFO llm_engine.__init__: {start}", f"{logged}{V0}   ")
        assert (session["version"], session["settings"]["prefix_caching"]["value"]) == ("0.8.4", False)
        assert [period["busy"] for period in session["periods"]] == [1]


def test_lines_of_lmcache_alone_are_a_log_of_vllm() -> None:
    """Those before the first one of vLLM's own count, too."""

    def look(request: str, hit: int) -> str:
        return (
            f"[2026-02-04 08:15:39,462] LMCache INFO: Reqid: {request}, Total tokens 2405, LMCache hit tokens: {hit}, "
            f"need to load: {hit} (vllm_v1_adapter.py:1602:lmcache.integration.vllm.vllm_v1_adapter)"
        )

    (answers,) = session_of(look("cmpl-a", 2048), v1("08:16:00", "257", "0.0"), look("cmpl-b", 1024))["answers"]
    assert (answers["requests"], answers["cached_tokens"]) == (2, 2048 + 1024)
    bare = "Reqid: chatcmpl-8c2, Total tokens 836, LMCache hit tokens: 768, need to load: -64"
    (answers,) = session_of(bare)["answers"]
    assert (answers["told"], answers["cached_tokens"]) == (1, 832), "the engine had 64 more by itself"


def test_access_lines_from_a_web_page_have_lost_their_blanks() -> None:
    access = '(APIServer pid=35) INFO: 203.0.113.9:2075 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    session = session_of(v1("15:38:32", "123", "0.0"), access, access, v1("15:38:42", "123", "0.0"))
    assert [period["answered"] for period in session["periods"]] == [2]


# ---- what the numbers say


def test_the_v0_engine_prints_every_five_seconds() -> None:
    """500 tokens and not 1,000, though the version is newer than 0.7."""
    version = "INFO 07-23 01:20:00 [api_server.py:1395] vLLM API server version 0.9.1"
    (period,) = session_of(version, f"INFO 07-23 01:27:07 [metrics.py:417] {V0}")["periods"]
    assert (period["seconds"], period["prompt_tokens"]) == (5.0, 500)


def test_a_server_without_a_gpu_has_the_other_rate() -> None:
    (period,) = session_of(
        f"INFO 05-25 06:50:29 [metrics.py:486] {V0}",
        "INFO 05-25 06:50:29 [metrics.py:502] Prefix cache hit rate: GPU: 0.00%, CPU: 90.00%",
    )["periods"]
    assert period["last_rate"] == 0.9


def test_a_rate_of_zero_is_not_too_high() -> None:
    zero = findings_of(v1("10:13:31", "271", "0.0", 33), v1("10:13:41", "271", "0.0", 23))
    some = findings_of(v1("10:13:31", "271", "0.0", 33), v1("10:13:41", "271", "9.5", 23))
    assert ("CD506" in zero, "CD506" in some) == (False, True)


def test_a_rate_of_zero_may_be_that_of_a_server_without_prefix_caching() -> None:
    """Up to 0.30 it is printed all the same; from 0.31 on a rate is only printed where prompts were looked up."""
    old = findings_of(v1("10:13:31", "271", "0.0"), v1("10:13:41", "271", "0.0"))["CD510"]
    new = findings_of(v1("10:13:31", "335", "0.0"), v1("10:13:41", "335", "0.0"))["CD510"]
    assert "prefix caching is off (the log does not show it), or" in old
    assert "though prefix caching is on" in new


def test_lines_that_lost_the_break_between_them() -> None:
    """What the second one says is not the first one's."""
    first, second = v1("10:13:31", "271", "20.0"), v1("10:13:41", "271", "55.5").replace("87.7", "98.4")
    (period,) = session_of(first + second)["periods"]
    assert (period["samples"], period["last_rate"], period["kv_usage"]) == (1, 0.2, 0.877)


def test_api_servers_print_at_their_own_times() -> None:
    """Three seconds between the lines of two servers are not interval: four lines are over 10 s each."""
    clocks = (("0", "10:13:31"), ("1", "10:13:34"), ("0", "10:13:41"), ("1", "10:13:44"))
    (period,) = session_of(*(f"(ApiServer_{server} pid=7) {v1(clock, '122', '5.0')}" for server, clock in clocks))[
        "periods"
    ]
    assert (period["seconds"], period["prompt_tokens"]) == (40.0, 4 * 120688)


# ---- SGLang


def test_batches_without_time_and_rank() -> None:
    """As they are in documentation, and under a logging configuration of one's own."""
    line = "Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 30, token usage: 0.00, #queue-req: 0"
    session = session_of("Serving on port 30000", f"   {line}", line)
    assert session["engine"] == "sglang"
    assert [(p["first_line"], p["batches"], p["cached_tokens"]) for p in session["periods"]] == [(2, 2, 60)]
    assert report_of(f'prompt: "{line}"\n'.encode())["sessions"] == [], "text in a line proves nothing"


def test_a_batch_that_lost_its_middle_is_not_a_batch() -> None:
    """A terminal wrote over it: what was reused is unknown, not 0."""
    whole = "[2026-05-28 02:59:50 TP0] Prefill batch, #new-seq: 1, #new-token: 896, #cached-token: 64, "
    whole += "token usage: 0.00, #running-req: 0, #queue-req: 28"
    (period,) = session_of(whole, whole.replace("oken: 64, token usage: 0.00, #r", "o"))["periods"]
    assert (period["batches"], period["new_tokens"], period["cached_tokens"]) == (1, 896, 64)


DYNAMO = (
    "{}2025-12-30T15:52:38.206058Z{} {} INFO{} Prefill batch, #new-seq: 5, #new-token: 40960, #cached-token: 0, token "
    "usage: 0.78, #running-req: 5, #queue-req: 0, #prealloc-req: 0, #inflight-req: 0, input throughput (token/s): "
    "5000.5"
)


@pytest.mark.parametrize("escape", ["\x1b[{}m", "[{}m", ""])
def test_dynamo_writes_lines_of_sglang_after_its_own_time(escape: str) -> None:
    """In colours, which may have lost their first byte on a page of the web."""
    line = DYNAMO.format(*(escape.format(colour) for colour in ("2", "0", "32", "0")))
    session = session_of(line, line.replace("15:52:38", "15:52:39"))
    assert session["engine"] == "sglang"
    (period,) = session["periods"]
    assert (period["batches"], period["new_tokens"]) == (2, 81_920)


def test_a_colour_without_its_escape_in_json_is_a_colour() -> None:
    line = "\\u001b[0m" + DYNAMO.format("", "", "", "")
    session = session_of(
        *(f'{{"log":"{line}\\n","stream":"stderr","time":"2026-11-01T10:00:0{at}Z"}}' for at in (1, 2))
    )
    assert session["engine"] == "sglang"


@pytest.mark.parametrize(
    "lines",
    [
        ["Prompt cache restore: cached_tokens=0 uncached_tokens=80128"],
        [
            "    [coordinator][INFO]: Prompt cache restore: cached_tokens=0 uncached_tokens=80128",
            "   lifetime_efficiency=9.58%",
        ],
    ],
)
def test_lm_studio_in_a_cut_or_broken_row(lines: list[str]) -> None:
    """The last token of the prompt is always computed, and not in the numbers."""
    (answers,) = session_of(*lines)["answers"]
    assert (answers["prompt_tokens"], answers["cached_tokens"]) == (80_129, 0)
