"""What given bodies have in common: who repeats text after a change, who only appends, who has nothing to share."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from test_vllm_lookalikes import access, report_of, start, stats

from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.knowledge.texts import Repeats
from cachedoctor.model import Answers, Incident, Mark, SentBodies, Session, Setting

Body = dict[str, Any]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def prose(seed: int, words: int) -> str:
    dice = random.Random(seed)
    return " ".join("".join(dice.choices(LETTERS, k=dice.randint(2, 9))) for _ in range(words))


def chat(seed: int, turns: int, head: str = "") -> list[Body]:
    """A conversation that only grows; ``{turn}`` in ``head`` is another in each request."""
    talk: list[Body] = []
    found = []
    for turn in range(turns):
        talk.append({"role": "user", "content": prose(1000 * seed + turn, 30)})
        system = {"role": "system", "content": head.format(turn=turn) + prose(seed, 300)}
        found.append({"messages": [system, *talk]})
        talk.append({"role": "assistant", "content": prose(1000 * seed + 500 + turn, 20)})
    return found


def mixed(*conversations: list[Body]) -> list[Body]:
    """Requests in turn."""
    return [body for turn in zip(*conversations, strict=True) for body in turn]


def summed(
    bodies: list[Body], folder: Path, kv: int | None = None, tokens: int | None = None, adapters: str = ""
) -> SentBodies:
    path = folder / "bodies.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    session = Session(index=0, path="x", engine="vllm")
    session.settings["block_size"] = Setting(16, None)
    if adapters:
        session.incidents["adapters"] = Incident(Mark(1, b"loaded"), field=adapters)
    if kv is not None:
        session.settings["kv_tokens"] = Setting(kv, None)
    if tokens is not None:
        session.answers.append(Answers("usage", "responses", len(bodies), len(bodies), tokens))
    found = GivenPrompts([str(path)]).summed(session)
    assert found is not None
    return found


def test_conversations_that_only_grow_repeat_nothing(tmp_path: Path) -> None:
    """However many are interleaved; a system prompt that they share is not a rewrite."""
    for bodies in (chat(1, 6), mixed(chat(1, 6), chat(2, 6), chat(3, 6))):
        found = summed(bodies, tmp_path)
        assert (found.repeated, found.changed) == (0, 0)
        assert found.share(found.shared) > 0.7
    same_head = [
        {"messages": [{"role": "system", "content": prose(7, 300)}, *chat(at, 1)[0]["messages"][1:]]} for at in range(8)
    ]
    assert summed(same_head, tmp_path).changed == 0


def test_unrelated_prompts_repeat_nothing(tmp_path: Path) -> None:
    found = summed([body for at in range(40) for body in chat(at, 1)], tmp_path)
    assert (found.changed, found.repeated) == (0, 0)
    assert found.share(found.shared) < 0.1


def test_a_clock_in_front_makes_all_after_it_repeated(tmp_path: Path) -> None:
    """All but the first request; the other client's are none of them."""
    found = summed(mixed(chat(1, 10), chat(2, 10, "It is 10:{turn:02}:07. ")), tmp_path)
    assert found.changed == 9
    assert 0.3 < found.share(found.repeated) < 0.5
    (change,) = found.changes
    assert change.worst.first is not None
    assert (change.worst.first.kind, change.bodies, change.repeated) == ("timestamp", 9, found.repeated)
    assert len(change.senders) == 1, "the other client changed nothing"
    assert found.senders == 2


def test_the_difference_is_of_two_turns_of_one_client(tmp_path: Path) -> None:
    bodies = mixed(chat(1, 5, "It is 10:{turn:02}:07. "), chat(2, 5, "Turn {turn} of many. "))
    found = summed(bodies, tmp_path)
    kinds = {change.worst.first.kind for change in found.changes if change.worst.first is not None}
    assert kinds == {"timestamp", "counter"}
    for change in found.changes:
        ends = {int(side.path.rsplit("#", 1)[1]) % 2 for side in (change.worst.a, change.worst.b)}
        assert len(ends) == 1


