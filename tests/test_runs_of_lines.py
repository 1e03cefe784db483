"""Lines of vLLM and SGLang that say the same again and again are one event, and each of them counts."""

from __future__ import annotations

from typing import Any

from sglang_logs import START, decode, read
from test_vllm_tracker import START as VLLM_START
from test_vllm_tracker import report_of, stats

from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.sglang.tracker import READER as SGLANG
from cachedoctor.engines.vllm.tracker import READER as VLLM
from cachedoctor.model import Segment

PLAIN = '"POST /v1/chat/completions HTTP/1.1" 200 OK'


def asked(host: str, said: str = PLAIN) -> str:
    return f"(APIServer pid=7) INFO:     {host} - {said}\n"


def events(reader: Any, log: str) -> list[tuple[str, int, int]]:
    """Of every event the message, and the first and the last line."""
    found = Scanner(reader.catalogue, reader.plan).scan(Segment(None, log.encode(), 1))
    return [(event.message, event.line, event.lines[-1] if event.lines else event.line) for event in found]


def test_requests_that_differ_by_who_asked_are_one_event() -> None:
    """Not those of another path, of another outcome, of a client without a port, or with a line between."""
    log = (
        asked("10.0.0.7:1") + asked("10.0.0.8:2") + asked("10.0.0.7:3")
        + asked("10.0.0.7:4", PLAIN.replace("200 OK", "400 Bad Request"))
        + asked("10.0.0.7:5", PLAIN.replace("chat/", "")) + asked("::1:6") + asked("::1:7")
        + asked("10.0.0.7:8") + "\n" + asked("10.0.0.7:9")
    )  # fmt: skip
    assert events(VLLM, log) == [
        ("access", *lines) for lines in ((1, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (10, 10))
    ]


def test_every_request_of_a_run_is_counted_for_its_client() -> None:
    log = VLLM_START + stats("23:44:58", "9.0", "0.0")
    run = asked("10.0.0.7:1") + asked("10.0.0.8:2") + asked("10.0.0.7:3") + asked("10.0.0.9:4")
    report = report_of(log + run.encode() + stats("23:45:08", "9.0", "0.0"))
    assert [sample["answered"] for sample in report["samples"]] == [None, 4]


def test_decode_lines_of_one_rank_and_usage_are_one_event() -> None:
    """Another rank, another usage, a torn line and a batch end it; what pools held is that of each."""
    low, high = "#token: 9000, token usage: 0.05", "#token: 9001, token usage: 0.07"
    lines = [
        decode(usage=low),
        decode(usage=low),
        decode(usage=high),
        decode(usage=high),
        decode(usage=high, rank="TP1"),
    ]
    log = "".join(f"{line}\n" for line in lines) + lines[0][:-8] + "\n" + lines[0] + "\n"
    spans = [span for span in events(SGLANG, log) if span[0] == "decode"]
    assert spans == [("decode", 1, 2), ("decode", 3, 4), ("decode", 5, 5), ("decode", 6, 6), ("decode", 7, 7)]
    period = read(*START, *lines[:4]).period
    assert (period.token_usage, period.marks["usage"].line) == (0.07, len(START) + 3)
    assert period.last_line == len(START) + 4
