"""Bodies are joined to a log by proof: those of another log change nothing, and the report says so."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import made
import pytest
from conftest import FIXTURES

import cachedoctor
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.extras import body_fit, prompt_matching
from cachedoctor.doctor.extras.body_fit import Joined
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.model import Mark
from cachedoctor.prompts import separate_prompts
from cachedoctor.prompts.prompt import Prompt

OWN = sorted(path.parent for path in FIXTURES.rglob("requests.jsonl") if (path.parent / "server.log").exists())


def words_of_users(folder: Path) -> set[str]:
    """What users say in the bodies of a run."""
    said = set()
    for line in (folder / "requests.jsonl").read_text("utf-8").splitlines():
        value = json.loads(line)
        body = value.get("body", value)
        said |= {json.dumps(m["content"]) for m in body.get("messages", []) if m.get("role") == "user"}
    return said


def foreign_pairs(count: int) -> list[tuple[Path, Path]]:
    """Logs and the bodies of other talks."""
    draw, said = random.Random(32), {folder: words_of_users(folder) for folder in OWN}
    pairs: list[tuple[Path, Path]] = []
    while len(pairs) < count:
        log, other = draw.sample(OWN, 2)
        if not said[log] & said[other]:
            pairs.append((log, other))
    return pairs


@pytest.mark.sweep
@pytest.mark.sample(12)
@pytest.mark.parametrize(("log", "other"), foreign_pairs(200), ids=lambda folder: folder.name)
def test_bodies_of_another_log_change_nothing(log: Path, other: Path) -> None:
    alone = cachedoctor.analyze(log / "server.log")
    beside = cachedoctor.analyze(log / "server.log", prompts=[other / "requests.jsonl"])
    row = beside.inputs.pop()
    assert row.path == str(other / "requests.jsonl")
    assert str(row.error).startswith("bodies: ")
    for part in ("inputs", "findings", "totals", "accounts"):
        assert getattr(beside, part) == getattr(alone, part), part
    assert list(beside.requests) == list(alone.requests)


LIVE = [
    FIXTURES / "cases" / name for name in ("requests-billing-header", "requests-slot-taken", "requests-tools-reordered")
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("every", [1, 20, 60])
@pytest.mark.parametrize(("at", "of"), [(0, 0), (1, 1), (2, 2), (0, 1), (2, 0)])
def test_a_live_log_ends_as_if_it_had_been_read_at_once(at: int, of: int, every: int) -> None:
    """However often it falls silent, with its own bodies and with those of another."""
    log, bodies = LIVE[at], LIVE[of] / "requests.jsonl"
    live = Analyzer(prompts=GivenPrompts([str(bodies)]))
    live.open(str(log / "server.log"))
    for number, line in enumerate((log / "server.log").read_bytes().splitlines(keepends=True)):
        live.feed(line)
        if number % every == every - 1:
            live.idle()
    whole = cachedoctor.analyze(log / "server.log", prompts=[bodies])
    assert live.finish().findings == whole.findings


# ---- what speaks for and against

HEAD = "You keep the books of a small harbour, and answer in a sentence. " * 60


def joined(line: int, text: str, each: float = 4.0, **more: Any) -> Joined:
    """A request of a prompt with so many characters a token."""
    marks = {"start": Mark(line, b"start")}
    known = {"marks": marks, "last_line": line + 5, "slot": 0, "prompt_tokens": round(len(text) / each)}
    prompt = Prompt("bodies.jsonl", "openai-chat", text, body={})
    return Joined(made.request(**{**known, **more}), prompt, "order", prompt)


def talk(turns: int, **more: Any) -> list[Joined]:
    """A conversation that only grows, a turn every ten lines."""
    texts = [HEAD + "And what came in on the next day? " * 10 * turn for turn in range(1, turns + 1)]
    return [joined(10 * at, text, **more) for at, text in enumerate(texts)]


def fits(found: list[Joined], bodies: int | None = None) -> bool:
    return body_fit.judge(found, len(found), bodies or len(found), ended=True).is_theirs


def test_a_talk_that_only_grows_fits() -> None:
    assert fits(talk(4))


def test_what_was_reused_must_be_shared() -> None:
    """90 of 100 tokens came from the cache, and the bodies have nothing in common."""
    found = talk(4)
    other = joined(50, "Z" * len(HEAD), cached_tokens=900)
    assert fits([*found, other]) is False


@pytest.mark.parametrize(("kind", "theirs"), [("llama-infill", True), ("openai-chat", False)])
def test_a_server_may_cut_what_is_before_a_cursor(kind: Any, theirs: bool) -> None:
    """It takes what fits into a batch, so that what is left begins with other words each time."""
    before = [HEAD + "and a line more. " * at for at in range(4)]
    found = []
    for at, text in enumerate(before):
        request = made.request(
            index=at, slot=0, prompt_tokens=512, cached_tokens=1 if at else 0, held_tokens=517 if at else None,
            released_tokens=517, prefix_between=(0, 1) if at else None, last_line=100 * at + 5,
        )  # fmt: skip
        request.marks["start"] = Mark(100 * at, b"start")
        prompt = Prompt("bodies.jsonl", kind, text, body={})
        found.append(Joined(request, prompt, "order", prompt))
    assert body_fit.judge(found, 4, 4, ended=True).is_theirs is theirs


def test_characters_per_token_are_about_constant() -> None:
    *found, last = talk(5)
    turn = len(last.prompt.text) - len(found[-1].prompt.text)
    numbers = joined(50, last.prompt.text, prompt_tokens=(found[-1].request.prompt_tokens or 0) + round(1.8 * turn / 4))
    assert fits([*found, numbers]), "a turn with many numbers"
    assert not fits([*found[:2], *(joined(60 + 10 * at, one.prompt.text, each=9.0) for at, one in enumerate(found))])


def test_the_same_text_is_not_more_tokens() -> None:
    """The log grows by a hundred tokens a turn; in the bodies nothing is added."""
    found = [joined(10 * at, HEAD, prompt_tokens=900 + 100 * at) for at in range(4)]
    assert not fits(found)


@pytest.mark.parametrize(
    ("printed", "theirs"),
    [
        ("... small | harbour, and answer in", True),
        ("... Now it is | 2026-02-03", False),
        ("... <|im_start|> | sys", True),
    ],
)
def test_what_the_log_printed_must_be_in_a_body(printed: str, theirs: bool) -> None:
    """Single words of a template tell nothing."""
    assert fits(talk(3, new_text=printed)) is theirs


@pytest.mark.parametrize("printed", ["You keep the books of | a small harbour", "cch= | b791f;\nYou keep the books of"])
def test_a_system_prompt_in_common_is_not_enough(printed: str) -> None:
    """Half of what the log printed is in the bodies, and what they grew by is uneven: another client's."""
    texts = [one.prompt.text for one in talk(4)]
    found = [joined(10 * at, text, prompt_tokens=1060 + 60 * at, new_text=printed) for at, text in enumerate(texts)]
    assert fits(found) is ("cch" not in printed)


