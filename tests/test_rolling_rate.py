"""Tokens that were looked up, from the computed ones and the rolling rate: the truth lies within the bound."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from conftest import FIXTURES, report_of
from test_vllm_lookalikes import access, start, stats

import cachedoctor
from cachedoctor.engines.vllm import periods as rolling_rate


def periods(log: str) -> list[dict[str, Any]]:
    return [p for p in report_of(log)["sessions"][0]["periods"] if p["busy"]]


RECORDED = [
    ("dense_healthy", ["dense_healthy"]),
    ("hybrid_gdn", [f"hybrid_gdn.{n}" for n in ("healthy", "branch", "branchshort")]),
]


@pytest.mark.parametrize(("log", "parts"), RECORDED, ids=[log for log, _ in RECORDED])
def test_what_a_real_server_was_asked_lies_within_the_bound(log: str, parts: list[str]) -> None:
    report = cachedoctor.analyze(FIXTURES / "vllm" / f"vllm032_{log}.log")
    found = [p for p in report.sessions[0].periods if p.busy]  # type: ignore[union-attr]
    for period, part in zip(found, parts, strict=False):
        usage = json.loads((FIXTURES / "vllm" / f"vllm032_{part}.usage.json").read_text())
        truth = sum(entry["usage"]["prompt_tokens"] for entry in usage)
        tokens, within = period.looked_up_tokens, period.looked_up_within  # type: ignore[union-attr]
        assert tokens is not None
        assert within is not None
        assert abs(tokens - truth) <= within
        assert within <= 0.06 * truth


def test_rounding_never_moves_it_out_of_its_bound() -> None:
    dice = random.Random(1)
    for _ in range(2_000):
        asked, outside = dice.randint(1_000, 10**7), dice.choice([None, 0.3, 0.95])
        reused = dice.randint(0, asked)
        computed = asked - reused if outside is None else round((asked - reused) * (1 - outside))
        rate = round(reused / asked, 3)
        found = rolling_rate.looked_up(computed, 0, rate, outside)
        if found is not None and rate < 0.97:
            assert abs(found.tokens - asked) <= found.within + 2 / (1 - rate)


def test_where_nearly_all_was_reused_the_rate_says_too_little() -> None:
    assert rolling_rate.looked_up(1_000, 0, 0.998) is None
    assert rolling_rate.looked_up(1_000, 0, 1.0) is None


def test_the_difference_of_two_lines_is_what_was_asked_between_them() -> None:
    """20,000 tokens, 12,000 of them computed, then 10,000 more that are all reused but for 1,000."""
    log = start("0.32.0", True) + access(4) + stats(0, "0.32.0", 1200.0, "40.0")
    log += access(4) + stats(10, "0.32.0", 100.0, "56.7")
    samples = report_of(log)["samples"]
    assert samples[0]["looked_up_tokens"] == 20_000
    assert abs(samples[1]["looked_up_tokens"] - 10_000) <= samples[1]["looked_up_within"] < 400


@pytest.mark.parametrize(
    ("version", "requests", "waiting", "known"),
    [
        ("0.32.0", 1_000, 0, True),
        ("0.32.0", 1_001, 0, False),
        ("0.14.1", 4, 0, False),
        ("0.20.2", 4, 3, False),
        ("0.32.0", 4, 3, True),
    ],
)
def test_it_is_unknown_where_the_rate_is_of_something_else(
    version: str, requests: int, waiting: int, known: bool
) -> None:
    """After 1,000 requests, where the throughput counts all tokens, and where a look-up counts at every try."""
    line = stats(0, version, 1200.0, "40.0").replace("Waiting: 0", f"Waiting: {waiting}")
    (period,) = periods(start(version, True) + access(requests) + line)
    assert (period["looked_up_tokens"] is not None) is known


def test_without_the_start_it_is_unknown() -> None:
    (period,) = periods(access(4) + stats(0, "0.32.0", 1200.0, "40.0"))
    assert period["looked_up_tokens"] is None
