"""Which requests belong to one conversation: the look-alikes that decide it."""

from __future__ import annotations

from typing import Any

import made
import pytest
from made import joined
from made import recorded as ended
from msgspec.structs import replace

from cachedoctor.diagnosis.rules.kit import FindingText, Match, Proof, RequestRule, RuleContext
from cachedoctor.doctor.findings.diagnosis import MAX_SESSIONS, Diagnosis
from cachedoctor.doctor.findings.history import WINDOW
from cachedoctor.engines.llamacpp.conversations.interleaved import InterleavedTurn
from cachedoctor.engines.llamacpp.conversations.join import MAX_THREADS, SPAN, Conversations
from cachedoctor.engines.llamacpp.settle import judge_again
from cachedoctor.model import Mark, Request, Session


def request(index: int, prompt: int, **fields: Any) -> Request:
    return made.request(
        index=index, task=index, first_line=10 * index + 1, last_line=10 * index + 9, prompt_tokens=prompt, **fields
    )


def test_a_thread_that_another_slot_holds_is_not_continued_on_an_empty_one() -> None:
    """Two chats in two slots: the second, a little longer, is not a next turn of the first."""
    threads = Conversations()
    first = ended(threads, request(0, 3000), None, 3100)
    newcomer = request(1, 3500, held_tokens=0, t_last=-1)
    assert joined(threads, newcomer, first.id) is None
    assert joined(threads, newcomer) is first


def test_with_a_shared_head_the_prompt_goes_to_the_thread_it_extends() -> None:
    """Two chats share 20,000 tokens: a prompt that extends the first is not an edit of the second."""
    threads = Conversations()
    first = ended(threads, request(0, 23000), None, 23099)
    second = ended(threads, request(1, 22500), None, 22600)
    back = request(2, 24902, held_thread=second.id, held_tokens=22600, common_prefix_tokens=20000, cached_tokens=20000)
    assert joined(threads, back) is first


def test_an_edit_stays_in_its_thread() -> None:
    """Nothing else goes further than the common prefix: the same conversation, changed after it."""
    threads = Conversations()
    ended(threads, request(0, 1000), None, 1100)
    main = ended(threads, request(1, 22500), None, 22600)
    edited = request(2, 22900, held_thread=main.id, held_tokens=22600, common_prefix_tokens=20000, cached_tokens=20000)
    assert joined(threads, edited) is main


def test_a_shorter_prompt_with_little_in_common_is_a_new_conversation() -> None:
    threads = Conversations()
    old = ended(threads, request(0, 16000), None, 16100)
    new = request(1, 7000, held_thread=old.id, held_tokens=16100, common_prefix_tokens=6000, cached_tokens=6000)
    assert joined(threads, new) is None


def test_the_same_prompt_sent_again_is_not_a_new_conversation() -> None:
    """All of it matches, though it is less than half of what the slot holds."""
    threads = Conversations()
    old = ended(threads, request(0, 3005), None, 3009)
    again = request(1, 1500, held_thread=old.id, held_tokens=3009, common_prefix_tokens=1500, cached_tokens=0)
    assert joined(threads, again) is old


def test_a_restore_parts_a_side_request_from_the_main_chat() -> None:
    """RAM gives back 3,099 tokens: the longer prompt in between was another conversation, and so are the next ones."""
    threads = Conversations()
    main = ended(threads, request(0, 3000), None, 3099)
    side = request(1, 3507, held_thread=main.id, held_tokens=3099, common_prefix_tokens=0, cached_tokens=0)
    assert joined(threads, side) is main  # nothing tells them apart yet
    ended(threads, side, main, 3566)
    found, moved = threads.split(3099, 4, before=21)
    assert found is main
    assert (found.total, found.turns) == (3099, 1)
    (newcomer,) = moved
    assert (newcomer.turn.request, newcomer.thread != main.id, newcomer.number, newcomer.held_thread) == (
        side,
        True,
        0,
        main.id,
    )
    later = request(
        3, 5109, held_thread=found.id, held_tokens=3099, common_prefix_tokens=0, cached_tokens=0, ram_looked=True
    )
    assert joined(threads, later) is None


def test_parted_conversations_count_towards_the_bound() -> None:
    """State is bounded however often a RAM restore parts one conversation into two."""
    threads = Conversations()
    for index in range(3 * MAX_THREADS):
        thread = ended(threads, request(3 * index, 5000 + index), None, 5100 + index)
        thread.recent.append(InterleavedTurn(request(3 * index + 1, 900, common_prefix_tokens=4, cached_tokens=4), 950))
        assert threads.split(5100 + index, 1, 10**6)[0] is thread
    known = [threads.get(id) for id in range(6 * MAX_THREADS)]
    assert sum(found is not None for found in known) == MAX_THREADS


