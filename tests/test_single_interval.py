"""Statistics of vLLM or SGLang of which there is only one: nothing can be compared, and that is not an all-clear."""

from __future__ import annotations

import io

import pytest

from cachedoctor.cli.ending import NOTHING, status
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.report.base import Appearance, write

VLLM = (
    "INFO 05-19 10:13:{}1 [loggers.py:271] Engine {}: Avg prompt throughput: {} tokens/s, Avg generation "
    "throughput: 7.5 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage: 37.7%, "
    "Prefix cache hit rate: 63.0%\n"
)
IDLE = VLLM.format(9, "000", "0.0", 0).replace("7.5", "0.0")
SGLANG = (
    "[2025-10-08 06:08:{} TP0] Prefill batch, #new-seq: {}, #new-token: 4096, #cached-token: 0, token usage: 0.02, "
    "#running-req: 0, #queue-req: 0, \n"
)
FORMATS = ("text", "markdown", "html", "github")
VLLM_ONCE, SGLANG_ONCE = VLLM.format(3, "000", "12068.8", 8), SGLANG.format(18, 1)


def report_of(log: str) -> Report:
    analyzer = Analyzer()
    analyzer.open("a.log")
    analyzer.feed(log.encode())
    return analyzer.finish()


def shown(report: Report, name: str) -> str:
    out = io.BytesIO()
    write(name, report, out, Appearance())
    return " ".join(out.getvalue().decode().split())


@pytest.mark.parametrize("log", [VLLM_ONCE, VLLM_ONCE + IDLE, SGLANG_ONCE])
@pytest.mark.parametrize("name", FORMATS)
def test_one_alone_is_not_an_all_clear(log: str, name: str) -> None:
    said = shown(report_of(log), name)
    assert "no findings" not in said.lower()
    assert "cannot tell" in said.lower()
    assert "no earlier traffic to compare with" in said
    assert "rules could not be checked" in said or "not looked at: " in said


@pytest.mark.parametrize("log", [VLLM_ONCE, VLLM_ONCE + IDLE, SGLANG_ONCE])
def test_the_status_is_that_of_nothing_checked(log: str) -> None:
    assert status(report_of(log), False) == NOTHING


@pytest.mark.parametrize(
    "log",
    [
        VLLM_ONCE + VLLM.format(4, "000", "12068.8", 8),
        SGLANG_ONCE + SGLANG.format(19, 1),
        SGLANG.format(18, 3),
    ],
)
def test_two_can_be_compared(log: str) -> None:
    assert "Cannot tell" not in shown(report_of(log), "text")
    assert status(report_of(log), False) == 0


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "log",
    [
        "INFO 11-20 23:45:48 [api_server.py:1395] vLLM API server version 0.9.1\n",
        "INFO 11-20 23:45:48 [core.py:70] Initializing a V1 LLM engine (v0.9.1) with config: model='m', "
        "enable_prefix_caching=True\n" + IDLE,
        "srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n",
        "srv  log_server_r: request: GET /health 127.0.0.1 200\nsrv  update_slots: all slots are idle\n",
    ],
    ids=["vllm-version", "vllm-settings", "llamacpp-settings", "no-requests"],
)
def test_settings_alone_are_not_all_clear(log: str, name: str) -> None:
    said = shown(report_of(log), name)
    assert "no findings" not in said.lower()
    assert "cannot tell" in said.lower()
    assert status(report_of(log), False) == NOTHING


START = "srv    load_model: loading model '/m.gguf'\n"
TURN = (
    "slot launch_slot_: id  0 | task {0} | processing task, is_child = 0\n"
    "slot update_slots: id  0 | task {0} | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {1}\n"
    "slot update_slots: id  0 | task {0} | n_tokens = {2}, memory_seq_rm [{2}, end)\n"
    "prompt eval time =     144.59 ms /  {3} tokens (    0.08 ms per token, 12849.86 tokens per second)\n"
    "       eval time =      14.42 ms /     6 tokens (    2.40 ms per token,   415.97 tokens per second)\n"
    "slot      release: id  0 | task {0} | stop processing: n_tokens = {1}, truncated = 0\n"
)


def turn(task: int, prompt: int, cached: int = 0) -> str:
    return TURN.format(task, prompt, cached, prompt - cached)


def test_short_requests_that_reused_nothing_are_not_checked() -> None:
    """What min-prompt-tokens leaves out is not an all-clear; a long prompt, or reuse that was seen, is checked."""
    short, two = START + turn(0, 58), START + turn(0, 58) + turn(9, 70)
    for log, said in ((short, "1 request, which is shorter than 1,000 tokens"), (two, "2 requests, all shorter")):
        assert said in shown(report_of(log), "text")
        assert status(report_of(log), False) == NOTHING
    reused, long = short + turn(9, 90, 58), START + turn(0, 5800)
    for log in (reused, long):
        assert "cannot tell" not in shown(report_of(log), "text").lower()
        assert status(report_of(log), False) == 0


@pytest.mark.parametrize("name", FORMATS)
def test_batches_that_reused_nothing_are_not_all_clear(name: str) -> None:
    """Four prompts of 4,096 tokens, none of which found anything: the cache may be off, or they share no beginning."""
    log = "".join(SGLANG.format(18 + at, 1) for at in range(4))
    said = shown(report_of(log), name)
    assert "no findings" not in said.lower()
    assert "16,384 tokens, none of these were reused" in said
    one_reused = log + SGLANG.format(30, 1).replace("#cached-token: 0", "#cached-token: 1024")
    assert "none of these were reused" not in shown(report_of(one_reused), name)


