"""Prompts that only their lengths make turns of a conversation, where other lines show that they may be none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest

import cachedoctor
from cachedoctor.diagnosis.differential.votes import votes
from cachedoctor.diagnosis.rules import lengths as forms
from cachedoctor.diagnosis.rules.context import came_back
from cachedoctor.diagnosis.rules.kit import RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.doctor.findings.history import FindingHistory
from cachedoctor.model import Facts, Judged, Request, Setting, Verdict

OFF = {"cache_ram_mib": Setting(0, 1)}
FACTS = Facts(0, "log", build=11549, settings=OFF)


def turn(index: int, **fields: Any) -> Request:
    plain = {"thread": 0, "held_thread": 0, "thread_turn": index, "prompt_tokens": 1500 + 200 * index, "facts": FACTS}
    return made.request(index=index, **{**plain, **fields})


def test_lost_prompts_of_own_slots_outweigh_taken_slots() -> None:
    """The losses of conversations that came back are asked about again when the balance changes, each way."""
    memory = FindingHistory()
    taken = turn(0, lost_tokens=900)
    memory.weigh(0, 900)
    memory.remember(Judged(taken))
    assert not memory.doubts
    assert memory.weigh(1, -1500) == [taken]
    assert memory.doubts
    memory.forget(1)
    assert not memory.doubts


@pytest.mark.parametrize(
    ("lengths", "turns", "known"),
    [
        ((1500, 1600, 1700), (0, 0, 1), False),
        ((1500, 1600, 1590), (0, 0, 1), True),
        ((1500, 1600, 1590), (0, 0, 0), False),  # a single prompt: none that it may continue
    ],
)
def test_a_shorter_prompt_in_a_slot_breaks_the_order_of_lengths(
    lengths: tuple[int, ...], turns: tuple[int, ...], known: bool
) -> None:
    memory = FindingHistory()
    for at, (length, number) in enumerate(zip(lengths, turns, strict=True)):
        memory.remember(Judged(turn(at, prompt_tokens=length, thread_turn=number, outcome="partial")))
    assert memory.in_turn is known


@pytest.mark.parametrize(
    ("rests", "typed"),
    [
        ((1073, 1073, 1002, 931, 931, 860), True),
        ((496, 496, 496, 496, 496, 496), False),  # a client that rewrites its last message each time
        ((1092, 890, 915, 971, 1010, 1036), False),
        ((1073, 1002, 931), False),
    ],
)
def test_text_after_a_cursor_gets_shorter(rests: tuple[int, ...], typed: bool) -> None:
    turns = [
        turn(at + 1, common_prefix_tokens=1100 + 50 * at, reference_tokens=1100 + 50 * at + rest)
        for at, rest in enumerate(rests)
    ]
    history = [Judged(one, Verdict(())) for one in turns[:-1]]
    assert forms.cursor_moves(RuleContext(turns[-1], Setup(FACTS), history, None, 1, 0)) is typed


@pytest.mark.parametrize(("similarity", "lost"), [(0.18, 0), (0.88, 353)])
def test_moved_text_counts_as_reused(similarity: float, lost: int) -> None:
    """With --cache-reuse most of a prompt is reused of which the slot holds little at its place."""
    request = turn(
        1, prompt_tokens=3416, cached_tokens=3010, similarity=similarity, lost_tokens=353, reference_tokens=3363,
        outcome="partial",
    )  # fmt: skip
    assert RuleContext(request, Setup(FACTS), [], None, 1, 0).lost == lost


HEAD = """\
0.00.006.179 I srv    load_model: loading model '/models/dense.gguf'
0.00.025.155 I print_info: n_swa                 = 0
0.00.045.884 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 16384, kv_unified = 'false'
0.00.046.000 I srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it
0.00.052.415 I srv          init: listening on http://127.0.0.1:8080
"""


def lines(slot: int, task: int, prompt: int, choice: str) -> str:
    slot_of, speed = f"id  {slot} | task {task} |", "(    0.10 ms per token, 10000.00 tokens per second)"
    text = (
        f"{choice}slot get_availabl: id  {slot} | task -1 | selected slot by LRU, t_last = {task or -1}\n"
        f"slot launch_slot_: {slot_of} processing task, is_child = 0\n"
        f"slot   operator(): {slot_of} new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}\n"
        f"slot   operator(): {slot_of} cached n_tokens = 0, memory_seq_rm [0, end)\n"
        f"slot print_timing: {slot_of} prompt eval time =     100.00 ms / {prompt} tokens {speed}\n"
        f"slot print_timing: {slot_of}        eval time =     100.00 ms /     6 tokens {speed}\n"
        f"slot      release: {slot_of} stop processing: n_tokens = {prompt + 5}, truncated = 0\n"
    )
    return "".join(f"0.01.000.000 I {line}" for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(("shared", "fires"), [(2005, True), (1905, False)])
def test_a_slot_that_holds_the_whole_last_turn_was_passed_over(tmp_path: Path, shared: int, fires: bool) -> None:
    """All 2,005 tokens that slot 0 holds begin the prompt of 2,900: it lost them to the threshold alone."""
    choice = (
        f"slot get_availabl: id  0 | task -1 |  - checking sim = {shared / 2900:.3f} ({shared}/2900) > 0.900\n"
        "slot get_availabl: id  1 | task -1 |  - skipping, slot is empty\n"
    )
    log = tmp_path / "server.log"
    log.write_text(HEAD + lines(0, 0, 2000, "") + lines(1, 9, 2900, choice))
    found = [f for f in cachedoctor.analyze(str(log)).findings if f.name == "slot-held-other-prompt"]
    assert [(f.confidence, f.cost.tokens) for f in found] == ([("high", 2005)] if fires else [])


def test_a_choice_by_age_that_reuses_most_shows_a_high_threshold() -> None:
    chosen = turn(1, prompt_tokens=4021, cached_tokens=2526, outcome="partial")
    chosen.seen.choice.selected_by = "lru"
    memory = FindingHistory()
    memory.remember(Judged(chosen))
    assert came_back(chosen)
    assert memory.strict


@pytest.mark.parametrize(("own", "kind"), [(True, "its own slot"), (False, "lost with its slot")])
def test_votes_follow_what_most_losses_show(own: bool, kind: str) -> None:
    held = 0 if own else 1
    requests = [
        turn(at, held_thread=held, held_tokens=1500, reference_tokens=1500, lost_tokens=1500, cached_tokens=0,
             outcome="reprocessed", prompt_tokens=length)
        for at, length in enumerate((1900, 2900, 2100, 3300), 1)
    ]  # fmt: skip
    assert {vote.kind.name for vote in votes(requests)} == {kind}
