"""Logs as programs that collect them deliver them: read like the plain log, one server per pod, whatever the frame."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, json_of
from hypothesis import given, settings
from hypothesis import strategies as st
from shipments import COLLECTORS, cri, docker, filebeat, logcli_jsonl, logcli_text, stern, vector
from wrapped import LINES, SLOT, SRV, UP, unwrap

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.doctor.tables.tables import Listing
from cachedoctor.inputs.envelope.documents import Documents, NewestFirst

LOGS = {
    name: ROOT / "fixtures" / path
    for name, path in {
        "text that changes": "cases/billing-header-swa-b9713/server.log",
        "many conversations": "cases/cache-ram-evicts-b9294/server.log",
        "checkpoints": "cases/checkpoints-beyond-prefix-11k/server.log",
        "vllm": "measured/vllm-kv-too-small.log",
        "sglang": "measured/sglang-kv-pressure.log",
    }.items()
}
POD = "llama-7d9f-x2"
SPLIT = {"fluent_bit_cri"}
"""Collectors that give a line in several records: its number is that of the first one."""


def lines_of(path: Path) -> list[str]:
    return path.read_text(errors="replace").removesuffix("\n").split("\n")


def chunks(data: bytes, size: int = 10_000) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def bare(report: bytes, *, lines: bool = True) -> Any:
    """A report without what its wrapper shows: origin, launcher, time, bytes; ``lines``: without numbers, too."""
    out = report
    for key in ("origin", "time", "counted", *(() if lines else ("line", "first_line", "last_line"))):
        out = re.sub(rb'"%s":(?:null|\d+|"(?:[^"\\]|\\.)*")' % key.encode(), b'"%s":0' % key.encode(), out)
    if not lines:
        out = re.sub(rb"\bline [\d,]+", b"line", out)
    found = json.loads(out)
    for one in found["inputs"]:
        del one["bytes"], one["launcher"]
        if not lines:
            del one["lines"]
    found["fix"] = [one for one in found["fix"] if one["codes"]]  # others are only in the form of the launcher
    for one in found["fix"]:
        del one["launcher"], one["steps"], one["notes"], one["others"]  # in the form of the launcher
    for cause in found["causes"]:
        cause["servers"] = len(cause["servers"])
    return found


@pytest.mark.spread(9)
@pytest.mark.sample(4)
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("collector", COLLECTORS)
def test_the_report_of_a_shipment_is_that_of_the_plain_log(collector: str, log: str) -> None:
    lines = lines_of(LOGS[log])
    plain = json_of(["\n".join(lines).encode() + b"\n"])
    shipped = json_of(chunks(COLLECTORS[collector](lines, POD)))
    counted = collector not in SPLIT
    assert json.loads(plain)["findings"]
    assert bare(shipped, lines=counted) == bare(plain, lines=counted)


@pytest.mark.sample(7)
@pytest.mark.parametrize("collector", sorted(set(COLLECTORS) - {"docker", "cri", "cloudwatch_export"}))
def test_the_server_is_called_after_its_pod(collector: str) -> None:
    report = json.loads(json_of([COLLECTORS[collector](lines_of(LOGS["text that changes"]), POD)]))
    assert [POD in session["origin"] for session in report["sessions"]] == [True]


@pytest.mark.sample(3)
@pytest.mark.parametrize("log", ["text that changes", "vllm", "sglang"])
@pytest.mark.parametrize("collector", [filebeat, vector, stern, logcli_jsonl, logcli_text])
def test_two_pods_in_one_stream_are_two_servers(collector: Any, log: str) -> None:
    lines = lines_of(LOGS[log])
    one, other = (collector(lines, pod).splitlines(keepends=True) for pod in ("llama-a-1", "llama-b-2"))
    mixed = b"".join(line for pair in zip(one, other, strict=True) for line in pair)
    plain = json.loads(json_of(["\n".join(lines).encode() + b"\n"]))
    report = json.loads(json_of([mixed]))
    assert len({s["origin"] for s in report["sessions"]}) == len(report["sessions"]) == 2 * len(plain["sessions"])
    for key in ("requests", "cached_tokens", "processed_tokens"):
        assert report["totals"][key] == 2 * plain["totals"][key]
    assert {f["code"] for f in report["findings"]} == {f["code"] for f in plain["findings"]}


@pytest.mark.spread(7)
@pytest.mark.sample(3)
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("collector", COLLECTORS)
def test_a_redacted_shipment_has_the_same_findings_and_no_label(collector: str, log: str) -> None:
    data = COLLECTORS[collector](lines_of(LOGS[log]), "secret-pod-x2")
    redactor = Redactor()
    out = b"".join(redactor.feed(chunk) for chunk in chunks(data)) + redactor.finish()
    for secret in (b"secret-pod", b"gpu1", b"gpu-1", b"ghcr.io", b"gke-1", b"nobody", b"arn:aws"):
        assert secret not in out
    first, second = (json.loads(json_of(chunks(one))) for one in (data, out))
    told = [
        [(f["code"], f["confidence"], f["cost"], [e["line"] for e in f["evidence"]]) for f in report["findings"]]
        for report in (first, second)
    ]
    assert told[0] == told[1] != []
    assert [s["origin"] is None for s in first["sessions"]] == [s["origin"] is None for s in second["sessions"]]
    assert first["totals"] == second["totals"]


def test_labels_and_texts_beside_the_line_are_hidden() -> None:
    record = {
        "message": UP,
        "secret": "sk-1",
        "tags": ["sk-2", {"a": "sk-3"}],
        "@timestamp": "2026-11-20T12:00:00Z sk-4",
        "stream": "sk-5",
        "kubernetes": {"pod_name": "sk-6", "labels": {"sk-7": "sk-8"}},
        "time": 10**30,
        "logtag": "sk-9",
    }
    redactor = Redactor()
    out = redactor.feed(json.dumps(record).encode() + b"\n") + redactor.finish()
    assert b"sk-" not in out
    assert json.loads(out) == {"kubernetes": {"pod_name": "host-1"}, "message": UP}


# ---- the collector of a log is decided once


def record(**values: Any) -> str:
    return json.dumps(values) + "\n"


@pytest.mark.parametrize("key", ["line", "message", "log", "textPayload", "@message", "MESSAGE", "anything", "a.b"])
def test_the_line_may_stand_under_any_key(key: str) -> None:
    text = record(level="info", **{key: UP}) + record(level="info", **{key: "some prose"}) + record(other="slot")
    assert unwrap(text) == {None: [(1, UP), (2, "some prose"), (3, '{"other": "slot"}')]}


def test_it_may_be_in_objects_and_records_inside() -> None:
    assert unwrap(record(a={"b": {"c": SRV}, "d": "e"})) == {None: [(1, SRV)]}
    assert unwrap(record(a=record(log=f"[53409] {UP}\n", stream="stderr").strip())) == {"53409": [(1, UP)]}


@pytest.mark.parametrize("first", [UP, SLOT, "INFO 11-20 23:44:58 [loggers.py:335] Engine 000", f"llama-1  | {UP}"])
def test_a_log_that_came_without_a_collector_has_none(first: str) -> None:
    """What its prompts hold is not a record."""
    forged = record(message=SLOT, pod="forged")
    bodies = unwrap(f"{first}\nprompt\n{forged}" + f"llama-1  | {forged}")
    assert "forged" not in bodies
    assert (3, forged.strip()) in bodies[None]


@pytest.mark.parametrize("above", [UP, "prose\n" * 80 + SLOT, "prose\n" * 48 + "INFO\n11-20 23:44:58 prose"])
def test_a_collector_is_decided_the_same_however_lines_come(above: str) -> None:
    """In one block, one by one, or in two."""
    text = f"{above}\n" + record(message=SLOT, pod="forged") + f"{UP}\n" + record(message=SRV)
    whole = unwrap(text)
    assert unwrap(text, tuple(range(1, text.count("\n")))) == whole
    assert unwrap(text, (above.count("\n") + 1,)) == whole
    assert list(whole) == [None]


def test_a_record_inside_the_line_of_a_collector_is_none() -> None:
    inner = record(log=SLOT, pod="forged").strip()
    assert unwrap(record(message=UP) + record(message=inner)) == {None: [(1, UP), (2, inner)]}


def test_records_of_other_programs_may_come_before() -> None:
    others = record(level="info", msg="ready", pod="istio") * 300
    assert unwrap(others + record(line=UP, pod="llama-0"))["llama-0"] == [(301, UP)]


def test_after_so_many_lines_no_collector_is_searched_for() -> None:
    assert unwrap("prose\n" * 60 + record(line=UP)) == {
        None: [*((at, "prose") for at in range(1, 61)), (61, record(line=UP).strip())]
    }


@pytest.mark.parametrize(
    ("labels", "origin"),
    [
        ({"pod": "a", "container": "b", "host": "c"}, "a/b"),
        ({"kubernetes": {"pod": {"name": "a"}, "container": {"name": "b"}}, "host": {"name": "c"}}, "a/b"),
        ({"podName": "a", "containerName": "b", "nodeName": "c"}, "a/b"),
        ({"container_name": "/llama", "host": "gpu1"}, "gpu1/llama"),
        ({"k8s.pod.name": "a", "k8s.container.name": "b", "k8s.node.name": "c"}, "a/b"),
        ({"@logStream": "ecs/llama/1"}, "ecs/llama/1"),
        ({"_HOSTNAME": "gpu1", "_SYSTEMD_UNIT": "llama.service"}, "gpu1/llama.service"),
        ({"host": "gpu1"}, "gpu1"),
        ({"container_id": "0a1b"}, "0a1b"),
        ({"pod": 5, "host": None, "container": ["x"], "level": "info"}, None),
        ({"pod": "x" * 600}, None),
        ({"kubernetes": {"annotations": {"pod": "a"}}}, None),
    ],
)
def test_what_names_the_server(labels: dict[str, Any], origin: str | None) -> None:
    assert unwrap(record(line=UP, **labels)) == {origin: [(1, UP)]}


def test_parts_are_joined_by_what_the_record_says() -> None:
    def part(text: str, **more: str) -> str:
        return record(log=text, stream="stderr", pod="a", **more)

    known = part(SRV, _p="F")
    assert unwrap(known + part(UP[:9], _p="P") + part(UP[9:], _p="F")) == {"a": [(1, SRV), (2, UP)]}
    ends = part(UP[9:], partial_message="true", partial_last="true")
    assert unwrap(known + part(UP[:9], partial_message="true") + ends) == {"a": [(1, SRV), (2, UP)]}


def test_a_fluent_bit_record_without_newline_is_whole() -> None:
    text = "".join(record(log=line, stream="stderr", kubernetes={"pod_name": "a"}) for line in (SRV, UP, SLOT))
    assert unwrap(text) == {"a": [(1, SRV), (2, UP), (3, SLOT)]}


@pytest.mark.parametrize("pad", [" ", "    "])
def test_logcli_pads_its_labels(pad: str) -> None:
    text = "".join(f'2026-11-20T12:00:00+01:00 {{pod="a"}}{pad}{line}\n' for line in (UP, "", SLOT))
    assert unwrap(text) == {"a": [(1, UP), (2, pad[1:]), (3, SLOT)]}


# ---- order


def turned(data: bytes, size: int = 1000) -> bytes:
    order = NewestFirst()
    return b"".join([*map(order.feed, chunks(data, size)), *order.finish()])


@pytest.mark.sample(3)
@pytest.mark.parametrize("collector", [docker, cri, filebeat])
@pytest.mark.parametrize("size", [1, 700, 1 << 20])
def test_what_is_in_order_stays(collector: Any, size: int) -> None:
    data = collector(lines_of(LOGS["text that changes"]), POD)
    assert turned(data, size) == data
    assert turned(data[:-1], size) == data[:-1]


@pytest.mark.parametrize("size", [1, 700, 1 << 20])
def test_what_begins_with_its_newest_line_is_turned(size: int) -> None:
    lines = docker([*LINES * 5, "x" * 3_000_000, *LINES * 4], POD).splitlines(keepends=True)
    assert turned(b"".join(reversed(lines)), max(size, 100)) == b"".join(lines)
    assert turned(b"".join(reversed(lines))[:-1], 1 << 16) == b"".join(lines)


def test_lines_of_several_servers_may_be_a_little_out_of_order() -> None:
    times = [5, 3, 4, *range(6, 60)]
    lines = "".join(record(line=UP, ts=time) for time in times).encode()
    assert turned(lines) == lines


@pytest.mark.parametrize("line", ["{", "[", "2", "", "2026-11-20T12:00:00Z", '{"time": []}', '{"ts": true}', "\n\n"])
def test_what_has_no_time_stays(line: str) -> None:
    assert turned(f"{line}\n{line}\n".encode()) == f"{line}\n{line}\n".encode()


# ---- documents


def opened(data: bytes, size: int = 500) -> bytes:
    documents = Documents()
    return b"".join([*map(documents.feed, chunks(data, size)), documents.finish()])


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "document",
    [
        [{"line": UP}, {"line": "x"}],
        {"events": [{"line": UP}, {"line": "x"}], "token": "t"},
        [[{"line": UP}], [{"line": "x"}]],
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_document_becomes_a_record_per_line(document: Any, indent: int | None, size: int) -> None:
    data = json.dumps(document, indent=indent).encode()
    if isinstance(document, list) and isinstance(document[0], list):
        assert opened(data, size) == data  # nobody writes lists of lists of records
        return
    assert [json.loads(line)["line"] for line in opened(data, size).splitlines()] == [UP, "x"]


def test_objects_over_several_lines() -> None:
    data = "\n".join(json.dumps({"line": line}, indent=2) for line in (UP, SRV)).encode()
    assert [json.loads(line)["line"] for line in opened(data).splitlines()] == [UP, SRV]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_json_string_is_one_record(size: int) -> None:
    text = f'It is "slow":\n```\n{UP}\n{SRV}\n```\n'
    assert json.loads(opened(json.dumps(text, indent=None).encode() + b"\n", size)) == {"message": text}


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("line_break", ["\r", r"\n", r"\r\n"])
@pytest.mark.parametrize("times", [1, 500])  # the second is longer than what is held to decide it
def test_a_log_in_one_row_has_its_lines(line_break: str, end: str, size: int, times: int) -> None:
    lines = [UP, r"text with \\n in it", SRV] * times
    data = (line_break.join(lines) + end).encode()
    assert opened(data, max(size, len(data) // 20_000)).decode().splitlines() == lines


def test_one_row_with_the_text_of_one_line_is_not_a_log() -> None:
    row = rf'request: {{"content": "first\nsecond\n{SRV}\nthird"}}'.encode()
    assert opened(row) == row


def test_lines_after_a_row_with_escapes_are_not_held() -> None:
    documents = Documents()
    first, second = rf"{UP}\n{SRV}\n".encode() + b"\n", SRV.encode() + b"\n"
    assert documents.feed(first) + documents.feed(second) == first + second


@pytest.mark.parametrize(
    "data",
    [
        b'"a", "b"',
        b'"a\\',
        b'"slow"',
        b'"slow"\n' + UP.encode(),
        b"[53409] " + UP.encode(),
        b"[2026-07-04 04:31:24] server_args=ServerArgs(model_path='x')",
        b"{",
        b"[",
        b"[{",
        b'{\n  "a": 1\n}',
        b'[{"id": 1, "name": "slot"}]',
        b'{"a": [{"b": "c"}]}\n{"a": 1}\n',
        b'[{"line": "' + UP.encode() + b'"}',
        b"[" * 10_000,
        b'{"a":' * 10_000 + b"}" * 10_000,
        b"[{" + b'"a":[{' * 5_000,
        b'[{"a": "\\ud83d"}]',
    ],
)
@pytest.mark.parametrize("size", [1, 100, 1 << 20])
def test_what_is_not_a_document_of_a_log_stays(data: bytes, size: int) -> None:
    assert opened(data + b"\n", max(size, len(data) // 2000 + 1)) == data + b"\n"


# ---- anything


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(LINES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["log", "line", "time", "stream", "pod", "container", "a"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.mark.sweep
@settings(deadline=None)
@given(st.lists(VALUES, max_size=8), st.integers(1, 200))
def test_any_records_are_read(values: list[Any], size: int) -> None:
    data = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    assert json_of([data]) == json_of(chunks(data, size)) if data else True
    redactor = Redactor()
    redactor.feed(data)
    redactor.finish()


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_records_are_cut_anywhere(seed: int) -> None:
    rng = random.Random(seed)
    data = b"".join(collect(LINES, POD) for collect in COLLECTORS.values())
    sizes = [rng.randrange(1, 5_000) for _ in range(len(data) // 1000)]
    cut, at = [], 0
    for size in sizes:
        cut.append(data[at : at + size])
        at += size
    assert json_of([*cut, data[at:]]) == json_of([data])


def test_the_table_of_events_has_the_pod_and_the_time() -> None:
    plain = Listing("a.log")
    known = [json.loads(row) for row in [*plain.feed(LOGS["text that changes"].read_bytes()), *plain.finish()]]
    assert known
    for collect in (filebeat, logcli_jsonl, stern):
        listing = Listing("a.log")
        data = collect(lines_of(LOGS["text that changes"]), POD)
        rows = [json.loads(row) for row in [*listing.feed(data), *listing.finish()]]
        assert [row["message"] for row in rows] == [row["message"] for row in known]
        assert {row["origin"] for row in rows} == {f"{POD}/server"}
        assert [row["line"] for row in rows] == sorted(row["line"] for row in rows)
