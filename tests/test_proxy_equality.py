"""To the fixes of the proxy, two values are equal where their JSON is: types, digits as written, no key twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from proxy_talks import CHAT, MESSAGES, Sending, passed

from cachedoctor.live.proxy.body_fixes import NAMES
from cachedoctor.live.proxy.json_spans import decode, encode, top

UNEQUAL = [
    ("true", "1"), ("false", "0"), ("1.0", "1"), ("1.50", "1.5"), ("1e400", "1e401"), ("1E5", "1e5"), ("-0", "0"),
    ("1", '"1"'), ("null", '"null"'), ("null", '""'), ("0.1", "0.1000000000000000055511151231257827"),
    ("12345678901234567890.0", "12345678901234567891.0"), ("[]", "{}"), ("true", '"True"'), ("[1,2]", '"1\\n2"'),
]  # fmt: skip
"""Values that Python, or a text made of them, may take for the same."""
EQUAL = [('{"a":1,"b":[true]}', '{ "b" : [true], "a" : 1 }'), ('"\\u00e9\\/"', '"\u00e9/"'), ("1e400", "1e400")]


def sent(fixes: tuple[str, ...], *bodies: str, path: str = CHAT) -> list[str]:
    found, _ = asyncio.run(passed([Sending(body.encode(), {}, path=path) for body in bodies], fixes))
    return [body.decode() for body in found]


def with_tools(turns: int, *tools: str) -> str:
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"turn {n}"} for n in range(turns)]
    return f'{{"messages": {json.dumps(messages)}, "tools": [{", ".join(tools)}]}}'


def tool(name: str, value: str) -> str:
    return f'{{"name": "{name}", "parameters": {{"default": {value}}}}}'


@pytest.mark.sample(5)
@pytest.mark.parametrize(("old", "new"), [pair for a, b in UNEQUAL for pair in ((a, b), (b, a))])
def test_a_tool_that_says_something_else_passes_as_it_is(old: str, new: str) -> None:
    first, then = with_tools(1, tool("a", old)), with_tools(3, tool("a", new))
    assert sent(("keep-tools",), first, then) == [first, then]


@pytest.mark.parametrize(("old", "new"), EQUAL)
def test_a_tool_that_is_only_written_in_another_way_keeps_its_writing(old: str, new: str) -> None:
    first, then = with_tools(1, tool("a", old)), with_tools(3, tool("a", new))
    assert sent(("keep-tools",), first, then)[1] == with_tools(3, tool("a", old))


@pytest.mark.sample(5)
@pytest.mark.parametrize(("old", "new"), UNEQUAL)
def test_reasoning_is_not_given_to_a_turn_that_says_something_else(old: str, new: str) -> None:
    def body(value: str, *thoughts: str) -> str:
        use = f'{{"type": "tool_use", "id": "t", "name": "read", "input": {{"a": {value}}}}}'
        said = f'{{"role": "assistant", "content": [{", ".join((*thoughts, use))}]}}'
        turns = ['{"role": "user", "content": "Hi"}', said, '{"role": "user", "content": "1"}']
        turns += ['{"role": "assistant", "content": "Ho"}'] * (not thoughts)
        return f'{{"messages": [{", ".join(turns)}], "tools": [{{"function": {{"name": "read"}}}}]}}'

    first, then, same = body(old, '{"type": "thinking", "thinking": "Hm"}'), body(new), body(old)
    found = sent(("keep-reasoning",), first, then, path=MESSAGES)
    assert found == [first, then]
    assert '"Hm"' in sent(("keep-reasoning",), first, same, path=MESSAGES)[1]


@pytest.mark.sample(5)
@pytest.mark.parametrize(("old", "new"), UNEQUAL)
def test_a_reminder_that_says_something_else_is_not_taken_for_one_that_moved(old: str, new: str) -> None:
    def note(value: str) -> str:
        return f'{{"role": "system", "content": [{{"type": "data", "data": {value}}}]}}'

    turns = ['{"role": "user", "content": "Hi"}', '{"role": "assistant", "content": "Ho"}', '{"role": "user"}']
    tail = '"tools": [{"function": {"name": "a"}}]}'
    first = f'{{"messages": [{turns[0]}, {note(old)}], {tail}'
    moved, other = (f'{{"messages": [{", ".join([*turns, note(value)])}], {tail}' for value in (old, new))
    assert sent(("pin-mid-system",), first, moved)[1].count('"data":') == 1
    assert sent(("pin-mid-system",), first, other)[1].count('"data":') == 2


DOUBLED = [
    '{"messages": [{"role": "user", "content": "turn 0"}], "tools": [%s, %s], "tools": []}',
    '{"messages": [{"role": "user", "content": "turn 0"}], "tools": [{"name": "b", "name": "b"}, %s, %s]}',
    '{"messages": [{"role": "user", "content": "turn 0", "x": {"k": [{"a": 1, "\\u0061": 2}]}}], "tools": [%s, %s]}',
    '{"messages": [{"role": "user", "content": "turn 0"}], "tools": [%s, %s], "x": NaN}',
    '{"messages": [{"role": "user", "content": "turn 0"}], "tools": [%s, %s],}',
    '{"messages": [{"role": "user", "content": "turn 0"}], "tools": [%s, %s]} {}',
]


@pytest.mark.parametrize("body", DOUBLED)
def test_a_body_with_a_doubled_key_or_no_json_passes_as_it_is(body: str) -> None:
    bodies = [body % (tool("z", "1"), tool("a", "1")), body % (tool("a", "2"), tool("z", "1"))]
    assert sent(NAMES, *bodies) == bodies
    with pytest.raises(ValueError, match=r"JSON|twice|distinct|more than one|Expecting"):
        top(bodies[0])


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_values_are_equal_where_their_json_is(a: str, b: str) -> None:
    assert decode(a) != decode(b)
    assert encode(decode(a)) != encode(decode(b))
    for one, other in EQUAL:
        assert decode(one) == decode(other)
        assert encode(decode(one)) == encode(decode(other))


def test_numbers_of_any_length_pass_through() -> None:
    digits = "9" * 10_000
    value: Any = decode(f'{{"b": {digits}, "a": [-1.50E+3, null, "\\ud800"]}}')
    assert encode(value) == f'{{"a":[-1.50E+3,null,"\\ud800"],"b":{digits}}}'


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[1,]", "Infinity", '{"a":1,"a":1}'])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"deep|Expecting|JSON|twice|Illegal"):
        decode(text)
