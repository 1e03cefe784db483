"""Lint of request bodies: only grown conversations pass; errors name request, place, cost and fix."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command import one_line, run
from conftest import FIXTURES
from hypothesis import given
from hypothesis import strategies as st
from in_process import render_here

import cachedoctor
from cachedoctor.doctor.linting.lint_bodies import LintAsk, from_dicts, lint_requests, read_files
from cachedoctor.model import CacheDoctorError, Lint
from cachedoctor.prompts.tokenizers import server_calls
from cachedoctor.report.forms import lint_forms

ROOT = Path(__file__).parent.parent
TEMPLATE = FIXTURES / "prompts" / "template.jinja"
DAYS = sorted(path.parent for path in FIXTURES.glob("days/*/requests.jsonl"))
SINGLE = (
    "dense-cold_burst",
    "dense-one_shots",
    "dense-short_instruction",
    "dense-questions_outer",
    "dense-asks_with_time",
)
"""Days on which no request continues another."""
KNOWN = {
    "dense-criteria_at_once": "another document before the same question is an edited message to lint",
    "dense-story_trimmed": "lint does not compare a bare text with one that lacks its oldest part",
    "dense-thinking_toggled": "no template of the fixtures has the switch",
    "dense-two_editors": "text that an editor inserts before its suffix is an edit to lint",
}
"""Days whose verdict is wrong, and why."""
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schemas/lint-v1.schema.json").read_text("utf-8")))
SARIF = jsonschema.Draft202012Validator(json.loads((FIXTURES / "schemas/sarif-2.1.0.schema.json").read_text("utf-8")))
TURNS = ["Which ship passed first?", "The barge.", "And which one last?", "The cutter.", "Who kept the log?"]
CASES = {
    "requests-billing-header": {2: "billing-header", 3: "billing-header", 4: "billing-header"},
    "requests-history-edited": {6: "message-edited"},
    "requests-history-truncated": {2: "front-truncated", 3: "front-truncated", 4: "front-truncated"},
    "requests-image-changed": {4: "image", 7: "message-edited"},
    "requests-reasoning-stripped": {4: "reasoning-dropped"},
    "requests-slot-taken": {},
    "requests-tail-differs-swa": {6: "message-edited", 8: "message-edited"},
    "requests-timestamp": {2: "timestamp", 3: "timestamp", 4: "timestamp"},
    "requests-tool-added": {3: "tool-added"},
    "requests-tools-reordered": {2: "tools-reordered", 3: "tools-reordered", 4: "tools-reordered"},
}
"""What the client of each case changed, by the number of the request; what is expected now and then is none of it."""


def talk(turns: int = 3, system: str = "You keep the log of a lighthouse.") -> list[dict[str, Any]]:
    """Bodies of a conversation that only grows."""
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(TURNS)]
    head = {"role": "system", "content": system}
    return [copy.deepcopy({"messages": [head, *messages[: 2 * turn + 1]]}) for turn in range(turns)]


def of_file(path: Path, **ask: Any) -> Lint:
    return lint_requests(read_files([str(path)]), LintAsk(**ask))


def numbers(found: Lint) -> dict[int, str]:
    return {int(error.path.rpartition("#")[2]): error.kind for error in found.errors}


def save(folder: Path, bodies: list[Any]) -> Path:
    path = folder / "b.jsonl"
    path.write_text("".join(f"{json.dumps(body)}\n" for body in bodies), "utf-8")
    return path


# ---- verdicts


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", CASES)
def test_a_case_gets_the_verdict_of_what_its_client_did(name: str) -> None:
    found = of_file(FIXTURES / "cases" / name / "requests.jsonl")
    assert numbers(found) == CASES[name]
    assert found.append_only == (not CASES[name])
    for error in found.errors:
        assert error.line == int(error.path.rpartition("#")[2])
        assert error.advice
        assert 0 < error.cost < error.tokens


@pytest.mark.sweep
@pytest.mark.sample(3)
@pytest.mark.parametrize("day", DAYS, ids=lambda day: day.name)
def test_a_day_gets_the_verdict_of_its_truth(
    day: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    for reason in (reason for name, reason in KNOWN.items() if day.name.startswith(name)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    truth = json.loads((day / "truth.json").read_text("utf-8"))
    render_here(monkeypatch, FIXTURES / "templates/qwen3.jinja" if "reasoning" in day.name else TEMPLATE)
    lost = {r["n"] + 1 for r in truth["requests"] if r.get("rows", {}).get("client", 0) > 8}
    changed = lost if truth["side"] != "none" else set()  # first prompts of other users lose their tools
    if day.name.startswith(SINGLE):
        with pytest.raises(CacheDoctorError, match="does not contain two requests"):
            of_file(day / "requests.jsonl")
        return
    found = of_file(day / "requests.jsonl", build=truth["build"])
    kinds = numbers(found)
    assert {number for number, kind in kinds.items() if kind != "cache-prompt-off"} >= changed
    assert bool(kinds) == (truth["side"] in ("client", "both"))


def test_each_way_to_change_a_request_is_an_error_of_that_request() -> None:
    for change, kind, place in (
        (lambda body: body["messages"][0].update(content="You keep the log of a harbour."), "message-edited", 0),
        (lambda body: body["messages"][1].update(content="Which boat passed first?"), "message-edited", 1),
        (lambda body: body["messages"].pop(1), "message-removed", 1),
    ):
        bodies = copy.deepcopy(talk())
        change(bodies[2])
        found = cachedoctor.lint(bodies)
        (error,) = found.errors
        assert (error.path, error.before, error.line) == ("bodies#3", "bodies#2", None)
        assert error.place is not None
        assert error.place.startswith(f"messages[{place}]")
        if kind == "message-edited":
            assert error.kind == kind
        assert not found.append_only


def test_a_salt_an_adapter_and_a_switched_off_cache_are_errors() -> None:
    salted = [{**body, "cache_salt": str(at)} for at, body in enumerate(talk())]
    assert {error.kind for error in cachedoctor.lint(salted).errors} == {"cache-salt"}
    assert all(error.cost > 10 for error in cachedoctor.lint(salted).errors)
    off = [{**body, "cache_prompt": False} for body in talk()]
    found = cachedoctor.lint(off)
    assert [(error.kind, error.place) for error in found.errors] == [("cache-prompt-off", "cache_prompt")] * 2
    assert cachedoctor.lint([{**body, "cache_prompt": True} for body in talk()]).append_only


def test_what_is_expected_is_a_hint() -> None:
    again = [*talk(), copy.deepcopy(talk()[2])]
    again[3]["messages"][-1]["content"] = "Who painted the tower?"
    found = cachedoctor.lint(again)
    assert found.append_only
    assert [hint.kind for hint in found.hints] == ["last-message-rewritten"]
    # The same change, but the conversation has gone on: what was said before is another now.
    later = [*talk(), {"messages": [*again[3]["messages"], {"role": "assistant", "content": "Nobody knows that."},
                                    {"role": "user", "content": "Then who might?"}]}]  # fmt: skip
    assert not cachedoctor.lint(later).append_only


def test_a_conversation_that_continues_in_two_ways_is_not_an_edit() -> None:
    start = talk(2)
    messages = start[1]["messages"]
    reply = {"role": "assistant", "content": "The cutter, at night."}
    ways = [{"messages": [*messages, reply, {"role": "user", "content": f"Way {n}, then?"}]} for n in (1, 2)]
    assert cachedoctor.lint([*start, *ways]).append_only


def test_recordings_are_judged_each_by_itself_and_single_files_together(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    one, two = save(tmp_path / "1", talk()), save(tmp_path / "2", talk(system="You keep the log of a harbour."))
    assert lint_requests(read_files([str(one), str(two)]), LintAsk()).append_only
    paths = [tmp_path / f"{at}.json" for at in range(3)]
    for path, body in zip(paths, talk(), strict=True):
        path.write_text(json.dumps(body, indent=1))
    found = lint_requests(read_files(list(map(str, paths))), LintAsk())
    assert (found.append_only, found.requests, found.conversations) == (True, 3, 1)


@pytest.mark.sweep
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), min_size=3, max_size=9), st.data())
def test_growing_passes_and_an_edit_in_the_middle_does_not(texts: list[str], data: st.DataObject) -> None:
    texts = [f"{at} {text}" for at, text in enumerate(texts)]
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]
    bodies = [{"messages": messages[:count]} for count in range(1, len(messages) + 1)]
    assert cachedoctor.lint(bodies).append_only
    at = data.draw(st.integers(0, len(messages) - 2))
    edited = copy.deepcopy(bodies[-1])
    edited["messages"][at]["content"] += " and something else that nobody had said before"
    edited["messages"].append({"role": "user", "content": "Go on."})
    if at:  # with another first message it is another conversation
        assert not cachedoctor.lint([*bodies, edited]).append_only


# ---- hints


def test_fragile_places_of_the_head_are_hints_and_nothing_else_is() -> None:
    system = (
        "Current time: 2026-11-20 14:02 UTC. Session 0b54f4c2-1c3c-4d52-9ad2-0f2f4f9c1a11. The fair was in May 2019."
    )
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("b", "a")]
    found = cachedoctor.lint([{**body, "tools": tools} for body in talk(system=system)])
    assert found.append_only
    assert [(h.kind, h.place, h.requests) for h in found.hints] == [
        ("clock", "messages[0].content", 3),
        ("uuid", "messages[0].content", 3),
        ("unsorted-tools", "tools", 3),
    ]
    assert all(hint.advice for hint in found.hints)
    calm = "The fair was in May 2019. At 08:15 the harbour opens. Version 2.1.36, user_id names a field."
    sorted_tools = [{**body, "tools": tools[::-1]} for body in talk(system=calm)]
    assert cachedoctor.lint(sorted_tools).hints == []


def test_a_template_that_opens_a_reply_in_other_words_is_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    render_here(monkeypatch, FIXTURES / "templates/minimax-m2.jinja")
    found = cachedoctor.lint(talk(), template="unused")
    assert (found.append_only, found.rendered) == (True, True)
    (hint,) = found.hints
    assert (hint.kind, hint.requests) == ("reply-opening", 2)
    edited = copy.deepcopy(talk())
    edited[2]["messages"][3]["content"] += " Or so they say."  # the last message that the request before ends with
    assert not cachedoctor.lint(edited, template="unused").append_only


# ---- bad input


@pytest.mark.parametrize(
    ("bodies", "says"),
    [
        ([], "no request bodies were given"),
        ([{"messages": []}], "does not contain two requests"),
        (talk(1), "does not contain two requests"),
        ([{"model": "x"}] * 2, "an unknown kind"),
        ([{"messages": {1, 2}}], "are not JSON"),
        ([{"messages": [object()]}], "are not JSON"),
    ],
)
def test_bodies_that_say_nothing_are_refused(bodies: list[Any], says: str) -> None:
    with pytest.raises(CacheDoctorError, match=says) as caught:
        cachedoctor.lint(bodies)
    assert caught.value.hint


def test_a_body_that_holds_itself_or_is_too_deep_is_refused() -> None:
    circle: dict[str, Any] = {"messages": []}
    circle["messages"].append(circle)
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"messages": [deep]}
    for body in (circle, deep):
        with pytest.raises(CacheDoctorError):
            cachedoctor.lint([body, body])


ODD: list[Any] = [
    None, 1, [], {}, "x", [None], {"role": None}, {"role": 3, "content": {"a": [1]}}, {"content": [1, None, {}]},
    {"role": "assistant", "tool_calls": "no"}, {"role": "assistant", "tool_calls": [None, {"function": 3}]},
    {"role": "user", "content": "\ud800 \x1b[31m ::error::x"}, {"role": "tool", "content": float("nan")},
]  # fmt: skip


def test_odd_messages_are_judged_or_refused_and_never_fail() -> None:
    for odd in ODD:
        messages = [{"role": "user", "content": "Which ship passed first?"}, odd]
        bodies = [{"messages": messages}, {"messages": [*messages, {"role": "user", "content": "Go on."}]}]
        assert cachedoctor.lint(bodies).append_only, odd
        bodies[1]["tools"] = odd
        cachedoctor.lint(bodies)


# ---- the command


@pytest.mark.sweep
def test_the_command_says_it_in_four_formats(tmp_path: Path) -> None:
    path = FIXTURES / "cases" / "requests-timestamp" / "requests.jsonl"
    text = run("lint", path)
    assert (text.returncode, text.stderr) == (1, b"")
    assert b"error timestamp (date): a date changed" in text.stdout
    assert b"cost: about 1,761 tokens of the previous prompt recomputed" in text.stdout
    done = run("lint", path, "-f", "json")
    document = json.loads(done.stdout)
    SCHEMA.validate(document)
    assert [error["line"] for error in document["errors"]] == [2, 3, 4]
    report = tmp_path / "lint.sarif"
    assert run("lint", path, "-o", report).returncode == 1
    log = json.loads(report.read_text("utf-8"))
    SARIF.validate(log)
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    assert [place["region"]["startLine"] for place in places] == [2, 3, 4]
    lines = run("lint", path, "-f", "github").stdout.decode().splitlines()
    assert [line.split(",")[1] for line in lines[:3]] == ["line=2", "line=3", "line=4"]


@pytest.mark.sweep
def test_the_command_ends_with_0_where_all_is_appended(tmp_path: Path) -> None:
    done = run("lint", save(tmp_path, talk()), "--template", TEMPLATE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"append-only: 3 requests of 1 conversation")
    assert run("lint", "--template", FIXTURES / "templates/kimi-k2.jinja").returncode == 0
    tried = run("lint", "--template", FIXTURES / "templates/qwen3.jinja", "-f", "json")
    assert tried.returncode == 1
    SCHEMA.validate(json.loads(tried.stdout))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ('{"messages": [', "broken JSON"),
        ("\0\0", "binary"),
        ('{"choices": []}\n{"choices": []}', "is a response"),
    ],
)
def test_bad_files_are_one_line_and_status_2(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text(content)
    done = run("lint", path)
    assert done.returncode == 2
    one_line(done, says)


@pytest.mark.sweep
def test_more_bad_input_is_one_line_and_status_2(tmp_path: Path) -> None:
    bodies = save(tmp_path, talk())
    log = FIXTURES / "cases" / "requests-timestamp" / "server.log"
    for args, says in (
        ((log,), "is a log"),
        (("nowhere.jsonl",), "cannot be read"),
        (("-", "-"), "only once"),
        ((bodies, "--template", "nowhere.jinja"), "cannot be read"),
        ((bodies, "--server", "ftp://x"), "is not an address"),
        ((bodies, "--server", "http://127.0.0.1:1"), "cannot reach"),
        ((bodies, "--server", "http://127.0.0.1:1", "--template", TEMPLATE), "give only one of these two options"),
        (("--tokenizer", FIXTURES / "tokenizers/tiny.json"), "no chat template"),
    ):
        done = run("lint", *args)
        assert done.returncode == 2, args
        one_line(done, says)


def test_a_hint_of_hashed_text_holds_no_key_and_repeats_no_error() -> None:
    def bodies(second: int) -> list[dict[str, Any]]:
        words = [f"current date: 2026-03-04 10:11:{at}" for at in (12, second)]
        shapes = [{"properties": {"my_secret": {"type": "string", "description": text}}} for text in words]
        tools = [[{"type": "function", "function": {"name": "f", "parameters": shape}}] for shape in shapes]
        return [{**body, "tools": given} for body, given in zip(talk()[:2], tools, strict=True)]

    ask = LintAsk(hash_text=True)
    same, other = (lint_requests(from_dicts(bodies(second)), ask) for second in (12, 13))
    assert [hint.kind for hint in same.hints] == ["clock"]
    assert "my_secret" not in repr((same, other))
    assert [error.kind for error in other.errors] == ["timestamp"]
    assert other.hints == []


@pytest.mark.sweep
def test_hostile_text_reaches_no_terminal_and_hashed_text_nothing(tmp_path: Path) -> None:
    bodies = talk()
    bodies[2]["messages"][1]["content"] = "\x1b]0;owned\x07 ::error::planted \u202e secret words"
    path = save(tmp_path, bodies)
    for form in ("text", "github", "sarif", "json"):
        done = run("lint", path, "-f", form)
        assert b"\x1b" not in done.stdout
        assert b"\x07" not in done.stdout
        assert not any(line.startswith(b"::error::planted") for line in done.stdout.splitlines())
        assert b"secret words" not in run("lint", path, "-f", form, "--hash-text").stdout


# ---- a running server


class _Server(BaseHTTPRequestHandler):
    """Renders and tokenises as llama-server does: a token per character."""

    mode = "sound"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.mode == "drips" and "messages" in body:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.02)
            except OSError:
                return
        if "messages" in body:
            text = "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])
            answer: Any = {"prompt": text + "<assistant>"}
        else:
            answer = {"tokens": [{"id": ord(char), "piece": char} for char in body["content"]]}
        status = 500 if self.mode == "refuses" and "messages" in body else 200
        if status == 500:
            answer = {"error": {"message": "roles must\nalternate"}}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"[1]" if self.mode == "garbage" and "messages" in body else json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Server) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def test_a_running_server_renders_and_counts(server: str) -> None:
    found = cachedoctor.lint(talk(), server=server)
    assert (found.append_only, found.exact, found.rendered, found.tokenizer) == (True, True, True, server)
    bodies = talk()
    bodies[2]["messages"][1]["content"] = "Which boat passed first?"
    (error,) = cachedoctor.lint(bodies, server=server).errors
    prefix = "<system>You keep the log of a lighthouse.<user>Which "
    assert (error.token, error.char, error.place) == (len(prefix), len(prefix), "messages[1].content")


@pytest.mark.parametrize(
    ("mode", "says"),
    [("refuses", "500 roles must"), ("garbage", "without a prompt"), ("drips", "cannot reach|did not answer")],
)
def test_a_server_that_answers_badly_is_one_line(
    server: str, monkeypatch: pytest.MonkeyPatch, mode: str, says: str
) -> None:
    monkeypatch.setattr(_Server, "mode", mode)
    monkeypatch.setattr(server_calls, "DEADLINE_SECONDS", 0.2)
    with pytest.raises(CacheDoctorError, match=says) as caught:
        cachedoctor.lint(talk(), server=server)
    assert caught.value.hint


BODY = {
    "messages": [
        {"role": "system", "content": "You are " + "a helper " * 200},
        {"role": "user", "content": "Begin now. " * 9},
    ]
}
TOOLS = [{"type": "function", "function": {"name": f"tool_{n}", "description": "reads " * 40}} for n in range(3)]
NEXT = [*BODY["messages"], {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]


def test_a_changed_tool_costs_a_range_where_the_template_is_not_known() -> None:
    """Most templates put the tools before all messages, some before the last user message."""
    found = cachedoctor.lint([{**BODY, "tools": TOOLS[:2]}, {"messages": NEXT, "tools": TOOLS}])
    (error,) = found.errors
    assert error.kind == "tool-added"
    assert error.least_cost is not None
    assert 0 < error.least_cost < 60 < 300 < error.cost
    assert f"{error.least_cost} to {error.cost} tokens of the previous prompt recomputed" in lint_forms.cost(
        error, exact=True
    )


def test_a_changed_message_costs_the_same_in_any_template() -> None:
    other = [{"role": "system", "content": "You were " + "a helper " * 200}, *NEXT[1:]]
    found = cachedoctor.lint([{**BODY, "tools": TOOLS}, {"messages": other, "tools": TOOLS}])
    assert [error.least_cost for error in found.errors] == [None]


def test_the_least_change_is_shown_where_it_is_more_than_one() -> None:
    """Two values differ, and a history follows them; with one of them the error says it all."""
    text = " ".join(f"word{n}" for n in range(300))

    def body(clock: str, count: str) -> dict[str, object]:
        system = f"Now: {clock}\n{text}\nSession: {count}\n{text}"
        return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}

    both = lint_requests(from_dicts([body("10:41", "4711"), body("11:52", "4712")]), LintAsk())
    assert both.least is not None
    assert [edit.line for edit in both.least.edits] == [2, 4]  # behind the role
    assert both.least_path == "bodies#2"
    assert both.least.edits[-1].reuse > 0.95 * both.least.tokens
    one = lint_requests(from_dicts([body("10:41", "4711"), body("11:52", "4711")]), LintAsk())
    assert (len(one.errors), one.least) == (1, None)
