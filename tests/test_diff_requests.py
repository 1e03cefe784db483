"""Hoisted system messages, modes that alternate, compaction requests, salts; and a walk that drops no prompt."""

import json

import pytest
from command import run
from prompt_forms import A1, A2, SYSTEM, U1, U2, U3, anthropic, between, body, chatml, llama, openai, tool

from cachedoctor.prompts import compare_prompts, request_bodies, run_diff
from cachedoctor.prompts.tokenizers import base

FIRST, SECOND = "The build takes a minute.", "Two files are open."


def grown(*added):
    return ("system", "\n".join([SYSTEM[1], *added]))


@pytest.mark.parametrize("form", [openai, chatml, llama], ids=lambda form: form.__name__)
def test_system_messages_that_were_hoisted(form):
    """One more at the end of the system prompt in every turn, while the conversation is only appended to."""
    turns = [form(SYSTEM, U1), form(grown(FIRST), U1, A1, U2), form(grown(FIRST, SECOND), U1, A1, U2, A2, U3)]
    for a, b, text in ((turns[0], turns[1], FIRST), (turns[1], turns[2], SECOND), (turns[0], turns[2], SECOND)):
        found = between(a, b)
        assert (found.kind, found.field, found.sure) == ("system-hoisted", "system", False)
        assert text in found.b
        assert "append" not in str(found.advice)


def test_hoisted_as_messages_and_as_blocks():
    """Several system messages at the front of a body, and blocks of the system field."""
    more = openai(SYSTEM, ("system", FIRST), ("system", SECOND), U1, A1, U2)
    found = between(openai(SYSTEM, U1), more)
    assert (found.kind, found.explanation.split(" more")[0]) == ("system-hoisted", "2 messages")
    a, b = anthropic(U1), anthropic(U1, A1, U2)
    b["system"] = [*b["system"], {"type": "text", "text": FIRST}]
    assert between(a, b).kind == "system-hoisted"


def test_hoisted_before_what_the_template_writes():
    """Qwen's templates write the tools after the client's system prompt, in the same message."""
    tools = "\n\n# Tools\n\nYou may call one or more functions.\n<tools>\n{}\n</tools>"
    a, b = chatml(("system", SYSTEM[1] + tools), U1), chatml(("system", f"{SYSTEM[1]}\n{FIRST}{tools}"), U1, A1, U2)
    assert between(a, b).kind == "system-hoisted"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([SYSTEM, U1], [grown(FIRST), U1]),
        ([SYSTEM, U1, A1, U2], [grown(FIRST), U2, A2, U3]),
        ([SYSTEM, U1], [("system", FIRST + "\n" + SYSTEM[1]), U1, A1, U2]),
        ([grown(FIRST), U1], [grown(SECOND), U1, A1, U2]),
        ([grown(FIRST), U1], [SYSTEM, U1, A1, U2]),
        ([U1], [SYSTEM, U1, A1, U2]),
        ([SYSTEM, U1], [("system", SYSTEM[1] + " Be brief."), U1, A1, U2]),
    ],
    ids=["nothing new", "history changed", "in front", "in its place", "gone", "the first one", "no line"],
)
def test_what_is_not_hoisted(a, b):
    for form in (openai, chatml):
        assert between(form(*a), form(*b)).kind != "system-hoisted"


SUMMARY = ("user", "Create a detailed summary of the conversation so far, for another model to go on with.")
SUMMARISER = ("system", "You are an anchored context summarization assistant for coding sessions.")
SAID = (U1, A1, U2, A2)
FLAT = ("user", "<conversation>\n" + "\n".join(f"[{role}]: {text}" for role, text in SAID) + "\n</conversation>")


@pytest.mark.parametrize(
    ("b", "field", "words"),
    [
        (openai(SUMMARISER, *SAID, SUMMARY), "system", "another system prompt and no tools"),
        (openai(SUMMARISER, FLAT), "system", "another system prompt and no tools"),
        (openai(*SAID, SUMMARY), "system", "no system prompt and no tools"),
        (openai(SYSTEM, *SAID, SUMMARY), "tools", "no tools"),
        (openai(SYSTEM, *SAID, SUMMARY, tools=[tool("other")]), "tools", "other tools"),
    ],
    ids=["system", "flat", "no system", "no tools", "other tools"],
)
def test_a_compaction_request_with_another_head(b, field, words):
    found = between(openai(SYSTEM, *SAID, tools=[tool("read"), tool("write")]), b)
    assert (found.kind, found.field) == ("compaction-request", field)
    assert found.explanation == f"the request for a summary of the conversation has {words}"
    assert found.client is None


