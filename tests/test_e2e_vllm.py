"""What tests/e2e/vllm counts on: one byte is one token, traffic is what its name says, and a check can fail."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e.vllm import days, kv_events, models, scenarios, traffic, whatif
from e2e.vllm.check import unmet
from e2e.vllm.scenario import RESPONSES, FaultNotMadeError, Scenario, Told, made, truth
from e2e.vllm.server import LAUNCH

from cachedoctor.diagnosis.rules import registry
from cachedoctor.doctor.whatif.block_setup import BlockSetup, changed

BLOCK = 128
"""Tokens of a block of vLLM's CPU backend."""
FAULT = Scenario("x", "CD510 prefix-not-shared", "tiny-dense", traffic.chat(), reuse=(0.0, 0.0))
HEALTHY = Scenario("y", None, "tiny-dense", traffic.chat(), reuse=(0.5, 1.0))
TOLD = [Told("a", 100, 0), Told("b", 300, 256)]
TRUE = {"prompt_tokens": 400, "cached_tokens": 256}


def sent(play: traffic.Traffic, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, str]]]:
    monkeypatch.setattr(traffic, "PAUSE_SECONDS", 0)
    requests: list[list[dict[str, str]]] = []
    play(lambda messages: requests.append(list(messages)))
    return requests


def report(*findings: tuple[str, str, str], **totals: int | None) -> dict[str, Any]:
    said = [{"code": code, "name": name, "severity": severity, "claim": "."} for code, name, severity in findings]
    answers = {name: totals.get(name, true) for name, true in TRUE.items()}
    session = {"answers": [answers], "counters": [], "periods": []}
    return {"findings": said, "sessions": [session]}


def usage(prompt: int | None = None, **details: int) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "usage": {"prompt_tokens": prompt, "prompt_tokens_details": details or None}}


@pytest.mark.parametrize("kind", models.KINDS)
def test_a_model_has_a_token_for_each_byte_and_no_merge(kind: str, tmp_path: Path) -> None:
    models.save(kind, tmp_path / kind)
    config, tokenizer = (json.loads((tmp_path / kind / f"{name}.json").read_text()) for name in ("config", "tokenizer"))
    vocabulary = tokenizer["model"]["vocab"]
    assert tokenizer["model"]["merges"] == []
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"])) == list(range(256 + 3))
    assert {"a", "Ġ", "Ċ"} < set(vocabulary)  # the latter two are how GPT-2 spells space and newline
    assert {t["content"]: t["id"] for t in tokenizer["added_tokens"]}["<|im_end|>"] == config["eos_token_id"]


def test_a_chat_only_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = sent(traffic.chat(), monkeypatch)
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(requests))
    assert len(requests[0][0]["content"]) > 2 * BLOCK


