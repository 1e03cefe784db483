"""Text and bodies that nobody expected are recognised as something, whatever they hold."""

import pytest
from hostile_inputs import PIECES, histories, prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_forms import body, text

from cachedoctor.prompts.conversations import common_prefix
from cachedoctor.prompts.difference_advice import RecognisedDifference, recognise
from cachedoctor.prompts.recognisers.base import MAX_SHOWN

SCRAPS = st.sampled_from(
    [
        "<|im_start|>",
        "user\n",
        "<think>",
        "</think>",
        "<tools>",
        "</tools>",
        '{"name": "f"}',
        "{",
        "[",
        '"',
        "\\",
        "10:30",
        "cch=",
        "x-anthropic-billing-header:",
        "2026-09-01",
        "<s>",
        "[INST]",
        "<system-reminder>",
        "git status\n",
        "M a\n",
        "/a/b/c",
        "\ud800",
        "12",
        "3/4",
        "\r\n",
        "\N{ZERO WIDTH SPACE}",
        "<image sha256:ab>",
        "abc123",
        " ",
        "\n",
        "\0",
        "é",
        "𝒳",
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(SCRAPS, max_size=20).map("".join))
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | SCRAPS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(JSONS, max_size=4)},
    optional={"tools": JSONS | st.lists(JSONS, max_size=3), "system": JSONS, "reasoning_effort": JSONS},
)


def check(found):
    assert isinstance(found, RecognisedDifference)
    assert found.explanation
    assert max(len(found.a), len(found.b)) <= MAX_SHOWN


@pytest.mark.sweep
@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text(common, a, b):
    one, two = text(common + a), text(common + b)
    check(recognise(one, two, common_prefix(one.text, two.text)))
    for offset in (-1, 0, len(common), 10**6):
        check(recognise(one, two, offset))


@pytest.mark.sweep
@given(BODIES, BODIES, TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_body(a, b, rendered):
    one, two = body(a), body(b)
    check(recognise(one, two, common_prefix(one.text, two.text)))
    for prompt in (one, two):
        prompt.text, prompt.spans = rendered + prompt.text[3:], []
    check(recognise(one, two, common_prefix(one.text, two.text)))
    check(recognise(one, text(rendered), common_prefix(one.text, rendered)))


@pytest.mark.sweep
@pytest.mark.parametrize("piece", PIECES)
def test_long_repetitions(piece):
    """The kind is that of a short text of the same making: no limit of the search changes the answer."""
    for long, short in zip(prompts(piece, 30_000), prompts(piece, 3_000), strict=True):
        found, expected = (recognise(text(a), text(b), common_prefix(a, b)) for a, b in (long, short))
        check(found)
        assert found.kind == expected.kind


def test_many_messages_and_tools():
    for kind, a, b in histories(1_000):
        one, two = body(a), body(b)
        assert recognise(one, two, common_prefix(one.text, two.text)).kind == kind
