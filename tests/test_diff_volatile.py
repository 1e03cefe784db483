"""What is left of the kinds: blanks, images, markers, other; and the advice on each."""

import pytest
from prompt_forms import A1, A2, REST, SYSTEM, U1, U2, between, chatml, gemma, llama, openai, text

from cachedoctor.model import Advice
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.difference_advice import _GENERIC, advise
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.recognisers.base import MAX_SHOWN


@pytest.mark.parametrize(
    ("a", "b", "field"),
    [
        ("one two" + REST, "one  two" + REST, "blanks"),
        ("one\r\ntwo" + REST, "one\ntwo" + REST, "line ends"),
        ("one\n\n\ntwo" + REST, "one\ntwo" + REST, "blanks"),
        ("one \ntwo" + REST, "one\ntwo" + REST, "blanks"),
        ("one\ttwo" + REST, "one    two" + REST, "blanks"),
        ("one two" + REST, "one\N{NO-BREAK SPACE}two" + REST, "blanks"),
        ("one two" + REST, "one \N{ZERO WIDTH SPACE}two" + REST, "invisible characters"),
    ],
)
def test_whitespace(a, b, field):
    for outside in (lambda x: x, lambda x: chatml(SYSTEM, ("user", x), A1, U2), lambda x: openai(SYSTEM, ("user", x))):
        found = between(outside(a), outside(b))
        assert (found.kind, found.field) == ("whitespace", field)


def test_not_only_whitespace():
    assert between("one two" + REST, "one  three" + REST).kind != "whitespace"
    assert between("a\nb", "a b and more of it").kind != "whitespace"
    assert between("one two", "one").kind == "appended"


@pytest.mark.parametrize("value", ["same", "", chatml(SYSTEM, U1)])
def test_retokenised(value):
    assert between(value, value, same_text=True).kind == "retokenised"
    assert between(openai(SYSTEM, U1), openai(SYSTEM, U1), same_text=True).kind == "retokenised"


@pytest.mark.parametrize(
    ("a", "b"),
    [("one", "one two"), ("one two", "one"), (chatml(U1), chatml(U1) + "Yes.<|im_end|>"), ("", "x")],
)
def test_appended(a, b):
    found = between(a, b)
    assert (found.kind, found.advice, found.sure) == ("appended", [], True)


def picture(data):
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    return {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}]}


def test_image():
    found = between(picture("AAAA"), picture("AAAB"))
    assert (found.kind, found.field) == ("image", "image")
    block = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        for data in ("AAAA", "AAAB")
    ]
    a, b = ({"system": "x", "messages": [{"role": "user", "content": [part]}]} for part in block)
    assert between(a, b).kind == "image"
    # Rendered, an image is a marker that does not show its bytes.
    c, d = (Prompt("x", "openai-chat", "<__media__>What is it?", images=[sha * 64], rendered=True) for sha in "ab")
    assert between(c, d).kind == "image"
    longer = Prompt("x", "openai-chat", d.text + " And then?", images=[*d.images, "c" * 64], rendered=True)
    assert between(c, longer).kind == "image"
    assert between(picture("AAAA"), picture("AAAA"), same_text=True).kind == "retokenised"


def test_another_question_about_an_image_is_not_an_image():
    other = picture("AAAA")
    other["messages"][0]["content"][1]["text"] = "Where is it?"
    assert between(picture("AAAA"), other).kind == "message-edited"


@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [
        ("template", chatml(SYSTEM, U1), llama(SYSTEM, U1).removeprefix("<|begin_of_text|>")),
        ("template", chatml(U1) + "<think>\n", chatml(U1) + "Yes, it is.<|im_end|>\n"),
        ("template", chatml(U1) + "<think>\n\n</think>\n\n", chatml(U1) + "<tool_call>{}</tool_call><|im_end|>\n"),
        (
            "template",
            chatml(U1, ("assistant", "<think>\n\n</think>\n\nYes."), U2),
            chatml(U1, ("assistant", "Yes."), U2),
        ),
        ("special-token", "<s>You are Marlow." + REST, "You are Marlow." + REST),
        ("special-token", "<|begin_of_text|>You are Marlow." + REST, "<bos>You are Marlow." + REST),
        ("special-token", "<bos><bos>" + gemma(U1), "<bos>" + gemma(U1)),
        ("special-token", "One two three." + "</s>" + REST, "One two three." + REST),
    ],
)
def test_markers(kind, a, b):
    found = between(a, b)
    assert found.kind == kind, found


