"""Histograms of /metrics: two groups of requests are seen where there are two, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_vllm_lookalikes import access, report_of, start, stats

EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
Counts = dict[int, int]


def histogram(name: str, counts: Counts) -> str:
    total, lines = 0, [f"# TYPE vllm:{name} histogram"]
    for edge in EDGES:
        total += counts.get(edge, 0)
        lines.append(f'vllm:{name}_bucket{{engine="0",le="{edge}.0",model_name="m"}} {total}.0')
    lines.append(f'vllm:{name}_bucket{{engine="0",le="+Inf",model_name="m"}} {total}.0')
    return "\n".join(lines) + "\n"


def dump(folder: Path, computed: Counts, prompts: Counts, name: str = "metrics.txt") -> str:
    requests = sum(prompts.values())
    counters = "".join(
        f'# TYPE vllm:{series} counter\nvllm:{series}_total{{engine="0",model_name="m"}} {value}.0\n'
        for series, value in (
            ("prefix_cache_queries", 100_000),
            ("prefix_cache_hits", 50_000),
            ("prompt_tokens", 100_000),
        )
    )
    success = (
        f'# TYPE vllm:request_success counter\nvllm:request_success_total{{engine="0",model_name="m"}} {requests}.0\n'
    )
    text = histogram("request_prefill_kv_computed_tokens", computed) + histogram("request_prompt_tokens", prompts)
    (folder / name).write_text(counters + success + text)
    return str(folder / name)


LOG = start("0.32.0", True) + "".join(access(10) + stats(10 * at, "0.32.0", 1200.0, "50.0") for at in range(3))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("computed", "prompts", "seen"),
    [
        ({200: 20, 2000: 15}, {2000: 15, 5000: 20}, True),
        ({200: 20, 2000: 15}, {2000: 35}, True),  # both of one length
        ({200: 33, 2000: 2}, {2000: 35}, False),  # first requests of two conversations
        ({200: 20, 1000: 15}, {1000: 15, 5000: 20}, False),  # too near to each other to be two
        ({200: 20, 2000: 15}, {10000: 35}, False),  # the second group computes a fifth of its prompts
        ({200: 8, 2000: 8}, {2000: 16}, False),  # too few
        ({2000: 35}, {2000: 35}, False),
    ],
)
def test_two_groups(computed: Counts, prompts: Counts, seen: bool, tmp_path: Path) -> None:
    report = report_of(LOG, tmp_path, "--metrics", dump(tmp_path, computed, prompts))
    found = [f for f in report["findings"] if f["code"] == "CD510"]
    assert [(f["severity"], f["confidence"]) for f in found] == ([("note", "medium")] if seen else [])
    if seen:
        assert "20 requests computed at most 200" in found[0]["claim"]
        assert "15 requests computed at least 1,000" in found[0]["claim"]


def test_of_two_dumps_the_difference_counts(tmp_path: Path) -> None:
    before = dump(tmp_path, {200: 20, 2000: 15}, {2000: 35}, "before.txt")
    after = dump(tmp_path, {200: 60, 2000: 16}, {2000: 76}, "after.txt")
    report = report_of(LOG, tmp_path, "--metrics", before, "--metrics", after)
    assert report["findings"] == []
    (counted,) = report["sessions"][0]["counters"]
    assert {b["most"]: b["requests"] for b in counted["computed_per_request"] if b["requests"]} == {
        200.0: 40,
        2000.0: 1,
    }