TITLE = ("user", "Summarize this conversation in a title of 5 words.")


@pytest.mark.parametrize(
    "b",
    [
        openai(SYSTEM, *SAID, SUMMARY, tools=[tool("read")]),
        openai(("system", "You write titles. Summarize the conversation."), *SAID, TITLE),
        openai(SUMMARISER, ("user", "The weather was fine all week, and we walked.")),
        openai(("system", "You are Marlow, a brief helper."), *SAID, U3),
    ],
    ids=["same head", "title", "another conversation", "no summary"],
)
def test_what_is_not_a_compaction_request(b):
    assert between(openai(SYSTEM, *SAID, tools=[tool("read")]), b).kind != "compaction-request"


def test_a_summary_of_a_summary_is_not_a_compaction_request():
    a, b = openai(SUMMARISER, *SAID), openai(("system", SUMMARISER[1] + " Be brief."), *SAID, SUMMARY)
    assert between(a, b).kind == "message-edited"


def compared(a, b):
    return compare_prompts.compare(body(a), body(b), base.pieces(), compare_prompts.DiffOptions())


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("cache_salt", "cache-salt", ("alice", "bob")),
        ("extra_key", "cache-salt", ("alice", None)),
        ("lora", "adapter", ([{"id": 0, "scale": 1.0}], [{"id": 0, "scale": 0.5}])),
        ("lora_path", "adapter", (None, "sql")),
    ],
)
def test_what_keeps_equal_prompts_apart(name, kind, values):
    old, new = (openai(SYSTEM, U1, **({} if value is None else {name: value})) for value in values)
    found = compared(old, new)
    assert not found.equal
    assert found.first is not None
    assert (found.first.kind, found.first.field) == (kind, name)
    assert [setting.place for setting in found.settings] == [name]
    assert "alice" not in str(found)
    same = compared(old, old)
    assert (same.equal, same.settings) == (True, [])


def test_settings_are_said_beside_another_difference():
    a = openai(SYSTEM, U1, cache_salt="x" * 40, model="base")
    b = openai(SYSTEM, U1, A1, U2, cache_salt="y" * 40, model="adapter-2")
    found = compared(a, b)
    assert found.first is not None
    assert found.first.kind == "appended"
    assert [(s.place, s.a.split(",")[0]) for s in found.settings] == [("cache_salt", "40 chars"), ("model", "base")]
    assert not run_diff.only_appended(found)
    assert "adapter-2" not in str(compare_prompts.hashed(found).settings)


def test_the_name_of_a_model_alone_makes_no_difference():
    found = compared(openai(SYSTEM, U1, model="a"), openai(SYSTEM, U1, model="b"))
    assert found.equal
    assert [setting.place for setting in found.settings] == ["model"]
    assert not request_bodies.decides(found.settings)


def test_images_that_differ_after_the_first_difference():
    def seen(system, data):
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": [url]}]}

    found = compared(seen("One", "AAAA"), seen("Two", "AAAB"))
    assert found.first is not None
    assert found.first.kind != "image"
    assert [setting.place for setting in found.settings] == ["images[0]"]


def walked(tmp_path, *bodies):
    path = tmp_path / "requests.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in bodies))
    return path, run_diff.answer(str(path), None, run_diff.DiffJob())


PLAN, BUILD = [tool("bash", "Runs."), tool("plan_exit", "Ends.")], [tool("bash", "Runs."), tool("edit", "Edits.")]