def test_a_request_judged_again_is_seen_with_what_came_before_it_alone() -> None:
    """Of slot and thread: later requests are known by then, and are not history."""
    seen: list[tuple[int, int | None, list[int]]] = []

    def decide(s: RuleContext) -> Match:
        before = None if s.slot_before is None else s.slot_before.index
        seen.append((s.request.index, before, [r.index for r in s.history]))
        return Match(1, "low")

    def prove(_: RuleContext, __: Match) -> Proof:
        return Proof((Mark(1, b""), ""))

    rule = RequestRule("CD999", "spy", "", decide, prove, lambda _: FindingText("", "", []), on=("loss",))
    diagnosis, session = Diagnosis([rule], []), Session(0, "server.log", None)
    turns = [request(i, 2000 + i, thread=0, outcome="partial", lost_tokens=1) for i in range(4)]
    for turn in turns:
        diagnosis.examine(turn, session)
    diagnosis.revise(replace(turns[1], thread=1, revision=1), session)
    diagnosis.revise(replace(turns[2], revision=1), session)
    assert seen[4:] == [(1, 0, []), (2, 1, [0])]
    diagnosis.revise(replace(turns[1], revision=2), session)
    diagnosis.examine(request(4, 2004, thread=0, outcome="partial", lost_tokens=1), session)
    assert seen[6:] == [(1, 0, [0]), (4, 3, [0, 1, 2, 3])]
    assert diagnosis.findings()[0].count == 5


@pytest.mark.parametrize(("others", "again"), [(SPAN - 2, [1]), (SPAN - 1, [])])
def test_a_request_of_long_ago_is_not_judged_twice(others: int, again: list[int]) -> None:
    """A restore shows late that a side request was one; what the rules said of it can no longer be taken back."""
    talk = Conversations()
    main = ended(talk, request(0, 5000), None, 5100)
    side = request(1, 900, common_prefix_tokens=4, cached_tokens=4, thread=main.id, released_tokens=950)
    ended(talk, side, main, 950)
    back = request(1 + others + 1, 5300)
    _, moved = talk.split(5100, 1, back.first_line)
    revised, owners = judge_again(moved, back.index, talk, {}, {})
    assert [found.index for found in revised] == again
    assert owners == {}, "no slot holds what moved"
    (turn,) = (move.turn for move in moved)
    assert turn.request.thread != main.id


def test_a_life_that_is_over_is_forgotten() -> None:
    diagnosis = Diagnosis([], [])
    for number in range(3):
        for turn in range(2):
            session = Session(number, "server.log", None)
            diagnosis.examine(request(2 * number + turn, 2000, thread=0, outcome="cold"), session)
    assert list(diagnosis._memory) == [2]
    diagnosis.forget()
    assert not diagnosis._memory


def test_very_many_servers_are_not_remembered_for_ever() -> None:
    diagnosis = Diagnosis([], [])
    sessions = [Session(number, "server.log", str(number)) for number in range(3 * MAX_SESSIONS)]
    for session in sessions:
        diagnosis.examine(request(2 * session.index, 2000, thread=0, outcome="cold"), sessions[0])
        diagnosis.examine(request(2 * session.index + 1, 2000, thread=0, outcome="cold"), session)
    assert len(diagnosis._memory) == MAX_SESSIONS
    assert len(diagnosis._memory[0].threads[0]) == WINDOW, "the one in use all the time is kept"


def test_a_somewhat_longer_prompt_is_not_a_next_turn_of_a_single_request() -> None:
    """Separate questions of about the same length: 8 tokens more are not turn; 40 more may be one."""
    threads = Conversations()
    single = ended(threads, request(0, 1485), None, 1490)
    near = request(1, 1498, held_thread=single.id, held_tokens=1490, common_prefix_tokens=11, cached_tokens=11)
    assert joined(threads, near) is None
    further = request(2, 1530, held_thread=single.id, held_tokens=1490, common_prefix_tokens=11, cached_tokens=11)
    assert joined(threads, further) is single


def test_a_short_turn_of_a_conversation_that_has_gone_on_is_one() -> None:
    """Its second request extended the first; a third one with little more belongs to it, though its slot was taken."""
    threads = Conversations()
    main = ended(threads, request(0, 2000), None, 2040)
    ended(threads, request(1, 2100, held_thread=main.id, held_tokens=2040, common_prefix_tokens=2040), main, 2140)
    other = ended(threads, request(2, 900), None, 950)
    back = request(3, 2148, held_thread=other.id, held_tokens=950, common_prefix_tokens=11, cached_tokens=11)
    assert joined(threads, back) is main
