"""The JSON report is cachedoctor.report/1 to the letter: schema, keys, their order, types, no number out of nowhere."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cachedoctor.doctor.analysis.run import analyze_paths
from cachedoctor.report.wire.report_v1 import render

ROOT = Path(__file__).parent.parent
CASES = sorted((ROOT / "fixtures" / "cases").glob("*/server.log"))
VALIDATOR = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/schemas/report-v1.schema.json").read_text("utf-8"))
)

START = [
    "0.00.000.272 I srv          init: initializing ...",
    "0.00.006.179 I srv    load_model: loading model '/models/hybrid.gguf'",
    "0.00.045.884 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 16384, kv_unified = 'false'",
    "0.00.045.925 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB",
    "0.00.045.933 I srv    load_model: context checkpoints enabled, max = 32, min spacing = 8192",
    "0.00.052.415 I srv          init: listening on http://127.0.0.1:8080",
]


def turn(task: int, tokens: int, reused: int, header: tuple[str, str] | None = None) -> list[str]:
    """One request in the words of b11549 at -lv 4; ``header``: what the slot held, what the prompt has."""
    at = f"0.01.000.{task:03d}"
    pick, step = f"{at} I slot get_availabl: id  0 | task -1 | ", f"{at} I slot   operator(): id  0 | task {task} | "
    timing = f"{at} I slot print_timing: id  0 | task {task} | "
    shared, diff = [], []
    if header is not None:
        shared = [f"{pick} - checking sim = 0.030 (58/{tokens}) > 0.100"]
        diff = [f"{step}{which}: ... cch= | {value};" for which, value in zip(("old", "new"), header, strict=True)]
    return [
        *shared,
        f"{pick}selected slot by LRU, t_last = {task - 1}",
        f"{at} I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0",
        f"{step}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {tokens}",
        *diff,
        f"{step}cached n_tokens = {reused}, memory_seq_rm [{reused}, end)",
        f"{timing}prompt eval time = 183.08 ms / {tokens - reused} tokens (0.10 ms per token, 10356 tokens per second)",
        f"{timing}       eval time =   6.86 ms /     6 tokens ( 1.37 ms per token,   728.97 tokens per second)",
        f"{at} I slot      release: id  0 | task {task} | stop processing: n_tokens = {tokens + 5}, truncated = 0",
    ]


FIRST, SECOND = turn(0, 1900, 0), turn(9, 2000, 1890)
CHANGED = [*turn(9, 2000, 0, ("b791f", "0ed9c")), *turn(21, 2100, 0, ("0ed9c", "ee661"))]

LOGS: dict[str, list[str]] = {
    "empty": [],
    "something else": ["GET / HTTP/1.1 200", "Traceback (most recent call last):"],
    "healthy": [*START, *FIRST, *SECOND],
    "billing header": [*START, *FIRST, *CHANGED],
    "cut at both ends": FIRST[3:] + SECOND[:4],
    "every second line": (START + FIRST + SECOND)[::2],
    "restarted": [*START, *FIRST, *START, *turn(0, 2000, 0)],
    "hostile": [*START, "\x1b[31m\x00\u202e'\"\\", *FIRST, *turn(9, 2000, 0, ("\x1b]0;x\x07", "\udcff"))],
}

KEYS = {
    "report": "schema tool interrupted inputs sessions totals requests samples batches findings not_evaluated rules "
    "restart slots ignored accounts filtered causes slowest fix clients agents",
    "tool": "name version",
    "input": "path engine bytes lines recognised error counted imitations launcher",
    "session": "index path origin engine build build_min build_max build_source model memory n_slots n_ctx_slot "
    "settings first_line last_line n_requests version version_min version_max counters answers periods",
    "totals": "requests prompt_tokens cached_tokens processed_tokens reuse prompt_ms avoidable_tokens avoidable_ms "
    "unknown_tokens unknown_requests judged_requests open_requests short_requests short_below checked_requests",
    "request": "index session path slot task parent thread first_line last_line prompt_tokens cached_tokens "
    "processed_tokens generated_tokens derived prompt_ms selected_by similarity f_keep common_prefix_tokens "
    "restored_from_ram checkpoints lost_tokens outcome partial codes expected_cached replay_missing "
    "turn reference_tokens held_tokens client_lost_tokens server_lost_tokens saved_to_ram time uptime_ms client "
    "endpoint avoidable_tokens avoidable_ms identities bounds at_least client_by client_name",
    "checkpoints": "tried restored created erased held restored_at",
    "finding": "code name severity confidence claim requests count evidence cost why ruled_out diff remedies "
    "references path origin key still_possible",
    "evidence": "path session line text role label",
    "not evaluated": "code name reason enable",
    "rule": "code name summary url",
}


def write(folder: Path, lines: list[str]) -> str:
    path = folder / "server.log"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    return str(path)


def report_of(path: str) -> dict[str, Any]:
    out = io.BytesIO()
    render(analyze_paths([path]), out)
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


def check_keys(kind: str, value: dict[str, Any]) -> None:
    assert list(value) == KEYS[kind].split(), f"{kind}: no key goes or moves, a new one stands in KEYS as well"


def check_contract(report: dict[str, Any]) -> None:
    VALIDATOR.validate(report)
    check_keys("report", report)
    check_keys("tool", report["tool"])
    check_keys("totals", report["totals"])
    for kind, field in [
        ("input", "inputs"),
        ("session", "sessions"),
        ("request", "requests"),
        ("not evaluated", "not_evaluated"),
        ("rule", "rules"),
    ]:
        for value in report[field]:
            check_keys(kind, value)
    for session in report["sessions"]:
        assert all(list(setting) == ["value", "line"] for setting in session["settings"].values())
    for request in report["requests"]:
        check_keys("checkpoints", request["checkpoints"])
    for finding in report["findings"]:
        check_keys("finding", finding)
        assert sum(e["role"] == "primary" for e in finding["evidence"]) == (1 if finding["evidence"] else 0)
        for evidence in finding["evidence"]:
            check_keys("evidence", evidence)
        assert all(list(remedy)[:2] == ["text", "commands"] for remedy in finding["remedies"])
        others = finding["ruled_out"] + finding["still_possible"]
        assert all(list(other)[:2] == ["name", "why"] for other in others)
        assert list(finding["cost"]) == ["tokens", "ms", "ms_from", "at_most"]


def check_references(report: dict[str, Any]) -> None:
    """What refers to something else refers to something that is there."""
    assert [r["index"] for r in report["requests"]] == list(range(len(report["requests"])))
    sessions = {s["index"] for s in report["sessions"]}
    assert {r["session"] for r in report["requests"]} <= sessions
    lines = {i["path"]: i["lines"] for i in report["inputs"]}
    codes = {rule["code"] for rule in report["rules"]}
    for finding in report["findings"]:
        assert finding["code"] in codes
        assert all(finding["code"] in report["requests"][r]["codes"] for r in finding["requests"])
        assert all(1 <= e["line"] <= lines[e["path"]] for e in finding["evidence"])
    for request in report["requests"]:
        assert 1 <= request["first_line"] <= request["last_line"] <= lines[request["path"]]


@pytest.mark.parametrize("name", LOGS)
def test_every_report_keeps_the_contract(name: str, tmp_path: Path) -> None:
    """Whatever the input is, the report is valid."""
    report = report_of(write(tmp_path, LOGS[name]))
    check_contract(report)
    check_references(report)


@pytest.mark.spread(9)
@pytest.mark.sample(6)
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_every_case_keeps_the_contract(path: Path) -> None:
    """The bundled logs of real servers give valid reports, too."""
    report = report_of(str(path))
    check_contract(report)
    check_references(report)


def test_the_numbers_are_those_of_the_log(tmp_path: Path) -> None:
    """Tokens, totals and the finding of a log with a billing header."""
    report = report_of(write(tmp_path, LOGS["billing header"]))
    assert [(r["prompt_tokens"], r["cached_tokens"], r["processed_tokens"]) for r in report["requests"]] == [
        (1900, 0, 1900), (2000, 0, 2000), (2100, 0, 2100),
    ]  # fmt: skip
    assert report["totals"]["prompt_tokens"] == 6000
    assert report["totals"]["reuse"] == 0.0
    assert "CD101" in {f["code"] for f in report["findings"]}
    assert report["interrupted"] is False


def test_what_the_log_does_not_show_is_null(tmp_path: Path) -> None:
    """Unknown is null, never 0."""
    (first, *_) = report_of(write(tmp_path, LOGS["cut at both ends"]))["requests"]
    assert first["partial"] is True
    assert first["selected_by"] is None
    assert report_of(write(tmp_path, LOGS["empty"]))["totals"]["reuse"] is None


def test_the_schema_refuses_what_is_not_a_report(tmp_path: Path) -> None:
    """A schema that accepts everything would prove nothing."""
    VALIDATOR.check_schema(VALIDATOR.schema)
    report = report_of(write(tmp_path, LOGS["billing header"]))
    for path, value in [
        (["schema"], "cachedoctor.report/2"), (["inputs", 0, "lines"], "7"), (["requests", 0, "outcome"], "bad"),
        (["requests", 0, "prompt_tokens"], -1),
        (["findings", 0, "severity"], "fatal"), (["findings", 0, "code"], "CD1"),
    ]:  # fmt: skip
        broken = json.loads(json.dumps(report))
        at = broken
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        assert not VALIDATOR.is_valid(broken), path
    del report["totals"]
    assert not VALIDATOR.is_valid(report)
