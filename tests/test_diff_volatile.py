"""What the first difference is: every kind by hand, what only looks like it, and text that nobody expected."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachedoctor.diff.advice import _GENERIC, advise
from cachedoctor.diff.bodies import kind_of, prompts_of
from cachedoctor.diff.conversations import common_prefix
from cachedoctor.diff.prompt import Prompt
from cachedoctor.diff.recognisers.base import MAX_SHOWN
from cachedoctor.diff.volatile import Recognised, recognise
from cachedoctor.model import Advice

REST = "\nYou have access to the tools below. Use them with care.\n"


def text(value):
    return Prompt("x", "text", value)


def body(value):
    kind = kind_of(value)
    assert kind is not None
    return prompts_of(value, kind, "x")[0]


def between(a, b, same_text=False):
    a, b = (text(x) if isinstance(x, str) else body(x) if isinstance(x, dict) else x for x in (a, b))
    return recognise(a, b, common_prefix(a.text, b.text), same_text)


def chatml(*turns):
    return "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns) + "<|im_start|>assistant\n"


def llama(*turns):
    opened = (f"<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>" for role, content in turns)
    return "<|begin_of_text|>" + "".join(opened) + "<|start_header_id|>assistant<|end_header_id|>\n\n"


def gemma(*turns):
    names = {"assistant": "model", "system": "user"}
    opened = (f"<start_of_turn>{names.get(role, role)}\n{content}<end_of_turn>\n" for role, content in turns)
    return "<bos>" + "".join(opened) + "<start_of_turn>model\n"


def openai(*turns, **more):
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def anthropic(*turns, **more):
    blocks = [{"role": role, "content": [{"type": "text", "text": content}]} for role, content in turns]
    return {"system": [{"type": "text", "text": "You are Marlow."}], "messages": blocks, **more}


def responses(*turns):
    return {"instructions": "You are Marlow.", "input": [{"role": role, "content": text} for role, text in turns]}


def tool(name, description="Does a thing.", **properties):
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


SYSTEM = ("system", "You are Marlow, a careful helper.")
U1, A1 = ("user", "Please read the build file and tell me about it."), ("assistant", "It builds two programs.")
U2, A2 = ("user", "And which one is the larger of the two?"), ("assistant", "The first one, by far.")
U3, A3 = ("user", "Then split it into three smaller files."), ("assistant", "Done: three files, all tests pass.")
U4 = ("user", "Thanks. Now write the notes.")
FORMS = [chatml, llama, gemma, openai, anthropic, responses]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)

HEAD = "x-anthropic-billing-header: cc_version=2.1.101.85f; cc_entrypoint=cli; cch=0ed9c;"


@pytest.mark.parametrize(
    ("field", "a", "b", "shown"),
    [
        ("cch", HEAD, HEAD.replace("0ed9c", "ee661"), ("0ed9c", "ee661")),
        ("cch", HEAD, HEAD.replace("0ed9c", "0ed9f"), ("0ed9c", "0ed9f")),
        ("cc_version", HEAD, HEAD.replace(".85f", ".8aa"), ("2.1.101.85f", "2.1.101.8aa")),
        ("cc_entrypoint", HEAD, HEAD.replace("=cli", "=sdk-cli"), ("cli", "sdk-cli")),
        ("cch", HEAD, HEAD.replace(" cch=0ed9c;", ""), ("0ed9c", "")),
        ("cc_prev_req", HEAD + " cc_prev_req=req_01A;", HEAD + " cc_prev_req=req_02B;", ("req_01A", "req_02B")),
        ("cc_prompt_id", HEAD + " cc_prompt_id=77;", HEAD + " cc_prompt_id=78;", ("77", "78")),
        ("cc_workload", HEAD + " cc_workload=main;", HEAD + " cc_workload=title;", ("main", "title")),
        ("cc_is_subagent", HEAD, HEAD + " cc_is_subagent=true;", ("", "true")),
        ("cc_new", HEAD + " cc_new=1;", HEAD + " cc_new=2;", ("1", "2")),
    ],
)
def test_billing_header(field, a, b, shown):
    # llama-server joins the blocks of an Anthropic system prompt without a separator.
    for before, after in (("", REST), ("<|im_start|>system\n", "You are Claude Code." + REST)):
        found = between(before + a + after, before + b + after)
        assert (found.kind, found.field, (found.a, found.b), found.sure) == ("billing-header", field, shown, True)
        assert "CLAUDE_CODE_ATTRIBUTION_HEADER=0" in str(found.advice)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (HEAD + REST, REST),
        ("You are Marlow." + REST, HEAD + "You are Marlow." + REST),
        (chatml(("system", HEAD)), chatml(("system", "x-ray" + REST))),
    ],
)
def test_billing_header_on_one_side(a, b):
    found = between(a, b)
    assert (found.kind, found.field) == ("billing-header", None)


def test_behind_the_billing_header_is_not_the_header():
    assert between(HEAD + "\nToday is 2026-09-01." + REST, HEAD + "\nToday is 2026-09-02." + REST).kind == "timestamp"
    assert between(HEAD + "\nYou are A.", HEAD + "\nYou are B.").kind != "billing-header"


VALUES = [
    # dates and times
    ("timestamp", "Today is ", "2026-09-01", "2026-09-02", "."),
    ("timestamp", "Current time: ", "2026-11-20 14:02:14 UTC", "2026-11-20 14:03:16 UTC", ""),
    ("timestamp", "now=", "2026-11-20T14:02:14.123Z", "2026-11-20T14:02:15.001Z", ";"),
    ("timestamp", "Date: ", "Tuesday, September 1, 2026", "Wednesday, September 2, 2026", ""),
    ("timestamp", "It is ", "Monday", "Tuesday", " today."),
    ("timestamp", "The date is ", "1 September 2026", "2 September 2026", "."),
    ("timestamp", "Date: ", "09/01/2026", "09/02/2026", ""),
    ("timestamp", "Heute: ", "01.09.2026", "02.09.2026", ""),
    ("timestamp", "", "Tue Sep  1 10:00:00 UTC 2026", "Tue Sep  1 10:00:07 UTC 2026", ""),
    ("timestamp", "Clock: ", "10:59", "11:00", ""),
    ("timestamp", "Clock: ", "9:59 AM", "10:03 AM", ""),
    ("timestamp", "[", "14:02:14", "14:02:15", "] ready"),
    ("timestamp", "日付: ", "2026年9月1日", "2026年9月2日", ""),
    ("timestamp", "Last sync ", "5 minutes ago", "12 minutes ago", "."),
    ("timestamp", "Opened ", "an hour ago", "2 hours ago", "."),
    ("timestamp", "ts: ", "1788220800", "1788220861", ""),
    ("timestamp", '"now": ', "1788220800123", "1788220861456", ","),
    # UUIDs
    ("uuid", "Session: ", "0b0e6a0e-11aa-4c2d-9e3f-000000000001", "1b0e6a0e-11aa-4c2d-9e3f-000000000001", ""),
    ("uuid", "", "0b0e6a0e-11aa-4c2d-9e3f-000000000001", "0b0e6a0e-11aa-4c2d-9e3f-000000000002", ""),
    ("uuid", '{"id": "', "0B0E6A0E-11AA-4C2D-9E3F-00000000000A", "0B0E6A0E-11AA-4C2D-9E3F-00000000000B", '"}'),
    # ids
    ("random-id", "Request ", "req_011CSHoEeqs5C35K2UUqR7Fy", "req_011CSHoEfrs5C35K2UUqR7Fy", " follows"),
    ("random-id", '"tool_call_id": "', "call_abc123", "call_xyz789", '"'),
    ("random-id", "id: ", "toolu_01A09q90qw90lq917835lq9", "toolu_01B09q90qw90lq917835lq9", ""),
    ("random-id", "Build ", "3fa9c1", "77bd02", " of today"),
    ("random-id", "Trace: ", "9f86d081884c7d659a2feaa0c55ad015", "9f86d081884c7d659a2feaa0c55ad016", ""),
    ("random-id", "Key is ", "Xa9Kd03LmQ2z", "pQ81zzR4nV0t", " for now"),
    ("random-id", "nonce: ", "k3js9", "zz81a", ""),
    ("random-id", "session id = ", "48213", "99101", ""),
    # counters
    ("counter", "Tokens used: ", "1234", "1310", ""),
    ("counter", "Tokens used: ", "1,234", "13,310", " of 200,000"),
    ("counter", "Step ", "[3/10]", "[4/10]", " of the plan"),
    ("counter", "This is turn ", "9", "10", " of the chat."),
    ("counter", "You have ", "12", "11", " requests left."),
    ("counter", "Context used: ", "41%", "47%", ""),
    ("counter", "Page ", "3 of 10", "4 of 10", ""),
    # paths
    ("path", "Working directory: ", "/opt/app/one", "/opt/app/two", ""),
    ("path", "cwd=", "/srv", "/tmp", ""),
    ("path", "Open file: ", "/opt/app/src/a.py", "/opt/app/src/b.py", ""),
    ("path", "The project is in ", r"C:\Users\ann\one", r"C:\Users\bob\one", " today"),
    ("path", "Log at ", "~/logs/a/log.txt", "~/logs/b/log.txt", "."),
    # git
    ("git-state", "Current branch: ", "main", "feature/x", ""),
    ("git-state", "On branch ", "main", "fix-1", ""),
    ("git-state", "HEAD is at commit ", "3fa9c1e", "77bd02a", ""),
    ("git-state", "gitStatus: a snapshot\n\nStatus:\n", "M src/a.py", "(clean)", ""),
    ("git-state", "git status:\n M a.py\n", " M b.py", "?? c.py", ""),
    ("git-state", "Recent commits:\n", "3fa9c1e Fix the build", "77bd02a Add notes", ""),
]


@pytest.mark.parametrize(("kind", "before", "a", "b", "after"), VALUES)
def test_value(kind, before, a, b, after):
    for outside in (lambda x: x, lambda x: chatml(("system", x), U1), lambda x: openai(("system", x), U1)):
        found = between(
            outside("Be brief.\n" + before + a + after + REST), outside("Be brief.\n" + before + b + after + REST)
        )
        assert found.kind == kind, found
        assert (found.a, found.b) == (a, b) or kind in ("counter", "git-state")
        assert found.advice
        assert found.sure


@pytest.mark.parametrize(("kind", "before", "a", "b", "after"), [v for v in VALUES if "left" not in v[4]])
def test_value_at_the_end_of_the_text(kind, before, a, b, after):
    found = between("Be brief.\n" + before + a, "Be brief.\n" + before + b)
    assert found.kind in (kind, "appended")


NOT_VALUES = [
    ("timestamp", "It costs ", "$12.50", "$13.99", " in the shop"),
    ("timestamp", "It costs ", "12.50", "13.99", " dollars in the shop"),
    ("timestamp", "Version ", "2.1.36", "2.1.37", " is out"),
    ("timestamp", "v", "2026.9.1", "2026.9.2", " is out"),
    ("timestamp", "Error in main.py:", "10:30", "11:30", " of the build"),
    ("timestamp", "Call ", "5551234567", "5559876543", " for help"),
    ("timestamp", "You ", "may go", "march on", " if you like"),
    ("timestamp", "Ratio ", "1:2", "1:3", " holds"),
    ("timestamp", "Open 10.0.0.1:", "8080", "8081", " for this"),
    ("random-id", "They shouted ", "deadbeef cafe", "facade decade", " in the yard"),
    ("random-id", "The word is ", "decade", "facade", " here"),
    ("random-id", "There are ", "123456", "123457", " people here"),
    ("random-id", "Use ", "internationalisation", "internationalization", " here"),
    ("random-id", "Use ", "snake_case_names", "other_case_names", " here"),
    ("random-id", "The idea: ", "fresh1", "other1", " and good"),
    ("counter", "I have ", "3", "5", " apples and four pears"),
    ("counter", "Version ", "2.1.36", "2.1.37", " is out"),
    ("counter", "It costs ", "$12", "$13", " in the shop"),
    ("counter", "Model number ", "A4", "A5", " is better"),
    ("path", "Use tabs ", "and/or", "but/or", " spaces"),
    ("path", "See ", "https://a.example/x/y", "https://b.example/x/y", " for more"),
    ("path", "Write ", "</one>", "</two>", " at the end"),
    ("git-state", "Please commit ", "this", "that", " to memory"),
    ("git-state", "The branch of the ", "oak", "elm", " tree is long"),
    ("git-state", "M ", "is a letter", "was a letter", " in the list"),
    ("uuid", "Call ", "0b0e6a0e-11aa-4c2d", "1b0e6a0e-11aa-4c2d", " back"),
]


@pytest.mark.parametrize(("kind", "before", "a", "b", "after"), NOT_VALUES)
@forms
def test_not_that_value(form, kind, before, a, b, after):
    found = between(form(SYSTEM, ("user", before + a + after)), form(SYSTEM, ("user", before + b + after)))
    assert found.kind != kind
    plain = between(before + a + after + REST, before + b + after + REST)
    assert plain.kind != kind


@forms
def test_numbers_in_an_edited_sentence(form):
    old, new = ("user", "Give me 3 apples and a knife."), ("user", "Give me 5 pears, please.")
    found = between(form(SYSTEM, U1, A1, old), form(SYSTEM, U1, A1, new))
    assert (found.kind, found.sure) == ("message-edited", True)
    at, later = ("user", "Meet me at 10:30 in the pub."), ("user", "Meet me at 11:00, or better at home.")
    assert between(form(SYSTEM, U1, A1, at), form(SYSTEM, U1, A1, later)).kind == "message-edited"


def test_two_values_in_a_line():
    a, b = (
        f"Time {x}, tokens used: {n}, id {i}" + REST for x, n, i in (("10:00", 12, "a1b2c3"), ("10:05", 99, "99ff00"))
    )
    found = between(a, b)
    assert (found.kind, found.a, found.b, found.sure) == ("timestamp", "10:00", "10:05", True)


def test_labels_name_the_field():
    assert between("request_id: 3fa9c1aa\n", "request_id: 77bd02aa\n").field == "request_id"
    assert between("cwd: /opt/a/x\n", "cwd: /opt/b/x\n").field == "cwd"
    assert between("Tokens used: 12\n", "Tokens used: 14\n").field == "Tokens used"


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


def test_text_about_tools_is_no_tool():
    a, b = (chatml(SYSTEM, ("user", f"Explain <tools> to {who}.")) for who in ("Ann", "Bob"))
    assert between(a, b).kind == "message-edited"


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
def test_reasoning_and_answer_gone_is_no_dropped_reasoning(style):
    has, lacks = reasoned(style, "The user wants this."), reasoned(style, "")
    lacks = json.loads(json.dumps(lacks).replace("two programs", "no program at all"))
    assert between(has, lacks).kind == "message-edited"


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


def test_another_question_about_an_image_is_no_image():
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


def test_markers_around_other_words_are_no_template():
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
        return str(advise(kind, field, prompt, prompt))

    assert "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS" in about("You are Claude Code, a CLI.", "git-state")
    assert "23595" in about("You are opencode, a CLI.", "message-moved")
    assert "23595" not in about("You are Marlow.", "message-moved")
    assert "{{CURRENT_DATETIME}}" in about("Open WebUI", "timestamp")
    assert "b8929" in about("", "billing-header", "cch")
    assert "b8929" not in about("", "billing-header", "cc_prev_req")
    assert "slot" in about("", "other", "conversation")


@pytest.mark.parametrize("kind", [*_GENERIC, "billing-header"])
def test_every_kind_has_advice(kind):
    assert all(isinstance(a, Advice) and a.text for a in advise(kind, None, text("a"), text("b")))
    assert kind == "appended" or advise(kind, None, text("a"), text("b"))


PIECES = st.sampled_from(
    [
        "<|im_start|>",
        "user\n",
        "<think>",
        "</think>",
        "<tools>",
        "</tools>",
        '{"name": "f"}',
        "{",
        "[",
        '"',
        "\\",
        "10:30",
        "cch=",
        "x-anthropic-billing-header:",
        "2026-09-01",
        "<s>",
        "[INST]",
        "<system-reminder>",
        "git status\n",
        "M a\n",
        "/a/b/c",
        "\ud800",
        "12",
        "3/4",
        "\r\n",
        "\N{ZERO WIDTH SPACE}",
        "<image sha256:ab>",
        "abc123",
        " ",
        "\n",
        "\0",
        "é",
        "𝒳",
    ]
)
TEXTS = st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=20).map("".join))
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | PIECES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "type", "text", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(JSONS, max_size=4)},
    optional={"tools": JSONS | st.lists(JSONS, max_size=3), "system": JSONS, "reasoning_effort": JSONS},
)


def check(found):
    assert isinstance(found, Recognised)
    assert found.explanation
    assert max(len(found.a), len(found.b)) <= MAX_SHOWN


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_text(common, a, b):
    one, two = text(common + a), text(common + b)
    check(recognise(one, two, common_prefix(one.text, two.text)))
    for offset in (-1, 0, len(common), 10**6):
        check(recognise(one, two, offset))


@given(BODIES, BODIES, TEXTS)
@settings(max_examples=300, deadline=None)
def test_any_body(a, b, rendered):
    one, two = body(a), body(b)
    check(recognise(one, two, common_prefix(one.text, two.text)))
    for prompt in (one, two):
        prompt.text, prompt.spans = rendered + prompt.text[3:], []
    check(recognise(one, two, common_prefix(one.text, two.text)))
    check(recognise(one, text(rendered), common_prefix(one.text, rendered)))


HOSTILE = [
    "<think>",
    "<|im_start|>user\n",
    "<tools>",
    "{",
    '{"a":',
    "<system-reminder>",
    "x-anthropic-billing-header: a=b;",
    "10:30 ",
    "a1",
    "/a",
    " ",
    "2026-09-01",
    "[",
    "M a\n",
    "1,",
    "<|channel>thought",
    "[INST]",
    "-",
    "A. ",
    "<|im_start|>user\ncontinue<|im_end|>",
    "<|a",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_time_does_not_explode(piece):
    common = piece * (500_000 // len(piece))
    for a, b in (("x", "y"), ("x" + common, "y" + common), (common + "x", "y"), (" ", "\n" + common)):
        one, two = text(common + a), text(common + b)
        started = time.perf_counter()
        check(recognise(one, two, common_prefix(one.text, two.text)))
        assert time.perf_counter() - started < 3


def test_many_messages_and_tools():
    turns = [("user" if i % 2 == 0 else "assistant", f"{i} " + "words " * 20) for i in range(10_000)]
    tools = [tool(f"t{i}") for i in range(5_000)]
    same = [("user", "continue")] * 5_000
    pairs = [
        (openai(SYSTEM, *turns), openai(SYSTEM, *turns[2000:]), "front-truncated"),
        (openai(SYSTEM, *turns, tools=tools), openai(SYSTEM, *turns, tools=tools[::-1]), "tools-reordered"),
        (openai(SYSTEM, U1, *same, U2), openai(SYSTEM, *same, U3), "front-truncated"),
    ]
    for a, b, kind in pairs:
        one, two = body(a), body(b)
        started = time.perf_counter()
        found = recognise(one, two, common_prefix(one.text, two.text))
        assert time.perf_counter() - started < 3
        assert found.kind == kind
