"""Messages edited, moved, dropped and compacted; reminders and reasoning."""

import json

import pytest
from prompt_forms import (
    A1,
    A2,
    A3,
    SYSTEM,
    U1,
    U2,
    U3,
    U4,
    anthropic,
    between,
    chatml,
    forms,
    gemma,
    llama,
    openai,
    responses,
)

from cachedoctor.prompts.prompt import Prompt


@forms
@pytest.mark.parametrize(
    ("kind", "a", "b"),
    [
        ("message-edited", [SYSTEM, U1, A1, U2], [SYSTEM, ("user", "Please skip it."), A1, U2]),
        ("message-edited", [SYSTEM, U1, A1, U2], [SYSTEM, U1, ("assistant", "It builds nothing."), U2]),
        ("message-edited", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U1, A1, ("user", "Something else.")]),
        ("message-removed", [SYSTEM, U1, A1, U2, A2, U3, A3, U4], [SYSTEM, U1, A1, U3, A3, U4]),
        ("message-removed", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U1, A1, U2, U3]),
        ("message-removed", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U1, A2, U3]),
        ("message-inserted", [SYSTEM, U1, A1, U2], [SYSTEM, U1, U4, A1, U2]),
        ("message-inserted", [SYSTEM, U1, A1, U2, A2], [SYSTEM, U1, A1, U4, A3, U2, A2, U3]),
        ("message-inserted", [SYSTEM, U1, A1, U2], [SYSTEM, U1, A1, U3, A3, U2]),
        ("message-moved", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U1, U2, A2, A1, U3]),
        ("message-moved", [SYSTEM, U1, U2, A2, U3, A3], [SYSTEM, U1, U3, U2, A2, A3]),
        ("message-moved", [SYSTEM, U1, U4, A1, U2], [SYSTEM, U1, A1, U2, U4]),
        ("front-truncated", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U2, A2, U3]),
        ("front-truncated", [SYSTEM, U1, A1, U2, A2, U3], [SYSTEM, U2, A2, U3, A3, U4]),
        ("front-truncated", [SYSTEM, U1, A1, U2, A2, U3, A3], [SYSTEM, U3, A3, U4]),
        (
            "compacted",
            [SYSTEM, U1, A1, U2, A2, U3],
            [SYSTEM, ("user", "Summary of the conversation so far: a build, two programs."), U4],
        ),
        (
            "compacted",
            [SYSTEM, U1, A1, U2, A2, U3, A3],
            [SYSTEM, U1, ("assistant", "This session is being continued from a previous conversation."), U4],
        ),
        ("compacted", [SYSTEM, U1, A1, U2, A2, U3, A3], [SYSTEM, ("user", "They built something."), U3, A3]),
        ("appended", [SYSTEM, U1], [SYSTEM, U1, A1, U2]),
    ],
)
def test_messages(form, kind, a, b):
    if form is gemma:  # it has no system role
        a, b = a[1:], b[1:]
    found = between(form(*a), form(*b))
    assert found.kind == kind, found


def test_message_edited_names_the_role():
    for form in (chatml, llama, openai):
        assert between(form(SYSTEM, U1), form(("system", "You are Marla, a bold helper."), U1)).field == "system"
        assert between(form(SYSTEM, U1, ("tool", "one two")), form(SYSTEM, U1, ("tool", "one three"))).field == "tool"
        found = between(form(SYSTEM, U1, A1, U2), form(SYSTEM, U1, A1, ("user", "And which one is small?")))
        assert (found.field, found.sure) == ("user", True)


def test_the_end_of_a_history_removed():
    assert between(openai(SYSTEM, U1, A1, U2), openai(SYSTEM, U1)).kind == "appended"  # a prefix: nothing changed
    assert between(chatml(SYSTEM, U1, A1, U2, A2, U3), chatml(SYSTEM, U1, A1)).kind == "message-removed"


def test_another_message_where_a_reply_was_opened():
    found = between(chatml(SYSTEM, U1), chatml(SYSTEM, U1, U2))
    assert found.kind == "message-inserted"


def test_another_conversation():
    found = between(openai(SYSTEM, U1, A1), openai(SYSTEM, ("user", "Make a title."), ("assistant", "x")))
    assert (found.kind, found.field, found.sure) == ("other", "conversation", False)


def test_a_title_request_is_another_conversation():
    title = ("system", "Write a title of three words."), ("user", "Please read")
    for form in (chatml, openai):
        found = between(form(SYSTEM, U1, A1, U2), form(*title))
        assert (found.kind, found.field) == ("other", "conversation")


