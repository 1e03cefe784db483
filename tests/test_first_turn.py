"""What warming a common beginning costs and saves, and the body that does it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import made
import pytest

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.doctor.replaying.warming import warming
from cachedoctor.doctor.whatif.evidence import Asking, gather
from cachedoctor.doctor.whatif.first_turn import first_turn
from cachedoctor.model.whatif import FirstTurn
from cachedoctor.prompts import inputs
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.report.forms import first_turn_forms

pytestmark = pytest.mark.usefixtures("child_here")
HEAD = " ".join(f"rule{n}" for n in range(400))
TOOLS = [{"type": "function", "function": {"name": "read", "description": HEAD}}]


def body(system: str, *said: str, tools: bool = True) -> dict[str, object]:
    messages = [{"role": "system", "content": system}]
    messages += [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
    return {"messages": messages, "max_tokens": 8, "stream": True} | ({"tools": TOOLS} if tools else {})


def told(tmp_path: Path, *bodies: dict[str, object]) -> FirstTurn | None:
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in bodies))
    given = gather(Asking([str(path)]))
    return first_turn(given, serve(given.traffic, given.settings), 64)


def sessions(count: int) -> list[dict[str, object]]:
    """Sessions with one head, of which each begins with a question of its own."""
    return [body(HEAD, " ".join(f"s{n}w{at}" for at in range(300))) for n in range(count)]


def test_what_all_sessions_begin_with_is_computed_before_the_first(tmp_path: Path) -> None:
    """The later ones find the head in the slot of the one before: what is saved is the head in the first."""
    found = told(tmp_path, *sessions(4))
    assert found is not None
    assert (found.alike, found.conversations, found.messages, found.slots, found.starts) == (4, 4, 1, 1, 1)
    # tools and system prompt are 400 words each, of two pieces: a word and its number
    assert found.common_tokens > 2 * 800
    assert found.cost_tokens >= found.common_tokens
    assert abs(found.saved_tokens - found.common_tokens) <= 8
    assert found.path.endswith("bodies.jsonl#1")
    assert (found.cost_ms, found.saved_ms) == (None, None)


def test_sessions_of_several_heads_are_told_apart(tmp_path: Path) -> None:
    other = body("another head", "hello there", tools=False)
    found = told(tmp_path, other, *sessions(3))
    assert found is not None
    assert (found.alike, found.conversations) == (3, 4)
    assert found.path.endswith("#2")


def test_without_a_common_head_nothing_is_worth_it(tmp_path: Path) -> None:
    assert told(tmp_path, *(body(f"head {n} {HEAD}", "hello", tools=False) for n in range(3))) is None
    assert told(tmp_path, body("short", "one", tools=False), body("short", "two", tools=False)) is None


def test_messages_that_all_begin_with_are_kept() -> None:
    """Two heads, of which the longer group has a system prompt and two messages in common; the question is not kept."""
    numbers: dict[str, int] = {}

    def tokens(prompt: Prompt) -> tuple[list[int], tuple[int, ...]]:
        return [numbers.setdefault(word, len(numbers)) for word in prompt.text.split()], (7,)

    tree = PromptTree()
    bodies = [body(HEAD, "common words", "ok", f"question {n}", "yes") for n in range(3)]
    bodies.append(body("another head", "common words", "ok", "question"))
    prompts = [inputs.parse(json.dumps(one).encode(), f"f#{n}")[0] for n, one in enumerate(bodies)]
    found = warming(tree, [(one, tree.add(tokens(one)[0])) for one in prompts], tokens)
    assert found is not None
    assert (found.messages, found.alike, found.conversations, found.path) == (3, 3, 4, "f#0")
    assert found.user_starts == (7,)
    # the last message is a user's in all, so that the filler shares its role as well
    assert found.common == len(tokens(prompts[0])[0]) - len(["question", "0", "assistant", "yes"])


def test_the_command_makes_the_body(tmp_path: Path) -> None:
    """The recorded body is cut behind the head; the rest of the command only sends it."""
    found = told(tmp_path, *sessions(3))
    assert found is not None
    (command,) = first_turn_forms.commands(found)
    assert command.startswith("sed -n 1p ")
    assert ".messages = .messages[:1] + " in command
    assert command.endswith("-d @-")
    if shutil.which("jq") is None:
        pytest.skip("jq is not here")
    made = command.rpartition(" | curl ")[0]
    sent = json.loads(subprocess.run(made, shell=True, capture_output=True, check=True).stdout)
    assert sent["messages"] == [{"role": "system", "content": HEAD}, {"role": "user", "content": "ok"}]
    assert (sent["tools"], sent["max_tokens"], "stream" in sent) == (TOOLS, 1, False)


def test_it_reads_as_a_sentence() -> None:
    found = FirstTurn(17_300, 9, 9, "log.jsonl#3", 1, 1, 1, 17_310, 20_000.0, 150_000, 180_000.0)
    assert first_turn_forms.words(found) == (
        "the first 17,300 tokens are equal in 9 of 9 conversations; computing them once before the requests "
        "begin costs 20.0 s and saves 150,000 tokens, 3 min 00 s"
    )
    again = FirstTurn(17_300, 8, 9, "log.har#3", 1, 2, 3, 100_000, None, 150_000, None)
    assert "at the start and after each of 2 stops, in each of 2 slots (id_slot)" in first_turn_forms.words(again)
    assert first_turn_forms.commands(again) == []


def test_seconds_are_those_of_the_request_that_computed_the_beginning(tmp_path: Path) -> None:
    """0.1 ms a token for the long prompt that computes the head, 0.3 ms for the short ones that reuse it.

    The mean of both, by tokens, would be too much for the head.
    """
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in sessions(4)))
    given = gather(Asking([str(path)]))
    served = serve(given.traffic, given.settings)
    for at, (asked, one) in enumerate(zip(given.traffic.asked, served, strict=True)):
        computed = given.traffic.tree.length(asked.prompt) - one.reused
        ms = computed * (0.3 if one.reused else 0.1)
        given.requests.append(made.request(index=at, cached_tokens=one.reused, processed_tokens=computed, prompt_ms=ms))
        given.speed.learn(given.requests[-1])
    found = first_turn(given, served, 64)
    assert found is not None
    assert found.saved_ms is not None
    assert found.cost_ms is not None
    assert given.speed.per_token / given.speed.weight > 0.13
    assert found.cost_ms == pytest.approx(0.1 * found.cost_tokens, abs=1)
    assert found.saved_ms == pytest.approx(0.1 * found.saved_tokens, abs=3)
