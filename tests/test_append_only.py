"""Conversations that only append, in any order, on any number of slots: no log of them blames the client.

The replay of the server says what it reuses; the log is written in the server's words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from conftest import report_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.model.terms import OF_CLIENTS

REPLY = 5
"""Tokens of every reply that its slot keeps; one more was sampled."""
SPEED = "    0.10 ms per token, 10000.00 tokens per second"


class Turn(NamedTuple):
    """One more prompt of a conversation."""

    conversation: int
    more: int
    """Tokens that it appends to what its slot held at the end of the turn before."""


class Server(NamedTuple):
    """What answers them."""

    build: int
    slots: int
    ram: int
    """MiB of the RAM cache."""


TURNS = st.lists(st.builds(Turn, st.integers(0, 5), st.sampled_from([20, 90, 400, 700, 2500])), min_size=1, max_size=24)
HEADS = st.sampled_from([0, 9, 300, 1500, 4000])
"""Tokens of a system prompt that all of them share."""
SERVERS = st.one_of(
    st.builds(Server, st.just(11549), st.integers(1, 4), st.sampled_from([0, 8192])),
    st.builds(Server, st.just(8672), st.integers(1, 4), st.just(0)),
)


def sent(turns: list[Turn], head: int) -> Traffic:
    """One after the other; each conversation begins with the head and continues what it alone says."""
    tree = PromptTree()
    asked, last = list[TimedRequest](), dict[int, int]()
    system = tree.branch(None, 0, head) if head else None
    for number, turn in enumerate(turns):
        before = last.get(turn.conversation, system)
        held = 0 if before is None else tree.length(before)
        prompt = tree.branch(before, held, held + turn.more)
        content = last[turn.conversation] = tree.branch(prompt, held + turn.more, held + turn.more + REPLY)
        asked.append(TimedRequest(prompt, content, 10 * number, 10 * number + 1))
    return Traffic(tree, asked)


def logged(traffic: Traffic, server: Server) -> str:
    """The log of b8672, or that of b11549 at its default level."""
    context = 40_000 * server.slots
    settings = ServerSettings(
        build=server.build, slots=server.slots, cache_ram_mib=server.ram, context=context, kv_unified=False
    )
    holds, lines = dict[int, int](), _head(server)
    for number, (asked, served) in enumerate(zip(traffic.asked, serve(traffic, settings), strict=True)):
        length, held = traffic.tree.length(asked.prompt), holds.get(served.slot)
        chosen = f"selected slot by LRU, t_last = {-1 if held is None else 1000 * number}"
        if served.chosen_by == "similarity":
            assert held is not None
            common = traffic.tree.common(held, asked.prompt)
            kept = common / traffic.tree.length(held)
            word = "f_sim_best" if server.build == 11549 else "sim_best"
            chosen = (
                f"selected slot by LCP similarity, {word} = {common / length:.3f} (> 0.100 thold), f_keep = {kept:.3f}"
            )
        holds[served.slot] = asked.content
        lines += (_new if server.build == 11549 else _old)(10 * number, served, chosen, length)
    if server.build != 11549:
        return "\n".join([*lines, ""])
    return "".join(f"{n // 60}.{n % 60:02}.000.000 I {line}\n" for n, line in enumerate(lines))


def _head(server: Server) -> list[str]:
    loads = "srv    load_model: loading model '/models/dense.gguf'"
    if server.build == 11549:
        many = f"n_slots = {server.slots}, n_ctx_slot = 40000, kv_unified = 'false'"
        verbosity = "common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)"
        warned = "srv          init: --cache-idle-slots requires --cache-ram, disabling"
        return [
            "srv          init: initializing ...", "srv          init: build_info: b11549-abcdef0",
            f"cmn  common_param: {verbosity}", loads, f"srv    load_model: initializing, {many}",
            *([] if server.ram else [warned]), "srv          init: model loaded",
        ]  # fmt: skip
    off = "prompt cache is disabled - use `--cache-ram N` to enable it"
    return [
        "build_info: b8672-abcdef0", "init: loading model", loads,
        f"srv    load_model: initializing slots, n_slots = {server.slots}", f"srv    load_model: {off}",
    ]  # fmt: skip


def _old(task: int, served: Served, chosen: str, prompt: int) -> list[str]:
    at, computed = f"id  {served.slot} | task {task} |", prompt - served.reused
    return [
        f"slot get_availabl: id  {served.slot} | task -1 | {chosen}",
        f"slot launch_slot_: {at} processing task, is_child = 0",
        f"slot update_slots: {at} new prompt, n_ctx_slot = 40192, n_keep = 0, task.n_tokens = {prompt}",
        f"slot update_slots: {at} n_tokens = {served.reused}, memory_seq_rm [{served.reused}, end)",
        f"slot print_timing: {at} ",
        f"prompt eval time =     100.00 ms / {computed:5} tokens ({SPEED})",
        f"       eval time =      10.00 ms / {REPLY + 1:5} tokens ({SPEED})",
        f"      total time =     110.00 ms / {computed + REPLY + 1:5} tokens",
        f"slot      release: {at} stop processing: n_tokens = {prompt + REPLY}, truncated = 0",
    ]


def _new(task: int, served: Served, chosen: str, prompt: int) -> list[str]:
    at, computed = f"id  {served.slot} | task {task} |", prompt - served.reused
    return [
        f"slot get_availabl: id  {served.slot} | task -1 | {chosen}",
        f"slot launch_slot_: {at} processing task, is_child = 0",
        f"slot print_timing: {at} prompt eval time =     100.00 ms / {computed:5} tokens ({SPEED})",
        f"slot print_timing: {at}        eval time =      10.00 ms / {REPLY + 1:5} tokens ({SPEED})",
        f"slot print_timing: {at}       total time =     110.00 ms / {computed + REPLY + 1:5} tokens",
        f"slot print_timing: {at}    graphs reused =          4",
        f"slot      release: {at} stop processing: n_tokens = {prompt + REPLY}, truncated = 0",
    ]


def blames(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Findings above a note that name something a client did, unless they are a guess that says what else it may be."""
    return [
        (f["name"], f["severity"], f["confidence"])
        for f in report["findings"]
        if f["code"].startswith(OF_CLIENTS) and f["severity"] != "note"
        and not (f["confidence"] == "low" and any(o["why"].startswith("not excluded") for o in f["ruled_out"]))
    ]  # fmt: skip


