"""Prompts from every kind of file, their places, and what is said about files that hold none."""

import io
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.diff import inputs, render, slots_dump
from cachedoctor.diff.conversations import common_prefix, walk
from cachedoctor.diff.prompt import Prompt
from cachedoctor.model import CacheDoctorError

PROMPTS = Path(__file__).parent.parent / "fixtures" / "prompts"
PNG = "iVBORw0KGgo="
PNG_SHA = "4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"


def one(value: object) -> Prompt:
    (prompt,) = inputs.parse(json.dumps(value).encode(), "f")
    return prompt


def places(prompt: Prompt) -> list[tuple[str, str]]:
    return [(span.place, prompt.text[span.start : span.end]) for span in prompt.spans]


def fails(data: bytes | object, slot: int | None = None) -> CacheDoctorError:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(CacheDoctorError) as caught:
        inputs.parse(raw, "f", slot)
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    "text",
    ["You are Marlow.\n", "[INST] hi [/INST]", "[gMASK]<sop>", "{{user}}: hi", "[1] See below.", "{x} and {y}", '"q"'],
)
def test_plain_text_is_kept_as_it_is(text):
    assert inputs.parse(text.encode(), "f") == [Prompt("f", "text", text)]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_no_part_of_the_prompt(codec):
    assert inputs.parse("Käse\r\n".encode(codec), "f")[0].text == "Käse\r\n"


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello")))
    assert inputs.load("-") == [Prompt("<stdin>", "text", "hello")]


SLOT = {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False}
DONE = SLOT | {"id_task": 3, "params": {}, "next_token": [{"n_decoded": 0}]}


@pytest.mark.parametrize(
    "slot",
    [
        SLOT | {"id_task": -1, "params": {}, "prompt": "P", "next_token": {"n_decoded": 1}},  # up to b6628
        DONE | {"prompt": "P", "generated": "G"},  # from b6751
        DONE | {"prompt": "P", "generated": "G", "n_prompt_tokens": 2, "n_prompt_tokens_cache": 0},  # from b9294
    ],
)
def test_slots_of_every_shape(slot):
    for value in ([slot], slot, {"slots": [slot]}):
        prompt = one(value)
        assert (prompt.kind, prompt.text, prompt.slot, prompt.rendered) == ("slots", "P", 0, True)


def test_the_reply_is_appended_on_request():
    data = json.dumps([DONE | {"prompt": "Pé", "generated": "G"}]).encode()
    (prompt,) = inputs.parse(data, "f", reply=True)
    assert places(prompt) == [("prompt", "Pé"), ("generated", "G")]


def test_one_of_many_slots():
    dump = [DONE | {"prompt": "A"}, SLOT | {"id": 1}, DONE | {"id": 2, "prompt": "C"}]
    raw = json.dumps(dump).encode()
    assert [(p.path, p.text) for p in inputs.parse(raw, "f")] == [("f#0", "A"), ("f#2", "C")]
    assert [p.text for p in inputs.parse(raw, "f", slot=2)] == ["C"]
    assert "no slot 7" in fails(dump, 7).message
    assert "slot 1 is empty" in fails([dump[1]], 1).message


def test_slots_without_prompts_name_the_variable():
    assert "LLAMA_SERVER_SLOTS_DEBUG=1" in fails([DONE, SLOT | {"id": 1}]).hint
    assert "all 2 slots are empty" in fails([SLOT, SLOT | {"id": 1}]).message


def test_a_chat_body_with_all_its_parts():
    body = {
        "model": "m",
        "tools": [
            {
                "type": "function",
                "function": {"name": "ls", "description": "lists", "parameters": {"type": "object", "a": [1, "é"]}},
            }
        ],
        "messages": [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                ],
            },
            {
                "role": "assistant",
                "reasoning_content": "hm",
                "content": None,
                "tool_calls": [{"id": "x", "function": {"name": "ls", "arguments": '{"b":1}'}}],
            },
            {"role": "tool", "tool_call_id": "x", "content": "a.py"},
        ],
    }
    prompt = one(body)
    assert prompt.kind == "openai-chat"
    assert prompt.text == (
        'ls\nlists\n{"type": "object", "a": [1, "é"]}\ndeveloper\nBe kind.\nuser\nsee\n'
        f'<image sha256:{PNG_SHA[:16]}>\nassistant\nhm\nls\n{{"b":1}}\ntool\na.py\n'
    )
    found = places(prompt)
    assert ("tools[0].function.description", "lists\n") in found
    assert ("tools[0].function.parameters.a[1]", '"é"') in found
    assert ("messages[1].content[0].text", "see\n") in found
    assert ("messages[2].reasoning_content", "hm\n") in found
    assert ("messages[2].tool_calls[0].function.arguments", '{"b":1}\n') in found
    assert prompt.images == [PNG_SHA]
    assert "".join(text for _, text in found) == prompt.text
    assert prompt.body == body


