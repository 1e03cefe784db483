"""Bodies rendered with chat templates: the text is exact, and every part of it knows its place."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import inputs
from cachedoctor.prompts.conversations import common_prefix
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.render import render

PROMPTS = Path(__file__).parent.parent / "fixtures" / "prompts"
LAB = render.chat_template(str(PROMPTS / "template.jinja"))
TOOL = {
    "type": "function",
    "function": {"name": "ls", "description": "lists <all>", "parameters": {"b": 1, "a": ["é"]}},
}


def body(*messages: dict[str, object], **more: object) -> Prompt:
    return inputs.parse(json.dumps({"messages": messages, **more}).encode(), "f")[0]


def user(text: object) -> dict[str, object]:
    return {"role": "user", "content": text}


def test_the_lab_template_with_everything():
    call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"p": 1}'}}
    prompt = body(
        {"role": "system", "content": "Sys."},
        user("hello there"),
        {"role": "assistant", "content": None, "reasoning_content": "let me see", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a.py b.py"},
        tools=[TOOL],
    )
    rendered = render.with_template(prompt, LAB)
    assert rendered.text == (
        "<|im_start|>system\nSys.\n\n# Tools\n\nThese functions may be called:\n<tools>\n"
        '{"type": "function", "function": {"name": "ls", "description": "lists <all>", '
        '"parameters": {"b": 1, "a": ["é"]}}}\n'
        '</tools>\n\nTo call one, answer with:\n<tool_call>\n{"name": <name>, "arguments": <json>}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\nhello there<|im_end|>\n"
        '<|im_start|>assistant\n<think>\nlet me see\n</think>\n\n\n<tool_call>\n{"name": "ls", "arguments": {"p": 1}}\n'
        "</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\na.py b.py\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert rendered.rendered
    found = {span.place: rendered.text[span.start : span.end] for span in reversed(rendered.spans)}
    assert found["messages[0].content"] == "Sys."
    assert found["tools[0].function.description"] == "lists <all>"
    assert found["tools[0].function.parameters.a"] == '["é"]'
    assert found["messages[1].content"] == "hello there"
    assert found["messages[2].reasoning_content"] == "let me see"
    assert found["messages[2].tool_calls[0].function.name"] == "ls"
    assert found["messages[3].content"] == "a.py b.py"


QWEN_LIKE = """{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
    {%- if message.role == "user" and not message.content.startswith('<tool_response>') %}
        {%- set ns.last = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content|trim %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- generation %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{% endgeneration %}
    {%- if loop.index0 > 5 %}{% break %}{% endif %}
{%- endfor %}
"""


def test_texts_that_a_template_trims_splits_or_drops():
    prompt = body(
        user("  question one  "),
        {"role": "assistant", "content": "<think>\nsecret\n</think>\n\nthe answer"},
        user("<tool_response>\nresult\n</tool_response>"),
    )
    rendered = render.with_template(prompt, QWEN_LIKE)
    assert rendered.text == (
        "<|im_start|>user\nquestion one<|im_end|>\n<|im_start|>assistant\nthe answer<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nresult\n</tool_response><|im_end|>\n"
    )
    assert rendered.place_at(rendered.text.index("the answer")) == "messages[1].content"
    assert rendered.place_at(rendered.text.index("result")) == "messages[2].content"
    assert rendered.place_at(rendered.text.index("<|im_start|>assistant")) == "messages[1]"


def test_places_are_searched_where_marks_change_the_text():
    counting = "{% for m in messages %}[{{ m.content|length }}]{{ m.content }}\n{% endfor %}"
    rendered = render.with_template(body(user("a first question"), user("the second question")), counting)
    assert rendered.text == "[16]a first question\n[19]the second question\n"
    assert rendered.place_at(6) == "messages[0].content"
    assert rendered.place_at(30) == "messages[1].content"


def test_private_use_characters_of_the_prompt_survive():
    text = "icons \U000f0001 and \U00100001 in the text"
    rendered = render.with_template(body(user(text)), "{{ messages[0].content }}!")
    assert (rendered.text, rendered.place_at(8)) == (f"{text}!", "messages[0].content")


def test_parts_are_joined_for_templates_that_take_strings():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    text = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, image, {"type": "text", "text": "three"}]
    rendered = render.with_template(body(user(text)), LAB)
    assert rendered.text.startswith("<|im_start|>user\none\ntwo<image sha256:4c4b6a3be1314ab8>three<|im_end|>")
    assert rendered.place_at(rendered.text.index("<image")) == "messages[0].content[2]"
    typed = "{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}"
    assert render.with_template(body(user(text[:2])), typed).text == "(one)(two)"
    assert render.with_template(body(user("plain")), typed).text == "(plain)"


def test_arguments_become_objects_where_the_template_needs_them():
    wants = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>{% endfor %}"
        "{% endfor %}{% endfor %}"
    )
    call = {"id": "c", "function": {"name": "ls", "arguments": '{"path": "src", "n": 2}'}}
    prompt = body(user("x"), {"role": "assistant", "content": "", "tool_calls": [call]}, user("y"))
    rendered = render.with_template(prompt, wants)
    assert rendered.text == "x<parameter=path>src</parameter><parameter=n>2</parameter>y"
    assert rendered.place_at(rendered.text.index("src")) == "messages[1].tool_calls[0].function.arguments.path"


def test_arguments_are_written_by_a_template_that_writes_objects_as_json():
    """As b8352 to b11549 do with the template of the tests: spaces are the template's, the order of keys is the
    client's. b7551 kept the text."""
    texts = []
    for arguments in ('{"a":1, "b":2}', '{"a": 1, "b": 2}', '{"b":2,"a":1}'):
        call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": arguments}}
        prompt = body(user("x"), {"role": "assistant", "content": "", "tool_calls": [call]}, user("y"))
        texts.append(render.with_template(prompt, LAB).text)
    assert texts[0] == texts[1] != texts[2]
    assert '"arguments": {"a": 1, "b": 2}}' in texts[0]
    assert '"arguments": {"b": 2, "a": 1}}' in texts[2]


def test_a_last_message_of_the_assistant_is_continued():
    rendered = render.with_template(body(user("hi"), {"role": "assistant", "content": "I would"}), LAB)
    assert rendered.text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nI would"


def test_anthropic_and_responses_bodies_render_like_the_chat_body():
    chat = body({"role": "system", "content": "Sys."}, user("hi"), {"role": "assistant", "content": "yo"}, user("go"))
    anthropic = body(
        user("hi"), {"role": "assistant", "content": [{"type": "text", "text": "yo"}]}, user("go"), system="Sys."
    )
    items = [user("hi"), {"role": "assistant", "content": [{"type": "output_text", "text": "yo"}]}, user("go")]
    responses = inputs.parse(json.dumps({"instructions": "Sys.", "input": items}).encode(), "f")[0]
    texts = {render.with_template(p, LAB).text for p in (chat, anthropic, responses)}
    assert len(texts) == 1


def test_tool_results_of_anthropic_follow_the_text_beside_them():
    use = {"type": "tool_use", "id": "t", "name": "ls", "input": {"p": "."}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "a.py"}
    prompt = body(
        user("hi"),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hmm"}, use]},
        user([result, {"type": "text", "text": "and?"}]),
        tools=[{"name": "ls", "description": "d", "input_schema": {}}],
    )
    rendered = render.with_template(prompt, LAB)
    tail = rendered.text[rendered.text.index("<think>") :]
    assert tail == (
        '<think>\nhmm\n</think>\n\n\n<tool_call>\n{"name": "ls", "arguments": {"p": "."}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\nand?<|im_end|>\n<|im_start|>user\n<tool_response>\na.py\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert rendered.place_at(rendered.text.index("and?")) == "messages[2].content[1].text"
    assert rendered.place_at(rendered.text.index("a.py")) == "messages[2].content[0].content"


def test_the_billing_header_as_newer_builds_rewrite_it():
    a, b = (inputs.load(str(PROMPTS / "anthropic-billing-header" / name))[0] for name in ("a.json", "b.json"))
    raw = [render.with_template(p, LAB).text for p in (a, b)]
    masked = [render.with_template(p, LAB, mask_cch=True).text for p in (a, b)]
    assert raw[0][common_prefix(*raw) :].startswith("82c9b;")
    assert "cch=fffff;You are" in masked[0]
    assert common_prefix(*masked) > 1000


def test_context_of_the_template():
    template = (
        "{{ bos_token }}{{ messages[0].content }}{{ enable_thinking }}{{ flag }}{{ strftime_now('%Y') }}{{ eos_token }}"
    )
    prompt = body(user("hi"), chat_template_kwargs={"enable_thinking": False})
    rendered = render.with_template(
        prompt, template, bos="<s>", eos="</s>", kwargs={"flag": 7, "enable_thinking": True}
    )
    assert rendered.text == "<s>hiFalse72026</s>"


def test_other_prompts_come_back_as_they_are():
    for raw in (b"text", b'{"prompt": "p"}'):
        prompt = inputs.parse(raw, "f")[0]
        assert render.with_template(prompt, LAB) is prompt


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "chat template failed (line 1)"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.missing.field }}", "chat template failed"),
        ("{{ 'x' * 1000000000 }}", "too long"),
        ("{{ 1000000000 * 'x' }}", "too long"),
        ("{{ 9 ** 9 ** 9 }}", "operator **"),
        ("{{ '%1000000000d' % 1 }}", "operator %"),
        ("{{ '%1000000000d'|format(1) }}", "too wide"),
        ("{{ 'x'|center(1000000000) }}", "too wide"),
        ("{{ ''.__class__.__mro__ }}", "chat template failed"),
        ("{{ range(1000000000)|list }}", "chat template failed"),
        ("{{ messages.append(1) }}", "chat template failed"),
    ],
)
def test_templates_that_fail_or_misbehave(template, message):
    with pytest.raises(CacheDoctorError) as caught:
        render.with_template(body(user("hi")), template)
    assert message in caught.value.message


