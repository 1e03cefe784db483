"""Prompts of their own that only begin alike, and what must not be taken for them."""

from __future__ import annotations

from cachedoctor.engines.llamacpp.conversations.interleaved import CommonHeads, OneShot

REPLY = 10


def found(prompts: list[int], head: int = 40) -> set[int]:
    """Indexes of the prompts that were told to be separate, once all of them were seen."""
    heads = CommonHeads()
    out: set[int] = set()
    for index, prompt in enumerate(prompts):
        out |= {p.index for p in heads.note(OneShot(index, head if index else None, prompt, prompt + REPLY))}
    return out


def test_prompts_in_no_order_are_separate() -> None:
    assert found([1200, 1500, 1100, 1400, 1000, 1450, 1300, 1050]) == set(range(8))


def test_turns_of_one_conversation_are_not() -> None:
    assert not found([1000 + 150 * turn for turn in range(16)])


def test_conversations_of_five_turns_one_after_the_other_are_not() -> None:
    assert not found([1000 + 150 * turn for _ in range(4) for turn in range(5)])


def test_conversations_in_turn_are_not_though_most_steps_fall() -> None:
    assert not found([length + 150 * turn for turn in range(5) for length in (1300, 1200, 1100, 1000)])


def test_conversations_in_turn_are_not_when_another_begins() -> None:
    turns = [length + 200 * turn for turn in range(6) for length in (1000, 700)]
    assert not found([*turns, 800])


def test_side_requests_between_growing_turns_are_not() -> None:
    assert not found([n for turn in range(8) for n in (2000 + 150 * turn, 120 - turn)])


def test_other_heads_do_not_count() -> None:
    heads = CommonHeads()
    for index, prompt in enumerate([1200, 1500, 1100, 1400, 1000, 1450, 1300, 1050]):
        assert not heads.note(OneShot(index, 40 + 100 * index, prompt, prompt + REPLY))


def test_a_growing_conversation_takes_the_verdict_back() -> None:
    heads = CommonHeads()
    lengths = [1200, 1500, 1100, 1400, 1000, 1450, 1300, 1050, *range(1500, 4700, 200)]
    for index, prompt in enumerate(lengths):
        heads.note(OneShot(index, 40, prompt, prompt + REPLY))
    assert not heads.separate(40)
