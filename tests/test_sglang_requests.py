"""Requests that SGLang logs: what each reused, how far its prompt is like an earlier one; no prompt is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sglang_logs import START, head, prefill, read

from cachedoctor.engines.sglang.request_log import RecentPrompts
from cachedoctor.model import Answers

SYSTEM = "You are a helpful assistant. "
"""29 characters."""


def received(rid: str, text: str | None) -> str:
    """As --log-requests-level 3 prints it; a chat has token ids instead of a text."""
    ids = None if text is not None else [1, 2, 3]
    return f"{head('')}Receive: obj=GenerateReqInput(rid={rid!r}, text={text!r}, input_ids={ids})"


def finished(rid: str, prompt: object, cached: object, text: str | None = None, reason: str = "stop") -> str:
    """Like the text form of 0.5.9."""
    return (
        f"{head('')}Finish: obj=GenerateReqInput(rid={rid!r}, text={text!r}, sampling_params={{'stop': [']', ')']}}), "
        f"headers={{'x-smg-routing-key': 'a'}}, out={{'text': ' it\\'s (\"fine\"', 'output_ids': [7, 8], "
        f"'meta_info': {{'id': {rid!r}, 'finish_reason': {{'type': {reason!r}, 'matched': 7}}, "
        f"'prompt_tokens': {prompt}, 'weight_version': 'default', "
        f"'cached_tokens': {cached}, 'cached_tokens_details': {{'device': 4, 'host': 0}}, 'e2e_latency': 0.11}}}}"
    )


def as_json(event: str, rid: str, obj: dict[str, Any], out: dict[str, Any] | None = None, prefix: str = "") -> str:
    record = {"timestamp": "2026-07-04T04:31:24.123456", "event": f"request.{event}", "rid": rid, "obj": obj}
    return prefix + json.dumps(record | ({} if out is None else {"out": out}), ensure_ascii=False)


def meta(prompt: object, cached: object) -> dict[str, Any]:
    return {
        "meta_info": {"id": "x", "finish_reason": {"type": "stop"}, "prompt_tokens": prompt, "cached_tokens": cached}
    }


def answers_of(*lines: str) -> Answers:
    (found,) = read(*START, *lines).session.answers
    return found


def each(*lines: str) -> list[tuple[int, int | None, int | None]]:
    return [(a.prompt_tokens, a.cached_tokens, a.prefix) for a in answers_of(*lines).each]


def test_three_requests() -> None:
    """Of 600 tokens 290 were reused; the third prompt begins like the first for 29 characters, and a letter more."""
    found = answers_of(
        received("a", SYSTEM + "Tell me of Rome."),
        finished("a", 100, 0),
        received("b", "Something else"),
        finished("b", 200, 90),
        received("c", SYSTEM + "To be or not?"),
        finished("c", 300, 200),
    )
    assert (found.source, found.path) == ("log", "log")
    assert (found.requests, found.told, found.prompt_tokens, found.cached_tokens) == (3, 3, 600, 290)
    assert [(a.prompt_tokens, a.cached_tokens, a.prefix, a.line) for a in found.each] == [
        (100, 0, None, 6),
        (200, 90, 0, 8),
        (300, 200, 30, 10),
    ]


def test_the_json_form() -> None:
    """With and without a prefix, as 0.5.7 and 0.5.12 print it."""
    lines = (
        as_json("received", "a", {"text": SYSTEM + "1"}),
        as_json("finished", "a", {}, meta(50, 0)),
        as_json("received", "b", {"text": SYSTEM + "2"}, prefix=head("")),
        as_json("finished", "b", {}, meta(51, 48), prefix=head("")),
    )
    assert each(*lines) == [(50, 0, None), (51, 48, 29)]


def test_a_chat_whose_prompt_is_printed_at_its_end() -> None:
    """Token ids come in; from 0.5.7 on the decoded text is in the line of the answer."""
    lines = (
        received("a", None),
        finished("a", 50, 0, SYSTEM + "1"),
        received("b", None),
        finished("b", 60, 48, SYSTEM + "2"),
    )
    assert each(*lines) == [(50, 0, None), (60, 48, 29)]
    assert each(received("a", None), finished("a", 50, 0)) == [(50, 0, None)]


def test_what_is_logged_twice_counts_once() -> None:
    """Two targets of the log, or both forms."""
    lines = (received("a", SYSTEM), received("a", SYSTEM), finished("a", 50, 7), finished("a", 50, 7),
             as_json("finished", "a", {}, meta(50, 7)))  # fmt: skip
    assert each(*lines) == [(50, 7, None)]


def test_a_prompt_that_the_log_has_cut() -> None:
    """Level 2 prints 1,024 characters of each end: two prompts are the same so far, and that is all that is known."""
    one, two = "a" * 1024, "b" * 1024
    text = f"{head('')}Receive: obj=GenerateReqInput(rid='{{}}', text='{one}' ... '{{}}', input_ids=None)"
    lines = (text.format("a", two), finished("a", 900, 0), text.format("b", "c" * 1024), finished("b", 900, 0))
    assert each(*lines) == [(900, 0, None), (900, 0, 1024)]
    cut = [as_json("received", rid, {"text": f"{one}...{end * 1024}"}) for rid, end in (("a", "b"), ("b", "b"))]
    assert each(cut[0], finished("a", 900, 0), cut[1], finished("b", 900, 0)) == [(900, 0, None), (900, 0, 1024)]


@pytest.mark.parametrize(
    "line",
    [
        finished("HEALTH_CHECK_1751600000.1", 1, 0),
        finished("a", 50, 0, reason="abort"),
        finished("a", 0, 0),
        finished("a", -5, 0),
        finished("a", "9" * 30, 0),
        finished("a", "None", 0),
        finished("a", 50, 20)[:-40],
        finished("a", 50, 20).replace("rid='a'", "rid=['a', 'b']"),
        as_json("finished", "a", {}, meta("50", 0)),
        as_json("finished", "a", {}, meta(True, 0)),
        as_json("finished", "a", {}, {"meta_info": [meta(50, 0)]}),
        as_json("finished", "a", {}, meta(50, 0))[:-9],
        as_json("finished", "a", {}, None),
        '{"timestamp": "x", "event": "request.finished", "rid": ["a"], "out": {"meta_info": {"prompt_tokens": 5}}}',
        '{"timestamp": "x", "event": "request.finished", "rid": ' + "[" * 5000,
    ],
)
def test_what_is_not_an_answer(line: str) -> None:
    """The server's own checks, requests that were given up, torn lines, several at once, values of another kind."""
    assert read(*START, line).session.answers == []


