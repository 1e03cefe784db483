"""Which requests belong to one conversation: the look-alikes that decide it."""

from __future__ import annotations

from typing import Any

from cachedoctor.engines.llamacpp.threads import Thread, Threads
from cachedoctor.model import Request


def request(index: int, prompt: int, **fields: Any) -> Request:
    made = Request(index, 0, "server.log", 0, index, 10 * index + 1, 10 * index + 9)
    made.prompt_tokens = prompt
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def ended(threads: Threads, made: Request, thread: Thread | None, total: int) -> Thread:
    return threads.record(made, thread, total)


def test_a_thread_that_another_slot_holds_is_not_continued_on_an_empty_one() -> None:
    """Two chats in two slots: the second, a little longer, is no next turn of the first."""
    threads = Threads()
    first = ended(threads, request(0, 3000), None, 3100)
    newcomer = request(1, 3500, held_tokens=0, t_last=-1)
    assert threads.join(newcomer, {first.id}) is None
    assert threads.join(newcomer, set()) is first


def test_with_a_shared_head_the_prompt_goes_to_the_thread_it_extends() -> None:
    """Two chats share 20,000 tokens: a prompt that extends the first is not an edit of the second."""
    threads = Threads()
    first = ended(threads, request(0, 23000), None, 23099)
    second = ended(threads, request(1, 22500), None, 22600)
    back = request(2, 24902, held_thread=second.id, held_tokens=22600, common_prefix_tokens=20000, cached_tokens=20000)
    assert threads.join(back, set()) is first


def test_an_edit_stays_in_its_thread() -> None:
    """Nothing else goes further than the common prefix: the same conversation, changed behind it."""
    threads = Threads()
    ended(threads, request(0, 1000), None, 1100)
    main = ended(threads, request(1, 22500), None, 22600)
    edited = request(2, 22900, held_thread=main.id, held_tokens=22600, common_prefix_tokens=20000, cached_tokens=20000)
    assert threads.join(edited, set()) is main


def test_a_shorter_prompt_with_little_in_common_is_a_new_conversation() -> None:
    threads = Threads()
    old = ended(threads, request(0, 16000), None, 16100)
    new = request(1, 7000, held_thread=old.id, held_tokens=16100, common_prefix_tokens=6000, cached_tokens=6000)
    assert threads.join(new, set()) is None


def test_the_same_prompt_sent_again_is_no_new_conversation() -> None:
    """All of it matches, though it is less than half of what the slot holds."""
    threads = Threads()
    old = ended(threads, request(0, 3005), None, 3009)
    again = request(1, 1500, held_thread=old.id, held_tokens=3009, common_prefix_tokens=1500, cached_tokens=0)
    assert threads.join(again, set()) is old


def test_a_restore_parts_a_side_request_from_the_main_chat() -> None:
    """RAM gives back 3,099 tokens: the longer prompt in between was another conversation, and so are the next ones."""
    threads = Threads()
    main = ended(threads, request(0, 3000), None, 3099)
    side = request(1, 3507, held_thread=main.id, held_tokens=3099, common_prefix_tokens=0, cached_tokens=0)
    assert threads.join(side, set()) is main  # nothing tells them apart yet
    ended(threads, side, main, 3566)
    found, moved = threads.split(3099, 4, before=21)
    assert found is main
    assert (found.total, found.turns) == (3099, 1)
    (newcomer,) = moved
    assert (newcomer.request, newcomer.thread != main.id, newcomer.turn, newcomer.held_thread) == (
        side,
        True,
        0,
        main.id,
    )
    later = request(3, 5109, held_thread=found.id, held_tokens=3099, common_prefix_tokens=0, cached_tokens=0)
    later.ram_looked = True
    assert threads.join(later, set()) is None
