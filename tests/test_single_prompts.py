"""Prompts that are sent once, changes that are behind the head, and further answers to one request."""

from __future__ import annotations

from typing import Any

import made
import pytest

from cachedoctor.diagnosis.rules import lengths
from cachedoctor.diagnosis.rules.context import RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.diagnosis.rules.slots.taken import is_single
from cachedoctor.doctor.findings.history import ONE_OFFS, FindingHistory
from cachedoctor.model import Facts, Judged, Request

LOST: dict[str, Any] = {"selected_by": "lru", "outcome": "reprocessed", "held_thread": 99, "thread_turn": 1}


def turn(index: int, thread: int | None, prompt: int = 1600, **fields: Any) -> Request:
    given = {"outcome": "cold", "slot": 0, "cached_tokens": 0, "lost_tokens": 0, "thread_turn": 0, **fields}
    return made.request(index=index, thread=thread, prompt_tokens=prompt, **given)


def context(past: FindingHistory, request: Request) -> RuleContext:
    before, served = past.before(request)
    return RuleContext(request, Setup(Facts(0, "log")), before, served, 2, 1, remembered=past)


def past_of(*requests: Request) -> FindingHistory:
    past = FindingHistory()
    for request in requests:
        past.remember(Judged(request))
    return past


@pytest.mark.parametrize(
    ("others", "prompt", "went_on", "single"),
    [
        (ONE_OFFS, 1700, False, True),
        (ONE_OFFS - 1, 1700, False, False),
        (ONE_OFFS, 2400, False, False),
        (ONE_OFFS, 1700, True, False),
    ],
    ids=["single", "few", "longer-than-any", "went-on"],
)
def test_length_alone_makes_no_turn_of_a_single_prompt(others: int, prompt: int, went_on: bool, single: bool) -> None:
    """As letters that are answered once; not a long chat beside short prompts, nor a chat that was reused."""
    past = past_of(turn(0, 0), *(turn(n, n) for n in range(1, others + 1)))
    if went_on:
        past.remember(Judged(turn(20, 0, 1650, outcome="reused", thread_turn=1)))
    assert is_single(context(past, turn(30, 0, prompt, reference_tokens=1620, lost_tokens=1600, **LOST))) is single


@pytest.mark.parametrize(
    ("places", "moves"),
    [([916, 1225, 1632], True), ([916, 1225, 1230], False), ([1632, 1225, 916], False)],
    ids=["on", "stays", "back"],
)
def test_text_after_the_history_moves_with_each_turn(places: list[int], moves: bool) -> None:
    """Files that are sent behind the history; a head changes at one place."""
    turns = [
        turn(n, 0, 3600 + 200 * n, thread_turn=n + 1, held_thread=0, outcome="partial", common_prefix_tokens=place)
        for n, place in enumerate(places)
    ]
    assert lengths.moves_on(context(past_of(*turns[:-1]), turns[-1])) is moves


@pytest.mark.parametrize(("place", "behind"), [(2150, True), (1840, False), (900, False)])
def test_a_change_after_the_first_prompt_is_in_the_history(place: int, behind: bool) -> None:
    """Behind it a template writes some tokens, where another conversation diverges as well."""
    past = past_of(turn(0, 0, 1832))
    later = turn(1, 0, 5476, thread_turn=1, held_thread=0, outcome="partial", common_prefix_tokens=place)
    assert context(past, later).is_behind_first is behind


def test_a_further_answer_took_the_slot() -> None:
    """It does so whatever used the slot after it; another slot's answer takes nothing."""
    first, later = turn(0, 0), turn(5, 0, 1900, reference_tokens=1620, lost_tokens=1600, **LOST)
    answer = turn(1, None, 1273, parent=7)
    assert context(past_of(first, answer, turn(2, 1)), later).by_answer
    assert not context(past_of(first, turn(1, None, 1273, parent=7, slot=1)), later).by_answer
