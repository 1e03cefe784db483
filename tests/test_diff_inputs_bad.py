"""What is said of files that hold no prompt, or more than anyone sends."""

import json
from pathlib import Path

import pytest
from hostile_inputs import TOO_DEEP, many_bodies, one_long_body
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_files import fails

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs
from cachedoctor.prompts.conversations import walk
from cachedoctor.prompts.render import render

PROMPTS = Path(__file__).parent.parent / "fixtures" / "prompts"


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
        (b'{"a": {"b": 1}}', "an unknown kind"),
        (b"[]", "an unknown kind"),
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


@pytest.mark.sweep
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


def test_big_files_are_read_to_their_end():
    deep, end = TOO_DEEP
    assert "too deeply" in fails((deep * 200_000 + end).encode()).message
    (long,) = inputs.parse(one_long_body(5_000), "f")
    assert long.text == "user\nx\n" * 5_000
    assert [p.path for p in inputs.parse(many_bodies(5_000), "f")] == [f"f#{i}" for i in range(1, 5_001)]
