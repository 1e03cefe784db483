"""How many conversations a server keeps: traffic whose turns are known, and what keeps all of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_whatif import ONE, evidence, in_turn

from cachedoctor.diagnosis.replay.block_cache import SentPrompt
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.doctor.replaying.server_names import changed
from cachedoctor.doctor.whatif.accounts import account, settings_rows
from cachedoctor.doctor.whatif.agents import agents_fit, block_agents_fit
from cachedoctor.doctor.whatif.block_evidence import BlockEvidence, session_of
from cachedoctor.doctor.whatif.block_replay import BlockReplay
from cachedoctor.doctor.whatif.block_setup import BlockSetup
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model.whatif import AgentsFit, CacheSessions, Candidate, Placed
from cachedoctor.report.forms import memory_forms

SIZED = replace(ONE, token_bytes=float(1 << 20))
"""One slot without RAM cache; a token takes a MiB."""


def counted(given: ServerTraffic) -> AgentsFit | None:
    served = serve(given.traffic, given.settings)
    return agents_fit(given, served, account(given, served, given.settings))


def fit(given: ServerTraffic) -> AgentsFit:
    found = counted(given)
    assert found is not None
    return found


def lost(given: ServerTraffic, settings: ServerSettings) -> int:
    return sum(one.best - one.reused for one in serve(given.traffic, settings))


def test_the_setting_that_is_named_keeps_all_and_the_next_smaller_one_does_not() -> None:
    """Five conversations of four turns on one slot: what each had, 110, 210 and 310 tokens, is lost every time."""
    given = evidence(in_turn(5, 4), SIZED)
    found = fit(given)
    assert (found.alternating, found.conversations, found.kept) == (5, 5, 0)
    ram, slots = found.keep_all
    assert (slots.options, slots.saved_tokens) == ("--parallel 5 --ctx-size 40960", 5 * (110 + 210 + 310))
    assert slots.memory_mib == 4 * 8192
    assert ram.saved_tokens == slots.saved_tokens
    limit = int(ram.options.removeprefix("--cache-ram "))
    assert ram.memory_mib == limit
    assert lost(given, replace(SIZED, cache_ram_mib=limit)) == 0
    assert lost(given, replace(SIZED, cache_ram_mib=limit - limit // 16)) > 0
    assert lost(given, changed(SIZED, ["parallel=5", "ctx-size=40960"])) == 0
    assert lost(given, changed(SIZED, ["parallel=4", "ctx-size=32768"])) > 0


def test_where_all_are_kept_no_setting_is_named() -> None:
    given = evidence(in_turn(3, 4), replace(SIZED, slots=3, context=24_576))
    found = fit(given)
    assert (found.alternating, found.kept, found.keep_all) == (3, 3, [])
    said = memory_forms.agents(found, settings_rows(given, given.settings))
    assert said == "3 conversations alternate; 3 slots keep all 3"


def test_conversations_one_after_the_other_do_not_alternate() -> None:
    traffic = in_turn(1, 4)
    assert counted(evidence(traffic)) is None


def test_conversations_that_cannot_be_distinguished_are_not_counted() -> None:
    given = evidence(in_turn(5, 4), SIZED)
    given.placed = Placed(20, None, True, open_tokens=2_000)
    assert counted(given) is None


def test_seconds_of_a_day_need_an_hour_of_traffic() -> None:
    """1 ms a token: 5 x 630 tokens are 3.15 s; 20 requests over 19 times 10 minutes are 3 h 10 min of a day."""
    speed = PromptSpeed(count=1, weight=1.0, per_token=1.0)
    times = [f"2026-11-02T{at // 6:02}:{at % 6}0:00" for at in range(20)]
    found = fit(evidence(in_turn(5, 4), SIZED, speed=speed, times=times))
    assert found.span_s == 19 * 600
    assert found.keep_all[0].saved_ms == 3150
    assert found.saved_ms_per_day == round(3150 * 86_400 / 11_400, 3)
    short = fit(evidence(in_turn(5, 4), SIZED, speed=speed, times=[f"2026-11-02T00:{at:02}:00" for at in range(20)]))
    assert (short.span_s, short.saved_ms_per_day) == (19 * 60, None)


def test_the_sentence_names_what_is_held_and_what_keeps_all() -> None:
    given = evidence(in_turn(5, 4), SIZED)
    rows = settings_rows(given, given.settings)
    ways = [
        Candidate("--parallel 6", 100, 5000.0, 1200.0, ""),
        Candidate("--cache-ram 21504", 100, 5000.0, 13_000.0, ""),
    ]
    assert memory_forms.agents(AgentsFit(5, 5, 3, 7200.0, ways, 840_000.0), rows) == (
        "5 conversations alternate; 1 slot keeps 3 of 5 conversations. --parallel 6 (+1.2 GiB) or "
        "--cache-ram 21504 (+12.7 GiB) would have kept all conversations; "
        "the first change saves 14 min 00 s in a day of such traffic"
    )
    said = memory_forms.agents(AgentsFit(5, 5, 3, None), rows)
    assert said.endswith("none of the larger settings tried keeps all conversations")


def blocks(tokens: int, engine: str = "vllm") -> BlockReplay:
    """Three conversations in turn, of 160, 320 and 480 tokens, on a cache of this size in blocks of 16 tokens."""
    prompts = [
        SentPrompt([1000 * number + at for at in range(160 * turn)]) for turn in (1, 2, 3) for number in (1, 2, 3)
    ]
    numbers: list[int | None] = [0, 1, 2] * 3
    placed = Placed(9, 9, True)
    setup = BlockSetup(engine, None, 16, tokens, blocks_given=tokens // 16 if engine == "vllm" else None)
    return BlockReplay(BlockEvidence(setup, frozenset(), prompts, [None] * 9, None, numbers, placed))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_cache_of_blocks_that_is_large_enough_keeps_all(engine: str) -> None:
    """All three have 1,440 tokens at their end: twice as many keep all, 600 do not."""
    found = block_agents_fit(blocks(2_880, engine))
    assert found is not None
    assert (found.alternating, found.kept, found.keep_all) == (3, 3, [])
    small = block_agents_fit(blocks(640, engine))
    assert small is not None
    assert small.kept < 3
    (way,) = small.keep_all
    named = int(way.options.split()[-1]) * (16 if engine == "vllm" else 1)
    assert 640 < named <= 1_440 + 80
    assert way.memory_mib is None
    again = block_agents_fit(blocks(named, engine))
    below = block_agents_fit(blocks(named - 80, engine))
    assert again is not None
    assert below is not None
    assert (again.kept, again.keep_all) == (3, [])
    assert below.kept < 3
    assert way.saved_tokens > 0


def test_of_a_cache_of_blocks_it_is_said_what_it_keeps() -> None:
    way = Candidate("--num-gpu-blocks-override 72", 13_696, None, None, "")
    assert memory_forms.agents(AgentsFit(3, 3, 1, None, [way]), []) == (
        "3 conversations alternate; the KV cache keeps 1 of 3 conversations. --num-gpu-blocks-override 72 "
        "(memory unknown) would have kept all conversations; this change saves 13,696 tokens in this log"
    )


def test_sessions_that_bodies_name_are_counted_against_the_pool() -> None:
    """Two sessions of 320 and 480 tokens that share their first 100; 16 tokens of a third prompt are in none."""
    common = list(range(100))
    ends = ([*common, *range(1_000, 1_220)], [*common, *range(2_000, 2_380)])
    prompts = [SentPrompt(ends[at][: len(ends[at]) // turn]) for turn in (2, 1) for at in (0, 1)]
    prompts.append(SentPrompt(list(range(9_000, 9_016))))
    setup = BlockSetup("sglang", None, 1, 440_215)
    given = BlockEvidence(
        setup,
        frozenset(),
        prompts,
        [None] * 5,
        None,
        [0, 1, 0, 1, None],
        Placed(5, 5, True),
        ["a", "b", "a", "b", None],
    )
    found = block_agents_fit(BlockReplay(given))
    assert found is not None
    assert found.sessions == CacheSessions(2, 4, 320 + 480 - 100, 440_215)
    assert memory_forms.agents(found, []) == (
        "2 sessions (session_id) need 700 tokens in the cache; the KV cache has 440,215 tokens. "
        "2 conversations alternate; the KV cache "
        "keeps all 2"
    )
    given.sessions = []
    unnamed = block_agents_fit(BlockReplay(given))
    assert unnamed is not None
    assert unnamed.sessions is None


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"session_id": "a"}, "a"),
        ({"session_params": {"id": "b", "rid": None}}, "b"),
        ({"session_id": "a", "session_params": {"id": "b"}}, "a"),
        ({"session_id": "", "session_params": "b", "conversation_id": "c"}, None),
        (None, None),
    ],
)
def test_a_session_is_named_by_the_fields_that_the_server_reads(body: object, name: str | None) -> None:
    assert session_of(body, ENGINES["sglang"].session_fields) == name
    assert session_of(body, ENGINES["vllm"].session_fields) is None
