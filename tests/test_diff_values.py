"""Values that change by themselves: headers, dates, ids, counters, paths, git; and what only looks like one."""

import pytest
from loops import each
from prompt_forms import A1, REST, SYSTEM, U1, between, chatml, forms, openai

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


def test_after_the_billing_header_is_not_the_header():
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


@each(("kind", "before", "a", "b", "after"), VALUES)
def test_value(kind, before, a, b, after):
    for outside in (lambda x: x, lambda x: chatml(("system", x), U1), lambda x: openai(("system", x), U1)):
        found = between(
            outside("Be brief.\n" + before + a + after + REST), outside("Be brief.\n" + before + b + after + REST)
        )
        assert found.kind == kind, found
        assert (found.a, found.b) == (a, b) or kind in ("counter", "git-state")
        assert found.advice
        assert found.sure


@each(("kind", "before", "a", "b", "after"), [v for v in VALUES if "left" not in v[4]])
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


@each(
    ("a", "b", "after"),
    [
        ("-3", "18", " degrees outside."),
        ("81", "79", " % charged."),
        ("4.5", "12.25", "kW from the roof."),
        ("48.13743", "48.20811", ", 16.37213."),
        ("19.0", "20.1", " C in the hall."),
    ],
)
def test_what_a_program_measures_is_a_value_before_what_is_said(a, b, after):
    """A person may write another number with a unit into a question."""
    old, new = (f"Be brief.\nNow: {value}{after}" + REST for value in (a, b))
    found = between(openai(("system", old), U1), openai(("system", new), U1))
    assert (found.kind, found.a, found.b, found.field) == ("counter", a, b, "Now")
    later = between(openai(SYSTEM, U1, A1, ("user", old)), openai(SYSTEM, U1, A1, ("user", new)))
    assert later.kind == "message-edited"


def test_a_number_without_a_name_may_be_text():
    old, new = (f"Be brief. The rent is {value} times what it was" + REST for value in ("1.5", "2.5"))
    assert between(openai(("system", old), U1), openai(("system", new), U1)).kind == "message-edited"


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