def test_a_clock_changes_the_first_block_of_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = sent(traffic.chat(traffic.clock), monkeypatch)
    assert len({messages[0]["content"][: BLOCK // 2] for messages in requests}) == len(requests)


def test_short_questions_fill_no_block_of_the_hybrid_model(monkeypatch: pytest.MonkeyPatch) -> None:
    block, frames = 256, 50
    requests = sent(traffic.short_questions, monkeypatch)
    assert len({messages[0]["content"] for messages in requests}) == 1
    assert len({messages[1]["content"] for messages in requests}) == len(requests)
    assert all(sum(len(m["content"]) for m in messages) < block - frames for messages in requests)


def test_scenarios_are_told_apart_and_have_a_model() -> None:
    names = [scenario.name for scenario in scenarios.ALL]
    assert len(set(names)) == len(names)
    assert {scenario.model for scenario in scenarios.ALL} == set(models.KINDS)


def test_what_the_server_did_not_say_is_not_zero() -> None:
    assert truth([usage(100, cached_tokens=0), usage(100), {"id": "z"}]) == [
        Told("chatcmpl-1", 100, 0), Told("chatcmpl-1", 100, None), Told("z", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "cached", "is_made"), [(FAULT, 0, True), (FAULT, 16, False), (HEALTHY, 0, False), (HEALTHY, 90, True)]
)
def test_a_recording_must_show_the_fault(scenario: Scenario, cached: int, is_made: bool, tmp_path: Path) -> None:
    (tmp_path / RESPONSES).write_text(json.dumps([usage(100, cached_tokens=cached)]))
    if is_made:
        assert made(scenario, tmp_path) == [Told("chatcmpl-1", 100, cached)]
    else:
        with pytest.raises(FaultNotMadeError, match=f"{cached} of 100"):
            made(scenario, tmp_path)


def test_a_right_report_meets_every_demand() -> None:
    right = report(("CD510", "prefix-not-shared", "warning"), ("CD901", "log-too-terse", "note"))
    assert unmet(FAULT, TOLD, right) == []
    assert unmet(HEALTHY, TOLD, report(("CD901", "log-too-terse", "note"))) == []


@pytest.mark.parametrize(
    ("scenario", "wrong", "said"),
    [
        (FAULT, report(), "expected CD510 prefix-not-shared first"),
        (FAULT, report(("CD503", "prefix-caching-off", "warning")), "the report has ['CD503 prefix-caching-off']"),
        (FAULT, report(("CD510", "prefix-not-shared", "note")), "only a note"),
        (FAULT, report(("CD510", "prefix-not-shared", "error"), ("CD504", "kv-pressure", "warning")), "CD504"),
        (FAULT, report(("CD510", "prefix-not-shared", "error"), cached_tokens=255), "cached_tokens is 255"),
        (HEALTHY, report(("CD510", "prefix-not-shared", "warning")), "nothing else is wrong"),
        (HEALTHY, report(prompt_tokens=399), "prompt_tokens is 399"),
    ],
)
def test_a_wrong_report_is_told(scenario: Scenario, wrong: dict[str, Any], said: str) -> None:
    (fault,) = unmet(scenario, TOLD, wrong)
    assert said in fault


def test_no_process_of_a_server_outlives_its_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)  # ends for its reader when no process has it open any more
    server = ["sh", "-c", "(sleep 5; echo outlived) & echo up; wait"]
    with subprocess.Popen([sys.executable, LAUNCH, log, *server], stdin=subprocess.PIPE) as parent, log.open() as said:
        assert said.readline() == "up\n"
        assert parent.stdin is not None
        parent.stdin.close()
        assert said.read() == ""


def test_what_if_questions_change_something_that_simulate_knows() -> None:
    assert len({question.name for question in whatif.ALL}) == len(whatif.ALL) >= 4
    base = BlockSetup("vllm", "0.32.0", 7, 7 * 9, blocks_given=9)
    for question in whatif.ALL:
        for setting in question.settings:
            assert changed(base, setting.split()) != base, (question.name, setting)
            assert question.under(setting) != question.options


def test_a_setting_takes_the_place_of_what_was_recorded() -> None:
    question = whatif.Question("x", lambda send: None, ("--block-size", "32", "--num-gpu-blocks-override", "9"), ())
    assert question.under("block-size=64") == ("--num-gpu-blocks-override", "9", "--block-size", "64")
    assert question.under("no-enable-prefix-caching")[-1] == "--no-enable-prefix-caching"


def test_the_traffic_of_kv_events_differs_in_heads_and_salts_only() -> None:
    """As many requests of the same length, so that what is reused more is what the faults cost."""
    sent: dict[bool, list[tuple[int, str | None]]] = {True: [], False: []}
    for faulty, found in sent.items():
        kv_events.traffic(
            lambda messages, found=found, **more: found.append(
                (sum(len(m["content"]) for m in messages), more.get("cache_salt"))
            ),
            faulty,
        )
    assert [length for length, _ in sent[True]] == [length for length, _ in sent[False]]
    assert len({salt for _, salt in sent[True]}) == 11
    assert {salt for _, salt in sent[False]} == {None}


def sent_on(day: days.Day, monkeypatch: pytest.MonkeyPatch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Bodies of the two clients of a day."""
    monkeypatch.setattr(days, "PAUSE_SECONDS", 0)
    bodies: list[dict[str, Any]] = []
    day.traffic(lambda messages, **more: bodies.append({"messages": messages, **more}))
    return bodies[::2], bodies[1::2]


def grow(bodies: list[dict[str, Any]]) -> bool:
    return all(b["messages"][: len(a["messages"])] == a["messages"] for a, b in itertools.pairwise(bodies))


@pytest.mark.parametrize("day", days.ALL, ids=lambda day: day.name)
def test_a_day_has_two_clients_of_which_one_has_the_fault(day: days.Day, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = sent_on(day, monkeypatch)
    assert len(a) == len(b) == days.TURNS
    assert grow(a) == (day.name != "below-a-block")
    changed = {"clock-in-head", "results-truncated", "documents-rotated", "oldest-dropped", "few-kv-blocks"}
    assert grow(b) == (day.name not in {*changed, "below-a-block"})
    for name, field, values in (
        ("salts", "cache_salt", 22), ("tools-shuffled", "tools", 22), ("adapters-changed", "model", 8),
    ):  # fmt: skip
        asked = {json.dumps(body.get(field)) for body in b}
        assert len(asked) == (values if day.name == name else 1)
        assert all(field not in body for body in a)


def test_days_are_told_apart_and_name_rules_that_there_are() -> None:
    titles = {f"{rule.code} {rule.name}" for rule in registry.load()[0]}
    assert len({day.name for day in days.ALL}) == len(days.ALL) >= 10
    assert {day.finding for day in days.ALL} - {None} <= titles
    assert {title for day in days.ALL for title in day.also} <= titles


CLOCK = next(day for day in days.ALL if day.name == "clock-in-head")
GROW = next(day for day in days.ALL if day.name == "both-grow")


def said(code: str, name: str, severity: str, confidence: str = "high") -> dict[str, Any]:
    return {"code": code, "name": name, "severity": severity, "confidence": confidence, "claim": "."}


VOLATILE = said("CD102", "volatile-prefix", "warning")


@pytest.mark.parametrize(
    ("day", "given", "findings", "wrong"),
    [
        (CLOCK, ("requests",), [VOLATILE], ""),
        (CLOCK, ("requests",), [], "expected CD102 volatile-prefix first, not None"),
        (CLOCK, ("requests",), [said("CD102", "volatile-prefix", "note")], "only a note"),
        (CLOCK, ("requests",), [said("CD504", "kv-pressure", "note"), VOLATILE], "not CD504"),
        (CLOCK, ("requests",), [VOLATILE, said("CD504", "kv-pressure", "warning")], "beside it: CD504"),
        (CLOCK, (), [], ""),
        (CLOCK, (), [said("CD504", "kv-pressure", "note", "low")], ""),
        (CLOCK, (), [said("CD510", "prefix-not-shared", "note", "medium")], ""),
        (CLOCK, (), [said("CD504", "kv-pressure", "note", "medium")], "medium confidence: CD504"),
        (GROW, ("requests",), [said("CD510", "prefix-not-shared", "note")], ""),
        (GROW, ("requests",), [said("CD510", "prefix-not-shared", "warning")], "beside it: CD510"),
        (GROW, (), [said("CD510", "prefix-not-shared", "note", "medium")], "medium confidence: CD510"),
    ],
)
def test_what_is_demanded_of_a_day(
    day: days.Day, given: tuple[str, ...], findings: list[dict[str, Any]], wrong: str
) -> None:
    found = days.faults(day, given, {"findings": findings})
    assert (found == []) if not wrong else (len(found) == 1 and wrong in found[0])


def test_an_adapter_has_the_matrices_of_each_layer(tmp_path: Path) -> None:
    models.save_adapter("tiny-dense", tmp_path / "one")
    data = (tmp_path / "one" / "adapter_model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    assert {tuple(entry["shape"]) for entry in header.values()} == {(8, 128), (256, 8)}  # 4 heads of 64
    assert len(header) == 2 * 2
    assert len(data) == 8 + size + 2 * 2 * (8 * 128 + 256 * 8)
    assert set(data[8 + size :]) == {0}
