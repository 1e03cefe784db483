"""What tests/e2e/whatif counts on: options as --set says them, an order that can be wrong, a verdict that can fail."""

from __future__ import annotations

import pytest
from e2e.whatif.__main__ import passed
from e2e.whatif.asked import RECORDED, Answer, misplaced
from e2e.whatif.questions import ALL, Question

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor.replaying.server_names import changed
from cachedoctor.knowledge.builds import NEWEST

DAY = Question("eight_ram_small", "dense", ())
"""-np 4 -c 49152 --cache-ram 1 -lv 4."""


@pytest.mark.parametrize(
    ("setting", "build", "options"),
    [
        ("cache-ram=8192", NEWEST, "-np 4 -c 49152 -lv 4 --cache-ram 8192"),
        ("np=6 c=73728", NEWEST, "--cache-ram 1 -lv 4 -np 6 -c 73728"),
        ("swa-full=on", NEWEST, "-np 4 -c 49152 --cache-ram 1 -lv 4 --swa-full"),
        ("build=9713", 9713, "-np 4 -c 49152 --cache-ram 1 -lv 4"),
    ],
)
def test_a_setting_takes_the_place_of_what_the_day_had(setting: str, build: int, options: str) -> None:
    assert DAY.under(setting) == (build, tuple(options.split()))


def test_an_option_that_a_day_lacks_has_as_many_dashes_as_it_needs() -> None:
    assert Question("three_on_auto", "dense", ()).under("np=1")[1][-2:] == ("-np", "1")


def test_there_are_twenty_questions_that_simulate_knows() -> None:
    assert len({question.name for question in ALL}) == len(ALL) >= 20
    for question in ALL:
        for setting in question.settings:
            base = ServerSettings(build=question.build, context=1, ctx_checkpoints=7)
            assert changed(base, setting.split()) != base, (question.name, setting)


def test_answers_are_within_two_percent_or_few_tokens() -> None:
    assert Answer("x", 10_000, 10_200).within
    assert not Answer("x", 10_000, 10_201).within
    assert Answer("x", 100, 164).within
    assert not Answer("x", 100, 165).within


def test_settings_that_are_ranked_wrongly_are_named() -> None:
    low, high, alike = Answer(RECORDED, 1000, 1500), Answer("a", 2000, 1400), Answer("b", 2010, 1300)
    assert misplaced([low, high]) == [(RECORDED, "a")]
    assert misplaced([Answer(RECORDED, 1000, 1400), high]) == [(RECORDED, "a")], "a tie is no order"
    assert misplaced([Answer(RECORDED, 1000, 900), high]) == []
    assert misplaced([high, alike]) == [], "they do not really differ"


@pytest.mark.parametrize(
    ("asked", "within", "ranked", "good"),
    [(20, 18, 20, True), (20, 17, 20, False), (20, 20, 19, False), (0, 0, 0, False)],
)
def test_nine_of_ten_have_to_be_right_and_every_order(asked: int, within: int, ranked: int, good: bool) -> None:
    assert passed(asked, within, ranked) is good