def test_tools_in_another_order_are_repeated(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": f"t{at}", "description": prose(at, 60)}} for at in range(6)]
    bodies = [{"tools": tools[turn:] + tools[:turn], **body} for turn, body in enumerate(chat(1, 5))]
    assert summed(bodies, tmp_path).changed == 4


def test_retrieved_documents_in_another_order_change_nothing(tmp_path: Path) -> None:
    """Each request is one question with the same four documents; only their order in it is another."""
    documents = [prose(at, 120) for at in range(20, 24)]
    bodies = [
        {"messages": [{"role": "system", "content": prose(9, 90)},
                      {"role": "user", "content": " ".join([*documents[at % 4:], *documents[: at % 4], prose(at, 9)])}]}
        for at in range(8)
    ]  # fmt: skip
    found = summed(bodies, tmp_path)
    assert (found.changed, found.repeated, found.changes) == (0, 0, [])


def test_old_results_that_an_agent_leaves_out_are_a_change(tmp_path: Path) -> None:
    """The newest result is whole in each request, and a note in the next."""
    bodies = []
    for turn in range(1, 9):
        messages = [{"role": "system", "content": prose(9, 60)}]
        for at in range(turn):
            messages.append({"role": "user", "content": prose(at, 200) if at == turn - 1 else "left out"})
            messages.append({"role": "assistant", "content": prose(50 + at, 120)})
        bodies.append({"messages": messages})
    found = summed(bodies, tmp_path)
    assert found.changed >= 4
    assert {change.worst.first.kind for change in found.changes if change.worst.first is not None} == {"message-edited"}


def test_salts_keep_apart_what_is_the_same(tmp_path: Path) -> None:
    bodies = [{**body, "cache_salt": f"s{at}"} for at, body in enumerate(chat(1, 6))]
    found = summed(bodies, tmp_path)
    assert (found.salts, found.with_salt, found.shared) == (6, 6, 0)
    assert found.resumed == found.salted  # one conversation under six salts
    assert found.share(found.salted) > 0.7
    assert found.repeated == 0
    one = summed([{**body, "cache_salt": "s"} for body in chat(1, 6)], tmp_path)
    assert (one.salts, one.with_salt, one.salted, one.resumed) == (1, 6, 0, 0)


def test_a_salt_for_each_user_ends_no_conversation(tmp_path: Path) -> None:
    """Six users with one system prompt and a question each: equal text is kept apart, and none of it is their own."""
    head = {"role": "system", "content": prose(9, 200)}
    bodies = [
        {"messages": [head, {"role": "user", "content": prose(at, 40)}], "cache_salt": f"user-{at}"} for at in range(6)
    ]
    found = summed(bodies, tmp_path)
    assert found.share(found.salted) > 0.5
    assert (found.salts, found.with_salt, found.resumed) == (6, 6, 0)


def test_adapters_keep_apart_what_is_the_same(tmp_path: Path) -> None:
    """A model is an adapter only if the log shows it: another name of one model shares its cache."""
    bodies = [{**body, "model": f"style-{at % 3}"} for at, body in enumerate(chat(1, 6))]
    found = summed(bodies, tmp_path, adapters="style-0\nstyle-1\nstyle-2")
    assert (found.adapters, found.salts, found.salted, found.repeated) == (3, 0, 0, 0)
    assert found.adapted == found.switched > 0
    names = summed(bodies, tmp_path)
    assert (names.adapters, names.adapted) == (1, 0)
    assert names.shared == found.shared + found.adapted
    two = [{**body, "model": f"style-{at % 2}"} for at, body in enumerate(mixed(chat(1, 3), chat(2, 3)))]
    each = summed(two, tmp_path, adapters="style-0\nstyle-1")
    assert each.share(each.adapted) < 0.02  # two conversations, each with its own


def test_a_request_without_a_salt_has_none(tmp_path: Path) -> None:
    found = summed([*chat(1, 3), *({**body, "cache_salt": f"s{at}"} for at, body in enumerate(chat(2, 3)))], tmp_path)
    assert (found.bodies, found.salts, found.with_salt) == (6, 3, 3)


@pytest.mark.parametrize(("kv", "kept"), [(100_000, True), (1_000, False), (None, None)])
def test_what_the_cache_still_had(kv: int | None, kept: bool | None, tmp_path: Path) -> None:
    """Four conversations in turn, of some 500 to 1,000 tokens each."""
    bodies = mixed(*(chat(at, 5) for at in range(4)))
    size = sum(len(m["content"]) for body in bodies for m in body["messages"])
    found = summed(bodies, tmp_path, kv, size // 4)
    assert found.complete
    if kept is None:
        assert (found.kept, found.endless) == (None, None)
    else:
        assert found.endless is not None
        assert found.kept == (found.endless if kept else 0)


def test_a_cache_is_not_replayed_where_requests_are_missing(tmp_path: Path) -> None:
    """Five bodies of twenty requests: the others took room, too."""
    (tmp_path / "bodies.jsonl").write_text("".join(json.dumps(body) + "\n" for body in chat(1, 5)))
    session = Session(index=0, path="x", engine="vllm", settings={"kv_tokens": Setting(10_000, None)})
    session.answers.append(Answers("usage", "responses", 20, 20, 9_000))
    found = GivenPrompts([str(tmp_path / "bodies.jsonl")]).summed(session)
    assert found is not None
    assert (found.complete, found.kept) == (False, None)


def test_bodies_of_another_log_blame_nobody(tmp_path: Path) -> None:
    """The server reused 90 %, and these bodies have nothing in common but what a clock spoils."""
    (tmp_path / "bodies.jsonl").write_text(
        "".join(json.dumps(body) + "\n" for body in chat(1, 12, "It is 10:{turn:02}:07. "))
    )
    log = start("0.32.0", True) + "".join(access(4) + stats(10 * at, "0.32.0", 120.0, "90.0") for at in range(3))
    assert report_of(log, tmp_path, "--requests", str(tmp_path / "bodies.jsonl"))["findings"] == []


def test_a_repeat_is_found_wherever_it_stands() -> None:
    text, other = (prose(seed, 400).encode() for seed in (1, 2))
    repeats = Repeats()
    repeats.add(text)
    assert repeats.of(other).length < 0.02 * len(other)
    moved = repeats.of(b"something in front " + text)
    assert moved.owner == 0
    assert moved.length > 0.9 * len(text)
    assert repeats.of(text, len(text) - 10).length == 0
