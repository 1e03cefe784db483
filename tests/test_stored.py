"""A JSON report is read back: every other format can be written from it, and it is written again byte for byte."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from command import run
from conftest import CASES, content_of, every_case, given_of, json_of, prompts_of

from cachedoctor.model import CacheDoctorError
from cachedoctor.redaction import sanitize
from cachedoctor.report.text import text_report
from cachedoctor.report.wire import report_v1
from cachedoctor.report.wire.stored import read


@pytest.mark.spread(9)
@pytest.mark.sample(8)
@every_case
def test_a_report_that_was_read_back_is_the_same(case: Path) -> None:
    """In JSON to the byte, findings with differences of prompts included."""
    data = json_of([content_of(case)], prompts=prompts_of(case), given=given_of(case))
    again = io.BytesIO()
    report_v1.render(sanitize.report(read(data, "report.json")), again)
    assert again.getvalue() == data


@pytest.mark.sweep
def test_the_text_needs_no_log(tmp_path: Path) -> None:
    """`report` prints what `analyze` printed."""
    log = str(CASES[0] / "server.log")
    stored = tmp_path / "report.json"
    assert run("analyze", log, "-f", "json", "-o", stored).returncode == 0
    assert run("analyze", stored).stdout == run("analyze", log).stdout


def test_a_report_of_an_earlier_version_is_read() -> None:
    """Keys that were added since are missing in it."""
    data = json.loads(json_of([content_of(CASES[0])]))
    for request in data["requests"]:
        for key in ("turn", "time", "client", "held_tokens", "expected_cached"):
            del request[key]
        del request["checkpoints"]["held"]
    data["sessions"][0].pop("n_requests")
    data["sessions"][0]["from_the_future"] = {"a": 1}
    found = read(json.dumps(data, indent=1).encode(), "report.json")
    assert len(list(found.requests)) == found.sessions[0].n_requests == len(data["requests"])
    out = io.StringIO()
    text_report.render(sanitize.report(found), out, verbose=True)
    heads = [f"{finding['severity']}[{finding['code']}] {finding['name']}: " for finding in data["findings"]]
    assert heads
    assert all(head in out.getvalue() for head in heads)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff\xfe{", b'{"schema": 1}', b'{"schema": "cachedoctor.diff/1"}',
     b'{"schema": "cachedoctor.report/1"}', b'{"schema": "cachedoctor.report/1", "requests": 3}'],
)  # fmt: skip
def test_what_is_not_a_report_is_refused(data: bytes) -> None:
    with pytest.raises(CacheDoctorError, match=r"x\.json: is not a JSON report written by cachedoctor"):
        read(data, "x.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt_tokens", 2**70), ("prompt_tokens", 2**53 + 1), ("cached_tokens", 10**400), ("prompt_ms", 1e308),
     ("prompt_ms", -1.0), ("avoidable_ms", 1e16), ("index", 2**62), ("task", 2**63)],
)  # fmt: skip
def test_numbers_beyond_their_bounds_are_refused(field: str, value: float) -> None:
    """Sums of them would overflow, silently or not."""
    data = json.loads(json_of([content_of(CASES[0])]))
    data["requests"][0][field] = value
    with pytest.raises(CacheDoctorError, match=r"x\.json: is not a JSON report written by cachedoctor"):
        read(json.dumps(data).encode(), "x.json")


@pytest.mark.parametrize(
    ("place", "field"), [("totals", "prompt_ms"), ("sessions", "build"), ("inputs", "lines"), ("totals", "requests")]
)
def test_other_numbers_have_bounds_as_well(place: str, field: str) -> None:
    data = json.loads(json_of([content_of(CASES[0])]))
    found = data[place]
    (found if isinstance(found, dict) else found[0])[field] = 10**200
    with pytest.raises(CacheDoctorError, match=r"x\.json: is not a JSON report written by cachedoctor"):
        read(json.dumps(data).encode(), "x.json")


def test_a_newer_schema_is_named() -> None:
    with pytest.raises(CacheDoctorError, match=r"cachedoctor\.report/2; this version reads cachedoctor\.report/1") as e:
        read(b'{"schema": "cachedoctor.report/2", "everything": "else"}', "x.json")
    assert e.value.hint


@pytest.mark.sweep
def test_bad_input_of_the_command_is_one_line_and_status_2(tmp_path: Path) -> None:
    """And an output that exists stays as it is."""
    kept = tmp_path / "kept.txt"
    kept.write_text("before")
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": "cachedoctor.report/9"}')
    for path in (bad, tmp_path / "missing.json", tmp_path):
        done = run("analyze", path, "-o", kept)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.count(b"\n") == 1
        assert done.stderr.startswith(b"cachedoctor: error: ")
        assert kept.read_text() == "before"
