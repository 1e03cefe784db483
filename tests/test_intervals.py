"""The interval of a difference holds the truth as often as it says, and knows what it does not know."""

from __future__ import annotations

import random

import pytest

from cachedoctor.doctor.compare import tally
from cachedoctor.doctor.compare.tally import FEWEST, RatioTerms, difference, ratio


def conversations(chance: random.Random, count: int, reuse: float) -> list[RatioTerms]:
    """As in traffic: lengths differ a lot, and the requests of one conversation have the same fate."""
    lengths = [chance.lognormvariate(9, 1) for _ in range(count)]
    return [RatioTerms(length * chance.betavariate(reuse * 8, (1 - reuse) * 8), length) for length in lengths]


def test_a_ratio_is_a_sum_by_a_sum() -> None:
    assert ratio([RatioTerms(1, 10), RatioTerms(90, 90)]) == 0.91
    assert ratio([]) is None
    assert ratio([RatioTerms(0, 0)]) is None


@pytest.mark.sweep
@pytest.mark.parametrize("counts", [(FEWEST, FEWEST), (8, 30), (40, 40)])
def test_the_interval_holds_the_truth_in_95_of_100_comparisons(
    counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The truth is 0.4; of 300 comparisons with a chance of 95 % fewer than 272 hit once in 500 times."""
    monkeypatch.setattr(tally, "_DRAWS", 400)
    chance, hits = random.Random(7), 0
    for _ in range(300):
        before, after = conversations(chance, counts[0], 0.4), conversations(chance, counts[1], 0.8)
        found = difference(before, after)
        assert found is not None
        hits += found.low <= 0.4 <= found.high
    assert 272 <= hits <= 297


def test_more_conversations_make_it_narrower() -> None:
    chance = random.Random(1)
    widths = []
    for count in (6, 60, 600):
        found = difference(conversations(chance, count, 0.4), conversations(chance, count, 0.8))
        assert found is not None
        widths.append(found.high - found.low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_too_few_conversations_give_none() -> None:
    some = [RatioTerms(1, 2)] * (FEWEST - 1)
    assert difference(some, [RatioTerms(1, 2)] * 100) is None
    assert difference([RatioTerms(1, 2)] * 100, some) is None
    assert difference([*some, RatioTerms(1, 2)], [RatioTerms(1, 2)] * 100) is not None


def test_conversations_that_tell_nothing_do_not_count() -> None:
    assert difference([RatioTerms(1, 2)] * 4 + [RatioTerms(0, 0)] * 50, [RatioTerms(1, 2)] * 100) is None


def test_conversations_that_are_all_alike_leave_no_doubt() -> None:
    found = difference([RatioTerms(10, 100)] * 9, [RatioTerms(70, 100)] * 9)
    assert found is not None
    assert found.low == found.high == pytest.approx(0.6)


def test_one_long_conversation_among_short_ones_is_not_a_certainty() -> None:
    """Requests were no help: what counts is how many conversations there are."""
    before, after = (
        [RatioTerms(0, 10)] * 9 + [RatioTerms(0, 100_000)],
        [RatioTerms(0, 10)] * 9 + [RatioTerms(90_000, 100_000)],
    )
    found = difference(before, after)
    assert found is not None
    assert found.low <= 0 < found.high


def test_the_same_numbers_give_the_same_interval() -> None:
    chance = random.Random(3)
    before, after = conversations(chance, 900, 0.5), conversations(chance, 20, 0.5)
    assert difference(before, after) == difference(before, after)
