"""``-f jsonl``: cachedoctor.stream/1 to the letter, equal in the end to the JSON report, and told as things happen."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import made
import pytest
from command import FIRST, HEAD, LOG, PYTHON, SECOND, THIRD, run
from conftest import CASES, ROOT, content_of, every_case, given_of, json_of, prompts_of
from referencing import Registry, Resource
from test_cli_live import IDLE, PATIENCE, feed, read_until, started, write

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.event_stream import EventStream
from cachedoctor.model import Judged, Session
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance
from cachedoctor.report.wire import report_v1, stream_v1
from cachedoctor.report.wire.stored import read

REPORT, STREAM = (
    json.loads((ROOT / f"docs/schemas/{name}-v1.schema.json").read_text("utf-8")) for name in ("report", "stream")
)
VALIDATOR = jsonschema.Draft202012Validator(
    STREAM, registry=Registry().with_resource(REPORT["$id"], Resource.from_contents(REPORT))
)
Line = dict[str, Any]


def stream_of(chunks: Iterable[bytes], prompts: Any = None, given: Any = None) -> bytes:
    narration = EventStream()
    analyzer = Analyzer(prompts=prompts, given=given, listener=narration)
    analyzer.open("server.log")
    for chunk in chunks:
        analyzer.feed(chunk)
    return b"".join(narration.close(analyzer.finish()))


def lines_of(stream: bytes) -> list[Line]:
    return [json.loads(line) for line in stream.splitlines()]


def of(lines: list[Line], kind: str, *without: str) -> list[Line]:
    return [{k: v for k, v in line.items() if k not in ("type", *without)} for line in lines if line["type"] == kind]


def last(lines: list[Line]) -> list[Line]:
    """The last line of each index, in the order of the indexes."""
    held = {line["index"]: line for line in lines}
    return [held[index] for index in sorted(held)]


@pytest.mark.spread(7)
@pytest.mark.sample(2)
@every_case
def test_every_case_keeps_the_contract_and_ends_as_the_report(case: Path) -> None:
    """Each line is valid; what holds in the end is what the JSON report says; events come in the order of the lines."""
    lines = lines_of(stream_of([content_of(case)], prompts_of(case), given_of(case)))
    for line in lines:
        VALIDATOR.validate(line)
    report = json.loads(json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case)))
    assert last(of(lines, "request")) == report["requests"]
    assert last(of(lines, "session")) == report["sessions"]
    assert of(last([line for line in lines if line["type"] == "input"]), "input", "index") == report["inputs"]
    assert of([line for line in lines if line.get("final")], "finding", "final") == report["findings"]
    assert of(lines, "not_evaluated") == report["not_evaluated"]
    (summary,) = of(lines, "summary")
    assert lines[-1]["type"] == "summary"
    for key in ("totals", "restart", "interrupted"):
        assert summary[key] == report[key]
    numbers = [event["line"] for event in of(lines, "event")]
    assert numbers == sorted(numbers)
    assert bool(numbers) == bool(report["sessions"])


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES[::6], ids=lambda folder: folder.name)
def test_no_cut_of_the_bytes_changes_anything(case: Path) -> None:
    """Neither the lines nor their order."""
    data, chance = content_of(case)[:300_000], random.Random(1)
    whole, chunks = stream_of([data]), []
    while data:
        size = chance.choice((1, 7, 100, 5000))
        chunks.append(data[:size])
        data = data[size:]
    assert stream_of(chunks) == whole


def test_a_request_and_its_finding_come_after_the_line_that_ended_it() -> None:
    lines = lines_of(stream_of([LOG]))
    ended = [at for at, line in enumerate(lines) if line.get("message") == "release"]
    assert [line["type"] for line in lines[ended[0] + 1 : ended[0] + 3]] == ["session", "request"]
    session, request, finding = lines[ended[1] + 1 : ended[1] + 4]
    assert (session["type"], session["build_min"]) == ("session", 10069)  # "checking sim" came after b10068
    assert (request["type"], request["task"], request["codes"]) == ("request", 9, ["CD101"])
    assert (finding["type"], finding["code"], finding["final"], finding["requests"]) == ("finding", "CD101", False, [1])


def test_what_is_in_a_line_is_told_with_its_types() -> None:
    """All lines of one request, the repeated ones as well."""
    again = "0.00.153.940 I slot   operator(): id  0 | task 0 | cached n_tokens = 1024, memory_seq_rm [1024, end)\n"
    log = FIRST.replace("0.00.343.870", again + "0.00.343.870")
    events = of(lines_of(stream_of([log.encode()])), "event", "path", "origin", "session")
    mine = [(e["slot"], e["task"], e["message"], e["fields"]) for e in events if e["slot"] is not None]
    assert mine[:5] == [
        (0, None, "slot_select_lru", {"t_last": 0}),
        (0, 0, "launch", {"is_child": 0}),
        (0, 0, "new_prompt", {"n_ctx_slot": 16384, "n_keep": 0, "n_prompt_tokens": 1900}),
        (0, 0, "seq_rm", {"n_tokens": 0, "p0": 0}),
        (0, 0, "seq_rm", {"n_tokens": 1024, "p0": 1024}),
    ]
    assert mine[5][3]["prompt_ms"] == 183.08
    assert mine[-1] == (0, 0, "release", {"n_tokens": 1900, "truncated": 0})
    assert events[0] == {
        "line": 2, "slot": None, "task": None, "message": "load_model", "fields": {"name": "/models/hybrid.gguf"}
    }  # fmt: skip


def test_progress_lines_are_told_and_change_nothing() -> None:
    """They are of builds that have them; the analysis does not look at them."""
    progress = (
        "0.00.153.940 I slot print_timing: id  0 | task 0 | prompt processing, n_tokens =   1024, progress = 0.54, "
        "t =   3.03 s / 2409.24 tokens per second\n"
    )
    log = FIRST.replace("0.00.343.870", progress + "0.00.343.870").encode()
    lines = lines_of(stream_of([log]))
    (told,) = (line for line in lines if line.get("message") == "progress_pp")
    assert told["fields"] == {"n_prompt_processed": 1024, "progress": 0.54, "t_s": 3.03, "tps": 2409.24}
    report = json.loads(json_of([log]))
    assert last(of(lines, "request")) == report["requests"]
    assert last(of(lines, "session")) == report["sessions"]


def test_prompts_and_secrets_are_quoted_as_in_the_report() -> None:
    """64 characters on each side of the bar; keys and users hidden."""
    old = "0.00.637.407 W slot   operator(): id  0 | task 0 | old: ..." + "a b " * 400 + "| " + "c d " * 400 + "\n"
    log = FIRST.replace("0.00.153.932", old + "0.00.153.932").replace("/models/", "/".join(("", "home", "jane", "")))
    log += "0.12.345.678 E srv    send_error: task id = 0, error: bad key sk-ant-abcdefghijklmnop\n"
    log += "0.12.345.678 E srv    send_error: task id = 0, error: " + "x y " * 100_000 + "\n"
    events = {e["message"]: e["fields"] for e in of(lines_of(stream_of([log.encode()])), "event")}
    shown = events["diff_old"]["str"]
    before, after = shown.split(" | ")
    assert before.endswith(("a b " * 17)[-65:-1])
    assert after.startswith(("c d " * 16)[:60])
    assert len(shown) < 200
    assert events["load_model"]["name"] == "/home/<user>/hybrid.gguf"
    assert len(events["task_error"]["error"]) < 150
    assert "sk-ant-abc" not in stream_of([log.encode()]).decode()


@pytest.mark.sweep
def test_a_request_that_is_seen_otherwise_is_written_again() -> None:
    """Some bundled log shows late to which conversation a request belonged."""
    again = 0
    for case in CASES:
        lines = lines_of(stream_of([content_of(case)], prompts_of(case), given_of(case)))
        indexes = [request["index"] for request in of(lines, "request")]
        again += len(indexes) - len(set(indexes))
        assert sorted(set(indexes)) == list(range(len(set(indexes))))
    assert again


def test_a_request_that_no_longer_changes_is_written_as_it_is_in_the_end_and_forgotten() -> None:
    narration, session, written = EventStream(), Session(0, "server.log", None), b""
    for index in range(400):
        judged = Judged(made.request(index=index, prompt_tokens=2000))
        narration.examined([(judged, session)], [])
        changed = Judged(made.request(index=index, prompt_tokens=3000)) if index == 5 else judged
        narration.spool.take([changed])
        written += narration.take()
        assert len(narration.spool._written) <= 200
    requests = of(lines_of(written), "request")
    assert [r["prompt_tokens"] for r in requests if r["index"] == 5] == [2000, 3000]
    assert len(requests) == 401


def test_several_servers_of_one_log_stay_apart() -> None:
    rows = [f"[{port}] {row}" for row in (FIRST + SECOND).splitlines(keepends=True) for port in (5001, 5002)]
    lines = lines_of(stream_of(["".join(rows).encode()]))
    origins = {session["index"]: session["origin"] for session in of(lines, "session")}
    assert sorted(filter(None, origins.values())) == ["5001", "5002"]
    for event in of(lines, "event"):
        assert origins[event["session"]] == event["origin"]
    assert {f["code"] for f in of(lines, "finding")} == {"CD101"}


@pytest.mark.sweep
def test_a_report_that_was_stored_has_no_events(tmp_path: Path) -> None:
    """start, inputs, sessions, requests, findings, rules, summary; each of them valid."""
    data = json_of([LOG])
    out = io.BytesIO()
    stream_v1.write(read(data, "report.json"), out, Appearance())
    lines, report = lines_of(out.getvalue()), json.loads(data)
    for line in lines:
        VALIDATOR.validate(line)
    assert {line["type"] for line in lines} >= {"start", "input", "session", "request", "finding", "summary"}
    assert not of(lines, "event")
    assert of(lines, "request") == report["requests"]
    assert of(lines, "summary")[0]["requests"] == 2
    stored = tmp_path / "report.json"
    stored.write_bytes(data)
    assert run("analyze", stored, "-f", "jsonl").stdout == out.getvalue()


def test_the_schema_refuses_what_is_not_a_line_of_a_stream() -> None:
    VALIDATOR.check_schema(STREAM)
    good = {line["type"]: line for line in lines_of(stream_of([LOG]))}
    for kind, key, value in [
        ("start", "schema", "cachedoctor.stream/2"), ("event", "slot", -1), ("event", "fields", {"a": [1]}),
        ("request", "prompt_tokens", -1), ("finding", "final", None), ("summary", "totals", {}), ("input", "type", "x"),
    ]:  # fmt: skip
        assert VALIDATOR.is_valid(good[kind])
        assert not VALIDATOR.is_valid({**good[kind], key: value}), kind


@pytest.mark.sweep
def test_a_live_log_is_told_at_once_and_ctrl_c_ends_it() -> None:
    """``tail -f server.log | cachedoctor analyze - -f jsonl``: nothing waits for more input, nor for the end."""
    with started("-", "-f", "jsonl") as process:
        feed(process, HEAD)
        read_until(process, b'"message":"listening"')
        write(process, FIRST.removeprefix(HEAD))
        read_until(process, b'{"type":"request","index":0,')
        write(process, SECOND + THIRD)
        read_until(process, b'"code":"CD102"')
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    summary = lines_of(out)[-1]
    assert (summary["type"], summary["interrupted"], summary["requests"]) == ("summary", True, 3)
    assert error == b""


@pytest.mark.sweep
def test_a_file_appears_when_it_is_whole_and_jobs_change_nothing(log: Path, tmp_path: Path) -> None:
    """With -o; --jobs is passed over, since events are told in their order."""
    target = tmp_path / "stream.jsonl"
    assert run("analyze", log, "-f", "jsonl", "-o", target).returncode == 0
    other = tmp_path / "other.log"
    other.write_bytes(LOG)
    one, two = (run("analyze", log, other, "-f", "jsonl", "-j", jobs) for jobs in "12")
    assert one.stdout == two.stdout
    assert target.read_bytes() == run("analyze", log, "-f", "jsonl").stdout
    with started(log, "-f", "jsonl", "-o", tmp_path / "none" / "x") as process:
        _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert error.count(b"\n") == 1


@pytest.mark.sweep
def test_an_input_without_a_log_has_a_summary_as_well(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    done = run("analyze", empty, "-f", "jsonl")
    assert done.returncode == 3
    types = [line["type"] for line in lines_of(done.stdout)]
    assert types[0] == "start"
    assert types[-1] == "summary"
    missing = run("analyze", tmp_path / "none.log", "-f", "jsonl")
    assert missing.returncode == 2
    (info,) = last([line for line in lines_of(missing.stdout) if line["type"] == "input"])
    assert "no such file" in info["error"]


@pytest.mark.sweep
def test_a_reader_that_goes_away_ends_the_command_silently(log: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -1', "bash", *PYTHON, "analyze", log, "-f", "jsonl"],
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.stderr == b""
    assert json.loads(done.stdout)["type"] == "start"


def test_checkpoints_of_a_request_that_a_rotation_parts_are_counted() -> None:
    """The one after the rotation, and that before it; with the stream and without."""
    mark = "0.00.153.940 I slot create_check: id  0 | task 0 | created context checkpoint {n} of 32 (pos_min = {p}, pos_max = {p}, n_tokens = {p}, size = 0.016 MiB)\n"  # noqa: E501
    first, rest = FIRST.split("0.00.343.870")
    before = first + mark.format(n=1, p=500) + IDLE + mark.format(n=2, p=900)
    after = IDLE + mark.format(n=3, p=1400) + "0.00.343.870" + rest
    for listener in (None, EventStream()):
        analyzer = Analyzer(listener=listener)
        analyzer.open("server.log.1")
        analyzer.feed(before.encode())
        analyzer.open("server.log", continues=True)
        analyzer.feed(after.encode())
        report = analyzer.finish()
        if listener is None:
            out = io.BytesIO()
            report_v1.render(sanitize.report(report), out)
            (request,) = json.loads(out.getvalue())["requests"]
        else:
            (request,) = last(of(lines_of(b"".join(listener.close(report))), "request"))
        assert request["checkpoints"]["created"] == 3