def test_an_anthropic_body():
    prompt = one(
        {
            "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "ls", "description": "d", "input_schema": {}, "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": "U"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "T", "signature": "zzz"},
                        {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"p": "."}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "R"}]}
                    ],
                },
            ],
        }
    )
    assert prompt.kind == "anthropic-messages"
    assert prompt.text == 'ls\nd\n{}\nS\nuser\nU\nassistant\nT\nls\n{"p": "."}\nuser\nR\n'
    assert ("system[0].text", "S\n") in places(prompt)
    assert ("messages[1].content[1].input.p", '"."') in places(prompt)
    assert ("messages[2].content[0].content[0].text", "R\n") in places(prompt)


def test_a_responses_body():
    prompt = one(
        {
            "instructions": "I",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "U"}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Z"}]},
                {"type": "function_call", "name": "ls", "arguments": "{}", "call_id": "c"},
                {"type": "function_call_output", "call_id": "c", "output": "O"},
            ],
        }
    )
    assert (prompt.kind, prompt.text) == ("openai-responses", "I\nuser\nU\nZ\nls\n{}\nO\n")
    assert places(prompt)[-1] == ("input[3].output", "O\n")
    assert one({"input": "hello"}).text == "hello\n"


def test_completion_bodies():
    assert (one({"prompt": "hi"}).text, one({"prompt": "hi"}).rendered) == ("hi", True)
    many = inputs.parse(b'{"prompt": ["a", "b"]}', "f")
    assert [(p.path, p.text) for p in many] == [("f#1", "a"), ("f#2", "b")]
    ids = one({"prompt": [12, 7, "x", 9]})
    assert (ids.kind, ids.text, ids.rendered) == ("openai-completion", "12 7 x9 ", False)
    assert ids.place_at(3) == "prompt[1]"
    assert one({"prompt": {"prompt_string": "p", "multimodal_data": []}}).text == "p"


def test_key_order_and_numbers_of_schemas_are_visible():
    def text(schema: dict[str, object]) -> str:
        return one({"messages": [], "tools": [{"function": {"name": "n", "parameters": schema}}]}).text

    assert text({"a": 1, "b": 2}) == 'n\n{"a": 1, "b": 2}\n'
    assert text({"b": 2, "a": 1}) == 'n\n{"b": 2, "a": 1}\n'


def test_many_bodies_bare_wrapped_and_with_others_between():
    lines = [
        {"endpoint": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "1"}]}},
        {"endpoint": "/slots/0?action=save", "body": {"filename": "x"}},
        {"request": json.dumps({"messages": [{"role": "user", "content": "3"}]})},
        {"endpoint": "/v1/embeddings", "body": {"input": "no prompt"}},
        {"endpoint": "/v1/messages", "body": {"messages": [{"role": "user", "content": "5"}]}},
    ]
    raw = "\n".join(json.dumps(line) for line in lines).encode()
    prompts = inputs.parse(raw, "f")
    assert [(p.path, p.kind) for p in prompts] == [
        ("f#1", "openai-chat"),
        ("f#3", "openai-chat"),
        ("f#5", "anthropic-messages"),
    ]
    assert [p.text for p in inputs.parse(json.dumps(lines).encode(), "f")] == [p.text for p in prompts]


def test_a_directory_of_prompt_dumps(tmp_path):
    for name, text in (
        ("000000200000.txt", "two"),
        ("000000100000.txt", "one"),
        ("notes.txt", "no"),
        ("000000300000.txt", ""),
    ):
        (tmp_path / name).write_text(text)
    prompts = inputs.load(str(tmp_path))
    assert [(p.kind, p.text, p.rendered) for p in prompts] == [
        ("prompt-dump", "one", True),
        ("prompt-dump", "two", True),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(CacheDoctorError, match="--log-prompts-dir"):
        inputs.load(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    "text",
    [
        "1c1\n< old\n---\n> new\n",
        "2,3d1\n< x\n< y\n",
        "--- a.json\t2026\n+++ b.json\t2026\n@@ -1 +1 @@\n-a\n+b\n",
        "diff -u a b\n--- a\n+++ b\n@@ -1,2 +1 @@\n",
        "diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n",
        "\x1b[1m--- a\x1b[m\n\x1b[1m+++ b\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n",
        "*** a\t2026\n--- b\t2026\n***************\n*** 1 ****\n",
        "Files a and b differ\n",
    ],
)
def test_output_of_diff_is_recognised(text):
    assert "the two files themselves" in fails(text.encode()).hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"a\0b", "binary"),
        (b"GGUF\3\0\0\0", "GGUF"),
        (bytes(range(128, 256)) * 9, "not UTF-8"),
        (b"\xff\xfea", "UTF-16"),
        (b'{"messages": [\n  {"role": "user" "content"}]}', "line 2, column 19"),
        (b'{"messages": [', "broken JSON at line 1"),
        (b'{"a": {"b": 1}}', "unknown shape"),
        (b"[]", "unknown shape"),
        (b'{"error": {"code": 501, "message": "not supported"}}', "error reply"),
        (b'{"choices": [], "usage": {}}', "is a response"),
        (b'{"messages": ' + b"[" * 500 + b"]" * 500 + b"}", "too deeply"),
        (b'{"messages": ' + b"[" * 100_000, "too deeply"),
        (b'{"messages": [' + b"1" * 5000 + b"]}", "too long"),
    ],
)
def test_files_without_a_prompt(data, message):
    assert message in fails(data).message


