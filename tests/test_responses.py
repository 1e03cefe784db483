"""Responses with usage: every shape gives the same numbers, and what is not said stays unknown.

The usage in fixtures/vllm was sent by a real vLLM 0.32.0.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile_inputs import ANSWERS

from cachedoctor.inputs.metrics import responses
from cachedoctor.inputs.metrics import responses as json_values
from cachedoctor.model import Answer, CacheDoctorError

REAL = Path(__file__).parent.parent / "fixtures" / "vllm"


def given(data: bytes | str) -> responses.ResponseFile:
    return responses.read([data if isinstance(data, bytes) else data.encode()], "r")


def told(*bodies: object) -> list[tuple[int, int | None]]:
    """Prompt and cached tokens of every answer in a file of JSON lines."""
    answers = given("".join(json.dumps(body) + "\n" for body in bodies)).answers
    assert answers.requests == len(answers.each)
    return [(answer.prompt_tokens, answer.cached_tokens) for answer in answers.each]


def openai(prompt: int, cached: int | None = None, **more: object) -> dict[str, object]:
    return {"usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}, **more}


# ---- what a real server sent


@pytest.mark.parametrize(
    ("name", "requests", "prompt", "cached"),
    [
        # As the counters of the same server have it: tests/test_measures.py.
        ("dense_healthy", 26, 52_727, 48_000),
        ("dense_mutation", 26, 25_463, 0),
        ("dense_short", 26, 936, 0),
        ("dense_billing", 32, 32 * 945, 31 * 896),  # half of them from /v1/messages
        ("dp2_default", 26, 52_727, 45_056),
        ("hybrid_gdn.branch", 16, 19_688, 10_752),
        ("prefix_caching_off.off", 26, 52_727, 0),
    ],
)
def test_real(name, requests, prompt, cached):
    found = given((REAL / f"vllm032_{name}.usage.json").read_bytes())
    answers = found.answers
    assert found.engine == "vllm"
    assert (answers.source, answers.requests, answers.told) == ("responses", requests, requests)
    assert (answers.prompt_tokens, answers.cached_tokens) == (prompt, cached)
    assert sum(answer.prompt_tokens for answer in answers.each) == prompt


def test_messages_say_less_than_the_prompt():
    """vLLM 0.32: what was read from the cache, and what was written to it, are not input tokens."""
    each = given((REAL / "vllm032_dense_billing.usage.json").read_bytes()).answers.each
    assert [(a.prompt_tokens, a.cached_tokens) for a in each] == [(945, 0)] + [(945, 896)] * 31
    assert [a.line for a in each[:3]] == [2, 12, 22]


# ---- shapes


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (openai(100, 64), (100, 64)),
        (openai(100), (100, None)),
        ({"usage": {"prompt_tokens": 100}}, (100, None)),
        ({"usage": {"prompt_tokens": 100, "prompt_tokens_details": None}}, (100, None)),
        ({"usage": {"prompt_tokens": 100, "prompt_tokens_details": {}}}, (100, None)),
        ({"usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "total_tokens": 1}}, (100, 64)),
        ({"usage": {"input_tokens": 100, "output_tokens": 4, "total_tokens": 104}}, (100, None)),
        ({"usage": {"input_tokens": 36, "cache_read_input_tokens": 64}}, (100, 64)),
        ({"usage": {"input_tokens": 30, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 6}}, (100, 64)),
        ({"usage": {"input_tokens": 100, "cache_read_input_tokens": None}}, (100, None)),
        ({"text": "x", "meta_info": {"id": "1", "prompt_tokens": 100, "cached_tokens": 64}}, (100, 64)),
        ({"meta_info": {"prompt_tokens": 100}}, (100, None)),
        ({"timings": {"prompt_n": 36, "cache_n": 64}, "tokens_cached": 200}, (100, 64)),
        ({"usage": {"prompt_tokens": 100}, "timings": {"prompt_n": 36}}, (100, None)),  # an older build
        ({"usage": {"prompt_tokens": 100}, "timings": {"prompt_n": 36, "cache_n": 64}}, (100, 64)),
        (openai(100, 128), (100, None)),  # SGLang up to 0.5.3, after a retraction
        ({"custom_id": "a", "response": {"status_code": 200, "body": openai(100, 64)}}, (100, 64)),
        ({"response": openai(100, 64)}, (100, 64)),
        ({"body": openai(100, 64)}, (100, 64)),
    ],
)
def test_a_shape(body, expected):
    assert told(body) == [expected]


def test_unknown_is_left_out_of_the_sums():
    answers = given("\n".join(json.dumps(body) for body in (openai(100, 64), openai(70), openai(50, 0)))).answers
    assert (answers.requests, answers.told, answers.prompt_tokens, answers.cached_tokens) == (3, 2, 150, 64)
    assert answers.each == [Answer(100, 64, 1), Answer(70, None, 2), Answer(50, 0, 3)]


@pytest.mark.parametrize("odd", [-1, "100", 1.5, True, 10**30, [1], {"a": 1}])
def test_what_is_not_a_number_of_tokens(odd):
    assert told(openai(7, 5), {"usage": {"prompt_tokens": odd}}) == [(7, 5)]
    assert told({"usage": {"prompt_tokens": 9}, "meta_info": odd, "timings": odd, "response": odd}) == [(9, None)]


def test_text_that_is_not_utf_8():
    line = b'{"model":"\xff","id":"\xe7","meta_info":{"id":"\xff"},"usage":{"prompt_tokens":9,"a":"\xff"}}'
    assert [answer.prompt_tokens for answer in given(line).answers.each] == [9]


def test_who_wrote_them():
    assert given(json.dumps(openai(9, 1))).engine is None
    assert given(json.dumps({"meta_info": {"prompt_tokens": 9}})).engine == "sglang"
    assert given(json.dumps(openai(9, 1, timings={"prompt_n": 8}))).engine == "llama.cpp"
    lines = [json.dumps(openai(9, 1, model=name)) for name in ("a", "a")]
    assert given("\n".join(lines)).model == "a"
    assert given("\n".join([*lines, json.dumps(openai(9, 1, model="b"))])).model is None


# ---- files

BODIES = [openai(100, 64, id="a", choices=[{"message": {"content": 'a "}{][" b'}}]), openai(70, id="b")]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("\n".join(map(json.dumps, BODIES)), [1, 2]),
        ("\r\n\r\n".join(map(json.dumps, BODIES)) + "\r\n", [1, 3]),
        (json.dumps(BODIES), [1, 1]),
        (json.dumps(BODIES, indent=2), [2, 18]),
        ("".join(map(json.dumps, BODIES)), [1, 1]),  # curl >> file, twice
        ("\n".join(json.dumps(body, indent=1) for body in BODIES), [1, 17]),
        (json.dumps(BODIES[0]) + "\n" + json.dumps(BODIES[1], indent=1), [1, 2]),
    ],
)
def test_a_file(text, lines):
    for size in (len(text), 7):
        data = text.encode()
        found = responses.read([data[at : at + size] for at in range(0, len(data), size)], "r").answers
        assert [(a.prompt_tokens, a.cached_tokens) for a in found.each] == [(100, 64), (70, None)]
        assert [a.line for a in found.each] == lines


def test_what_is_cut_off_is_left_out():
    text = json.dumps(BODIES)
    assert given(text[:-20]).answers.requests == 1
    assert given("\n".join(map(json.dumps, BODIES))[:-20]).answers.requests == 1


def test_a_line_that_is_cut_off_is_named():
    """It would take all that follows into it."""
    lines = [json.dumps(openai(5, 1)) for _ in range(5)]
    lines[2] = lines[2][:-9]
    with pytest.raises(CacheDoctorError, match="r: the JSON in line 3 is incomplete"):
        given("\n".join(lines))


def test_other_values_say_nothing():
    assert told({"error": {"message": "no"}}, openai(5, 1), {"usage": None}, {"messages": []}, {}) == [(5, 1)]


def stream(*events: object, done: bool = True) -> str:
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return lines + ("data: [DONE]\n\n" if done else "")


def chunk(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "object": "chat.completion.chunk", **more}


def each(text: str) -> list[tuple[int, int | None]]:
    return [(answer.prompt_tokens, answer.cached_tokens) for answer in given(text).answers.each]


def test_a_stream_is_one_answer():
    parts = [chunk("a", choices=[]), chunk("a", usage=None), chunk("a", **openai(100, 64))]
    assert each(stream(*parts)) == [(100, 64)]
    # With continuous_usage_stats every part says it.
    assert each(stream(*[chunk("a", **openai(100, 64))] * 5)) == [(100, 64)]
    assert each(stream(*parts) + stream(*parts)) == [(100, 64)] * 2  # [DONE] parts even what has one id
    assert each(stream(*parts, chunk("b", **openai(9, 0)), done=False)) == [(100, 64), (9, 0)]
    assert each("\n".join(json.dumps(part) for part in parts)) == [(100, 64)]  # without data:
    assert each(": ping\n\nevent: x\nid: 3\nretry: 5\n" + stream(*parts)) == [(100, 64)]


def test_a_stream_of_messages():
    start = {
        "type": "message_start",
        "message": {"id": "m", "usage": {"input_tokens": 36, "cache_read_input_tokens": 64}},
    }
    events = [
        start,
        {"type": "ping"},
        {"type": "message_delta", "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    assert each(stream(*events, *events, done=False)) == [(100, 64)] * 2
    # The end of it may know better.
    late = {"type": "message_delta", "usage": {"input_tokens": 20, "cache_read_input_tokens": 80}}
    assert each(stream(start, late, done=False)) == [(100, 80)]


def test_a_stream_of_responses():
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "total_tokens": 104}
    created = {"type": "response.created", "response": {"id": "r", "usage": None}}
    completed = {"type": "response.completed", "response": {"id": "r", "usage": usage}}
    assert each(stream(created, completed, created, completed, done=False)) == [(100, 64)] * 2


def test_a_stream_of_sglang_and_of_llama_server():
    parts = [{"text": "x" * n, "meta_info": {"id": name, "prompt_tokens": 9}} for name in "ab" for n in (1, 2, 3)]
    assert each(stream(*parts, done=False)) == [(9, None)] * 2
    reply = [{"content": "x", "stop": False}, {"content": "", "stop": True, "timings": {"prompt_n": 5, "cache_n": 4}}]
    assert each(stream(*reply, *reply, done=False)) == [(9, 4)] * 2


# ---- what cannot be used


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no json\n", "r: line 1 is not JSON"),
        (b'{"usage":{"prompt_tokens":1}}\nHTTP/1.1 200 OK\n', "r: line 2 is not JSON"),
        (b"\xff\xfe\xfd", "r: line 1 is not JSON"),
        (b"{}\n", "r: contains no response"),
        (b'{"usage": {"prompt_tokens": 5', "r: contains no response"),  # cut off
        (b"{'usage': {'prompt_tokens': 5}}", "r: contains no response"),  # Python, not JSON
        (b"[1, 2, 3]", "r: contains no response"),
        (b"data: {}\n", "r: contains no response"),
        (b"[" * 1_000_000, "r: JSON is nested too deeply"),
        (b'{"a":' * 1_000_000, "r: JSON is nested too deeply"),
        (b'[{"a":\n' * 100, "r: JSON is nested too deeply"),
    ],
)
def test_refused(data, words):
    with pytest.raises(CacheDoctorError) as refusal:
        given(data)
    assert refusal.value.message.startswith(words)
    assert refusal.value.hint


def test_text_of_a_file_is_not_repeated():
    with pytest.raises(CacheDoctorError) as refusal:
        given("sk-secret \x1b[31m\n")
    assert "secret" not in refusal.value.message + refusal.value.hint


def test_one_value_may_not_be_all_memory(monkeypatch):
    monkeypatch.setattr(json_values, "MAX_HELD", 10_000)
    line = json.dumps(openai(5, 1)).encode() + b"\n"
    assert given(line * 1_000).answers.requests == 1_000  # lines are not held
    for large in (b'{"a":"' + b"x" * 20_000 + b'"}', b"[\n" + line * 1_000, b'{\n"a":\n' + b" \n" * 10_000):
        with pytest.raises(CacheDoctorError, match="a single value is larger than"):
            responses.read([large[at : at + 500] for at in range(0, len(large), 500)], "r")


def test_what_says_nothing_is_left(monkeypatch):
    monkeypatch.setattr(responses, "_FRUITLESS", 100)
    line = json.dumps(openai(5, 1)) + "\n"
    assert given(("{}\n" * 100 + line) * 5).answers.requests == 5
    with pytest.raises(CacheDoctorError, match="in a row without token usage"):
        given(line + "{}\n" * 101)


def test_each_is_bounded_and_the_sums_are_not(monkeypatch):
    monkeypatch.setattr(responses, "MAX_EACH", 10)
    answers = given((json.dumps(openai(5, 1)) + "\n") * 25).answers
    assert (answers.requests, len(answers.each), answers.prompt_tokens) == (25, 10, 125)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("head", "unit"), ANSWERS)
def test_what_is_made_to_cost_time(head, unit):
    """It is refused, or the answers that it holds."""
    if b"usage" in unit:
        assert given(head + unit * 20_000).answers.requests == 1
    else:
        with pytest.raises(CacheDoctorError, match=r"r: (contains no response|JSON is nested)"):
            given(head + unit * 20_000)
