"""Prompts from every kind of file, and their places."""

import io
import json
import sys
from pathlib import Path

import pytest
from prompt_files import fails, one

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs
from cachedoctor.prompts.conversations import common_prefix
from cachedoctor.prompts.prompt import Prompt

PROMPTS = Path(__file__).parent.parent / "fixtures" / "prompts"
PNG = "iVBORw0KGgo="
PNG_SHA = "4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"


def places(prompt: Prompt) -> list[tuple[str, str]]:
    return [(span.place, prompt.text[span.start : span.end]) for span in prompt.spans]


@pytest.mark.parametrize(
    "text",
    ["You are Marlow.\n", "[INST] hi [/INST]", "[gMASK]<sop>", "{{user}}: hi", "[1] See below.", "{x} and {y}", '"q"'],
)
def test_plain_text_is_kept_as_it_is(text):
    assert inputs.parse(text.encode(), "f") == [Prompt("f", "text", text)]


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_not_part_of_the_prompt(codec):
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


def test_a_prompt_in_another_slot_is_compared_with_the_last_one_before_it():
    """The head changed, so that slot 0 shares too little to be taken for it, and is equal to itself."""
    held = [
        DONE | {"id": 0, "id_task": 7, "prompt": "Now 08:14. Hi"},
        DONE | {"id": 1, "id_task": 3, "prompt": "Title"},
    ]
    later = [*held, DONE | {"id": 2, "id_task": 12, "prompt": "Now 08:15. Hi"}, SLOT | {"id": 3}]
    old, new = (inputs.parse(json.dumps(dump).encode(), "f") for dump in (held, later))
    assert [(a.slot, b.slot) for a, b in inputs.pair(old, new)] == [(0, 2), (0, 0), (1, 1)]
    moved = [later[2] | {"id": 0}, held[1]]
    assert [(a.slot, b.slot) for a, b in inputs.pair(old, inputs.parse(json.dumps(moved).encode(), "f"))] == [
        (0, 0),
        (1, 1),
    ]


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


def test_an_infill_body_is_what_is_before_the_cursor_and_after_it():
    other = {"filename": "util.py", "text": "one = 1"}
    prompt = one({"input_extra": [other], "input_prefix": "def f():", "prompt": " ret", "input_suffix": "\nf()"})
    assert (prompt.kind, prompt.text) == ("llama-infill", "util.py\none = 1\ndef f(): ret\nf()")
    assert [prompt.place_at(at) for at in (0, 8, 16, 25, 28)] == [
        "input_extra[0].filename", "input_extra[0].text", "input_prefix", "prompt", "input_suffix",
    ]  # fmt: skip
    wrapped = inputs.parse(b'{"endpoint": "/infill", "body": {"input_prefix": "a", "input_suffix": ""}}', "f")
    assert [(p.kind, p.text) for p in wrapped] == [("llama-infill", "a")]


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
