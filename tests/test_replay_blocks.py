"""Replays of vLLM and SGLang: against what a real vLLM 0.32.0 said, and against the plainest model of each law."""

from __future__ import annotations

import json
import random

import pytest
from conftest import FIXTURES
from e2e.client import Message
from e2e.vllm import traffic

from cachedoctor.diagnosis.replay import block_cache, radix_cache
from cachedoctor.diagnosis.replay.block_cache import (
    BlockCache,
    BlockServer,
    BlockSettings,
    Image,
    SentPrompt,
    in_order,
    names,
)
from cachedoctor.diagnosis.replay.radix_cache import RadixServer, RadixSettings


def fresh(count: int, seed: int) -> list[int]:
    """Tokens that no other seed has."""
    return [seed * 100_000 + at for at in range(count)]


def told(name: str) -> list[tuple[int, int]]:
    """(prompt, cached) of each response of a recording."""
    usage = [entry["usage"] for entry in json.loads((FIXTURES / "vllm" / f"{name}.usage.json").read_text())]
    return [(u["prompt_tokens"], u["prompt_tokens_details"]["cached_tokens"]) for u in usage]


def growing(lengths: list[int]) -> list[SentPrompt]:
    """A conversation that is only appended to: each prompt is the one before and more."""
    tokens = fresh(max(lengths), 1)
    return [SentPrompt(tokens[:length]) for length in lengths]


def test_a_growing_chat_reuses_what_the_real_server_said() -> None:
    truth = told("vllm032_dense_healthy")
    served = block_cache.serve(growing([prompt for prompt, _ in truth]), BlockSettings(128, 1_048_576))
    assert [s.reused for s in served] == [cached for _, cached in truth]


def test_questions_below_one_head_on_a_hybrid_model_reuse_what_the_real_server_said() -> None:
    """876 tokens in common: where the second prompt diverges from the first, a state is kept for the third."""
    truth = told("vllm032_hybrid_gdn.branch")
    prompts = [SentPrompt(fresh(876, 0) + fresh(prompt - 876, at + 1)) for at, (prompt, _) in enumerate(truth)]
    served = block_cache.serve(prompts, BlockSettings(256, 1_766_022, "few", state_blocks=3))
    assert [s.reused for s in served] == [cached for _, cached in truth]


def test_a_growing_chat_on_a_hybrid_model_reuses_what_the_real_server_said() -> None:
    """The first prompt's last step ends at 896, within a block of 256: the second one finds no state."""
    truth = told("vllm032_hybrid_gdn.healthy")
    settings = BlockSettings(256, 1_766_022, "few", state_blocks=3, split=128)
    served = block_cache.serve(growing([prompt for prompt, _ in truth]), settings)
    assert [s.reused for s in served] == [cached for _, cached in truth]


def test_a_cache_that_is_a_little_too_small_gives_up_what_the_real_server_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """78 requests of five agents and of documents on 48 blocks: each as the response said, a third reused of 61 %."""
    monkeypatch.setattr(traffic, "PAUSE_SECONDS", 0)
    sent: list[SentPrompt] = []
    traffic.agents_in_any_turn(lambda messages, **more: sent.append(SentPrompt(rendered(messages))))
    lines = (FIXTURES / "measured" / "vllm-agents-in-any-turn.usage.jsonl").read_text().splitlines()
    truth = [json.loads(line)["usage"] for line in lines]
    assert [len(s.tokens) for s in sent] == [u["prompt_tokens"] for u in truth]
    served = block_cache.serve(sent, BlockSettings(128, 6_144))
    assert [s.reused for s in served] == [u["prompt_tokens_details"]["cached_tokens"] for u in truth]
    assert (sum(s.reused for s in served), sum(s.endless for s in served)) == (33_536, 61_312)


def rendered(messages: list[Message]) -> list[int]:
    """Tokens of a chat as the model of the end-to-end tests sees it: a byte is a token, and so is a special token."""
    start, end = [1000], [1001]
    each = [[*start, *f"{m['role']}\n{m['content']}".encode(), *end, 10] for m in messages]
    return [*(token for one in each for token in one), *start, *b"assistant\n"]


