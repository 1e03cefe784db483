"""Prompt time by depth: numbers made with a known law must give that law back."""

from __future__ import annotations

import made
import pytest

from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.model import Request


def request(cached: int, processed: int, ms: float) -> Request:
    return made.request(cached_tokens=cached, processed_tokens=processed, prompt_ms=ms)


def time_of(start: int, end: int, base: float = 0.5, rise: float = 1e-5) -> float:
    """Milliseconds at ``base + rise * depth`` per token."""
    return base * (end - start) + rise * (end * end - start * start) / 2


def trained(*spans: tuple[int, int]) -> PromptSpeed:
    speed = PromptSpeed()
    for start, end in spans:
        speed.learn(request(start, end - start, time_of(start, end)))
    return speed


SPANS = ((0, 1000), (0, 20_000), (50_000, 60_000), (0, 100_000), (90_000, 120_000))


def test_the_law_is_found() -> None:
    assert trained(*SPANS).slope == pytest.approx(1e-5 / 0.5, rel=1e-6)


def test_saved_tokens_are_in_front_and_cost_less_than_their_share() -> None:
    """50,000 of 100,000 tokens: 37.5 s of 100 s, not half."""
    whole = request(0, 100_000, time_of(0, 100_000))
    assert whole.prompt_ms == 100_000
    assert trained(*SPANS).cost(whole, 50_000)[0] == pytest.approx(time_of(0, 50_000)) == pytest.approx(37_500)


def test_after_a_cached_prefix_the_depth_counts_from_there() -> None:
    part = request(50_000, 10_000, time_of(50_000, 60_000))
    assert trained(*SPANS).cost(part, 4_000)[0] == pytest.approx(time_of(50_000, 54_000))


def test_no_more_than_was_computed_is_charged() -> None:
    one = request(0, 1000, 250.0)
    assert trained(*SPANS).cost(one, 9_999_999)[0] == pytest.approx(250.0)


@pytest.mark.parametrize(
    "spans",
    [SPANS[:3], ((0, 1000),) * 9, ((0, 200), (0, 100), (9000, 9100), (0, 255), (70_000, 70_200))],
    ids=["too-few", "one-depth", "too-short"],
)
def test_without_a_slope_the_mean_speed_counts(spans: tuple[tuple[int, int], ...]) -> None:
    speed = trained(*spans)
    assert speed.slope == 0.0
    assert speed.cost(request(0, 1000, 500.0), 100)[0] == pytest.approx(50.0)


def test_a_server_that_gets_faster_with_depth_has_no_slope() -> None:
    speed = PromptSpeed()
    for start, end in SPANS:
        speed.learn(request(start, end - start, (end - start) / (1 + start + end)))
    assert speed.slope == 0.0


def test_unknown_times_cost_nothing() -> None:
    assert trained(*SPANS).cost(made.request(cached_tokens=0, processed_tokens=1000), 500)[0] == 0.0
