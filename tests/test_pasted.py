"""Logs of vLLM and SGLang as people paste them: from web pages and terminals, or written by other programs."""

from __future__ import annotations

from typing import Any

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
