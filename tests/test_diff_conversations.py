"""Which prompt follows which: conversations told apart, slots paired, and where two texts part."""

import pytest
from hostile_inputs import growing_chats
from hypothesis import given
from hypothesis import strategies as st
from prompt_files import one

from cachedoctor.prompts import inputs
from cachedoctor.prompts.conversations import common_prefix, walk
from cachedoctor.prompts.prompt import Prompt


def chat(*turns: str, system: str = "S") -> Prompt:
    roles = ("user", "assistant")
    turn = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return one({"messages": [{"role": "system", "content": system}, *turn]})


@pytest.mark.parametrize("as_text", [False, True])
def test_conversations_are_told_apart(as_text):
    main = [chat("fix the parser of numbers", system="t=1")]
    main.append(chat("fix the parser of numbers", "ok, done", "now test it please", system="t=2"))
    main.append(chat("fix the parser of numbers", "ok, done", "now test it well please", system="t=3"))
    rolled = chat("now test it well please", "tested it, three of them fail", "why do they fail?", system="t=4")
    other = [chat("write a title"), chat("write a title", "A title", "another")]
    prompts = [main[0], other[0], main[1], main[2], other[1], rolled]
    if as_text:
        for prompt in prompts:
            said = prompt.body["messages"] if prompt.body else []
            prompt.text = (
                "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in said)
                + "<|im_start|>assistant\n"
            )
            prompt.body = None
    assert walk(prompts) == [(0, 2), (2, 3), (1, 4), (3, 5)]


def test_a_compacted_history_follows_and_a_new_one_does_not():
    long = chat("one long question", "an answer", "second question", "second answer", "third", system="the same system")
    compact = chat("Summary: all was done", "Understood.", "go on", system="the same system")
    fresh = chat("an unrelated thing", system="the same system")
    assert walk([long, compact, fresh]) == [(0, 1)]


def test_texts_without_turns():
    texts = ["a" * 90 + "1", "b" * 90, "a" * 90 + "2"]
    assert walk([Prompt("f", "text", text) for text in texts]) == [(0, 2)]


def test_a_long_chat_is_followed_turn_by_turn():
    prompts = [one(body) for body in growing_chats(180)]
    assert walk(prompts) == [(i, i + 1) for i in range(179)]


def test_a_chat_that_begins_again_is_the_same_chat():
    """Every prompt but the first has one before it; of those that share as much, the last."""
    pairs = walk([one(body) for body in growing_chats(180, longest=60)])
    assert [later for _, later in pairs] == list(range(1, 180))
    assert pairs[58:61] == [(58, 59), (59, 60), (59, 61)]


@given(st.text("ab", max_size=40), st.text("ab", max_size=40), st.integers(0, 70_000))
def test_common_prefix_equals_the_naive_one(a, b, front):
    a, b = "x" * front + a, "x" * front + b
    naive = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == naive


def test_slots_are_paired_by_id_then_by_text():
    def slot(number: int, text: str) -> Prompt:
        return Prompt("f", "slots", text, slot=number)

    a = [slot(0, "main 1"), slot(1, "side x"), slot(2, "third")]
    b = [slot(5, "third more"), slot(0, "main 2"), slot(6, "side xy"), slot(7, "z")]
    assert [(x.slot, y.slot) for x, y in inputs.pair(a, b)] == [(0, 0), (1, 6), (2, 5)]
    assert [(x.slot, y.slot) for x, y in inputs.pair(a[:1], b[:1])] == [(0, 5)]