def test_a_prompt_is_never_reused_as_a_whole() -> None:
    """1,024 tokens twice with blocks of 1,024: nothing; one more: nearly all (vllm-ascend issue 7965)."""
    for length, reused in ((1024, 0), (1025, 1024)):
        twice = [SentPrompt(fresh(length, 1))] * 2
        assert [s.reused for s in block_cache.serve(twice, BlockSettings(1024))] == [0, reused]


def test_drafting_gives_up_the_last_block() -> None:
    twice = [SentPrompt(fresh(100, 1))] * 2
    assert block_cache.serve(twice, BlockSettings(16, gives_up_last=True))[1].reused == 80
    assert block_cache.serve(twice, BlockSettings(16))[1].reused == 96


def test_a_salt_an_adapter_or_another_image_shares_nothing_after_it() -> None:
    tokens = fresh(64, 1)
    salted = [SentPrompt(tokens, key="a"), SentPrompt(tokens, key="b"), SentPrompt(tokens, key="a")]
    assert [s.reused for s in block_cache.serve(salted, BlockSettings(16))] == [0, 0, 48]
    assert [s.reused for s in radix_cache.serve(salted, RadixSettings())] == [0, 0, 63]
    images = [SentPrompt(tokens, images=[Image(20, 30, name)]) for name in ("x", "y", "x")]
    assert [s.reused for s in block_cache.serve(images, BlockSettings(16))] == [0, 16, 48]
    assert [s.reused for s in radix_cache.serve(images, RadixSettings())] == [0, 20, 63]


def test_the_reply_can_be_reused_but_for_its_last_token() -> None:
    first = SentPrompt(fresh(10, 1), reply=fresh(6, 2))
    again = SentPrompt([*first.tokens, *first.reply, 7, 8, 9])
    assert block_cache.serve([first, again], BlockSettings(5))[1].reused == 15
    assert block_cache.serve([first, again], BlockSettings(8))[1].reused == 8
    assert radix_cache.serve([first, again], RadixSettings())[1].reused == 15


def test_a_block_that_the_reply_leaves_unfilled_takes_room() -> None:
    """Seven tokens of eight are computed, the last one of the reply is not: two blocks, of which one can be found."""
    first = SentPrompt(fresh(4, 1))
    longer = SentPrompt([*fresh(4, 1), 9])
    other = SentPrompt(fresh(7, 2), reply=[5])
    settings = BlockSettings(4, 3 * 4)  # room for two
    assert [s.reused for s in block_cache.serve([first, other, longer], settings)] == [0, 0, 0]


def test_the_head_of_a_prompt_goes_last() -> None:
    """Ten blocks of room, nine to use: of a prompt of six, its last ones make room for four new ones."""
    prompts = [SentPrompt(fresh(97, 1)), SentPrompt(fresh(65, 2)), SentPrompt(fresh(97, 1))]
    served = block_cache.serve(prompts, BlockSettings(16, 160))
    assert [s.endless for s in served] == [0, 0, 96]
    assert 0 < served[2].reused < 96


def test_conversations_in_turn_on_too_small_a_cache_find_nothing() -> None:
    """As eight conversations of 1,170 tokens on 6,144 did on a real server; with room each finds its own."""
    turns = [SentPrompt(fresh(1170 + 10 * turn, who)) for turn in range(4) for who in range(1, 9)]
    small, large = (block_cache.serve(turns, BlockSettings(128, size)) for size in (6_144, 60_000))
    assert sum(s.reused for s in small) == 0
    assert sum(s.reused for s in large) == 24 * 1152
    assert [s.endless for s in small] == [s.reused for s in large]


def test_what_is_running_is_not_given_up() -> None:
    """An agent's prompt that is still running stays; more at once than there is room for is said."""
    agent, others = SentPrompt(fresh(97, 1)), [SentPrompt(fresh(49, at)) for at in (2, 3, 4)]
    times = [(0.0, 10.0), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0)]
    served = block_cache.serve([agent, *others, agent], BlockSettings(16, 200), times)
    assert served[4].reused == 96
    assert not any(s.crowded for s in served)
    assert block_cache.serve([agent, others[0]], BlockSettings(16, 128), [(0.0, 9.0), (1.0, 2.0)])[1].crowded


