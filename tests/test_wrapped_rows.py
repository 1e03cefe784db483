"""Records of vLLM and SGLang that a terminal broke into rows, and rows that a window cut off."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from test_vllm_tracker import report_of

VLLM = Path(__file__).parents[1] / "fixtures" / "vllm"
OFF, MUTATION = "vllm032_prefix_caching_off", "vllm032_dense_mutation"
STATS = (
    "(APIServer pid=3047) INFO 11-20 23:45:{second} [loggers.py:335] Engine 000: Avg prompt throughput: 979.7 "
    "tokens/s, Avg generation throughput: 4.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, CPU KV cache usage: 0.0%, "
    "Prefix cache hit rate: 12.5%"
)
SGLANG = (
    "[2026-07-04 04:31:2{second}] Prefill batch, #new-seq: 1, #new-token: 1024, #cached-token: 0, "
    "full token usage: 0.00, swa token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, cuda graph: False, input throughput (token/s): 0.00"
)


def hard(lines: list[str], width: int) -> list[str]:
    """What a terminal shows; where it is copied, blanks at the end of a row are lost."""
    return [line[at : at + width].rstrip() for line in lines for at in range(0, max(len(line), 1), width)]


def soft(lines: list[str], width: int) -> list[str]:
    return [row for line in lines for row in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def report(lines: list[str]) -> dict[str, Any]:
    return report_of("".join(f"{line}\n" for line in lines).encode())


def told(found: dict[str, Any]) -> list[object]:
    said = [
        (finding["code"], finding["severity"], finding["confidence"], finding["claim"]) for finding in found["findings"]
    ]
    session = found["sessions"][0]
    return [said, session["version"], [(p["busy"], p["answered"], p["rates"]) for p in session["periods"]]]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [OFF, MUTATION])
@pytest.mark.parametrize("wrap", [hard, soft])
@pytest.mark.parametrize("width", [80, 120])
def test_a_wrapped_log_of_vllm_says_what_the_log_shows(name: str, wrap: Any, width: int) -> None:
    lines = (VLLM / f"{name}.log").read_text("utf-8").splitlines()
    wrapped = wrap(lines, width)
    assert 1.5 * len(lines) < len(wrapped) <= 500, "it is wrapped, and still an excerpt"
    assert told(report(wrapped)) == told(report(lines))


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("wrap", [hard, soft])
def test_all_rows_of_a_record_are_recognised(wrap: Any, width: int) -> None:
    rows = wrap([STATS.format(second=second) for second in (38, 48, 58)], width)
    found = report(rows)
    (period,) = found["sessions"][0]["periods"]
    assert (period["busy"], period["rates"], period["last_rate"]) == (3, 3, 0.125)
    (info,) = found["inputs"]
    assert info["lines"] == info["recognised"] == len(rows)


@pytest.mark.parametrize("wrap", [hard, soft])
def test_batches_of_sglang(wrap: Any) -> None:
    lines = [SGLANG.format(second=second) for second in range(3)]
    whole, wrapped = report(lines), report(wrap(lines, 80))
    assert whole["sessions"][0]["engine"] == wrapped["sessions"][0]["engine"] == "sglang"
    counted = [[period["batches"] for period in found["sessions"][0]["periods"]] for found in (whole, wrapped)]
    assert counted == [[3], [3]]


def test_rows_that_are_records_are_left_alone() -> None:
    lines = [
        STATS.format(second=38),
        "Traceback (most recent call last):",
        '  File "/srv/a.py", line 3',
        STATS.format(second=48),
    ]
    (info,) = report(lines)["inputs"]
    assert (info["lines"], info["recognised"]) == (4, 2)


@pytest.mark.parametrize("end", ["usage: 0.0%,", "CPU KV cache", "cache usage: 0.0", "Prefix cache hit rate: 12"])
def test_a_cut_line_does_not_show_that_caching_is_off(end: str) -> None:
    """Without a hit rate in whole lines it is (CD503)."""
    cut = [line[: line.index(end) + len(end)] for line in (STATS.format(second=second) for second in (38, 48, 58))]
    assert "CD503" not in [finding["code"] for finding in report(cut)["findings"]]
    whole = [line[: line.index(", Prefix cache")] for line in (STATS.format(second=second) for second in (38, 48, 58))]
    assert "CD503" in [finding["code"] for finding in report(whole)["findings"]]