def test_template_switches():
    a, b = (openai(SYSTEM, U1, chat_template_kwargs={"enable_thinking": on}) for on in (True, False))
    found = between(a, b)
    assert (found.kind, found.field) == ("template", "chat_template_kwargs.enable_thinking")
    low, high = (openai(SYSTEM, U1, reasoning_effort=effort) for effort in ("low", "high"))
    assert between(low, high).field == "reasoning_effort"
    same = openai(SYSTEM, U1)
    c, d = (Prompt("x", "openai-chat", f"### {mark}: hello", body=same, rendered=True) for mark in ("User", "Human"))
    assert (between(c, d).kind, between(c, d).sure) == ("template", False)


def test_markers_around_other_words_are_not_template():
    assert between(chatml(SYSTEM, U1), chatml(SYSTEM, U2)).kind == "message-edited"
    assert between(chatml(U1, A1), llama(U2, A2)).kind not in ("special-token",)


@pytest.mark.parametrize(("a", "b"), [("cat", "dog"), ("The end.", "A start."), ("x" * 100, "y" * 100)])
def test_other(a, b):
    found = between(a, b)
    assert (found.kind, found.field, found.sure) == ("other", None, False)
    assert len(found.a) <= MAX_SHOWN


def test_advice_for_the_client_at_hand():
    def about(client, kind, field=None):
        prompt = text(f"{client}\nBe brief.")
        return str(advise(kind, field, client_habits.known(kind, field, prompt, prompt, len(prompt.text) - 1)))

    assert "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS" in about("You are Claude Code, a CLI.", "git-state")
    assert "23595" in about("You are opencode, a CLI.", "message-moved", "system-reminder")
    assert "23595" not in about("You are opencode, a CLI.", "message-moved", "user")
    assert "23595" not in about("You are Marlow.", "message-moved", "system-reminder")
    assert "{{CURRENT_DATETIME}}" in about("Open WebUI", "timestamp")
    assert "b8929" in about("", "billing-header", "cch")
    assert "b8929" not in about("", "billing-header", "cc_prev_req")
    assert "slot" in about("", "other", "conversation")


@pytest.mark.sample(10)
@pytest.mark.parametrize("kind", [*_GENERIC, "billing-header"])
def test_every_kind_has_advice(kind):
    assert all(isinstance(a, Advice) and a.text for a in advise(kind, None))
    assert kind == "appended" or advise(kind, None)


@pytest.mark.parametrize("kind", ["message-edited", "message-removed", "message-inserted", "message-moved"])
def test_at_the_head_nobody_is_told_to_append(kind):
    assert "Only append" in str(advise(kind, None))
    assert "append" not in str(advise(kind, None, opening=True))


def test_advice_follows_from_the_place():
    """The system prompt, the first message and a later one, in bodies and in texts."""
    other = ("user", "Please write the parser anew, from its first line on.")
    for form in (openai, chatml, llama):
        head = between(form(SYSTEM, U1, A1, U2), form(("system", "You are Marlow, a brief helper."), U1, A1, U2, A2))
        first = between(form(SYSTEM, U1, A1, U2), form(SYSTEM, other, A1, U2, A2))
        later = between(form(SYSTEM, U1, A1, U2), form(SYSTEM, U1, A1, other, A2))
        assert {found.kind for found in (head, first, later)} == {"message-edited"}
        assert "append" not in str(head.advice) + str(first.advice)
        assert "Only append" in str(later.advice)


def test_an_hour_is_a_time():
    assert between("The hour is 10." + REST, "The hour is 11." + REST).kind == "timestamp"
    assert between("The room is 10." + REST, "The room is 11." + REST).kind != "timestamp"