def test_states_of_older_versions_lie_where_chunks_end() -> None:
    """One chunk: the second question below a head finds no state; small chunks leave one in it (issue 42317)."""
    prompts = [SentPrompt(fresh(876, 0) + fresh(400, at)) for at in (1, 2, 3)]
    one = block_cache.serve(prompts, BlockSettings(256, states="every", chunk=8192))
    small = block_cache.serve(prompts, BlockSettings(256, states="every", chunk=256))
    assert [s.reused for s in one] == [0, 0, 0]
    assert [s.reused for s in small] == [0, 768, 768]


def test_an_interval_keeps_more_states() -> None:
    prompts = [SentPrompt(fresh(876, 0) + fresh(400, at)) for at in (1, 2)]
    settings = BlockSettings(256, states="few", chunk=256, interval=512)
    assert [s.reused for s in block_cache.serve(prompts, settings)] == [0, 512]


def test_a_reset_empties_the_cache() -> None:
    server, sent = BlockServer(BlockSettings(16)), SentPrompt(fresh(64, 1))
    server.begin(0, sent)
    server.end(0)
    server.reset()
    assert server.begin(1, sent) == 0
    radix = RadixServer(RadixSettings())
    radix.begin(0, sent)
    radix.end(0)
    radix.flush()
    assert radix.begin(1, sent) == 0


def common(one: list[int], other: list[int]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def some_prompts(seed: int, count: int) -> list[list[int]]:
    """Prompts that branch off from each other anywhere."""
    dice, found = random.Random(seed), [[1, 2, 3]]
    while len(found) < count:
        stem = dice.choice(found)
        found.append(stem[: dice.randint(0, len(stem))] + [dice.randint(0, 2) for _ in range(dice.randint(1, 30))])
    return found


@pytest.mark.parametrize("seed", range(5))
def test_with_endless_room_the_best_earlier_prompt_is_found(seed: int) -> None:
    prompts = some_prompts(seed, 60)
    blocks = block_cache.serve([SentPrompt(p) for p in prompts], BlockSettings(4))
    pages = radix_cache.serve([SentPrompt(p) for p in prompts], RadixSettings(page=3))
    for at, prompt in enumerate(prompts):
        best = max((min(common(prompt, before), len(prompt) - 1) for before in prompts[:at]), default=0)
        assert blocks[at].reused == blocks[at].endless == best // 4 * 4
        assert pages[at].reused == best // 3 * 3


@pytest.mark.parametrize("seed", range(5))
def test_less_room_never_finds_more_than_endless_room_and_never_holds_more(seed: int) -> None:
    prompts = [SentPrompt(p) for p in some_prompts(seed, 80)]
    for served in (
        block_cache.serve(prompts, BlockSettings(4, 120)),
        radix_cache.serve(prompts, RadixSettings(2, 120)),
    ):
        assert all(s.reused <= s.endless for s in served)
        assert sum(s.reused for s in served) < sum(s.endless for s in served)
    radix = RadixServer(RadixSettings(2, 120))
    for at, sent in enumerate(prompts):
        radix.begin(at, sent)
        radix.end(at)
        assert radix.kept <= 120


def test_names_tell_where_a_block_stands() -> None:
    """Equal tokens after different ones are different blocks, and a part of a block has no name."""
    same = [7] * 12
    assert len(set(names(SentPrompt(same), 4))) == 3
    assert len(names(SentPrompt(same), 5)) == 2
    assert names(SentPrompt([1, *same]), 4)[1] != names(SentPrompt([2, *same]), 4)[1]
    with pytest.raises(ValueError, match="block of 0"):
        names(SentPrompt(same), 0)


def test_the_cache_counts_what_it_gave_up() -> None:
    cache = BlockCache(3)
    cache.hold(["a", "b"])
    cache.let_go(["a", "b"])
    cache.hold(["c", "d"])
    assert ("a" in cache, "b" in cache, cache.given_up) == (True, False, 1)


def test_ends_come_before_starts_of_the_same_moment() -> None:
    assert in_order([(0, 1), (1, 1), (0.5, 3)]) == [
        (0, False), (2, False), (0, True), (1, False), (1, True), (2, True),
    ]  # fmt: skip
