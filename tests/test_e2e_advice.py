"""What tests/e2e/advice counts on: a verdict that can fail, and advice that is followed as it is printed."""

from __future__ import annotations

import pytest
from conftest import FIXTURES
from e2e.advice.__main__ import off, plans
from e2e.advice.followed import Advice, Followed, Way, changed, first, judged
from e2e.days.run import Plan

import cachedoctor


def plan(name: str) -> Plan:
    return next(one for one in plans() if one.situation.name == name)


def advice(run: str) -> Advice:
    found = first(cachedoctor.analyze(FIXTURES / run / "server.log", build=11549))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("faulty", "best", "after", "verdict"),
    [
        (10_000, 2_000, 2_000, "fixed"), (10_000, 2_000, 6_000, "fixed"), (10_000, 2_000, 6_001, "in part"),
        (10_000, 2_000, 9_600, "no effect"), (10_000, 2_000, 10_400, "no effect"), (10_000, 2_000, 10_401, "worse"),
    ],
)  # fmt: skip
def test_half_of_the_best_saving_is_a_fix(faulty: int, best: int, after: int, verdict: str) -> None:
    assert judged(faulty, best, after) == verdict


def test_there_are_thirty_faulty_days_on_three_kinds_of_memory_and_more() -> None:
    every = plans()
    assert len({one.name for one in every}) == len(every) >= 30
    assert {one.kind for one in every} == {"dense", "swa", "hybrid", "recurrent"}
    assert all(one.situation.is_faulty for one in every)


def test_options_take_the_place_of_those_that_the_server_had() -> None:
    one = plan("eight_auto_ram_small")
    way = changed(one, Way(one.options), advice("days/dense-eight_auto_ram_small-b11549-default"))
    assert way is not None
    assert way.options[:2] == ("-c", "32768")
    assert way.options.count("--cache-ram") == 1
    assert not way.is_look


def test_a_look_changes_nothing_but_what_is_seen() -> None:
    one = plan("clock_beside")
    way = changed(one, Way(one.options), advice("days/dense-short_instruction_auto-b11549-lv4"))
    assert way is not None
    assert (way.is_look, way.is_mended, way.has_bodies) == (True, False, True)


def test_a_client_is_fixed_only_by_advice_on_what_it_does() -> None:
    """The traffic of a day has one fault: advice on another one changes nothing."""
    said = advice("days/dense-not_cached-b11549-lv4")
    assert said.finding.name == "cache-prompt-off"
    for name, is_mended in (("not_cached", True), ("clock_beside", False)):
        way = changed(plan(name), Way(()), said)
        assert (way is not None and way.is_mended) is is_mended


def test_a_prediction_is_held_to_two_percent_unless_it_is_an_estimate() -> None:
    said = advice("days/dense-not_cached-b11549-lv4")
    one = plan("six_on_four")

    def followed(predicted: int, after: int, *, is_exact: bool = True) -> Followed:
        told = said._replace(predicted=predicted, is_exact=is_exact)
        return Followed(one, [told], "fixed", 60_000, 5_000, after)

    assert off([followed(50_000, 10_000), followed(51_000, 10_000), followed(49_000, 10_000)]) == []
    assert off([followed(51_001, 10_000)]) == [f"{one.name}: predicted 51,001, measured 50,000"]
    assert off([followed(1_000, 10_000, is_exact=False)]) == []