@pytest.mark.parametrize("cached", ["None", "51", "-1", "True", "'7'", "nan"])
def test_what_was_reused_is_not_told(cached: str) -> None:
    """51 of 50 is what versions up to 0.5.3 print after a retraction."""
    found = answers_of(finished("a", 50, cached))
    assert (found.requests, found.told, found.prompt_tokens, found.each[0].cached_tokens) == (1, 0, 0, None)


def test_no_prompt_is_kept_or_shown() -> None:
    """Nothing of the session holds a word of it."""
    secret = "the launch code is 0000"
    found = read(*START, received("a", secret), finished("a", 50, 0, secret), prefill(500))
    assert "0000" not in repr(found)
    assert found.session.answers[0].requests == 1


def test_a_prompt_may_hold_any_text() -> None:
    """Quotes, brackets, what looks like the next field, backslashes, other scripts: 12 characters agree."""
    odd = "'), out={\"' \\"
    assert len(odd) == 13
    lines = (received("a", odd + "ü"), finished("a", 50, 0), received("b", odd[:12] + "日本"), finished("b", 60, 12))
    assert each(*lines) == [(50, 0, None), (60, 12, 12)]


def test_a_restart_forgets() -> None:
    """Another life has other answers, and nothing to compare with."""
    found = read(
        *START, received("a", SYSTEM), finished("a", 50, 0), *START, received("a", SYSTEM), finished("a", 50, 0)
    )
    assert [[(a.prefix, a.line) for a in s.answers[0].each] for s in found.sessions] == [[(None, 6)], [(None, 12)]]


@pytest.mark.sweep
def test_ten_thousand_answers_are_kept_and_all_are_counted() -> None:
    found = answers_of(*(finished(f"r{i}", 10, 4) for i in range(10_050)))
    assert (found.requests, found.prompt_tokens, found.cached_tokens, len(found.each)) == (
        10_050,
        100_500,
        40_200,
        10_000,
    )


def test_prompts_are_forgotten() -> None:
    """64 are kept, and 16 Mi characters: the first of 65 is gone, and so is one of 1 Mi before 16 others."""
    prompts = RecentPrompts()
    for number in range(64):
        prompts.compare(f"{chr(0x4E00 + number)} prompt {number}")
    assert prompts.compare(f"{chr(0x4E05)} prompt 5 and more") == 10
    assert prompts.compare(f"{chr(0x4E00)} prompt 0 and more") == 0

    large = RecentPrompts()
    large.compare("x" * (1 << 20))
    for number in range(16):
        large.compare(f"{number:02d}" * (1 << 19))
    assert large.compare("x" * 100) == 0
    assert large.compare("15" * 100) == 200


@pytest.mark.parametrize("where", ["received", "finished"])
def test_the_billing_header_of_a_prompt(where: str) -> None:
    """Known from its head, and not from what somebody writes about it further down."""
    header = "system\nx-anthropic-billing-header: cc_version=2.1; cch=00000;\nYou are"
    shown = received("a", header) if where == "received" else finished("a", 50, 0, header)
    found = read(*START, shown).session
    assert found.setting("billing_header") is True
    assert found.settings["billing_header"].line == 5
    assert found.settings["billing_header"].text == b""
    assert "billing_header" not in read(*START, received("a", SYSTEM + 40 * SYSTEM + header)).session.settings