def test_a_template_that_never_ends_is_stopped(monkeypatch):
    """By our own clock, which moves on by a second whenever it is asked."""
    body_, seconds = body(user("hi")), itertools.count()
    monkeypatch.setattr(render, "monotonic", lambda: next(seconds))
    long = "{% for a in range(999) %}{% for b in range(999) %}{% set c = a + b %}{% endfor %}{% endfor %}"
    with pytest.raises(CacheDoctorError, match="ran for more than 30 s"):
        render.with_template(body_, long)
    assert next(seconds) < 300  # and not after the million rounds


def test_where_templates_come_from(tmp_path):
    text = "{{ bos_token }}{{ messages[0].content }}"
    config = {"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": text}]}
    files = {
        "t.jinja": text,
        "props.json": json.dumps({"chat_template": text, "bos_token": "<s>", "eos_token": "</s>"}),
        "tokenizer_config.json": json.dumps(config | {"bos_token": {"content": "<s>"}, "eos_token": None}),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    found = [render.chat_template(str(tmp_path / name)) for name in files]
    assert [f.text for f in found] == [text] * 3
    assert [(f.bos, f.eos) for f in found] == [("", ""), ("<s>", "</s>"), ("<s>", "")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "no chat template"),
        (b"hello", "not a chat template"),
        (b"\xff\xfe\x00", "not a chat template"),
        (b"", "not a"),
    ],
)
def test_files_that_are_not_template(tmp_path, content, message):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(CacheDoctorError, match=message):
        render.chat_template(str(path))
    with pytest.raises(CacheDoctorError, match="cannot be read"):
        render.chat_template(str(tmp_path / "none"))


