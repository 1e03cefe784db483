"""Settings that come to the same as others are not replayed: only where every decision would have been the same."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from test_replay_llamacpp import ANY_SETTINGS, MIB, Script, any_traffic

from cachedoctor.diagnosis.replay.llamacpp.replays import Hope, Replays, is_ideal_most
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor.replaying import trials

DRAWN = settings().max_examples
ONE = ServerSettings(slots=1, cache_ram_mib=1000, context=4096, token_bytes=float(MIB), cache_idle_slots=False)


@given(any_traffic(), ANY_SETTINGS, st.data())
@settings(max_examples=4 * DRAWN, deadline=None)
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
@settings(max_examples=2 * DRAWN, deadline=None)
def test_only_the_causes_are_left_out(traffic: Traffic, chosen: ServerSettings) -> None:
    explained = serve(traffic, chosen)
    if any(one.cause for one in explained):
        event("with causes")
    assert Replays(traffic).served(chosen) == [replace(one, cause="") for one in explained]


@given(any_traffic(), ANY_SETTINGS, ANY_SETTINGS, st.data())
@settings(max_examples=3 * DRAWN, deadline=None)
def test_what_is_given_up_would_not_have_helped(
    traffic: Traffic, chosen: ServerSettings, other: ServerSettings, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        asked = [replace(one, id_slot=None, choices=1) for one in traffic.asked]
        traffic = Traffic(traffic.tree, asked, traffic.happened)
    whose = [data.draw(st.sampled_from([None, 0, 1])) for _ in traffic.asked]
    least = data.draw(st.integers(-40, 40))
    before, after = serve(traffic, chosen), serve(traffic, other)
    ideal = is_ideal_most(traffic, other)
    most = [one.tokens for one in traffic.ideal] if ideal else traffic.lengths
    assert all(one.reused <= tokens for one, tokens in zip(after, most, strict=True))
    free = trials.hope(whose, before, most)
    wanted = least + sum(one.reused for one in before)
    served = Replays(traffic).served(other, free._replace(tokens=free.tokens - wanted))
    trial = trials.compare(whose, before, after)
    if served is None:
        event(f"given up, ideal is most: {ideal}")
        assert trial.worst or trial.saved < least
    else:
        event("replayed")
        if all(one.chosen_by != "none" for one in after):
            assert not trial.worst
            assert trial.saved >= least
        assert served == [replace(one, cause="") for one in after]


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


@pytest.mark.parametrize(("mib", "tokens", "of_one"), [(1000, 0, 0), (0, 511, 512), (0, 512, 255), (0, -1, 512)])
def test_a_replay_stops_where_it_cannot_reach_what_is_asked(mib: int, tokens: int, of_one: int) -> None:
    """The two conversations reuse 101 and 155 tokens each; without a RAM cache nothing."""
    script = alternating()
    traffic = Traffic(script.tree, script.asked, script.happened)
    replays, chosen = Replays(traffic), replace(ONE, cache_ram_mib=mib)
    most, whose = [one.tokens for one in traffic.ideal], [0, 1, 0, 1, 0, 1]
    assert most == [0, 0, 101, 101, 155, 155]
    served = replays.served(chosen, Hope(most, whose, tokens, {0: of_one, 1: 512}))
    assert (served is not None) == (mib == 1000)
    assert (replays.same(replace(chosen, slot_prompt_similarity=0.05)) == chosen) == (mib == 1000)


def test_a_replay_that_may_reach_it_goes_on() -> None:
    script = alternating()
    traffic = Traffic(script.tree, script.asked, script.happened)
    most, whose = [one.tokens for one in traffic.ideal], [0, 1, 0, 1, 0, 1]
    without = replace(ONE, cache_ram_mib=0)
    served = Replays(traffic).served(without, Hope(most, whose, 512, {0: 256, 1: 256}))
    assert served is not None
    assert sum(one.reused for one in served) == 0
