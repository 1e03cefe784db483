"""The replay of llama-server: laws that hold for any traffic, and cases whose numbers real servers gave."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.diagnosis.replay.llamacpp.content import Served, moved
from cachedoctor.diagnosis.replay.llamacpp.context_checkpoints import Checkpoint, added
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import Memory, ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import Happened, TimedRequest, Traffic

BUILDS = st.sampled_from(
    [5311, 5833, 6301, 6628, 6751, 6900, 7079, 7551, 7964, 8156, 8353, 8672, 8929, 9294, 9538, 9713, 9873, 10068, 11549]
)  # fmt: skip
MIB = 1 << 20


class Script:
    """Writes traffic by lengths."""

    def __init__(self) -> None:
        self.tree = PromptTree()
        self.asked: list[TimedRequest] = []
        self.happened: list[Happened] = []

    def ask(
        self,
        length: int,
        common: int = 0,
        of: int | None = None,
        reply: int = 5,
        *,
        starts: Sequence[int] = (),
        ends_after: int = 0,
        like: int | None = None,
        id_slot: int | None = None,
    ) -> int:
        """A prompt that shares ``common`` tokens with the content of request ``of``, or is ``like`` another one."""
        at = len(self.asked)
        if like is not None:
            prompt, content = self.asked[like].prompt, self.asked[like].content
        else:
            prompt = self.tree.branch(None if of is None else self.asked[of].content, common, length)
            content = self.tree.branch(prompt, length, length + reply)
        one = TimedRequest(
            prompt, content, 10 * at, 10 * at + 1 + 10 * ends_after, user_starts=tuple(starts), id_slot=id_slot
        )
        self.asked.append(one)
        return at

    def happen(self, what: str, slot: int = 0, file: str = "") -> None:
        """Something between the last request and the next."""
        self.happened.append(
            msgspec.convert({"moment": 10 * len(self.asked) - 5, "what": what, "slot": slot, "file": file}, Happened)
        )

    def served(self, build: int, **settings_: object) -> list[Served]:
        """What a server does with it."""
        return serve(
            Traffic(self.tree, self.asked, self.happened),
            ServerSettings(build=build, **settings_),  # type: ignore[arg-type]
        )

    def reused(self, build: int, **settings_: object) -> list[int]:
        """Tokens reused."""
        return [one.reused for one in self.served(build, **settings_)]


# ---- laws


@st.composite
def any_traffic(draw: st.DrawFn) -> Traffic:
    """Prompts over few tokens, some of them at the same time, with restarts and slot files."""
    tree, asked, order = PromptTree(), list[TimedRequest](), 0
    texts = draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=40), min_size=1, max_size=14))
    for number, text in enumerate(texts):
        if number and draw(st.booleans()):
            earlier = texts[draw(st.integers(0, number - 1))]
            text = [*earlier, *text]
            texts[number] = text
        reply = draw(st.lists(st.integers(0, 1), max_size=3))
        order += draw(st.integers(1, 3))
        asked.append(
            TimedRequest(
                tree.add(text),
                tree.add([*text, *reply]),
                order,
                order + draw(st.sampled_from([1, 1, 4, 9])),
                user_starts=tuple(sorted(draw(st.sets(st.integers(1, 39), max_size=2)))),
                id_slot=draw(st.sampled_from([None, None, None, 0, 1])),
                choices=draw(st.sampled_from([1, 1, 1, 2])),
                cache_prompt=draw(st.sampled_from([True, True, True, False])),
                completion=draw(st.sampled_from([True, True, True, False])),
            )
        )
    what = st.sampled_from(["restart", "save", "restore", "erase"])
    happened = [Happened(draw(st.integers(0, order)), draw(what), 0, "f") for _ in range(draw(st.integers(0, 2)))]
    return Traffic(tree, asked, happened)


ANY_SETTINGS = st.builds(
    ServerSettings,
    build=BUILDS,
    memory=st.sampled_from(["attention", "swa", "hybrid", "recurrent"]),
    window=st.sampled_from([4, 16]),
    slots=st.sampled_from([1, 2, 3, None]),
    context=st.sampled_from([64, 4096]),
    kv_unified=st.sampled_from([None, True, False]),
    cache_ram_mib=st.sampled_from([0, 1, -1, None]),
    ctx_checkpoints=st.sampled_from([None, 0, 2]),
    checkpoint_min_step=st.sampled_from([None, 0, 4]),
    slot_prompt_similarity=st.sampled_from([None, 0.0, 0.9]),
    swa_full=st.booleans(),
    cache_reuse=st.sampled_from([0, 0, 3]),
    ubatch=st.sampled_from([8, 512]),
    projector=st.booleans(),
    token_bytes=st.sampled_from([0.0, MIB / 60]),
)


@given(any_traffic(), ANY_SETTINGS)
def test_no_more_is_reused_than_was_ever_sent(traffic: Traffic, chosen: ServerSettings) -> None:
    found = serve(traffic, chosen)
    assert len(found) == len(traffic.asked)
    for served, asked, ideal in zip(found, traffic.asked, traffic.ideal, strict=True):
        length = traffic.tree.length(asked.prompt)
        assert served.slot >= 0
        assert min(ideal.tokens, length - 1) <= served.best < length
        assert 0 <= served.reused < length
        if not chosen.cache_reuse:
            assert served.reused <= served.best
            assert served.reused <= served.common
        assert (served.cause != "") == (served.reused < served.best)
        assert asked.cache_prompt or served.reused == 0


@given(any_traffic(), ANY_SETTINGS)
@settings(max_examples=15, deadline=None)
def test_the_same_traffic_gives_the_same_answer(traffic: Traffic, chosen: ServerSettings) -> None:
    assert serve(traffic, chosen) == serve(traffic, chosen)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    BUILDS,
    st.sampled_from([0, 8192]),
    st.integers(4, 6),
)
@settings(max_examples=60, deadline=None)
def test_conversations_that_only_append_always_reuse_where_each_has_a_slot(
    turns: list[int], build: int, ram: int, slots: int
) -> None:
    """All memory of attention; the reply is sent back as it came, and nothing is shared between conversations."""
    script, last, lengths = Script(), dict[int, int](), dict[int, int]()
    expected = []
    for turn in turns:
        held = lengths.get(turn, 0)
        expected.append(held)
        last[turn] = script.ask(held + 50, held, last.get(turn))
        lengths[turn] = held + 55
    assert script.reused(build, slots=slots, cache_ram_mib=ram) == expected


@given(any_traffic(), st.sampled_from([6751, 6900, 8353, 8672, 9713, 11549]))
@settings(max_examples=40, deadline=None)
def test_a_ram_cache_never_costs_one_slot_anything(traffic: Traffic, build: int) -> None:
    """With one slot and attention it holds the last content either way, and an entry is taken only if it is better.

    With more slots, or with checkpoints, no such law holds: an entry that is taken is gone, and brings its own
    checkpoints in the place of those that were there.
    """
    traffic.happened = ()
    alone = [msgspec.structs.replace(one, choices=1, id_slot=None) for one in traffic.asked]
    plain = Traffic(traffic.tree, alone)
    off = serve(plain, ServerSettings(build=build, slots=1, context=1 << 20, cache_ram_mib=0, cache_idle_slots=False))
    on = serve(plain, ServerSettings(build=build, slots=1, context=1 << 20, cache_ram_mib=-1, cache_idle_slots=False))
    assert all(more.reused >= less.reused for more, less in zip(on, off, strict=True))


# ---- what real servers did

S07 = [(1858, 0), (1951, 1863), (2043, 1956), (2133, 2048), (2224, 2138), (2049, 1966), (2049, 1969)]
"""Lengths of prompts, and what each shares with the one before: five turns, the third one edited, and edited again."""


def _edited() -> Script:
    script = Script()
    users = [1776, 1866, 1959, 2051, 2141]
    for at, (length, common) in enumerate(S07):
        of = None if at == 0 else at - 1
        script.ask(length, common, of, starts=users[: min(at, 2) + 1] if at > 4 else users[: at + 1])
    return script


@pytest.mark.parametrize(
    ("build", "memory", "reused"),
    [
        (6301, "hybrid", [0, 1863, 1956, 2048, 2138, 0, 0]),  # no checkpoints
        (6900, "hybrid", [0, 1863, 1956, 2048, 2138, 1887, 1887]),  # one, 64 tokens before the end (PR #16382)
        (8353, "hybrid", [0, 1863, 1956, 2048, 2138, 1947, 1947]),  # 4 before the end (PR #20288)
        (8672, "hybrid", [0, 1863, 1956, 2048, 2138, 1947, 1947]),
        (9294, "hybrid", [0, 1854, 1947, 2039, 2129, 1947, 1947]),  # asks for one where nothing was cut, too
        (9713, "hybrid", [0, 1863, 1956, 2048, 2138, 1776, 1776]),  # at the user's last message (PR #22929)
        (10566, "hybrid", [0, 1863, 1956, 2048, 2138, 1342]),  # those close to another one thinned out
        (11549, "hybrid", [0, 1863, 1956, 2048, 2138, 1959, 1959]),  # thinned out in full lists alone
        (9294, "recurrent", [0, 1854, 1947, 2039, 2129, 1947, 1947]),
        (11549, "recurrent", [0, 1863, 1956, 2048, 2138, 1959, 1959]),
        (8672, "swa", [0, 1863, 1956, 2048, 2138, 1966, 1969]),  # the cells reach back further than the window
        (11549, "swa", [0, 1863, 1956, 2048, 2138, 1966, 1969]),
        (11549, "attention", [0, 1863, 1956, 2048, 2138, 1966, 1969]),
    ],
)
def test_a_message_edited_in_nine_builds(build: int, memory: Memory, reused: list[int]) -> None:
    assert _edited().reused(build, memory=memory, window=128, slots=1)[: len(reused)] == reused


S11 = [(2248, 0), (2726, 2253), (3201, 2731), (3681, 3206), (4166, 3686), (2346, 2263), (2699, 2346), (2711, 1773)]
S11_USERS = [[1776], [1776, 2256], [1776, 2256, 2734], [1776, 2256, 2734, 3209], [1776, 2256, 2734, 3209, 3689]]


@pytest.mark.parametrize(
    ("build", "reused"),
    [
        (6301, [0, 2253, 2731, 3206, 3686, 0, 2346, 0]),
        (6900, [0, 2253, 2731, 3206, 3686, 2263, 2346, 1773]),
        (8672, [0, 2253, 2731, 3206, 3686, 2263, 2346, 1773]),
        (9713, [0, 2253, 2731, 3206, 3686, 2243, 2346, 0]),
        (11549, [0, 2253, 2731, 3206, 3686, 2255, 2346, 1731]),
    ],
)
def test_an_edit_far_after_a_sliding_window(build: int, reused: list[int]) -> None:
    script, users = Script(), [*S11_USERS, [1776, 2256], [1776, 2256, 2350], [1766, 2362]]
    for at, (length, common) in enumerate(S11):
        script.ask(length, common, None if at == 0 else at - 1, starts=users[at])
    assert script.reused(build, memory="swa", window=128, slots=1) == reused


def test_a_sibling_consumes_the_entry() -> None:
    """A and C share a system prompt; C takes A's entry out of the RAM cache, and A computes its own part again."""
    script = Script()
    a = script.ask(4757)
    b = script.ask(1511, 7, a)
    script.ask(0, like=a)
    script.ask(0, like=b)
    script.ask(2560, 2123, a)
    script.ask(0, like=b)
    script.ask(0, like=a)
    served = script.served(11549, slots=1)
    assert [one.reused for one in served] == [0, 7, 4756, 1510, 2123, 1510, 2123]
    assert served[-1].cause == "consumed"
    assert served[-1].best == 4756