def test_one_turn_of_three_does_not_fit_its_conversation() -> None:
    """A log grew by 85 tokens where the bodies replace the last message by one of its length."""
    *found, last = talk(3)
    longer = (last.request.prompt_tokens or 0) + 85
    edited = joined(30, last.prompt.text[:-40] + "Or what would you have said on that day?", prompt_tokens=longer)
    assert fits([*found, last])
    assert not fits([*found, last, edited])


def test_bodies_that_are_even_but_grow_unlike_the_log() -> None:
    """One system prompt makes most of every body; each turn has a quarter more characters a token."""
    texts = [HEAD + "And what came in on the next day? " * 6 * turn for turn in range(4)]
    found = [joined(10 * at, text, prompt_tokens=975 + 41 * at) for at, text in enumerate(texts)]
    assert fits(found)
    assert not fits(found, bodies=5)


def test_fewer_requests_than_bodies_need_more_than_their_order() -> None:
    found = talk(3)
    assert fits(found, bodies=4)
    steeper = [joined(10 * at, one.prompt.text, prompt_tokens=1000 + 110 * at) for at, one in enumerate(found)]
    assert not fits(steeper, bodies=4)
    assert fits(steeper)


def test_exact_lengths_need_no_more() -> None:
    """Nothing is shared with a prompt whose template writes the time first, and every length is the log's."""
    found = [one._replace(by="exact") for one in talk(3, cached_tokens=1, common_prefix_tokens=1, lcp_exact=True)]
    assert fits(found)
    by_order = talk(3, cached_tokens=1, common_prefix_tokens=1, lcp_exact=True)
    assert not fits([*found[:1], *by_order[1:]])


