"""What is not a log is named by what it looks like, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import one_line, run
from loops import each
from shipments import cloudwatch_events, filebeat
from wrapped import LINES

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.analysis.intake import BEGIN
from cachedoctor.doctor.analysis.resemblance import resemblance
from cachedoctor.inputs.envelope import MOST

PAGE = b"<!DOCTYPE html>\n<html><body><pre>slot update_slots: id  0</pre></body></html>\n"
PROSE = (
    b"I run the model on two cards and every turn takes minutes, as if it read the whole chat again. What is wrong?\n"
)


@each(
    ("begin", "words"),
    [
        (PAGE, "a web page"),
        (b"\xef\xbb\xbf \n<HTML>", "a web page"),
        (b"[1, 2, 3]\n", "a JSON array of values"),
        (b'["a", "b"]', "a JSON array of values"),
        (b'[{"id": 1, "name": "a"}]', "a JSON array of objects with id, name,"),
        (b'[\n  {\n    "id": 1', "a JSON array of objects with id,"),
        (b'{"id": 1}\n{"id": 2}\n', "JSON records with id,"),
        (b'{"a":1,"b":2,"c":3,"d":4,"e":5}\n', "JSON records with a, b, c, d ...,"),
        (b'{"\\u001b[31m": 1, "<b>": 2, "x y": 3}\n', "JSON records, without"),
        (b'{\n  "object": "list"', "a JSON object with object,"),
        (b'10.0.0.1 - - [20/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 5\n', "the access log of a web server"),
        (b"Nov 20 12:00:00 gpu sshd[12]: Accepted\n", "the journal of other programs"),
        (b"[    0.000000] Linux version 6.8\n", "a kernel log"),
        (b"Traceback (most recent call last):\n", "the traceback of a Python program"),
        (b"2026-11-20 12:00:00,123 INFO root: ready\n", "the log of another program"),
        (b"name,id,size,time\na,b,c,d\n", "a table"),
        (b"--- one.txt\t2026-11-22\n+++ two.txt\n@@ -1 +1 @@\n", "the output of a text comparison"),
        (b"9c9\n< Today: 09:01\n---\n> Today: 09:02\n", "the output of a text comparison"),
        (b"-Today: 09:01\n+Today: 09:02\n", "the output of a text comparison"),
        (b"GGUF\x03\0\0\0", "a model file"),
        (b'{"model": "m", "messages": []}\n', "request bodies: cachedoctor diff"),
        (b'[{"messages": [1], "model": "m"}]', "request bodies"),
        (b'{"n": 0, "body": {"model": "m", "prompt": "x"}}\n', "request bodies"),
        (PROSE, "ordinary text"),
        (b"[TensorRT-LLM][INFO] MPI size: 1, MPI local size: 1, rank: 0\n", "the log of TensorRT-LLM"),
        (b"INFO text_generation_launcher: Args\n", "the log of text-generation-inference"),
        (b"update_slots : failed to decode the batch, n_batch = 1, ret = 1\n", "the log of a llama-server of 2023 or"),
        (b"llama.cpp-gpu  | slot 0 : kv cache rm - [24, end)\n", "the log of a llama-server of 2023 or 2024"),
        (b'INFO [ update_slots] x | tid="0x1e89" timestamp=1720645907 id_slot=0\n', "the log of a llama-server of"),
        (b"it says\nProcessing Prompt [BATCH] (512 / 2397 tokens)\n", "a part of KoboldCpp's log"),
        (b" CtxLimit:40960/40960\n", "a part of KoboldCpp's log"),
        (b"[2025-03-09 19:29:57][DEBUG][ModelKit][INFO] Loading model\n", "the log of LM Studio's MLX engine"),
        (
            b'{"function":"update_slots","level":"INFO","line":1574,"msg":"idle","tid":"1"}\n',
            "the log of a llama-server of 2023",
        ),
        (
            b"10.05.4 W slt   update_slots: rid 106683551524 | id 00 | task 47 | input\n",
            "the log of llama-box",
        ),
        (b"# HELP llamacpp:prompt_tokens_total Number\n", "/metrics of llama-server, which does not count"),
        (b"find_slot: non-consecutive token position 99 after 98 for sequence 0\n", "warnings of the llama.cpp"),
        (b"2.1 W find_slot: non-consecutive token position 9 after 9 for sequence\n", "warnings of the llama.cpp"),
        (b"llama_print_timings:        load time =   907.71 ms\n", "timings of the llama.cpp library"),
        (b'vllm:request_success_total{model="m"} 1.0\n', "a dump of /metrics"),
        (b"Read the counters:\n\nvllm:prefix_cache_hits_total     0\n", "a dump of /metrics"),
        (b"self.token_to_kv_pool_allocator.available_size()=2048\n", "an error of SGLang"),
    ],
)
def test_what_it_looks_like(begin: bytes, words: str) -> None:
    assert (resemblance(begin) or "").startswith(words)


@pytest.mark.parametrize("begin", [b"", b"{", b"[", b"\0\1\2", b"x", b"[" * BEGIN, b"\xff" * 99])
def test_of_others_nothing_is_said(begin: bytes) -> None:
    assert resemblance(begin) is None


def test_an_array_that_is_too_large_is_not_an_array_without_a_line() -> None:
    assert "jq -c '.[]'" in (resemblance(b'[{"line": "x"}', MOST + 1) or "")


def test_more_than_the_first_line_of_a_terminal_is_checked() -> None:
    analyzer = Analyzer()
    analyzer.open("-")
    for line in (b"< Today: 09:01\n", b"---\n", b"> Today: 09:02\n" * BEGIN):
        analyzer.feed(line)
    assert len(analyzer.begin) == BEGIN
    assert (resemblance(analyzer.begin) or "").startswith("the output of a text comparison")


@pytest.mark.sweep
@pytest.mark.parametrize("content", [PAGE, PROSE, b"[1]\n", b'[{"id": 1}]'])
def test_it_is_said_in_one_line_of_a_file_and_of_a_pipe(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    for done in (run("analyze", path), run("analyze", "-", stdin=content), run("redact", path)):
        assert done.returncode == 3
        one_line(done, "it looks like " + str(resemblance(content)), "cachedoctor explain unknown-format")
    assert b"<stdin>: no line of this input is a log line" in run("analyze", "-", stdin=content).stdout


@pytest.mark.sweep
def test_how_lines_are_numbered_is_said(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    path.write_bytes(cloudwatch_events(LINES, "llama"))
    assert b"Lines are the records of the JSON document" in run("analyze", path, "--width", "300").stdout
    path.write_bytes(b"".join(reversed(filebeat(LINES, "llama").splitlines(keepends=True))))
    assert b"numbered from the end" in run("analyze", path, "--width", "300").stdout
    assert b"numbered from the end" in run("analyze", path, "-f", "html").stdout
    assert b"numbered from the end" in run("analyze", path, "-f", "markdown").stdout
    assert json.loads(run("analyze", path, "-f", "json").stdout)["inputs"][0]["counted"] == "newest first"


def test_a_live_log_is_read_when_it_falls_silent() -> None:
    """However few lines have come: they are held back until then only."""
    analyzer = Analyzer()
    analyzer.open("-")
    analyzer.feed(filebeat(LINES, "llama"))
    analyzer.idle()
    assert [tracker.origin for tracker in analyzer.trackers] == ["llama/server"]


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 3_000_000,
        b'{"a":"' + b"x" * 3_000_000 + b'"}\n',
        b'[{"message":"' + b"x" * 3_000_000 + b'"}]\n',
        b'{"message":' * 10_000 + b"1" + b"}" * 10_000 + b"\n",
        b'[{"message":' * 10_000 + b"1" + b"}]" * 10_000 + b"\n",
        b'{"message": {"message": 5}}\n{"message": ["slot"]}\n{"message": null}\n',
        json.dumps([{"message": [[[line]]]} for line in LINES]).encode(),
    ],
)
def test_hostile_records_give_no_request(data: bytes) -> None:
    analyzer = Analyzer()
    analyzer.open("a.log")
    for at in range(0, len(data), 60_000):
        analyzer.feed(data[at : at + 60_000])
    report = analyzer.finish()
    assert (report.totals.requests, report.inputs[0].recognised) == (0, 0)
    assert [finding.code for finding in report.findings] == ["CD903"]


@pytest.mark.parametrize(
    ("log", "claim", "gives"),
    [
        (
            b'[GIN] 2026/08/19 - 19:35:59 | 200 |  5.1s | 127.0.0.1 | POST "/api/chat"\n',
            "the log of ollama",
            "OLLAMA_DEBUG=1",
        ),
        (
            b"Processing Prompt [BLAS] (512 / 2397 tokens)\n",
            "a part of KoboldCpp's log",
            "b counts the computed tokens",
        ),
        (b"2026-11-02 10:00:00,123 - omlx.server - INFO - [-] - started\n", "the log of oMLX", "re-prefills"),
        (b"1102 10:00:00 ds4-server: listening\n", "the log of ds4-server", "kv cache miss"),
        (b"INFO:rapid_mlx.x:[cache_store] rejecting entry: x\n", "the log of Rapid-MLX or vllm-mlx", "[cache_fetch]"),
        (
            b"2026-08-22 17:01:14,003 - INFO - Prompt processing progress: 2048/9011\n",
            "the log of mlx_lm.server",
            "usage",
        ),
        (
            b"2026-08-29 16:15:03,161 - INFO - Prefill started: request=1 prompt_tokens=3\n",
            "the log of mlx-vlm",
            "Prefill completed",
        ),
    ],
)
def test_what_to_give_is_of_the_program_that_was_pasted(log: bytes, claim: str, gives: str) -> None:
    """The program is in the claim, and nobody who runs another program is told to run llama-server."""
    analyzer = Analyzer()
    analyzer.open("a.log")
    analyzer.feed(log)
    (found,) = analyzer.finish().findings
    assert found.code == "CD903"
    assert claim in found.claim
    assert gives in found.remedies[0].text
    assert not any(remedy.commands for remedy in found.remedies)


def test_the_port_of_a_router_is_not_json() -> None:
    assert resemblance(b"[54321] what a child of a router writes\n") is None
    assert (resemblance(b"[54321, 5]\n") or "").startswith("a JSON array")