def test_files_that_cannot_be_read(tmp_path):
    for path in (str(tmp_path / "none"), "a\0b"):
        with pytest.raises(CacheDoctorError, match="cannot be read"):
            inputs.load(path)


def test_half_characters_and_lone_surrogates_are_replaced():
    assert inputs.parse("Grü".encode()[:-1] + b"\n", "f")[0].text == "Gr\ufffd\n"
    prompt = inputs.parse(rb'{"prompt": "a\ud83dz"}', "f")[0]
    assert prompt.text == "a\ufffdz"


TEMPLATE = render.chat_template(str(PROMPTS / "template.jinja"))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "role",
                    "content",
                    "prompt",
                    "input",
                    "system",
                    "tools",
                    "function",
                    "name",
                    "type",
                    "text",
                    "tool_calls",
                    "arguments",
                    "id",
                    "n_ctx",
                    "id_task",
                    "body",
                    "request",
                    "endpoint",
                    "source",
                    "url",
                    "image_url",
                    "parameters",
                    "output",
                ]
            )
            | st.text(max_size=4),
            inner
            | st.sampled_from(
                ["image", "text", "tool_use", "tool_result", "user", "function_call", "data:,x", "thinking"]
            ),
            max_size=6,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | JSON.map(lambda v: json.dumps(v).encode())
    | JSON.map(lambda v: json.dumps(v)[:-1].encode())
)
def test_any_bytes_give_a_prompt_or_an_error(data):
    try:
        prompts = inputs.parse(data, "f")
    except CacheDoctorError:
        return
    assert prompts
    for prompt in prompts:
        prompt.text.encode()
        assert all(0 <= s.start < s.end <= len(prompt.text) for s in prompt.spans)
        try:
            text = render.with_template(prompt, TEMPLATE).text
        except CacheDoctorError:
            continue
        text.encode()
    walk(prompts)


def test_time_grows_with_size_only():
    started = time.monotonic()
    assert "too deeply" in fails(b"[" * 2_000_000 + b"x").message
    inputs.parse(json.dumps({"messages": [{"role": "user", "content": "x"}] * 50_000}).encode(), "f")
    inputs.parse(b'{"prompt":"x"}\n' * 50_000, "f")
    assert time.monotonic() - started < 20


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


def test_thousands_of_prompts_are_walked_quickly():
    turns = [f"turn number {i} of a long conversation" for i in range(300)]
    prompts = [chat(*turns[: 1 + i % 300]) for i in range(1500)]
    started = time.monotonic()
    assert len(walk(prompts)) == 1499
    assert time.monotonic() - started < 20


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
    assert [(x.slot, y.slot) for x, y in slots_dump.pair(a, b)] == [(0, 0), (1, 6), (2, 5)]
    assert [(x.slot, y.slot) for x, y in slots_dump.pair(a[:1], b[:1])] == [(0, 5)]


@pytest.mark.parametrize(
    ("pair", "kind", "place", "at"),
    [
        ("billing-header", "slots", "prompt", "cch=0ed9c;"),
        ("timestamp", "openai-chat", "messages[0].content", "14:00:10 UTC"),
        ("tools-reordered", "openai-chat", "tools[1].function.name", "write_file"),
        ("reasoning-stripped", "openai-chat", "messages[2].reasoning_content", "Otter"),
        ("anthropic-billing-header", "anthropic-messages", "system[0].text", "cch=82c9b;"),
    ],
)
def test_the_pairs_differ_where_they_should(pair, kind, place, at):
    a, b = (inputs.load(str(PROMPTS / pair / name))[0] for name in ("a.json", "b.json"))
    assert (a.kind, b.kind) == (kind, kind)
    first = common_prefix(a.text, b.text)
    assert a.place_at(first) == place
    assert a.text.find(at) <= first < a.text.find(at) + len(at)
