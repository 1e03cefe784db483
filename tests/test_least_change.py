"""The smallest set of changes that gives reuse back: planted differences are found, and what is found is enough."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from cachedoctor.knowledge.texts import common_prefix
from cachedoctor.model.diff import LeastChange
from cachedoctor.prompts import inputs
from cachedoctor.prompts.least_change import MOST, least_change
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.tokenizers.base import pieces
from cachedoctor.prompts.undoing import changes

Body = dict[str, Any]
CUTTER = pieces()
WORDS = ["the", "cache", "holds", "what", "a", "prompt", "had", "before", "and", "gives", "it", "back", "unchanged"]


def of(value: object) -> Prompt:
    (found,) = inputs.parse(json.dumps(value).encode() if not isinstance(value, str) else value.encode(), "made")
    return found


def least(a: object, b: object) -> LeastChange:
    return least_change(of(a), of(b), CUTTER, lambda prompt: prompt)


def sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(words)) + "."


def tool(rng: random.Random, name: str) -> Body:
    parameters = {"type": "object", "properties": {"path": {"type": "string", "description": sentence(rng, 8)}}}
    return {"type": "function", "function": {"name": name, "description": sentence(rng, 20), "parameters": parameters}}


def request(rng: random.Random, turns: int = 5) -> Body:
    """A body as agents send it: tools, a system prompt with values, a history."""
    lines = [sentence(rng, 12) for _ in range(12)]
    lines[2] = "Now: 2026-11-02 10:41:03"
    lines[5] = "Session: 6f1e2d3c-0a1b-4c2d-8e3f-112233445566"
    lines[8] = "Working directory: /srv/project/main"
    messages: list[Body] = [{"role": "system", "content": "\n".join(lines)}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn}: {sentence(rng, 40)}"})
        answer = {
            "role": "assistant",
            "content": f"{turn}: {sentence(rng, 60)}",
            "reasoning_content": sentence(rng, 30),
        }
        messages.append(answer)
    return {"tools": [tool(rng, f"tool_{letter}") for letter in "abcdef"], "messages": messages}


def _system(old: str, new: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        assert old in body["messages"][0]["content"]
        body["messages"][0]["content"] = body["messages"][0]["content"].replace(old, new)

    return change


def _drop_reasoning(body: Body) -> None:
    for message in body["messages"]:
        message.pop("reasoning_content", None)


def _edit_message(body: Body) -> None:
    body["messages"][3]["content"] = body["messages"][3]["content"].replace(" ", "  ", 1)


PLANTS: dict[str, Callable[[Body], None]] = {
    "clock": _system("10:41:03", "11:52:47"),
    "session": _system("6f1e2d3c-0a1b-4c2d-8e3f-112233445566", "0c9d8e7f-aaaa-4bbb-9ccc-998877665544"),
    "folder": _system("/srv/project/main", "/srv/team/tree-7"),
    "tool gone": lambda body: body["tools"].pop(1),
    "tool new": lambda body: body["tools"].insert(3, tool(random.Random(5), "lsp")),
    "tools sorted": lambda body: body["tools"].reverse(),
    "tool edited": lambda body: body["tools"][4]["function"].update(description="Another text altogether."),
    "message gone": lambda body: body["messages"].pop(4),
    "message new": lambda body: body["messages"].insert(5, {"role": "user", "content": "<reminder>brief</reminder>"}),
    "message edited": _edit_message,
    "reasoning": _drop_reasoning,
}  # fmt: skip
AT_ODDS = {"tools sorted": ("tool gone", "tool new", "tool edited")}
"""Orders of tools change what is the first of them: these are not planted together."""


def planted(seed: int, turns: int = 5) -> tuple[Body, Body, Body, list[str]]:
    """A request, the next one with one to four differences, the same without, and what was planted."""
    rng = random.Random(seed)
    a = request(rng, turns)
    names = rng.sample(sorted(PLANTS), 1 + seed % 4)
    names = [name for name in names if not any(name in AT_ODDS.get(other, ()) for other in names)]
    plain = copy.deepcopy(a)
    plain["messages"] += [{"role": "user", "content": f"next: {sentence(rng, 50)}"}]
    b = copy.deepcopy(plain)
    for name in sorted(names, key=lambda name: list(PLANTS).index(name), reverse=True):
        PLANTS[name](b)
    return a, b, plain, names


def tokens_in_common(a: Prompt, b: Prompt) -> int:
    return len(CUTTER.encode(a.text[: common_prefix(a.text, b.text)]))


@pytest.mark.parametrize("seed", range(30))
def test_planted_differences_are_found_and_are_enough(seed: int) -> None:
    """As many changes as were planted, or fewer; taken back, they give what the request without any would reuse."""
    a, b, plain, names = planted(seed)
    found = least(a, b)
    best = tokens_in_common(of(a), of(plain))
    assert 1 <= len(found.edits) <= len(names), (names, [edit.words for edit in found.edits])
    assert found.common < best
    assert found.edits[-1].reuse >= best - 0.01 * found.tokens - 16
    assert [edit.reuse for edit in found.edits] == sorted(edit.reuse for edit in found.edits)
    assert not found.is_bounded


def test_reasoning_left_out_of_a_long_conversation_is_one_change() -> None:
    """It is put back in 60 messages; behind the last of them is less than 1 % of the prompt."""
    a = request(random.Random(3), turns=60)
    b = copy.deepcopy(a)
    b["messages"].append({"role": "user", "content": "next"})
    _drop_reasoning(b)
    found = least(a, b)
    assert [edit.kind for edit in found.edits] == ["reasoning-dropped"]
    assert found.common < 0.2 * found.tokens
    assert (found.edits[0].reuse, found.rest) == (len(CUTTER.encode(of(a).text)), 0)


def test_only_the_first_differences_are_needed_where_nothing_follows_the_rest() -> None:
    a = "Now: 10:41\n" + "one two three four five six seven eight\n" * 40 + "Left: 5"
    b = "Now: 10:42\n" + "one two three four five six seven eight\n" * 40 + "Left: 6"
    found = least(a, b)
    assert [(edit.kind, edit.line, edit.owner) for edit in found.edits] == [("timestamp", 1, "client")]
    assert found.edits[0].words == "drop or freeze the value (timestamp: time) (line 1)"
    assert found.edits[0].reuse > 0.95 * found.tokens


def test_what_was_only_appended_to_needs_no_change() -> None:
    found = least("one two three", "one two three four")
    assert (found.edits, found.rest, found.common) == ([], 0, 3)


def test_two_prompts_without_anything_in_common_have_no_small_set() -> None:
    found = least("alpha beta gamma delta " * 40, "one two three four " * 40)
    assert found.edits == []


def test_the_owner_of_a_change_is_named() -> None:
    rng = random.Random(1)
    tools = [tool(rng, name) for name in ("read", "mcp__github__search", "write")]
    messages = [{"role": "system", "content": sentence(rng, 200)}, {"role": "user", "content": "hello"}]
    a, b = {"tools": tools, "messages": messages}, {"tools": [tools[0], tools[2]], "messages": messages}
    (edit,) = least(a, b).edits
    assert (edit.kind, edit.field, edit.owner) == ("tool-removed", "mcp__github__search", "plugin")
    assert edit.words.startswith("keep `mcp__github__search` in the tool list (tools[1]")
    assert any("MCP" in advice.text for advice in edit.advice)


def test_more_changes_than_the_bound_are_reported_as_bounded() -> None:
    lines = [f"number {n} of a line that goes on for a while and then ends here" for n in range(2 * MOST)]
    a = "\n".join(lines)
    b = "\n".join(f"{line} today" if n % 2 else line for n, line in enumerate(lines))
    found = least(a + "\n" + "the end " * 40, b + "\n" + "the end " * 40)
    assert found.is_bounded or len(found.edits) == MOST
    assert len(found.edits) <= MOST


def test_a_changed_value_is_one_change_and_two_lines_are_two() -> None:
    assert changes("at 10:41:03 it", "at 11:52:47 it") == [(3, 11, 3, 11)]
    found = changes("a: 1\nthe same words stand here\nb: 2\n", "a: 3\nthe same words stand here\nb: 4\n")
    assert [("a: 1\nthe same words stand here\nb: 2\n")[i0:i1] for i0, i1, _, _ in found] == ["1", "2"]