def test_a_finding_is_said_all_the_same() -> None:
    """Prefix caching is off: the line of the start says so."""
    start = (
        "INFO 07-23 01:20:00 [core.py:70] Initializing a V1 LLM engine (v0.9.1) with config: model='org/tiny', "
        "enable_prefix_caching=False, chunked_prefill_enabled=True\n"
    )
    report = report_of(start + VLLM_ONCE.replace("loggers.py:271", "loggers.py:118"))
    assert [finding.code for finding in report.findings] == ["CD503"]
    assert "Cannot tell" not in shown(report, "text")
    assert status(report, False) == 0


V0 = (
    "INFO 08-20 02:39:{} metrics.py:411] Avg prompt throughput: {} tokens/s, Avg generation throughput: 88.1 tokens/s, "
    "Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 0.2%, CPU KV cache usage: 0.0%.\n"
)
V0_RATE = "INFO 08-20 02:39:{} metrics.py:418] Prefix cache hit rate: GPU: 63.00%, CPU: 0.00%\n"
DECODE = (
    "[2025-12-12 08:43:59 TP0] Decode batch, #running-req: 6, #token: 1920, token usage: 0.94, cuda graph: True, "
    "gen throughput (token/s): 446.45, #queue-req: 5,\n"
)
KOBOLD = (
    "[19:46:34] CtxLimit:3893/49152, Amt:150/150, Init:0.01s, Process:0.01s (76.92T/s), Generate:3.17s (47.39T/s), "
    "Total:3.18s\n"
)
LMCACHE = (
    "[2025-08-15 18:55:27,555] LMCache INFO: Reqid: chatcmpl-{}, Total tokens {}, LMCache hit tokens: {}, need to "
    "load: {} (vllm_v1_adapter.py:739:lmcache.integration.vllm.vllm_v1_adapter)\n"
)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (IDLE * 3, "no prompt was computed in these lines"),
        (DECODE * 3, "no prompt was computed in these lines"),
        (V0.format(37, 871.4) + V0.format(42, 883.5), "no line shows a hit rate"),
        ("INFO 04-14 05:42:59 metrics.py:471] Prefix cache hit rate: GPU: 83.33%, CPU: 0.00%\n" * 3, "hit rates alone"),
        (KOBOLD * 3, "no line shows how much was reused"),
        (LMCACHE.format("1a", 3335, 0, 0), "no line shows how much was reused"),
    ],
)
def test_lines_that_tell_nothing_of_reuse_are_not_all_clear(log: str, why: str) -> None:
    said = shown(report_of(log), "text")
    assert "no findings" not in said.lower()
    assert why in said
    assert "reuse is what two requests share" not in said
    assert status(report_of(log), False) == NOTHING


def test_one_response_that_reused_nothing_has_nothing_to_compare() -> None:
    line = (
        'time=2026-01-25T14:40:29.858Z level=DEBUG source=cache.go:142 msg="loading cache slot" '
        "id=0 cache={0} prompt=6800 used={0} remaining=68\n"
    )
    first, second = line.format(0), line.format(6732)
    assert "1 response; the previous request is missing" in shown(report_of(first), "text")
    assert status(report_of(first), False) == NOTHING
    for log in (second, first + second, first + first):
        assert "cannot tell" not in shown(report_of(log), "text").lower()


def test_lines_that_say_what_was_reused_are_checked() -> None:
    rated = V0.format(37, 871.4) + V0_RATE.format(37) + V0.format(42, 883.5) + V0_RATE.format(42)
    for log in (rated, LMCACHE.format("1a", 713, 512, 500), "Processing Prompt (24 / 24 tokens)\n" + KOBOLD):
        assert "no line" not in shown(report_of(log), "text")


def test_the_first_token_of_every_prompt_is_not_reuse() -> None:
    """Random prompts all begin with the same token: 0.3 % reused is nothing, 5 % is something."""
    batch = SGLANG.replace("#cached-token: 0", "#cached-token: {}")
    few = "".join(batch.format(18 + at, 9, 12) for at in range(4))
    said = shown(report_of(few), "text")
    assert "cannot tell" in said
    assert "16,384 tokens computed, another 48 reused" in said
    assert "cannot tell" not in shown(report_of("".join(batch.format(18 + at, 9, 215) for at in range(4))), "text")


@pytest.mark.parametrize(("cached", "is_clear"), [(5_120, False), (150_000, False), (160_000, True)])
def test_a_single_prompt_of_which_most_was_computed_is_not_all_clear(cached: int, is_clear: bool) -> None:
    """Of 306,509 tokens: without the prompt before nobody knows whether more could have been reused."""
    log = (
        "2026-09-20 22:21:09,739 - omlx.scheduler - INFO - [-] - Prefix cache restore for 3bc2f293: source=paged "
        f"cached={cached} suffix={306_509 - cached} blocks=29 lookup=6.651ms reconstruct=256.608ms promote=True\n"
    )
    said = shown(report_of(log), "text")
    assert ("no findings" in said.lower()) is is_clear
    assert ("the previous request is missing" in said) is not is_clear