def check(turns: list[Turn], head: int, server: Server) -> None:
    """The tokens are those of the replay, the rows add up, and none is the client's."""
    traffic = sent(turns, head)
    report = report_of(logged(traffic, server))
    (whole, *_) = report["accounts"]
    lengths = [traffic.tree.length(asked.prompt) for asked in traffic.asked]
    assert [request["prompt_tokens"] for request in report["requests"]] == lengths
    assert whole["prompt_tokens"] == sum(lengths) == sum(entry["tokens"] for entry in whole["entries"])
    assert [entry for entry in whole["entries"] if entry["row"] == "client"] == []
    assert blames(report) == []


@pytest.mark.parametrize(
    ("turns", "head"),
    [
        ([(0, 90), (1, 90), (0, 2500)], 1500),  # back to the first, which is longer by now
        ([(0, 20), (0, 20), (0, 20), (1, 90), (0, 90)], 1500),
        ([(0, 700), (1, 2500), (0, 20), (2, 2500)], 300),
        ([(0, 90), (1, 400), (2, 90)], 1500),  # each new, with one system prompt
        ([(0, 400), (1, 90), (2, 400)], 1500),
        ([(0, 2500), (1, 90), (0, 20), (1, 2500)], 4000),  # in small steps
    ],
)
def test_conversations_with_one_system_prompt_on_one_slot(turns: list[tuple[int, int]], head: int) -> None:
    check([Turn(*turn) for turn in turns], head, Server(8672, 1, 0))


@pytest.mark.sweep
@given(TURNS, HEADS, SERVERS)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_nobody_blames_a_client_that_only_appends(turns: list[Turn], head: int, server: Server) -> None:
    """Drawn alike each time: where each is longer than the other in turn, three times, lengths look like one."""
    check(turns, head, server)