def test_four_that_begin_at_once_each_compute_the_system_prompt() -> None:
    script = Script()
    first = script.ask(3600, ends_after=10)
    for _ in range(3):
        script.ask(3620, 3586, first, ends_after=10)
    script.asked = [msgspec.structs.replace(one, ended=100 + at) for at, one in enumerate(script.asked)]
    late = TimedRequest(script.asked[1].prompt, script.asked[1].content, 200, 201)
    script.asked.append(late)
    served = script.served(11549, slots=4, kv_unified=True, context=32768)
    assert [one.reused for one in served] == [0, 0, 0, 0, 3619]
    assert [one.cause for one in served] == ["", "together", "together", "together", ""]


def test_six_conversations_on_four_slots_without_ram_lose_all() -> None:
    script = Script()
    for at in range(18):
        script.ask(1000 + 100 * (at // 6), 1005 + 105 * (at // 6 - 1) if at >= 6 else 0, at - 6 if at >= 6 else None)
    off, on = script.served(11549, slots=4, cache_ram_mib=0), script.served(11549, slots=4)
    assert [one.reused for one in off] == [0] * 18
    assert {one.cause for one in off[6:]} == {"RAM cache off"}
    assert all(one.reused == one.best > 0 and one.from_ram for one in on[6:])


def test_a_memory_that_all_slots_share_is_purged_when_the_reply_no_longer_fits() -> None:
    """Measured: slots of 2255, 2451 and 3489 tokens in 8192, where the prompt of the third one would have fit."""
    script = Script()
    script.ask(2446)
    idle = script.ask(2250)
    script.ask(3484)
    script.ask(2536, 2255, idle)
    served = script.served(11549, slots=4, kv_unified=True, context=8192, cache_ram_mib=0)
    assert (served[-1].reused, served[-1].cause) == (0, "purged")
    assert script.reused(11549, slots=4, kv_unified=True, context=8195, cache_ram_mib=0)[-1] == 2255


# ---- eras


@pytest.mark.parametrize(("build", "slot"), [(5311, 0), (5833, 3), (11549, 3)])
def test_slots_never_used_are_filled_from_the_last_one_since_b5833(build: int, slot: int) -> None:
    script = Script()
    script.ask(100)
    assert script.served(build, slots=4)[0].slot == slot


@pytest.mark.parametrize(("build", "by"), [(6628, "lru"), (6751, "similarity")])
def test_similarity_is_of_the_slot_up_to_b6628_and_of_the_prompt_later(build: int, by: str) -> None:
    script = Script()
    first = script.ask(10_000)
    script.ask(300, 200, first)  # 2 % of the slot, 67 % of the prompt
    assert script.served(build, slots=2)[1].chosen_by == by


def test_idle_slots_are_cleared_and_come_back_from_ram_where_they_share_their_memory() -> None:
    script = Script()
    first = script.ask(1000)
    script.ask(500)
    script.ask(1100, 1005, first)
    served = script.served(11549)  # four slots with one memory, by default
    assert [(one.chosen_by, one.from_ram, one.reused) for one in served] == [
        ("lru", False, 0), ("lru", False, 0), ("lru", True, 1005),
    ]  # fmt: skip
    assert script.served(7551)[2].chosen_by == "similarity"  # not yet


@pytest.mark.parametrize(("build", "reused", "cause"), [(9873, 1005, ""), (10068, 0, "slot taken")])
def test_a_state_larger_than_the_limit_is_refused_since_b10068(build: int, reused: int, cause: str) -> None:
    """Before, the last entry stays however large it is."""
    script = Script()
    first = script.ask(1000)
    script.ask(500)
    script.ask(1100, 1005, first)
    served = script.served(build, slots=1, cache_ram_mib=1, token_bytes=MIB / 900)
    assert (served[2].reused, served[2].cause) == (reused, cause)


def test_the_ram_cache_evicts_its_oldest_entry() -> None:
    script = Script()
    first = script.ask(1000)
    for _ in range(3):
        script.ask(1000)
    script.ask(1100, 1005, first)
    assert script.served(11549, slots=1, cache_ram_mib=2, token_bytes=MIB / 1010)[-1].cause == "too small"
    assert script.reused(11549, slots=1, cache_ram_mib=4, token_bytes=MIB / 1010)[-1] == 1005


def test_an_entry_that_another_continues_from_is_dropped() -> None:
    """Three turns with another prompt between them take the room of one entry, not of three."""
    script = Script()
    first = script.ask(1000)
    other = script.ask(1000)
    second = script.ask(1100, 1005, first)
    script.ask(0, like=other)
    third = script.ask(1200, 1105, second)
    script.ask(0, like=other)
    script.ask(1300, 1205, third)
    room = {"slots": 1, "cache_ram_mib": 3, "token_bytes": MIB / 1100}
    assert script.reused(11549, **room) == [0, 0, 1005, 999, 1105, 999, 1205]


def test_a_restart_empties_slots_and_ram() -> None:
    script = Script()
    first = script.ask(1000)
    script.happen("restart")
    script.ask(1100, 1005, first)
    served = script.served(11549, slots=2)
    assert (served[1].reused, served[1].cause) == (0, "restart")


@pytest.mark.parametrize(("build", "reused"), [(11063, 0), (11549, 996)])
def test_slot_files_bring_their_checkpoints_since_b11549(build: int, reused: int) -> None:
    """Restored after another prompt had the slot, and then edited 100 tokens before the end."""
    script = Script()
    first = script.ask(1000)
    script.happen("save", 0, "f")
    script.ask(700)
    script.happen("restore", 0, "f")
    script.ask(1100, 998, first)
    assert script.reused(build, memory="hybrid", slots=1, cache_ram_mib=0)[2] == reused


def test_a_slot_asked_for_by_id_is_taken_whatever_it_holds() -> None:
    script = Script()
    first = script.ask(1000, id_slot=0)
    script.ask(900, id_slot=0)
    script.ask(1100, 1005, first, id_slot=0)
    assert script.reused(9713, slots=2) == [0, 0, 0]  # the RAM cache is not asked
    assert script.reused(9873, slots=2) == [0, 0, 1005]


def test_a_request_waits_for_a_slot() -> None:
    script = Script()
    first = script.ask(1000, ends_after=2)
    script.ask(800)
    script.asked[1] = msgspec.structs.replace(script.asked[1], ended=12)
    script.ask(1100, 1005, first)
    served = script.served(11549, slots=1)
    assert [one.slot for one in served] == [0, 0, 0]
    assert [one.reused for one in served] == [0, 0, 1005]


def test_a_thousand_may_wait() -> None:
    script = Script()
    for _ in range(1000):
        script.ask(10)
    script.asked = [msgspec.structs.replace(one, ended=20_000 + at) for at, one in enumerate(script.asked)]
    assert {one.slot for one in script.served(11549, slots=1)} == {0}


def test_who_waits_for_a_slot_of_its_own_keeps_nobody_else_waiting() -> None:
    script = Script()
    script.ask(1000, ends_after=3, id_slot=0)
    script.ask(900, id_slot=0)
    script.ask(800)
    assert [one.slot for one in script.served(11549, slots=2)] == [0, 0, 1]


def test_settings_left_out_are_those_of_the_build() -> None:
    assert ServerSettings(build=6628).resolved().slots == 1
    assert (
        ServerSettings(build=7376, slots=1).resolved().slots,
        ServerSettings(build=7551, slots=1).resolved().slots,
    ) == (4, 1)
    assert ServerSettings(build=11549).resolved().kv_unified is True
    assert ServerSettings(build=6628).resolved().cache_ram_mib == 0
    assert [ServerSettings(build=b).resolved().ctx_checkpoints for b in (6628, 6751, 8156, 8352)] == [3, 8, 8, 32]
    assert [ServerSettings(build=b).resolved().checkpoint_min_step for b in (9294, 9538, 9713, 9873)] == [
        8192,
        256,
        256,
        8192,
    ]
    assert [ServerSettings(build=b).resolved().slot_prompt_similarity for b in (6451, 6628)] == [0.5, 0.1]


def test_a_full_list_of_checkpoints_drops_its_oldest() -> None:
    saved = [Checkpoint(n, n, n + 1, 0) for n in (100, 200)]
    limit = ServerSettings(build=8672, ctx_checkpoints=2).resolved()
    assert [one.tokens for one in added(saved, Checkpoint(300, 300, 301, 1), limit)] == [201, 301]


def test_a_checkpoint_of_as_many_tokens_is_superseded_since_b11063() -> None:
    saved, new = [Checkpoint(100, 100, 101, 0)], Checkpoint(100, 100, 101, 1)
    counts = [
        len(added(saved, new, ServerSettings(build=build, checkpoint_min_step=0).resolved()))
        for build in (10809, 11063)
    ]
    assert counts == [2, 1]


@given(st.lists(st.integers(0, 3), max_size=30), st.lists(st.integers(0, 3), max_size=30), st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_moved_chunks_are_found_in_order_and_long_enough(old: list[int], new: list[int], least: int) -> None:
    common = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    found = moved(old, new, common, least)
    assert common <= found <= len(new)
    assert found == common or found - common >= least
    pieces, at = new[common:found], common
    for token in pieces:  # a subsequence of what lies after the common prefix
        at = old.index(token, at) + 1


def test_a_message_removed_in_the_middle_is_closed_by_moving_what_follows() -> None:
    old = [*range(100), *range(500, 580), *range(200, 300)]
    new = [*range(100), *range(200, 300), 7]
    assert moved(old, new, 100, 64) == 200
    assert moved(old, new, 100, 101) == 100


@pytest.mark.parametrize(("build", "reused"), [(8353, [0, 1016, 1032]), (8672, [0, 0, 1032]), (9294, [0, 1016, 1032])])
def test_a_window_of_full_size_was_held_against_the_window_by_some_builds(build: int, reused: list[int]) -> None:
    """As b8352, b8672 and b9294 said of a client that edits an early message (window of 1,024 tokens, --swa-full)."""
    script = Script()
    first = script.ask(1389)
    second = script.ask(1735, 1016, first)
    script.ask(2122, 1032, second)
    full = {"memory": "swa", "window": 1024, "swa_full": True, "slots": 1, "cache_ram_mib": 0}
    assert script.reused(build, **full) == reused


def test_pieces_are_moved_although_the_reply_after_them_is_not_known() -> None:
    tree, head = PromptTree(), list(range(100))
    one, other = list(range(1000, 1300)), list(range(2000, 2300))
    first, second = tree.add([*head, *one, *other]), tree.add([*head, *other, *one])
    asked = [
        TimedRequest(first, tree.branch(first, 700, 705), 0, 1),
        TimedRequest(second, tree.branch(second, 700, 705), 2, 3),
    ]
    server = ServerSettings(build=11549, slots=1, cache_ram_mib=0)
    kept = [
        serve(Traffic(tree, asked), msgspec.structs.replace(server, cache_reuse=least))[1].reused for least in (0, 200)
    ]
    assert kept == [100, 400], "the first piece lies behind the second one and cannot follow it"
