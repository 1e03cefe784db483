"""A server does what its build does: every decision that a bundled log shows, decided again from what the slot held.

The logs are real, so that the server is the witness; no expected value below comes from this program.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import made
import pytest
from conftest import CASES, FIXTURES, content_of

from cachedoctor.diagnosis.rules.kit import RuleContext
from cachedoctor.diagnosis.rules.replaying import Setup, replay, would_reuse
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Check, Judged, Request, Session

OFF = {"CD109", "CD111", "CD213"}
"""Causes that the replay does not know: the body shows "cache_prompt": false; another adapter clears the slot; the
checkpoint that it took was not restored."""


class Watching(Analyzer):
    """An analyzer that keeps every finished request."""

    def __init__(self, build: int | None = None) -> None:
        super().__init__(build)
        self.seen: list[Judged] = []

    def _ask(self, request: Request) -> Judged:
        judged = super()._ask(request)
        self.seen.append(judged)
        return judged


def watch(log: bytes, build: int | None = None) -> list[tuple[Request, RuleContext]]:
    """Requests with a count of reused tokens."""
    return [(judged.request, context) for judged, context in judgements(log, build)]


def judgements(log: bytes, build: int | None = None) -> list[tuple[Judged, RuleContext]]:
    watching = Watching(build)
    watching.open("server.log")
    watching.feed(log)
    watching.finish()
    return [
        (judged, RuleContext(r, Setup(r.facts), [], None, 0, 0))
        for judged, r in ((judged, judged.request) for judged in watching.seen)
        if r.parent is None and r.cached_tokens is not None and not r.partial
    ]


def case(name: str, build: int | None = None) -> list[tuple[Request, RuleContext]]:
    return watch(content_of(FIXTURES / "cases" / name), build)


def request(**fields: object) -> Request:
    return made.request(**fields)


# ---- every bundled log


@pytest.mark.spread(9)
@pytest.mark.sample(10)
@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_the_server_did_what_its_build_does(folder: Path) -> None:
    """Tokens reused, whether it searched, its threshold, the checkpoint it took; where the log shows enough."""
    for judged, context in judgements(content_of(folder)):
        if context.by_the_book is False:
            assert OFF & {*judged.verdict.codes}, (judged.request.task, context.replayed)


@pytest.mark.sweep
def test_enough_is_shown_to_be_worth_it() -> None:
    """Without a known decision the test above proves nothing: most requests have one, of every kind of memory."""
    known: Counter[str | None] = Counter()
    total = 0
    for folder in CASES:
        for _, context in watch(content_of(folder)):
            total += 1
            known[context.facts.memory] += context.by_the_book is True
    assert known.total() > total * 0.7
    assert min(known[memory] for memory in ("attention", "swa", "hybrid", "recurrent")) > 10


# ---- it can fail


@pytest.mark.parametrize(
    ("name", "true", "other"),
    [
        ("recurrent-checkpoint-at-prefix-b8353", 8353, 8672),  # from there on it is taken
        ("swa-threshold-misfire-b8672", 8672, 8929),  # position 0 is good enough
        ("swa-window-lost-b6123", 6123, 5353),  # nothing was checked
        ("no-checkpoint-swa-b9713", 9713, 9294),  # a checkpoint after the prefix was good enough
        ("healthy-hybrid-b9294", 9294, 9538),  # a mere continuation goes back to a checkpoint
    ],
)
def test_another_build_would_have_decided_otherwise(name: str, true: int, other: int) -> None:
    """The same log, said to be of a build with other rules, does not agree."""
    assert False not in [context.by_the_book for _, context in case(name, true)]
    assert False in [context.by_the_book for _, context in case(name, other)]


def test_a_prompt_that_was_not_to_be_cached() -> None:
    """The body said so; the replay says what was lost by it."""
    found = [(r.cached_tokens, context.replayed.answer[0]) for r, context in case("cache-prompt-off-dense")]
    assert found == [(0, 0), (0, 1843), (0, 1913), (0, 1983)]


def test_one_other_number_changes_the_answer() -> None:
    """A checkpoint 100 positions further on is not at the prefix; nor is a memory that had not moved on refused."""
    s = Session(0, "x", build=8672, memory="swa", window=128)
    checks = [Check(2038, 2805, 1655, 5), Check(1600, 2237, 1655, 6)]
    r = request(prompt_tokens=2756, held_tokens=2815, prefix_between=(1783, 1783), oldest_position=2047, checks=checks)
    r.seen.tried, r.seen.restored, r.seen.restored_at = 2, 1, (1600, 2237)
    assert replay(r, Setup(s)).answer[0] == 1783
    r.seen.checks = [checks[0], Check(1700, 2337, 1655, 6)]
    assert replay(r, Setup(s)).answer[0] == 0
    r.seen.oldest_position, r.seen.checks = 1500, []
    assert replay(r, Setup(s)).answer[0] == 1783


# ---- what is missing is named


@pytest.mark.parametrize(
    ("fields", "session", "missing"),
    [
        ({}, {"build": 9000, "memory": "attention"}, ("prompt_length",)),
        ({"prompt_tokens": 900, "prefix_between": None}, {"build": 9000, "memory": "attention"}, ("common_prefix",)),
        ({"prompt_tokens": 900}, {"build": 10_068}, ("memory",)),
        ({"prompt_tokens": 900}, {"build": 10_068, "memory": "swa", "window": 128}, ("oldest_position",)),
        ({"prompt_tokens": 900, "oldest_position": 500, "tried": 1, "forced": True,
          "checks": [Check(400, 500, 272, 3)]},
         {"build": 9000, "memory": "swa"}, ("window",)),
        ({"prompt_tokens": 900}, {"build": 10_068, "memory": "hybrid"}, ("checkpoints_held",)),
        ({"prompt_tokens": 900, "held_tokens": None}, {"build": 10_068, "memory": "hybrid"}, ("slot_length",)),
        # the choice of the slot is shown, the swap from RAM that may follow it is not
        ({"prompt_tokens": 900, "f_keep": 0.4}, {"build": 10_068, "memory": "attention"}, ("common_prefix",)),
    ],
)  # fmt: skip
def test_missing_numbers_are_named(
    fields: dict[str, object], session: dict[str, object], missing: tuple[str, ...]
) -> None:
    """One number less than the decision needs."""
    start = {"held_tokens": 600, "prefix_between": (400, 400), "selected_by": "lcp", "f_keep": 0.667}
    assert replay(request(**start | fields), Setup(Session(0, "x", **session))).missing == missing  # type: ignore[arg-type]


def test_the_build_is_missing_when_it_decides() -> None:
    """b8352 refused a state exactly at the prefix, b8672 took it; the lines show which, unless no build fits them."""
    s = Session(0, "x", build_min=6751, build_max=9093, memory="hybrid")
    r = request(
        prompt_tokens=3600,
        held_tokens=3004,
        prefix_between=(2936, 2936),
        held_positions=[(2935, 2935)],
        positions_known=True,
    )
    r.seen.tried, r.seen.forced = 0, True
    assert replay(r, Setup(s)).answer[0] == 0  # forced: only those before b8672 did that
    r.seen.checks, r.seen.tried = [Check(2935, 2935, 5, 9)], 1  # a threshold that no build has
    assert replay(r, Setup(s)).missing == ("build",)


def test_rounding_leaves_bounds() -> None:
    """f_keep = 0.667 of 3,004 tokens: 2,002 to 2,005."""
    s = Session(0, "x", build=9000, memory="attention")
    found = replay(request(prompt_tokens=3600, held_tokens=3004, prefix_between=(2002, 2005)), Setup(s))
    assert (found.least, found.most, found.answer) == (2002, 2005, (None, ("common_prefix",)))


# ---- what another build would have done


def test_the_build_that_would_have_restored_it() -> None:
    """The refused checkpoints of the bundled logs, under every other comparison."""
    window = next((r, s) for r, s in case("swa-threshold-misfire-b8672") if r.seen.forced)
    assert [window[1].reused_by(build) for build in (8352, 8672, 8929, 11_549)] == [0, 0, 1013, 1013]
    state = next((r, s) for r, s in case("recurrent-checkpoint-at-prefix-b7964") if r.seen.forced)
    assert [state[1].reused_by(build) for build in (7964, 8672, 9294, 9538)] == [0, 2936, 0, 2936]


def test_a_list_ends_at_the_checkpoint_that_was_taken() -> None:
    """What a stricter build would have found after it is unknown."""
    s = Session(0, "x", build=9294, memory="swa", window=128)
    r = request(prompt_tokens=2810, held_tokens=2871, prefix_between=(1783, 1783), oldest_position=2103)
    r.seen.checks, r.seen.tried, r.seen.restored, r.seen.restored_at = [Check(1582, 2349, 1654, 5)], 1, 1, (1582, 2349)
    assert would_reuse(r, Setup(s), 9294) == 1783
    assert would_reuse(r, Setup(s), 9713) is None


# ---- what the slot held, where the lines mislead

START = [
    "srv    load_model: loading model '/models/swa.gguf'",
    "print_info: n_swa                 = 128",
    "llama_kv_cache_iswa: creating     SWA KV cache, size = 768 cells",
    "srv          init: initializing slots, n_slots = 1",
    "slot         init: id  0 | task -1 | new slot n_ctx_slot = 16384",
]


def old(task: int, tokens: int, reused: int, before: list[str], after: list[str]) -> list[str]:
    """One request in the words of b6301; ``before`` the cut of the memory, ``after`` the prompt."""
    at = f"slot update_slots: id  0 | task {task} | "
    return [
        f"slot launch_slot_: id  0 | task {task} | processing task",
        f"{at}new prompt, n_ctx_slot = 16384, n_keep = 0, n_prompt_tokens = {tokens}",
        *(at + line for line in before),
        f"{at}kv cache rm [{reused}, end)",
        *(at + line for line in after),
        f"slot      release: id  0 | task {task} | stop processing: n_past = {tokens + 5}, truncated = 0",
        f"slot print_timing: id  0 | task {task} | ",
        f"prompt eval time =   100.00 ms /  {tokens - reused} tokens (  0.16 ms per token,  6199.86 tokens per second)",
        "       eval time =      15.75 ms /     6 tokens (    2.62 ms per token,   381.05 tokens per second)",
        "      total time =     332.85 ms /  1972 tokens",
    ]


def created(low: int, high: int, total: int) -> str:
    return f"SWA checkpoint create, pos_min = {low}, pos_max = {high}, size = 0.398 MiB, total = {total}/3 (1.194 MiB)"


def test_checkpoints_of_old_builds_leave_in_silence() -> None:
    """b6180 to b6628: a full list drops its oldest under the name of the newest; ``total`` tells how many are left."""
    erase = "SWA checkpoint erase, pos_min = {}, pos_max = {}, size = 0.398 MiB"
    back = "n_past = 2715, cache_tokens.size() = 3613, seq_id = 0, pos_min = 2973, n_swa = 128"
    log = [
        *START,
        *old(0, 2715, 0, [], [created(2075, 2714, 1)]),
        *old(8, 3160, 2720, [], [created(2520, 3159, 2)]),
        *old(15, 3608, 3165, [], [created(2968, 3607, 3)]),
        *old(22, 3700, 3613, [], [erase.format(2968, 3607), created(3060, 3699, 3)]),
        *old(29, 3556, 2715, [back, "SWA checkpoint restore, pos_min = 2520, pos_max = 3159, size = 0.398 MiB",
                              erase.format(3060, 3699), erase.format(3060, 3699)], [created(2916, 3555, 2)]),
        *old(36, 3700, 3561, [], [created(3060, 3699, 3)]),
    ]  # fmt: skip
    seen = [r.seen.held_positions for r, _ in watch("\n".join(log).encode() + b"\n", 6301)]
    assert seen[4] == [(2520, 3159), (2968, 3607), (3060, 3699)]
    assert seen[5] == [(2520, 3159), (2916, 3555)]


def test_a_refused_request_leaves_the_slot_as_it_was() -> None:
    """Up to b6628 its release says n_past = 0."""
    refused = [
        "slot launch_slot_: id  0 | task 14 | processing task",
        "slot update_slots: id  0 | task 14 | new prompt, n_ctx_slot = 16384, n_keep = 0, n_prompt_tokens = 25887",
        "slot      release: id  0 | task 14 | stop processing: n_past = 0, truncated = 0",
        "srv    send_error: task id = 14, error: the request exceeds the available context size. try increasing the "
        "context size or enable context shift",
        "srv  cancel_tasks: cancel task, id_task = 14",
    ]
    log = [*START, *old(0, 1168, 0, [], []), *refused, *old(17, 1300, 1039, [], [])]
    seen = watch("\n".join(log).encode() + b"\n", 6301)
    assert [r.held_tokens for r, _ in seen] == [0, 1173]


def test_a_request_knows_the_server_as_it_was_at_its_end() -> None:
    """What later lines show is not part of it."""
    seen = watch("\n".join([*START, *old(0, 1168, 0, [], []), *old(17, 1300, 1173, [], [])]).encode() + b"\n", 6301)
    assert [r.facts.several for r, _ in seen] == [False, True]
