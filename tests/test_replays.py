"""Settings that come to the same as others are not replayed: only where every decision would have been the same."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_replay_llamacpp import ANY_SETTINGS, MIB, Script, any_traffic

from cachedoctor.diagnosis.replay.llamacpp.replays import Replays
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic

ONE = ServerSettings(slots=1, cache_ram_mib=1000, context=4096, token_bytes=float(MIB), cache_idle_slots=False)


@given(any_traffic(), ANY_SETTINGS, st.data())
@settings(max_examples=300, deadline=None)
def test_what_comes_to_the_same_does(traffic: Traffic, chosen: ServerSettings, data: st.DataObject) -> None:
    replays = Replays(traffic)
    served = replays.served(chosen)
    other = replace(
        chosen,
        slot_prompt_similarity=data.draw(st.sampled_from([chosen.slot_prompt_similarity, 0.05, 0.3, 0.5, 0.8])),
        context=data.draw(st.sampled_from([chosen.context, 32, 64, 128])),
        cache_ram_mib=data.draw(st.sampled_from([chosen.cache_ram_mib, 1, 2, 3])),
    )
    if replays.same(other) != other:
        event("the same")
        assert [replace(one, cause="") for one in serve(traffic, other)] == served


@given(any_traffic(), ANY_SETTINGS)
@settings(max_examples=100, deadline=None)
def test_only_the_causes_are_left_out(traffic: Traffic, chosen: ServerSettings) -> None:
    explained = serve(traffic, chosen)
    if any(one.cause for one in explained):
        event("with causes")
    assert Replays(traffic).served(chosen) == [replace(one, cause="") for one in explained]


def alternating() -> Script:
    """Two conversations in turn; each prompt has the turn before, 100 tokens of 150 and 155 of 200."""
    script = Script()
    for _ in range(2):
        script.ask(100, reply=1)
    for at in (0, 1):
        script.ask(150, common=101, of=at)
    for at in (2, 3):
        script.ask(200, common=155, of=at)
    return script


def replays_of(script: Script) -> Replays:
    return Replays(Traffic(script.tree, script.asked, script.happened))


@pytest.mark.parametrize(("mib", "is_same"), [(360, True), (359, False), (5000, True), (-1, True), (0, False)])
def test_a_ram_cache_that_holds_all_is_any_that_does(mib: int, *, is_same: bool) -> None:
    """When the last prompt comes, 205 MiB of the one before are saved beside 155 of its own conversation."""
    replays = replays_of(alternating())
    served, use = replays.measured(ONE)
    assert use.saving_bytes == 360 * MIB
    assert sum(one.reused for one in served) == 2 * (101 + 155)
    assert (replays.same(replace(ONE, cache_ram_mib=mib)) == ONE) is is_same


def test_a_ram_cache_that_pushed_something_out_is_only_itself() -> None:
    replays = replays_of(alternating())
    small = replace(ONE, cache_ram_mib=200)
    replays.served(small)
    assert replays.same(replace(ONE, cache_ram_mib=300)) != small
    assert replays.same(small) == small


@pytest.mark.parametrize(("similarity", "is_same"), [(0.05, True), (0.67, True), (0.68, False), (0.9, False)])
def test_a_similarity_between_those_that_were_met_is_any_other(similarity: float, *, is_same: bool) -> None:
    """Slots had 101 of 150 tokens (0.673) and 155 of 200 of what continued them, and nothing of what did not."""
    replays, two = replays_of(alternating()), replace(ONE, slots=2)
    replays.served(two)
    assert (replays.same(replace(two, slot_prompt_similarity=similarity)) == two) is is_same


def test_a_context_is_any_that_the_ram_cache_has_room_in() -> None:
    replays = replays_of(alternating())
    replays.served(ONE)
    assert [replays.same(replace(ONE, context=tokens)) == ONE for tokens in (360, 359)] == [True, False]
    shared = replace(ONE, kv_unified=True)
    replays.served(shared)
    assert replays.same(replace(shared, context=4095)) != shared