@pytest.mark.parametrize(("exact", "requests", "theirs"), [(1, 14, False), (2, 3, True), (3, 14, True)])
def test_a_length_that_two_texts_have_by_chance_joins_no_log(exact: int, requests: int, theirs: bool) -> None:
    found = [one._replace(by="exact") for one in talk(exact)]
    assert body_fit.judge(found, requests, 16, ended=True).is_theirs is theirs


def test_bodies_of_two_clients_in_another_order() -> None:
    """The log has the shorter prompt first; slots differ, so that the order of the bodies proves nothing."""
    short, long = "A" * 3000, "B" * 6000
    found = [joined(0, long, prompt_tokens=750, slot=0), joined(3, short, prompt_tokens=1500, slot=1)]
    assert [one.prompt.text[0] for one in body_fit.by_length(found)] == ["A", "B"]
    same_slot = [joined(0, long, prompt_tokens=750), joined(10, short, prompt_tokens=1500)]
    assert body_fit.by_length(same_slot) == same_slot


def two_characters(tmp_path: Path, *, apart: bool) -> Path:
    """Bodies of two characters that answer in turn to one text; ``apart``: behind system prompts of their own."""
    lines = [f"Line {number}: " + " ".join(f"w{number}x{word}" for word in range(30)) for number in range(5)]
    heads = [" ".join(f"{name}{word}" for word in range(90)) for name in (("ada", "bo") if apart else ("ada", "ada"))]
    path = tmp_path / "bodies.jsonl"
    rows = []
    for count in range(1, 6):
        system = {"role": "system", "content": heads[count % 2] + ("" if apart else f" {count % 2}")}
        rows.append({"messages": [system, *({"role": "user", "content": line} for line in lines[:count])]})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("apart", [True, False])
def test_characters_behind_their_own_system_prompts_are_several_conversations(tmp_path: Path, apart: bool) -> None:
    first, second, third, *_ = prompt_matching._loaded(str(two_characters(tmp_path, apart=apart)))
    assert prompt_matching._is_of_another(first, second) is apart, "a changed word makes nobody else of it"
    assert not prompt_matching._is_of_another(first, third)


def bodies_of(tmp_path: Path, *rows: list[dict[str, str]]) -> list[prompt_matching.Prompt]:
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(f"{json.dumps({'messages': row})}\n" for row in rows), encoding="utf-8")
    return [prompt for prompt in prompt_matching._loaded(str(path)) if prompt is not None]


def said_by(role: str, name: str) -> dict[str, str]:
    return {"role": role, "content": " ".join(f"{name}{word}" for word in range(90))}


@pytest.mark.parametrize(("role", "apart"), [("assistant", False), ("user", True)])
def test_a_reply_under_another_system_prompt_is_of_one_conversation(tmp_path: Path, role: str, apart: bool) -> None:
    """Who has the other one's reply as its own is the same assistant; a character in a text hears it from others."""
    asked, answered, next_one = said_by("user", "one"), said_by(role, "reply"), said_by("user", "two")
    first, second = bodies_of(
        tmp_path, [said_by("system", "ada"), asked], [said_by("system", "bo"), asked, answered, next_one]
    )
    assert prompt_matching._is_of_another(first, second) is apart


@pytest.mark.parametrize("again", ["[4 minutes ago] ", "[0 minutes ago] ", "Later: "])
def test_messages_that_are_rewritten_stay_one_conversation(tmp_path: Path, again: str) -> None:
    text = said_by("user", "one")["content"]
    sent = {"role": "user", "content": f"[0 minutes ago] {text}"}
    first, second = bodies_of(
        tmp_path,
        [said_by("system", "ada"), sent],
        [said_by("system", "ada"), {"role": "user", "content": again + text}, said_by("assistant", "ok"), sent],
    )
    assert separate_prompts.has_its_reply(first, second)


def test_another_question_behind_the_same_system_prompt_is_not_a_changed_one(tmp_path: Path) -> None:
    head, reply = said_by("system", "ada"), said_by("assistant", "ok")
    first, second = bodies_of(
        tmp_path, [head, said_by("user", "one")], [head, said_by("user", "two"), reply, said_by("user", "three")]
    )
    assert not separate_prompts.has_its_reply(first, second)
    assert not separate_prompts.has_its_reply(first, first), "without a reply to it, it is the same request again"