@pytest.mark.parametrize("form", [chatml, llama, openai], ids=lambda form: form.__name__)
@pytest.mark.parametrize(
    ("old", "new", "a", "b"),
    [
        ("One rule.", "One rule.\nTwo rules.", "", "Two rules."),
        ("Be careful, please.", "Be cautious, please.", "careful,", "cautious,"),
        ("One.\nTwo.\nThree.", "One.\nThree.", "Two.", "Three."),
    ],
)
def test_the_smallest_piece_is_shown(form, old, new, a, b):
    found = between(form(("system", old), U1), form(("system", new), U1))
    assert found.kind == "message-edited"
    assert (found.a, found.b) == (a, b) or (form is openai and found.b == b)


def test_repeated_messages_are_not_moved_ones():
    go = ("user", "continue")
    old, new = [SYSTEM, U1, A1, go, A2, go, A3], [SYSTEM, U1, A1, go, A3, go]
    for form in (chatml, openai):
        assert between(form(*old), form(*new)).kind in ("message-removed", "message-edited")


REMINDER = "<system-reminder>\nThe todo list is empty.\n</system-reminder>"


@pytest.mark.parametrize("form", [chatml, llama, openai, anthropic, responses], ids=lambda form: form.__name__)
def test_system_reminder(form):
    first, second = ("user", U1[1] + "\n" + REMINDER), ("user", U2[1] + "\n" + REMINDER)
    found = between(form(SYSTEM, first, A1, U2), form(SYSTEM, U1, A1, second))
    assert (found.kind, found.field) == ("message-moved", "system-reminder")
    gone = between(form(SYSTEM, first, A1, U2), form(SYSTEM, U1, A1, U2))
    assert (gone.kind, gone.field) == ("message-edited", "system-reminder")


def thinking(role, content, thought):
    return {"role": role, "content": content, "reasoning_content": thought}


def reasoned(style, thought):
    """A history whose first reply has (or lacks) a thought, as one of the APIs or templates carries it."""
    plain = f"<think>\n{thought}\n</think>\n\n{A1[1]}" if thought else A1[1]
    messages = [{"role": r, "content": c} for r, c in (SYSTEM, U1, A1, U2)]
    match style:
        case "chatml":
            return chatml(SYSTEM, U1, ("assistant", plain), U2)
        case "chatml-empty":
            return chatml(SYSTEM, U1, ("assistant", plain if thought else f"<think>\n\n</think>\n\n{A1[1]}"), U2)
        case "gpt-oss":
            pieces = f"<|start|>assistant<|channel|>analysis<|message|>{thought}<|end|>" if thought else ""
            reply = f"<|start|>assistant<|channel|>final<|message|>{A1[1]}<|end|><|start|>user<|message|>{U2[1]}<|end|>"
            return f"<|start|>user<|message|>{U1[1]}<|end|>{pieces}{reply}<|start|>assistant"
        case "text":
            return f"User: hi there\nBot: {plain}\nUser: and more of the same, please\n"
        case "openai":
            messages[2] = thinking(*A1, thought) if thought else messages[2]
        case "inline":
            messages[2] = {"role": "assistant", "content": plain}
        case "anthropic":
            parts = [{"type": "thinking", "thinking": thought, "signature": "x"}] if thought else []
            messages[2] = {"role": "assistant", "content": [*parts, {"type": "text", "text": A1[1]}]}
        case "responses":
            item = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": thought}], "summary": []}
            return {"input": messages[:2] + ([item] if thought else []) + messages[2:]}
    return {"messages": messages}


STYLES = ["chatml", "chatml-empty", "gpt-oss", "text", "openai", "inline", "anthropic", "responses"]


@pytest.mark.parametrize("style", STYLES)
def test_reasoning(style):
    has, lacks = reasoned(style, "The user wants the build file read."), reasoned(style, "")
    assert between(has, lacks).kind == "reasoning-dropped"
    added = between(lacks, has)
    assert (added.kind, added.a, added.b) == ("reasoning-added", "", "The user wants the build file read.")
    assert "--reasoning-preserve" in str(between(has, lacks).advice)


def test_reasoning_dropped_by_the_template_alone():
    bodies = [openai(SYSTEM, U1, A1), openai(SYSTEM, U1, A1, U2)]
    a = Prompt("x", "openai-chat", reasoned("chatml", "Let me see."), body=bodies[0], rendered=True)
    b = Prompt("x", "openai-chat", reasoned("chatml", ""), body=bodies[1], rendered=True)
    assert between(a, b).kind == "reasoning-dropped"


@pytest.mark.parametrize("style", ["chatml", "openai", "inline", "anthropic"])
def test_edited_reasoning_is_an_edit(style):
    found = between(reasoned(style, "The user wants this."), reasoned(style, "The user needs that."))
    assert (found.kind, found.field) == ("message-edited", "reasoning")


@pytest.mark.parametrize("style", ["chatml", "openai", "anthropic"])
def test_reasoning_and_answer_gone_is_not_a_dropped_reasoning(style):
    has, lacks = reasoned(style, "The user wants this."), reasoned(style, "")
    lacks = json.loads(json.dumps(lacks).replace("two programs", "no program at all"))
    assert between(has, lacks).kind == "message-edited"
