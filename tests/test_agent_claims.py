"""What agents say themselves of why less was reused, beside what the log shows; no finding goes by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cachedoctor.inputs.captures import recognise
from cachedoctor.inputs.metrics import responses
from cachedoctor.model import AgentClaim, AgentVerdict
from tests.command import run

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "fixtures" / "cases"
Turn = tuple[int, int, str | None]
"""Prompt tokens and reused ones of a turn, and the reason that Claude Code was given for it."""


def transcript(path: Path, turns: list[Turn], missed: int = 1000) -> Path:
    """Write a Claude Code transcript whose replies counted these tokens."""
    lines: list[dict[str, Any]] = []
    before: str | None = None
    for number, (prompt, cached, reason) in enumerate(turns):
        common = {"sessionId": "s", "isSidechain": False, "timestamp": f"2026-11-03T10:{number:02}:00.000Z"}
        user = {"parentUuid": before, "type": "user", "uuid": f"u{number}"}
        lines.append(common | user | {"message": {"role": "user", "content": f"Question {number}, in a few words."}})
        usage = {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "output_tokens": 9}
        message = {"model": "m", "id": f"msg_{number}", "type": "message", "role": "assistant", "usage": usage}
        message |= {"content": [{"type": "text", "text": f"Answer {number}."}]}
        if reason is not None:
            miss = {"type": reason, "cache_missed_input_tokens": missed}
            message["diagnostics"] = {"cache_miss_reason": miss}
        before = f"a{number}"
        lines.append(common | {"parentUuid": f"u{number}", "type": "assistant", "uuid": before, "message": message})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def analyzed(*arguments: str | Path) -> dict[str, Any]:
    done = run("analyze", *arguments, "--format", "json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_claim_of_another_cause_than_the_log_shows_is_a_difference(tmp_path: Path) -> None:
    """In this log two slots serve four conversations; the first turns of all are cold."""
    said = transcript(tmp_path / "t.jsonl", [(1912, 9, "tools_changed"), (1692, 10, "tools_changed")])
    log = CASES / "slot-contention-dense-b8672" / "server.log"
    found = analyzed(log, "--requests", said)
    (agent,) = found["agents"]
    assert (agent["by"], agent["reasons"], agent["tokens"]) == ("Claude Code", {"tools_changed": 2}, 2000)
    assert (agent["agrees"], agent["differs"], agent["undecided"], agent["unmatched"]) == (0, 2, 0, 0)
    assert [(one["task"], one["log"]) for one in agent["differences"]] == [
        (28, ["cache-ram-disabled"]), (35, ["slot-contention"]),
    ]  # fmt: skip
    alone = analyzed(log)
    assert [(one["code"], one["claim"]) for one in found["findings"]] == [
        (one["code"], one["claim"]) for one in alone["findings"]
    ], "a claim changes no finding"


def test_a_claim_that_the_log_supports_agrees(tmp_path: Path) -> None:
    """The billing header is part of the system prompt and lost three turns of this log."""
    said = transcript(
        tmp_path / "t.jsonl",
        [(1896, 0, None), (1966, 0, "system_changed"), (2035, 0, "system_changed"), (2104, 0, "tools_changed")],
    )
    done = run("analyze", CASES / "billing-header-hybrid" / "server.log", "--requests", said)
    text = " ".join(done.stdout.decode().split())
    assert "Claude Code gives its own reasons: system_changed (2), tools_changed (1)." in text
    assert "the log confirms 2 and contradicts 1." in text
    assert "task 32: tools_changed, but the log shows billing-header." in text


def test_a_claim_of_a_request_that_reused_nearly_all_differs(tmp_path: Path) -> None:
    """Task 9 of this log reused 1,858 of 1,935 tokens; no request has 5,000."""
    said = transcript(tmp_path / "t.jsonl", [(1935, 1858, "messages_changed"), (5000, 0, "messages_changed")])
    (agent,) = analyzed(CASES / "parallel-agents-b6301" / "server.log", "--requests", said)["agents"]
    assert (agent["agrees"], agent["differs"], agent["unmatched"]) == (0, 1, 1)
    assert agent["differences"][0]["log"] == []


def test_another_model_is_nothing_that_the_log_shows(tmp_path: Path) -> None:
    said = transcript(tmp_path / "t.jsonl", [(1966, 0, "model_changed")])
    (agent,) = analyzed(CASES / "billing-header-hybrid" / "server.log", "--requests", said)["agents"]
    assert (agent["agrees"], agent["differs"], agent["undecided"]) == (0, 0, 1)


def test_a_request_with_the_same_prompt_and_other_reuse_is_not_the_one(tmp_path: Path) -> None:
    said = transcript(tmp_path / "t.jsonl", [(1966, 1900, "system_changed")])
    (agent,) = analyzed(CASES / "billing-header-hybrid" / "server.log", "--requests", said)["agents"]
    assert agent["unmatched"] == 1


def test_transcripts_without_reasons_say_nothing(tmp_path: Path) -> None:
    said = transcript(tmp_path / "t.jsonl", [(1966, 0, None), (2035, 0, "unavailable")])
    assert analyzed(CASES / "billing-header-hybrid" / "server.log", "--requests", said)["agents"] == []


def test_without_a_log_the_reasons_are_said_and_held_against_nothing(tmp_path: Path) -> None:
    said = transcript(tmp_path / "t.jsonl", [(1966, 0, "tools_changed"), (2035, 0, "tools_changed")])
    (agent,) = analyzed("--responses", said)["agents"]
    assert (agent["reasons"], agent["unmatched"], agent["agrees"]) == ({"tools_changed": 2}, 2, 0)


def test_a_turn_with_a_reason_is_not_called_appended(tmp_path: Path) -> None:
    """The messages alone go on where those before end; what changed is not in a transcript."""
    said = transcript(tmp_path / "t.jsonl", [(1966, 0, None), (2035, 0, "tools_changed")])
    done = run("diff", said)
    text = " ".join(done.stdout.decode().split())
    assert "appended" not in text
    assert "nothing before that changed" not in text
    assert "Claude Code reports tools_changed, which the messages do not show" in text
    assert "own verdict: tools_changed: Claude Code itself gives this reason" in text
    assert done.returncode == 1, "the two requests are not the same for a cache"
    (found,) = [json.loads(line) for line in run("diff", said, "--format", "json").stdout.splitlines()]
    assert found["first"]["kind"] == "other"
    assert found["settings"][0]["place"] == "own verdict"


def test_a_turn_without_a_reason_is_still_appended(tmp_path: Path) -> None:
    said = transcript(tmp_path / "t.jsonl", [(1966, 0, None), (2035, 0, None)])
    (found,) = [json.loads(line) for line in run("diff", said, "--format", "json").stdout.splitlines()]
    assert found["first"]["kind"] == "appended"


# ---- Copilot


def copilot(path: Path, events: list[tuple[str, dict[str, Any]]]) -> Path:
    """Write session events of Copilot."""
    rows = [
        {"type": kind, "data": data, "id": f"e{at}", "parentId": f"e{at - 1}", "timestamp": "2026-11-03T10:00:00Z"}
        for at, (kind, data) in enumerate(events)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_loss_of_copilot_is_held_against_the_call_whose_reuse_it_names(tmp_path: Path) -> None:
    """Two calls of task 10 and 21; the loss names the reuse of neither, of one, and of none."""
    lost = {"primaryReason": "tools_changed", "contributingReasons": ["tools_changed"], "frontierTokens": 1900,
            "survivedTokens": 0, "shortfallTokens": 1900, "retentionRatio": 0.0}  # fmt: skip
    events = [
        ("session.start", {"copilotVersion": "1"}),
        ("assistant.usage", {"model": "m", "inputTokens": 1966, "cacheReadTokens": 0}),
        ("prompt_cache_break", lost),
        ("assistant.usage", {"model": "m", "inputTokens": 1935, "cacheReadTokens": 1858}),
        ("prompt_cache_break", lost | {"survivedTokens": 700}),
    ]
    path = copilot(tmp_path / "events.jsonl", events)
    capture = recognise.of_values([json.loads(line) for line in path.read_text("utf-8").splitlines()])
    assert capture is not None
    assert capture.kind == "Copilot session"
    claims = responses.read([path.read_bytes()], "events.jsonl").claims
    assert [(one.prompt_tokens, one.cached_tokens) for one in claims] == [(1966, 0), (None, None)]
    assert claims[0].claim == AgentClaim("Copilot", "tools_changed", 1900)
    log = CASES / "billing-header-hybrid" / "server.log"
    (agent,) = analyzed(log, "--responses", path)["agents"]
    assert (agent["by"], agent["differs"], agent["unmatched"]) == ("Copilot", 1, 1)


def test_the_words_of_a_verdict_name_nobody_twice() -> None:
    from cachedoctor.report.words.remarks import _own_verdict

    words = _own_verdict(AgentVerdict("the provider", {"tools_changed": 1}, 5, undecided=1))
    own = "The provider gives its own reasons: tools_changed (1)."
    assert words == f"{own} Of these claims, the log does not show the cause of 1."