def test_the_pairs_rendered():
    place = {
        "timestamp": "messages[0].content",
        "tools-reordered": "tools[1].function.name",
        "reasoning-stripped": "messages[2]",
        "anthropic-billing-header": "system[0].text",
    }
    for pair, expected in place.items():
        a, b = (render.with_template(inputs.load(str(PROMPTS / pair / n))[0], LAB) for n in ("a.json", "b.json"))
        assert a.place_at(common_prefix(a.text, b.text)) == expected


ANY = st.recursive(st.none() | st.integers() | st.text(max_size=6), lambda x: st.lists(x, max_size=2), max_leaves=5)
PART = st.fixed_dictionaries(
    {"type": ANY | st.sampled_from(["text", "image_url", "tool_use", "tool_result", "thinking", "function_call"])},
    optional=dict.fromkeys(("text", "image_url", "input", "content", "thinking", "name", "arguments", "output"), ANY),
)
CALL = st.fixed_dictionaries({"function": ANY | st.fixed_dictionaries({"name": ANY, "arguments": ANY})})
MESSAGE = st.fixed_dictionaries(
    {"role": ANY | st.sampled_from(["user", "assistant", "system", "tool", "developer"])},
    optional={"content": ANY | st.lists(PART | ANY, max_size=3), "tool_calls": ANY | st.lists(CALL | ANY, max_size=2)},
)
BODY = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE | ANY, max_size=3)}, optional={"tools": st.lists(PART | CALL | ANY), "system": ANY}
) | st.fixed_dictionaries({"input": ANY | st.lists(PART | MESSAGE | ANY, max_size=4)})


@pytest.mark.sweep
@settings(max_examples=200, deadline=None)
@given(BODY, st.sampled_from([LAB.text, QWEN_LIKE]))
def test_any_body_renders_or_is_refused(value, template):
    try:
        prompts = [render.with_template(p, template) for p in inputs.parse(json.dumps(value).encode(), "f")]
    except CacheDoctorError:
        return
    for prompt in prompts:
        prompt.text.encode()
        ends = [0, *(span.end for span in prompt.spans)]
        assert all(end <= span.start < span.end for end, span in zip(ends, prompt.spans, strict=False))
        assert ends[-1] <= len(prompt.text)
