"""Recordings of other programs: the bodies that went in come out, counts with them, and nothing that is not there.

Every file of fixtures/recordings but the transcript holds the requests of its bodies.jsonl, in the form of one program.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import made
import pytest
from command import run
from conftest import FIXTURES
from prompt_files import fails
from schemas import schema_of

from cachedoctor.doctor.extras import extra_inputs
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.linting.lint_bodies import LintAsk, from_dicts, lint_requests, read_files
from cachedoctor.doctor.whatif import evidence
from cachedoctor.inputs.captures import recognise
from cachedoctor.inputs.metrics import responses
from cachedoctor.model import CacheDoctorError, Mark
from cachedoctor.prompts import client_habits, inputs
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.report.forms import lint_forms

FOLDER = FIXTURES / "recordings"
BODIES: list[dict[str, Any]] = [json.loads(line) for line in (FOLDER / "bodies.jsonl").read_text("utf-8").splitlines()]
COUNTS = [(131, 0), (187, 130), (224, 12)]
"""Prompt and reused tokens of the answers."""
CHATS = ["traffic.har", "llama-swap.json", "litellm-standard.jsonl", "litellm-spend.json", "otel-spans.jsonl"]
SGLANG = ["sglang.log", "sglang-json.log"]
VLLM = ["vllm.log", "vllm-debug.log"]


def load(name: str) -> list[Prompt]:
    return inputs.load(str(FOLDER / name))


def parse(data: object) -> list[Prompt]:
    text = data if isinstance(data, str) else json.dumps(data)
    return inputs.parse(text.encode(), "f")


def rendered(body: dict[str, Any]) -> str:
    """As the chat template of the logging servers wrote it."""
    turns = [f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in body["messages"]]
    return "".join(turns) + "<|im_start|>assistant\n"


def told(prompts: list[Prompt]) -> list[tuple[int | None, int | None]]:
    return [tuple(extra_inputs.of_prompt(prompt)) for prompt in prompts]  # type: ignore[misc]


# ---- what went in comes out


@pytest.mark.parametrize("name", CHATS)
def test_bodies_come_out_as_they_went_in(name: str) -> None:
    found = load(name)
    assert [prompt.text for prompt in found] == [prompt.text for prompt in load("bodies.jsonl")]
    assert [(prompt.body or {})["messages"] for prompt in found] == [body["messages"] for body in BODIES]
    assert [(prompt.body or {})["tools"] for prompt in found] == [body["tools"] for body in BODIES]
    assert all(prompt.is_whole for prompt in found)


@pytest.mark.parametrize("name", [*SGLANG, *VLLM])
def test_prompts_of_a_log_are_what_the_model_saw(name: str) -> None:
    found = load(name)
    assert [prompt.text for prompt in found] == [rendered(body) for body in BODIES]
    assert all(prompt.rendered and prompt.is_whole for prompt in found)


@pytest.mark.parametrize("name", [*CHATS, *SGLANG])
def test_answers_count(name: str) -> None:
    assert told(load(name)) == COUNTS


def test_vllm_logs_no_counts() -> None:
    assert told(load("vllm.log")) == [(None, None)] * 3


@pytest.mark.parametrize("name", CHATS)
def test_a_recording_is_a_file_of_responses(name: str) -> None:
    found = responses.read([(FOLDER / name).read_bytes()], "r")
    cut = [(900, None)] if name == "litellm-spend.json" else []  # its prompt was cut, its answer was not
    assert [(one.prompt_tokens, one.cached_tokens) for one in found.answers.each] == [*COUNTS, *cut]
    assert found.model == "otter-8b"


def test_responses_come_in_parts() -> None:
    data = (FOLDER / "traffic.har").read_bytes()
    parts = [data[at : at + 100] for at in range(0, len(data), 100)]
    assert responses.read(parts, "r").answers.requests == 3


def test_who_sent_it() -> None:
    """SGLang's session and salt, LiteLLM's session, OpenTelemetry's conversation, a transcript's session."""
    by = {name: client_habits.asker(load(name)[0]) for name in ("sglang.log", "sglang-json.log", "transcript.jsonl")}
    by |= {name: client_habits.asker(load(name)[0]) for name in ("otel-spans.jsonl", "litellm-standard.jsonl")}
    assert {name: (one.by, one.name) for name, one in by.items() if one is not None} == {
        "sglang.log": ("session", "desk-3"),
        "sglang-json.log": ("session", "desk-3"),
        "transcript.jsonl": ("session", "0b5f2c1e-0000-4000-8000-000000000001"),
        "otel-spans.jsonl": ("session", "conv-5"),
        "litellm-standard.jsonl": ("user", "desk-3"),
    }
    assert (load("sglang.log")[0].body or {})["extra_key"] == "team-a"


# ---- parts of the forms


def test_har_of_another_page_holds_nothing() -> None:
    har = json.loads((FOLDER / "traffic.har").read_text("utf-8"))
    har["log"]["entries"] = har["log"]["entries"][:2]
    error = fails(har)
    assert "contains no prompts of requests to a model (HAR)" in error.message
    assert "with content" in error.hint


def test_har_whose_body_is_cut_says_so() -> None:
    har = json.loads((FOLDER / "traffic.har").read_text("utf-8"))
    entry = har["log"]["entries"][-1]
    entry["request"]["postData"]["text"] = entry["request"]["postData"]["text"][:200]
    found = parse(har)
    assert len(found) == 2
    assert found[0].recorded is not None
    assert found[0].recorded.note == "1 of its requests to a model have no body, or a truncated one"


def test_the_activity_of_llama_swap_has_no_bodies() -> None:
    row = {"id": 1, "req_path": "/v1/chat/completions", "tokens": {"input_tokens": 5, "cache_tokens": -1}}
    error = fails([row | {"has_capture": True}])
    assert "llama-swap's activity, which has no bodies" in error.message
    assert "/api/captures/ID" in error.hint


def test_litellm_leaves_out_what_it_cut_and_what_no_server_saw() -> None:
    (note,) = {one.recorded.note for one in load("litellm-spend.json") if one.recorded}
    assert note.startswith(
        "1 of its 5 requests have a prompt truncated by LiteLLM and are left out; 1 of its 5 requests"
    )
    assert "LiteLLM's cache" in note


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("What does litellm_truncated mean in a row of my log?", True),
        ("You are a... (litellm_truncated skipped 12982 chars. Cut to save space.) ... the end.", False),
        ("You are a... (litellm_truncated 12982 chars) ... the end.", False),
    ],
    ids=["the word", "cut", "cut by an older one"],
)
def test_litellm_cut_a_prompt_where_its_mark_stands(text: str, is_kept: bool) -> None:
    row = {
        "request_id": "r",
        "call_type": "acompletion",
        "startTime": "2026-11-03T10:00:00+00:00",
        "prompt_tokens": 900,
    }
    row["messages"] = [{"role": "user", "content": text}]
    found = recognise.of_values([row])
    assert found is not None
    assert [one.body is not None for one in found.requests] == [is_kept]


def test_litellm_without_stored_prompts_says_which_setting_stores_them() -> None:
    row = {"request_id": "r", "call_type": "acompletion", "startTime": "2026-11-03T10:00:00+00:00", "messages": "{}"}
    error = fails([row | {"prompt_tokens": 900}])
    assert "1 of its 1 requests have no prompt" in error.message
    assert "store_prompts_in_spend_logs" in error.hint
    given = responses.read([json.dumps([row | {"prompt_tokens": 900}]).encode()], "r").answers.each
    assert [(one.prompt_tokens, one.cached_tokens) for one in given] == [(900, None)], "unknown is not 0"


def attributes(**values: Any) -> list[dict[str, Any]]:
    return [
        {"key": name.replace("__", "."), "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for name, v in values.items()
    ]


def spans(*found: dict[str, Any], logs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    named = [{"traceId": "a", "spanId": f"{n}", "startTimeUnixNano": f"{n + 1}"} | one for n, one in enumerate(found)]
    more = {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]} if logs else {}
    return {"resourceSpans": [{"scopeSpans": [{"spans": named}]}]} | more


def test_spans_of_older_instrumentation() -> None:
    """Numbers in names of attributes, as OpenLLMetry wrote them."""
    said = {
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be short.", "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "Hi", "gen_ai.prompt.2.role": "assistant", "gen_ai.prompt.2.tool_calls.0.id": "c",
        "gen_ai.prompt.2.tool_calls.0.name": "f", "gen_ai.prompt.2.tool_calls.0.arguments": "{}",
        "llm.request.functions.0.name": "f", "llm.request.functions.0.parameters": '{"type": "object"}',
        "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": 31, "gen_ai.usage.cache_read_input_tokens": 7,
    }  # fmt: skip
    (prompt,) = parse(spans({"attributes": attributes(**said)}))
    assert (prompt.body or {})["messages"] == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ]  # fmt: skip
    assert (prompt.body or {})["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    ]
    assert told([prompt]) == [(31, 7)]


def test_messages_of_a_span_as_events_in_a_log() -> None:
    at = {"traceId": "a", "spanId": "0"}
    body = {"kvlistValue": {"values": attributes(content="Hi")}}
    logs = [
        at
        | {"eventName": "gen_ai.system.message", "body": {"kvlistValue": {"values": attributes(content="Be short.")}}},
        at | {"attributes": attributes(event__name="gen_ai.user.message"), "body": body},
        at | {"eventName": "gen_ai.choice", "body": body},
    ]
    (prompt,) = parse(spans({"attributes": attributes(gen_ai__operation__name="chat")}, logs=logs))
    assert (prompt.body or {})["messages"] == [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"},
    ]  # fmt: skip
    assert prompt.recorded is not None
    assert "1 of its requests have no tool definitions" in prompt.recorded.note


def test_log_records_alone_are_requests() -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9, "gen_ai.input.messages": '[{"role": "user"'
            ', "parts": [{"type": "text", "content": "Hi"}]}]', "gen_ai.system_instructions": "Be short."}  # fmt: skip
    record = {"eventName": "gen_ai.client.inference.operation.details", "attributes": attributes(**said)}
    found = parse({"resourceLogs": [{"scopeLogs": [{"logRecords": [record, record]}]}]})
    assert [(prompt.body or {})["messages"][0]["content"] for prompt in found] == ["Be short.", "Be short."]
    assert told(found) == [(9, None), (9, None)]


def test_a_span_that_used_tools_and_lists_none_is_not_whole() -> None:
    text = json.dumps([{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "result": {"a": 1}}]}])
    (prompt,) = parse(spans({"attributes": attributes(gen_ai__operation__name="chat", gen_ai__input__messages=text)}))
    assert not prompt.is_whole
    assert (prompt.body or {})["messages"] == [{"role": "tool", "tool_call_id": "c", "content": '{"a": 1}'}]


MESSAGES = {
    "openinference.span.kind": "LLM", "llm.system": "openai", "llm.model_name": "otter-8b", "session.id": "s-4",
    "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Be short.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "What is it?",
    "llm.input_messages.1.message.contents.1.message_content.type": "image",
    "llm.input_messages.1.message.contents.1.message_content.image.image.url": "http://x/a.png",
    "llm.input_messages.2.message.role": "assistant",
    "llm.input_messages.2.message.contents.0.message_content.type": "reasoning",
    "llm.input_messages.2.message.contents.0.message_content.text": "Look.",
    "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "look",
    "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": '{"at": 1}',
    "llm.input_messages.3.message.role": "tool", "llm.input_messages.3.message.tool_call_id": "c",
    "llm.input_messages.3.message.content": "a boat", "llm.tools.0.tool.json_schema":
    '{"type": "function", "function": {"name": "look"}}', "llm.output_messages.0.message.content": "A boat.",
    "llm.token_count.prompt": 229, "llm.token_count.prompt_details.cache_read": 128,
}  # fmt: skip
"""A span of OpenInference, as its specification has it."""


def test_spans_of_openinference() -> None:
    agent = {"attributes": attributes(**{"openinference.span.kind": "AGENT", "input.value": "What is it?"})}
    (prompt,) = parse(spans(agent, {"attributes": attributes(**MESSAGES), "parentSpanId": "0"}))
    body = prompt.body or {}
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    parts = [
        {"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "http://x/a.png"}},
    ]  # fmt: skip
    assert body["messages"] == [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": parts},
        {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a boat"},
    ]  # fmt: skip
    assert body["tools"] == [{"type": "function", "function": {"name": "look"}}]
    assert (body["model"], body["conversation_id"]) == ("otter-8b", "s-4")
    assert told([prompt]) == [(229, 128)]
    assert prompt.is_whole


def test_what_openinference_has_as_it_was_sent_comes_first() -> None:
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi", "name": "kim"}], "tools": []}
    (prompt,) = parse(spans({"attributes": attributes(**MESSAGES, **{"input.value": json.dumps(sent)})}))
    assert {name: (prompt.body or {})[name] for name in sent} == sent
    chain = json.dumps({"messages": [[{"lc": 1, "kwargs": {"content": "Hi"}}]]})  # LangChain's own form
    (prompt,) = parse(spans({"attributes": attributes(**MESSAGES, **{"input.value": chain})}))
    assert len((prompt.body or {})["messages"]) == 4


@pytest.mark.parametrize(
    "span",
    [
        {"attributes": attributes(**{k: v for k, v in MESSAGES.items() if ".0.message." not in k})},
        {"attributes": attributes(**MESSAGES), "droppedAttributesCount": 3},
    ],
)
def test_messages_that_a_limit_of_attributes_left_out_are_said(span: dict[str, Any]) -> None:
    (prompt,) = parse(spans(span))
    assert not prompt.is_whole
    assert prompt.recorded is not None
    assert "1 of its requests lost messages because of an attribute limit" in prompt.recorded.note


def test_messages_that_openinference_hides_are_none() -> None:
    hidden = MESSAGES | {"llm.input_messages.0.message.content": "__REDACTED__", "input.value": "__REDACTED__"}
    error = fails(spans({"attributes": attributes(**hidden)}))
    assert "1 of its requests have no messages" in error.message
    embedding = {"attributes": attributes(**{"openinference.span.kind": "EMBEDDING", "input.value": "x"})}
    assert "contains no prompts" in fails(spans(embedding)).message


def test_spans_without_content_say_so() -> None:
    error = fails(spans({"attributes": attributes(gen_ai__operation__name="chat", gen_ai__usage__input_tokens=5)}))
    assert "1 of its requests have no messages" in error.message


def test_a_transcript_is_its_messages_and_its_counts() -> None:
    found = load("transcript.jsonl")
    roles = [[one["role"] for one in (prompt.body or {})["messages"]] for prompt in found]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]]
    second = (found[1].body or {})["messages"]
    assert [part["type"] for part in second[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [part["tool_use_id"] for part in second[2]["content"]] == ["t1", "t2"], "of tools that ran at once"
    assert told(found) == [(8012, 0), (8219, 8000), (8251, 0)]
    assert not any(prompt.is_whole for prompt in found)


def test_a_reply_in_several_lines_is_counted_once() -> None:
    given = responses.read([(FOLDER / "transcript.jsonl").read_bytes()], "r").answers
    assert [one.prompt_tokens for one in given.each] == [8012, 8219, 8251]


def test_a_compaction_begins_again() -> None:
    lines = (FOLDER / "transcript.jsonl").read_text("utf-8").splitlines()
    boundary = {"type": "system", "subtype": "compact_boundary", "parentUuid": None, "logicalParentUuid": "a4",
                "uuid": "b", "sessionId": "s", "timestamp": "2026-11-03T10:01:09.000Z"}  # fmt: skip
    after = json.loads(lines[-2]) | {"parentUuid": "b", "isCompactSummary": True}
    found = parse("\n".join([*lines[:-2], json.dumps(boundary), json.dumps(after), lines[-1]]))
    assert len((found[2].body or {})["messages"]) == 1


def test_lines_that_follow_each_other_in_a_circle_end() -> None:
    a, b = (json.loads(line) for line in (FOLDER / "transcript.jsonl").read_text("utf-8").splitlines()[1:3])
    assert len(parse("\n".join(map(json.dumps, (a | {"parentUuid": b["uuid"]}, b))))) == 1


# ---- what a log has cut


def test_sglang_cuts_prompts_at_its_default_level() -> None:
    text = (FOLDER / "sglang.log").read_text("utf-8")
    whole = "text='<|im_start|>system\\nYou are a careful"
    cut = text.replace(whole, f"text='{'a' * 1024}' ... '{'b' * 1024}', was='")
    error = fails(cut.encode())
    assert "3 of its 3 prompts are truncated (--log-requests-level 2)" in error.message
    assert "--log-requests-level 3" in error.hint


def test_sglang_as_json_does_not_mark_what_it_cut() -> None:
    lines = [json.loads(line) for line in (FOLDER / "sglang-json.log").read_text("utf-8").splitlines() if "{" in line]
    for line in lines[:2]:
        line["obj"]["text"] = "a" * 1024 + "..." + "b" * 1024
    found = parse("\n".join(map(json.dumps, lines)))
    assert len(found) == 2
    assert found[0].recorded is not None
    assert found[0].recorded.note == "1 of its 3 prompts are truncated (--log-requests-level 2) and are left out"


def test_sglang_prints_no_prompts_at_low_levels() -> None:
    line = "[2026-11-03 10:00:01] Receive: obj=GenerateReqInput(rid='r1', stream=False)\n"
    error = fails((line * 2).encode())
    assert "1 of its 1 prompts are not printed" in error.message


@pytest.mark.parametrize(
    ("said", "length", "kept"),
    [
        ("non-default args: {'max_log_len': 40}", 40, 0),
        ("INFO 11-03 10:00:00 nothing", 40, 3),  # three equal lengths that are not round
        ("INFO 11-03 10:00:00 nothing", 100, 0),
    ],
)
def test_vllm_cuts_prompts_without_a_mark(said: str, length: int, kept: int) -> None:
    row = "INFO 11-03 10:00:01 [logger.py:41] Received request c{0}: prompt: '{1}', params: SamplingParams(n=1)"
    lines = [f"INFO 11-03 10:00:00 {said}", *(row.format(n, f"{n}" + "a" * (length - 1)) for n in range(3))]
    if kept:
        assert len(parse("\n".join(lines))) == kept
    else:
        assert "3 of its 3 prompts are truncated, or look truncated" in fails("\n".join(lines).encode()).message


def test_vllm_prompts_may_be_ids_alone() -> None:
    row = "INFO 11-03 10:00:01 [logger.py:41] Received request c{}: prompt: None, params: P(), prompt_token_ids: [{}]"
    found = parse("\n".join(row.format(n, ids) for n, ids in enumerate(("1, 2, 3", "1, 2, 3, 4", "1 2", "1, ", ""))))
    assert [(prompt.body or {})["prompt"] for prompt in found] == [[1, 2, 3], [1, 2, 3, 4]]


def test_a_prompt_that_quotes_a_log_is_a_prompt() -> None:
    quoted = (FOLDER / "vllm.log").read_text("utf-8").splitlines()[1]
    for text in (f"<|im_start|>user\nWhat is this?\n{quoted}", "\n".join(["Why?"] * 9 + [quoted])):
        (prompt,) = parse(text)
        assert (prompt.kind, prompt.text) == ("text", text)
    (body,) = parse({"messages": [{"role": "user", "content": quoted + '"req_body": "call_type": "startTime":'}]})
    assert body.recorded is None


# ---- what is made of it


def test_lint_says_what_the_server_reused() -> None:
    found = lint_requests(read_files([str(FOLDER / "traffic.har")]), LintAsk())
    (error,) = found.errors
    assert (error.kind, error.place, error.line) == ("message-edited", "messages[0].content", None)
    assert (error.answered_tokens, error.answered_reused) == (224, 12)
    assert lint_forms.cost(error, exact=True).endswith("; the server reused 12 of 224 tokens")
    assert found.notes == []


@pytest.mark.parametrize(("order", "lines"), [((0, 1, 2), [3]), ((1, 0, 2), [None])])
def test_lines_of_a_proxys_records(tmp_path: Path, order: tuple[int, ...], lines: list[int | None]) -> None:
    """It writes a record when its request ends: a number counts lines only where that is the order of sending."""
    path = tmp_path / "requests.jsonl"
    rows = [{"recorder": "cachedoctor proxy", "sent": n, "response": {"usage": {}}, "body": BODIES[n]} for n in order]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert [error.line for error in lint_requests(read_files([str(path)]), LintAsk()).errors] == lines


def test_lint_of_a_transcript_concludes_nothing_about_the_head() -> None:
    found = lint_requests(read_files([str(FOLDER / "transcript.jsonl")]), LintAsk())
    assert found.append_only
    assert lint_forms.lint_verdict(found).startswith("append-only as far as the recordings show: 3 requests")
    assert "no system prompt, no tools" in lint_forms.notes(found)[0]


def test_a_transcript_is_not_simulated() -> None:
    with pytest.raises(CacheDoctorError, match="prompts are incomplete: a transcript has only messages"):
        inputs.load_sent(str(FOLDER / "transcript.jsonl"))


@pytest.mark.parametrize("name", CHATS)
def test_simulate_takes_a_recording_alone(name: str) -> None:
    assert evidence.is_bodies(str(FOLDER / name))
    assert [one.text for one in inputs.load_sent(str(FOLDER / name)) if one is not None] == [
        one.text for one in load("bodies.jsonl")
    ]


def asked(tokens: int, line: int = 1) -> Any:
    """A request that begins at this line."""
    marks = {"start": Mark(line, b"start")}
    return made.request(last_line=line + 8, marks=marks, slot=0, prompt_tokens=tokens, thread=0)


def test_prompts_find_their_requests_by_the_counts_of_their_answers() -> None:
    """The first request of the log was recorded by nobody, the second recorded one is not in the log."""
    prompts = GivenPrompts([str(FOLDER / "traffic.har")])
    assert prompts.turn(asked(131)) is not None
    assert prompts.turn(asked(150)) is None, "a plausible length, but its answer counts another"
    turn = prompts.turn(asked(224, line=10))
    assert turn is not None
    assert turn.difference is not None
    assert (prompts.matched, turn.difference.b.path.rpartition("#")[2]) == (2, "3")


def test_a_prompt_that_is_not_whole_is_matched_by_its_count_and_compared_with_none() -> None:
    prompts = GivenPrompts([str(FOLDER / "transcript.jsonl")])
    named = []
    for tokens in (8012, 300, 8219, 8251):
        assert prompts.turn(asked(tokens)) is None
        named.append(None if prompts.asker is None else prompts.asker.by)
    assert (prompts.matched, named) == (3, ["session", None, "session", "session"])
    assert prompts.successive() == []
    assert len(prompts.notes) == 1


def test_counts_that_are_not_those_of_the_log_move_nothing(tmp_path: Path) -> None:
    """A gateway that counts by itself: then the order tells, as without counts."""
    path = tmp_path / "b.jsonl"
    rows = [{"body": body, "response": {"usage": {"prompt_tokens": 5}}} for body in BODIES[:2]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    prompts = GivenPrompts([str(path)])
    assert [prompts.turn(asked(tokens)) is not None for tokens in (131, 187)] == [True, True]


# ---- bad input


HALVES = [*CHATS, "transcript.jsonl"]


@pytest.mark.parametrize("name", HALVES)
def test_half_a_file_is_one_line(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    error = fails(data[: len(data) * 2 // 3])
    assert "broken JSON at line" in error.message
    with pytest.raises(CacheDoctorError) as caught:
        responses.read([data[: len(data) * 2 // 3]], "r")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", [*SGLANG, *VLLM])
def test_a_torn_line_of_a_log_is_left_out(name: str) -> None:
    data = (FOLDER / name).read_bytes()
    torn = data[: data.rindex(b"<|im_start|>assistant")]
    assert 2 <= len(inputs.parse(torn, "f")) <= 3


ODD: list[Any] = [None, 7, "x", [], {}, [None], {"a": 1}]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("odd", ODD, ids=str)
def test_any_part_of_a_recording_may_be_odd(name: str, odd: Any) -> None:
    """Each value of a recording in turn is something else: what is read is bodies, or one line shows why not."""
    text = (FOLDER / name).read_text("utf-8")
    lines = text.splitlines() if name.endswith("jsonl") else [text]
    values = [json.loads(line) for line in lines]
    for holder, key in places(values):
        was, holder[key] = holder[key], odd
        data = "\n".join(map(json.dumps, values)).encode()
        holder[key] = was
        assert "\n" not in read_or_refused(data)


def read_or_refused(data: bytes) -> str:
    """What is said of a file where it is not read."""
    said = []
    for read in (lambda: inputs.parse(data, "f"), lambda: responses.read([data], "r").answers.each):
        try:
            assert isinstance(read(), list)
        except CacheDoctorError as error:
            said.append(error.message + error.hint)
    return " ".join(said)


def places(value: Any, depth: int = 0) -> list[tuple[Any, Any]]:
    """Every place of a value that lies in another one, eight levels down; of a list its first items."""
    if depth > 8 or not isinstance(value, dict | list):
        return []
    keys = list(value) if isinstance(value, dict) else range(min(2, len(value)))
    return [place for key in keys for place in [(value, key), *places(value[key], depth + 1)]]


def test_a_body_nested_too_deeply_in_a_recording_is_one_line() -> None:
    deep = '{"messages": [{"role": "user", "content": ' + "[" * 300 + "]" * 300 + "}]}"
    row = {"id": 1, "req_path": "/v1/chat/completions", "req_body": base64.b64encode(deep.encode()).decode()}
    assert "nested too deeply" in fails([row]).message


def test_recordings_are_known_by_their_beginning() -> None:
    for name in HALVES:
        assert recognise.looks((FOLDER / name).read_bytes()[: recognise.HEAD]), name
    for name in ("bodies.jsonl", *SGLANG, *VLLM):
        assert not recognise.looks((FOLDER / name).read_bytes()[: recognise.HEAD]), name


# ---- the commands


@pytest.mark.sweep
def test_the_commands_read_a_recording() -> None:
    done = run("diff", FOLDER / "sglang.log", "-f", "json")
    assert done.returncode == 1
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["first"]["kind"] for row in rows] == ["appended", "message-edited"]
    done = run("lint", FOLDER / "vllm.log")
    assert (done.returncode, done.stderr) == (1, b"")
    done = run("analyze", "--responses", FOLDER / "traffic.har", "-f", "json")
    answers = json.loads(done.stdout)["sessions"][0]["answers"][0]
    assert (answers["requests"], answers["prompt_tokens"], answers["cached_tokens"]) == (3, 542, 142)
    done = run("analyze", FOLDER / "sglang.log", "--requests", FOLDER / "sglang.log", "--width", "100")
    assert b"bodies match no request" in done.stdout, "not that none were given"
    done = run("tune", FOLDER / "transcript.jsonl", "--set", "cache-ram=0")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    done = run("analyze", FOLDER / "traffic.har")
    assert b"the file contains recorded requests: cachedoctor lint" in done.stderr


def test_notes_keep_the_contract() -> None:
    done = run("diff", FOLDER / "transcript.jsonl", "-f", "json")
    last = json.loads(done.stdout.splitlines()[-1])
    schema_of("diff").validate(last)
    assert last["notes"][0].startswith("a transcript has only messages")


def test_bodies_of_a_program_are_not_recording() -> None:
    assert [one.prompt.recorded for one in from_dicts(BODIES)] == [None] * 3


@pytest.mark.sweep
def test_what_is_quoted_is_harmless_and_holds_no_key(tmp_path: Path) -> None:
    key, turn = "sk-proj-4f8Kd02mZq7Rt5Yw1Xc9", {"role": "assistant", "content": "x"}
    bodies = [
        {"messages": [{"role": "system", "content": f"{stamp} {key} \x1b[31m\u202e"}, *talk]}
        for stamp, talk in (
            ("09:00:01", [{"role": "user", "content": "a"}]),
            ("09:00:02", [{"role": "user", "content": "a"}, turn, {"role": "user", "content": "b"}]),
        )
    ]
    har = json.loads((FOLDER / "traffic.har").read_text("utf-8"))
    entries = har["log"]["entries"][3:5]
    for entry, body in zip(entries, bodies, strict=True):
        entry["request"]["postData"]["text"] = json.dumps(body)
        entry["request"]["headers"].append({"name": "Authorization", "value": f"Bearer {key}"})
        entry["request"]["url"] += f"?key={key}"
    har["log"]["entries"] = entries
    path = tmp_path / "a.har"
    path.write_text(json.dumps(har), "utf-8")
    for command in (("lint", path), ("diff", path), ("lint", path, "-f", "json")):
        done = run(*command)
        assert done.returncode == 1, done.stderr
        assert b"timestamp" in done.stdout
        assert not any(part in done.stdout + done.stderr for part in (key.encode(), b"\x1b", "\u202e".encode()))
