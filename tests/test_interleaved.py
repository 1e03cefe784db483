"""Two conversations with one head on one slot, and everything that looks like them."""

from __future__ import annotations

import pytest
from made import joined, recorded, request
from msgspec.structs import replace

from cachedoctor.engines.llamacpp.conversations.interleaved import CommonHeads, InterleavedTurn, OneShot, read
from cachedoctor.engines.llamacpp.conversations.join import Conversations

HEAD = 12_000


def turns(*rows: tuple[int, int | None], reply: int = 300) -> list[InterleavedTurn]:
    """(prompt, common prefix with the slot's content), in tokens; each answered with ``reply`` tokens."""
    made = []
    for index, (prompt, lcp) in enumerate(rows):
        one = request(
            index=index, task=index, first_line=10 * index + 1, last_line=10 * index + 9, prompt_tokens=prompt,
            common_prefix_tokens=lcp,
        )  # fmt: skip
        made.append(InterleavedTurn(one, prompt + reply))
    return made


def parties(*rows: tuple[int, int | None], reply: int = 300) -> list[list[int]] | None:
    """Indexes by conversation, when the lengths leave no other reading."""
    reading = read(turns(*rows, reply=reply))
    if reading is None or not reading.holds:
        return None
    return [[turn.request.index for turn in party] for party in reading.parties]


def test_two_sessions_in_turn() -> None:
    """Each prompt continues where the last but one ended, and is too short for the last."""
    rows = [(14_000, None), (13_900, HEAD), (14_500, HEAD), (14_400, HEAD)]
    assert parties(*rows) == [[0, 2], [1, 3]]


def test_a_sub_agent_between_the_turns_of_a_long_session() -> None:
    """It takes three turns of its own; the long session comes back twice."""
    rows = [
        (20_000, None), (13_000, HEAD), (13_500, 13_300), (14_000, 13_800), (20_700, HEAD), (15_000, HEAD),
        (21_400, HEAD),
    ]  # fmt: skip
    assert parties(*rows) == [[0, 4, 6], [1, 2, 3, 5]]


@pytest.mark.parametrize(
    "rows",
    [
        # one place changes with every turn of a growing conversation: a date after the system prompt
        [(14_000, None), (14_600, HEAD), (15_200, HEAD), (15_800, HEAD), (16_400, HEAD)],
        # the last user message is rewritten three times
        [(14_000, None), (14_010, 13_900), (13_990, 13_900), (14_020, 13_900), (14_005, 13_900)],
        # a rolling window: the oldest turns are dropped, the length stays
        [(14_000, None), (14_020, HEAD), (13_980, HEAD), (14_050, HEAD), (14_010, HEAD), (13_990, HEAD)],
        # changes at different places
        [(14_000, None), (13_900, 12_000), (14_500, 12_900), (14_400, 12_400)],
        # only ever appended
        [(14_000, None), (14_600, 14_300), (15_200, 14_900)],
        # a branch that is not returned to
        [(14_000, None), (13_000, HEAD), (13_500, 13_300), (14_000, 13_800)],
        # one return, though not to what the slot held: a history rewritten twice has these lengths, too
        [(13_000, None), (13_900, HEAD), (13_600, HEAD)],
        # the numbers are hidden
        [(14_000, None), (13_900, None), (14_500, HEAD), (14_400, HEAD)],
    ],
    ids=["fixed-place", "edited", "rolling-window", "places", "appended", "branch", "one-return", "hidden"],
)
def test_one_conversation_stays_one(rows: list[tuple[int, int | None]]) -> None:
    assert parties(*rows) is None


def run(threads: Conversations, rows: list[tuple[int, int | None]]) -> list[tuple[int | None, int]]:
    """Feed turns on one slot; thread of each as judged at the end, and how many more it could continue."""
    slot: tuple[int | None, int | None] = (None, 0)
    judged: dict[int, int | None] = {}
    more: dict[int, int] = {}
    for turn in turns(*rows):
        one = replace(turn.request, held_thread=slot[0], held_tokens=slot[1])
        thread = recorded(threads, one, joined(threads, one), turn.total)
        judged[one.index] = thread.id
        moved, more[one.index] = threads.divide(thread, roomy=False)
        for move in moved:
            judged[move.turn.request.index] = move.thread
        slot = (judged[one.index], turn.total)
    return [(judged[index], more[index]) for index in sorted(judged)]


def test_requests_judged_before_are_moved_to_their_own_conversation() -> None:
    """At the fourth request it is clear; the second was the first of the other conversation."""
    rows: list[tuple[int, int | None]] = [
        (14_000, None),
        (13_900, HEAD),
        (14_500, HEAD),
        (14_400, HEAD),
        (15_000, HEAD),
    ]
    assert [thread for thread, _ in run(Conversations(), rows)] == [0, 1, 0, 1, 0]


def test_a_reading_that_is_not_proven_only_lowers_confidence() -> None:
    """One return may be an edit: nothing is moved, the other reading is counted."""
    rows: list[tuple[int, int | None]] = [(14_000, None), (13_900, HEAD), (14_500, HEAD)]
    assert run(Conversations(), rows) == [(0, 0), (0, 0), (0, 1)]


def test_prompts_of_about_one_length_are_not_read_as_returns() -> None:
    """A client that sends its first and its last exchanges only: some prompt is always a little longer than another."""
    rows = [(2387, None), (2294, 1223), (2223, 1223), (2152, 1223), (2256, 1223), (2256, 1223)]
    assert parties(*rows, reply=5) is None


def separate(prompts: list[int]) -> bool:
    """Whether prompts that share a frame alone are found to be separate ones."""
    heads = CommonHeads()
    found = [heads.note(OneShot(at, 8, prompt, prompt + 5)) for at, prompt in enumerate(prompts)]
    return any(found)


def test_forms_of_any_length_do_not_hide_the_chat_between_them() -> None:
    chat, forms = [1728, 1909, 2306, 2536, 2881, 3168], [1622, 1811, 1592, 1831, 1538, 1635]
    assert not separate([length for pair in zip(chat, forms, strict=True) for length in pair])
    assert separate([length for pair in zip(forms, chat[::-1], strict=True) for length in pair])
