"""Slots that lose what they hold without a line about it: no conversation took them."""

from __future__ import annotations

from typing import Any

import made
import pytest

from cachedoctor.diagnosis.differential.votes import excluded
from cachedoctor.diagnosis.rules.context import RuleContext, was_emptied
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.diagnosis.rules.slots.taken import other_held
from cachedoctor.doctor.findings.history import FindingHistory
from cachedoctor.model import Facts, Judged, Request, Setting, Verdict

APART = Facts(0, "log", settings={"kv_unified": Setting(False, 1)})
GOES_ON = {
    "thread": 0, "held_thread": 0, "thread_turn": 3, "outcome": "reprocessed", "selected_by": "lru", "facts": APART,
    "prompt_tokens": 2400, "cached_tokens": 0, "reference_tokens": 2100, "text_lcp": 2100, "lost_tokens": 2100,
    "lost_server": 2100,
}  # fmt: skip


def turn(**fields: Any) -> Request:
    return made.request(**{**GOES_ON, **fields})


@pytest.mark.parametrize(
    ("fields", "emptied"),
    [
        ({}, True),
        ({"selected_by": "lcp"}, False),
        ({"held_thread": 1}, False),
        ({"cached_tokens": 9}, False),
        ({"uncached": True}, False),
        ({"text_lcp": 400}, False),
        ({"text_lcp": None}, False),
        ({"facts": Facts(0, "log", settings={"kv_unified": Setting(True, 1)})}, False),
    ],
    ids=["own", "similar", "taken", "a-frame", "uncached", "changed", "no-text", "one-cache"],
)
def test_a_slot_that_was_its_own_has_lost_what_goes_on(fields: dict[str, Any], emptied: bool) -> None:
    """A slot that holds what a prompt begins with is chosen for that, whatever kind of memory the model has."""
    assert was_emptied(turn(**fields)) is emptied


@pytest.mark.parametrize(
    ("codes", "cached", "held"),
    [(("CD901",), 0, False), (("CD901",), 9, True), (("CD306",), 0, True), (None, 0, True)],
    ids=["unexplained", "a-frame-is-left", "purged", "never"],
)
def test_what_empties_slots_is_not_another_conversation(codes: tuple[str, ...] | None, cached: int, held: bool) -> None:
    """Another conversation's prompt in the slot shares a few tokens with any of the same template."""
    past = FindingHistory()
    if codes is not None:
        past.remember(Judged(turn(), Verdict(codes)))
    other = turn(index=1, held_thread=1, cached_tokens=cached)
    assert other_held(RuleContext(other, Setup(Facts(0, "log")), [], None, 2, 1, remembered=past)) is held


@pytest.mark.parametrize(("text_lcp", "is_excluded"), [(2100, True), (300, False), (None, False)])
def test_texts_that_were_sent_again_exclude_the_clients(text_lcp: int | None, is_excluded: bool) -> None:
    found = excluded([turn(text_lcp=text_lcp), turn(index=1, outcome="reused", lost_tokens=0, text_lcp=None)])
    assert ({"head", "body", "none"} <= found) is is_excluded
