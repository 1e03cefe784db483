"""JSON written in another way, and lists of tools that changed."""

import json

import pytest
from prompt_forms import REST, SYSTEM, U1, U2, between, chatml, openai, tool

JSON = [
    ("json-key-order", '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
    ("json-key-order", '{"x": {"path": "/a/b/c", "line": 3}}', '{"x": {"line": 3, "path": "/a/b/c"}}'),
    ("json-key-order", '[{"type":"string","name":"q"}]', '[{"name":"q","type":"string"}]'),
    ("json-spacing", '{"a": 1, "b": 2}', '{"a":1,"b":2}'),
    ("json-spacing", '{"a": [1, 2]}', '{\n  "a": [\n    1,\n    2\n  ]\n}'),
    ("json-spacing", '{"a": "é"}', '{"a": "\\u00e9"}'),
]


@pytest.mark.parametrize(("kind", "a", "b"), JSON)
def test_json(kind, a, b):
    for outside in (lambda x: "Call: " + x + REST, lambda x: chatml(U1, ("assistant", x), U2)):
        found = between(outside(a), outside(b))
        assert found.kind == kind
        assert found.sure


def test_json_of_tool_calls_and_schemas():
    def call(arguments):
        calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]
        messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": calls}]
        return {"messages": messages}

    assert between(call('{"a": 1}'), call('{"a":1}')).kind == "json-spacing"
    assert between(call('{"a": 1, "b": 2}'), call('{"b": 2, "a": 1}')).kind == "json-key-order"
    assert between(call('{"a": "one"}'), call('{"a": "two"}')).kind == "message-edited"
    one = openai(U1, tools=[tool("f", path={"type": "string", "title": "P"})])
    two = openai(U1, tools=[tool("f", path={"title": "P", "type": "string"})])
    assert between(one, two).kind == "json-key-order"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ('{"a": 1}', '{"a": true}'),
        ('{"a": 1}', '{"a": 2}'),
        ("[1, 2]", "[2, 1]"),
        ('{"a": 1, "b": 2}', '{"a": 1, "c": 2}'),
        ("{a: 1, b: 2}", "{b: 2, a: 1}"),
    ],
)
def test_other_json(a, b):
    assert not between("Call: " + a + REST, "Call: " + b + REST).kind.startswith("json")


READ, WRITE, SEARCH = tool("read_file", "Reads a file."), tool("write_file", "Writes a file."), tool("search")


def qwen(*tools_, turns=(SYSTEM, U1)):
    listed = "".join("\n" + json.dumps(t) for t in tools_)
    block = (
        f"\n\n# Tools\n\nYou have functions within <tools></tools> tags:\n<tools>{listed}\n</tools>" if tools_ else ""
    )
    return chatml(("system", turns[0][1] + block), *turns[1:])


def mistral(*tools_, turns=(SYSTEM, U1)):
    return f"<s>[AVAILABLE_TOOLS]{json.dumps(list(tools_))}[/AVAILABLE_TOOLS][INST]{turns[1][1]}[/INST]"


def with_tools(*tools_):
    return openai(SYSTEM, U1, tools=list(tools_))


def claude(*tools_):
    flat = [{"name": t["function"]["name"], "description": t["function"]["description"]} for t in tools_]
    schema = [{**t, "input_schema": {"type": "object"}} for t in flat]
    return {"messages": [{"role": "user", "content": "hi"}], "system": "Be brief.", "tools": schema}


lists = pytest.mark.parametrize("form", [qwen, mistral, with_tools, claude], ids=lambda form: form.__name__)


@lists
@pytest.mark.parametrize(
    ("kind", "a", "b", "field"),
    [
        ("tool-added", [READ], [READ, WRITE], "write_file"),
        ("tool-added", [READ, WRITE], [SEARCH, READ, WRITE], "search"),
        ("tool-added", [READ, WRITE], [READ, SEARCH, WRITE], "search"),
        ("tool-removed", [READ, WRITE], [READ], "write_file"),
        ("tool-removed", [READ, WRITE, SEARCH], [WRITE, SEARCH], "read_file"),
        ("tool-removed", [READ, WRITE], [READ, SEARCH], "write_file"),
        ("tools-reordered", [READ, WRITE], [WRITE, READ], None),
        ("tools-reordered", [READ, WRITE, SEARCH], [READ, SEARCH, WRITE], None),
        ("tools-reordered", [READ, WRITE, SEARCH], [SEARCH, READ, WRITE], None),
        ("tool-edited", [READ], [tool("read_file", "Reads any file.")], "description"),
        ("tool-edited", [READ, WRITE], [READ, tool("write_file", "Writes it.")], "description"),
        ("tool-edited", [SEARCH], [tool("search_all")], "name"),
    ],
)
def test_tools(form, kind, a, b, field):
    found = between(form(*a), form(*b))
    assert (found.kind, found.field) == (kind, field), found


def test_tools_appear():
    assert between(openai(SYSTEM, U1), with_tools(READ)).kind == "tool-added"
    assert between(with_tools(READ), openai(SYSTEM, U1)).kind == "tool-removed"
    assert between(qwen(), qwen(READ)).kind == "tool-added"


def test_a_date_in_a_tool_is_a_date():
    a, b = (tool("now", f"Today is {day}; says the time of day.") for day in ("2026-09-01", "2026-09-02"))
    for form in (qwen, mistral, with_tools):
        assert between(form(a), form(b)).kind == "timestamp"


def test_text_about_tools_is_not_a_tool():
    a, b = (chatml(SYSTEM, ("user", f"Explain <tools> to {who}.")) for who in ("Ann", "Bob"))
    assert between(a, b).kind == "message-edited"