def test_modes_that_alternate(tmp_path):
    """The tools go and come back; the first switch alone does not show that."""
    system = ("system", "You are opencode, a CLI.")
    turns = [
        openai(system, U1, tools=PLAN),
        openai(system, U1, A1, U2, tools=BUILD),
        openai(system, U1, A1, U2, A2, U3, tools=PLAN),
    ]
    _, found = walked(tmp_path, *turns)
    assert [answer.first.kind for answer in found] == ["tool-removed", "mode-switched"]
    assert "an earlier prompt had exactly these" in found[1].explanation
    assert found[1].first.client.habit == "opencode/mode-switch"
    assert "same tools" in found[1].first.advice[0].text
    other = [{**turn, "tools": tools} for turn, tools in zip(turns, (PLAN, BUILD, [tool("third")]), strict=True)]
    assert [a.first.kind for a in walked(tmp_path, *other)[1]] == ["tool-removed", "tool-removed"]
    nobody = [
        {**turn, "messages": [dict(zip(("role", "content"), SYSTEM, strict=True)), *turn["messages"][1:]]}
        for turn in turns
    ]
    last = walked(tmp_path, *nobody)[1][1].first
    assert (last.kind, last.client) == ("mode-switched", None)


TALK = [openai(SYSTEM, U1), openai(SYSTEM, U1, A1, U2), openai(SYSTEM, U1, A1, U2, A2, U3)]
OTHER = openai(("system", "You paint."), ("user", "A boat on the lake, at night, please."))
TITLED = openai(("system", "You write titles."), ("user", "A title for:"), U1)


def test_an_append_only_walk_ends_well(tmp_path):
    path, _ = walked(tmp_path, *TALK)
    assert run("diff", path).returncode == 0
    path, _ = walked(tmp_path, *TALK, openai(("system", "You are Marlow, a brief helper."), U1, A1, U2, A2, U3))
    assert run("diff", path).returncode == 1
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(TALK[0]))
    second.write_text(json.dumps(TALK[1]))
    assert run("diff", first, second).returncode == 1


def test_two_conversations_that_are_only_appended_to(tmp_path):
    """Told apart first, however they alternate; what began and never continued is listed and no difference."""
    mine = [
        OTHER,
        openai(*((m["role"], m["content"]) for m in OTHER["messages"]), ("assistant", "Here."), ("user", "A sail.")),
    ]
    path, found = walked(tmp_path, TALK[0], mine[0], TALK[1], TITLED, mine[1], TALK[2])
    assert [(a.a.path[-2:], a.b.path[-2:]) for a in found] == [("#1", "#3"), ("#2", "#5"), ("#3", "#6")]
    assert [side.path[-2:] for side in found[-1].alone] == ["#4"]
    assert [answer.alone for answer in found[:-1]] == [[], []]
    assert run("diff", path).returncode == 0


def test_prompts_without_a_partner_are_listed(tmp_path):
    path, _ = walked(tmp_path, TALK[0], OTHER, TALK[1], TITLED)
    text = run("diff", path, COLUMNS="200").stdout.decode()
    assert "2 prompts were not compared: no other request of its conversation was given" in text
    assert all(f"requests.jsonl#{number} (openai-chat" in text for number in (2, 4))
    rows = [json.loads(line) for line in run("diff", path, "-f", "json").stdout.splitlines()]
    assert [side["path"][-2:] for side in rows[-1]["alone"]] == ["#2", "#4"]
    assert all(side["tokens"] > 0 for side in rows[-1]["alone"])


def test_slots_without_a_partner_are_listed(tmp_path):
    def dump(name, slots):
        path = tmp_path / name
        path.write_text(
            json.dumps([{"id": n, "n_ctx": 4096, "id_task": 1, "prompt": text} for n, text in slots.items()])
        )
        return str(path)

    old, new = dump("a.json", {0: "one two three", 1: "something else"}), dump("b.json", {0: "one two four"})
    (found,) = run_diff.answer(old, new, run_diff.DiffJob())
    assert [side.path for side in found.alone] == [f"{old}#1"]


def test_a_salt_that_changes_is_said_in_a_walk(tmp_path):
    path, _ = walked(tmp_path, {**TALK[0], "cache_salt": "one"}, {**TALK[1], "cache_salt": "two"})
    done = run("diff", path, COLUMNS="200")
    assert done.returncode == 1
    assert "also: cache_salt differs (3 chars, sha256" in done.stdout.decode()
