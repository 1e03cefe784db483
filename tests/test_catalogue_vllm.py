"""The catalogue of vLLM: every row recognises its sample alone, and every statistics line is read whole."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import FIXTURES
from loops import each

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.catalogue.scanner import Scanner, ScanPlan
from cachedoctor.engines.vllm.messages import ROWS
from cachedoctor.engines.vllm.tracker import READER
from cachedoctor.model import Segment

LINES = (FIXTURES / "lines" / "vllm_stats_lines_29_versions.txt").read_text("utf-8").split("\n")
STATS = [line for line in LINES if line and not line.startswith("## ")]
"""Printed by the formatting code of 29 versions."""
TYPED = ("prompt_rate", "generation_rate", "running", "waiting")
PLAIN = re.compile(
    r"(?:Engine (?P<engine>\d{3}): )?Avg prompt throughput: (?P<prompt_rate>\S+) tokens/s, Avg generation throughput:"
    r" (?P<generation_rate>\S+) tokens/s, Running: (?P<running>\d+) reqs, Waiting: (?P<waiting>\d+) reqs"
)


def name_of(row: Message) -> str:
    return f"{row.id}-{row.first}-{ROWS.index(row)}"


def scanned(*lines: str) -> list[Event]:
    """What the scanner finds in a block of lines."""
    data = "".join(f"{line}\n" for line in lines).encode()
    return list(Scanner(READER.catalogue, ScanPlan(frozenset(row.id for row in ROWS))).scan(Segment(None, data, 1)))


def fields_of(line: str) -> dict[str, Any]:
    (event,) = READER.catalogue.recognise(line.encode())
    return event.fields


@each("row", ROWS, ids=name_of)
def test_a_sample_is_recognised_by_its_row_alone(row: Message) -> None:
    """Two rows that match one line would make the reading a matter of luck."""
    assert [event.row for event in READER.catalogue.recognise(row.sample.encode())] == [row]


@each("row", ROWS, ids=name_of)
def test_the_scanner_finds_what_the_catalogue_recognises(row: Message) -> None:
    """In a block, among other lines, and with all its fields."""
    found = scanned("Loading safetensors: 50% Completed | 1/2 [00:01<00:01]", row.sample, "  at nothing of ours")
    assert [(event.row, event.line) for event in found] == [(row, 2)]
    assert set(found[0].fields) == set(row.names)


def test_all_samples_in_one_block() -> None:
    """Rows with one head are tried in an order that changes with what came before."""
    rows = [*ROWS, *reversed(ROWS)]
    assert [event.row for event in scanned(*(row.sample for row in rows))] == rows


def test_rows_are_in_order() -> None:
    """Versions of a row run forward, and its levels are known for its first version."""
    for row in ROWS:
        assert row.component in ("vllm", "lmcache"), row.template
        assert 300 <= row.first <= row.last <= 3300, row.template
        levels = [(part[0], int(part[1:])) for part in row.levels.split()]
        assert levels[0][1] == row.first, row.template
        assert {level for level, _ in levels} <= set("IWED"), row.template
    assert len({(row.component, row.template) for row in ROWS}) == len(ROWS)


def test_a_sample_says_its_level() -> None:
    """The word that Python's logger prints; a row with two levels shows one of them."""
    words = {"I": "INFO", "W": "WARNING", "D": "DEBUG", "E": "ERROR"}
    for row in ROWS:
        assert any(words[part[0]] in row.sample for part in row.levels.split()), row.sample


@pytest.mark.sample(14)
@pytest.mark.parametrize("line", STATS)
def test_every_statistics_line_is_read_whole(line: str) -> None:
    """Typed fields, and a pair for every other field, of all versions."""
    found = PLAIN.search(line)
    assert found is not None
    fields = fields_of(line)
    assert fields.get("engine") == found["engine"]
    assert [fields[name] for name in TYPED] == [float(found[name]) for name in TYPED]
    rest = line[found.end() :]
    usage = re.search(r", GPU KV cache usage: (\d+\.\d%)", rest)
    rate = re.search(r", Prefix cache hit rate: (\d+\.\d%)", rest)
    assert usage is not None
    assert rate is not None
    assert fields["more"] == {"GPU KV cache usage": usage[1], "Prefix cache hit rate": rate[1]}
    assert len(rest) == len(usage[0]) + len(rate[0])


def test_there_are_statistics_of_29_versions() -> None:
    """Two or three windows each, and 0.7.3 in a form without the engine."""
    versions = [line.removeprefix("## ") for line in LINES if line.startswith("## ")]
    assert len(set(versions)) == 29
    assert len(STATS) >= 3 * 29
    assert sum("Engine 000:" not in line for line in STATS) == 5


def test_all_optional_fields_of_a_statistics_line() -> None:
    """The parts that 0.32 can print; one of them has commas in its value."""
    more = (
        "Deferred: 2 reqs, KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, Preemptions: 4,"
        " GPU KV cache usage: 37.2%, Prefix cache hit rate: 53.3%, Corrupted: 1 reqs,"
        " External prefix cache hit rate: 12.5%, MM cache hit rate: 80.0%"
    )
    fields = fields_of(
        "INFO 10-20 01:02:03 [loggers.py:335] Engine 012: Avg prompt throughput: 1.0 tokens/s, "
        f"Avg generation throughput: 2.5 tokens/s, Running: 3 reqs, Waiting: 4 reqs, {more}"
    )
    assert (fields["engine"], fields["prompt_rate"], fields["generation_rate"]) == ("012", 1.0, 2.5)
    assert (fields["running"], fields["waiting"]) == (3, 4)
    assert fields["more"] == {
        "Deferred": "2 reqs",
        "KV fetch": "1 waiting to start, 2 in progress, 3 completed waiting",
        "Preemptions": "4",
        "GPU KV cache usage": "37.2%",
        "Prefix cache hit rate": "53.3%",
        "Corrupted": "1 reqs",
        "External prefix cache hit rate": "12.5%",
        "MM cache hit rate": "80.0%",
    }


def test_the_hit_rate_may_be_absent() -> None:
    """0.31 and newer print none before the first lookup: that is no 0 %."""
    fields = fields_of(
        "INFO 10-20 01:02:03 [loggers.py:320] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 2.5 tokens/s, Running: 3 reqs, Waiting: 4 reqs, XPU KV cache usage: 0.1%"
    )
    assert fields["more"] == {"XPU KV cache usage": "0.1%"}


@pytest.mark.parametrize("engines", [1, 2, 16, 128, 256])
def test_several_engines_in_one_line(engines: int) -> None:
    """The line begins with a number."""
    (event,) = scanned(
        f"INFO 10-20 01:02:03 [loggers.py:335] {engines} Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 2.5 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 0.1%"
    )
    assert (event.message, event.fields["engines"]) == ("stats", engines)


PREFIXES = [
    "",
    "INFO 08-11 09:20:10 [block_pool.py:861] ",
    "[INFO 08-16 11:53:40 block_pool.py:418] ",
    "INFO 08-16 11:53:40 block_pool.py:418] ",
    "(VllmWorker rank=0 pid=5282) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "(EngineCore_3 pid=5282) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "(Worker_DP0_PP0_TP1_EP1 pid=1) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "(EngineCore_DP0 pid=1) DEBUG 08-11 09:20:10 [v1/core/block_pool.py:861] ",
    "(EngineCore_DP0 pid=1) DEBUG 08-11 09:20:10 [model_executor/.../x/block_pool.py:61] ",
    "my prefix v1.2 [x] (EngineCore pid=1) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "(pid=771) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "Capturing:  50%|#####     | 2/4 [00:00<00:00, 5.1it/s](EngineCore pid=1) INFO 08-11 09:20:10 [block_pool.py:861] ",
    "[2026-11-20 10:12:01,455] LMCache INFO: ",
    "(EngineCore pid=220) [2026-11-20 10:12:01,455] LMCache WARNING: ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_whatever_comes_before_a_message(prefix: str) -> None:
    """Processes, ranks, paths of the debug level, text of the user, a progress bar, nothing."""
    line = prefix + "Failed to reset prefix cache because some blocks (12) are not freed yet"
    (event,) = scanned(line)
    assert (event.message, event.fields) == ("reset_failed", {"used_blocks": 12})
    assert [found.message for found in READER.catalogue.recognise(line.encode())] == ["reset_failed"]


def test_numbers_with_thousands() -> None:
    """They are counts, not words."""
    (event,) = scanned(
        "[x.py:1] GPU + host KV cache size: 12,345,678 tokens, Maximum concurrency for 262,144 tokens per request: 1.3x"
    )
    assert event.fields == {"device": "GPU + host", "kv_tokens": 12345678, "max_model_len": 262144, "concurrency": 1.3}
    assert fields_of("Maximum concurrency for 8192 tokens per request: 2.00x")["max_model_len"] == 8192
    assert scanned("[x.py:1] GPU KV cache size: 1,04,576 tokens") == []


def test_a_prompt_cannot_pose_as_another_message() -> None:
    """Newlines of a prompt are printed as two characters, so that all of it stays in one field."""
    prompt = "'a', params: x, lora_request: None.\\n[loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s'"
    (event,) = scanned(
        f"INFO 04-29 08:20:40 [logger.py:39] Received request r-1: prompt: {prompt}, params: P, lora_request: None."
    )
    assert event.message == "request"
    assert event.fields == {"request": "r-1", "prompt": f"{prompt}, params: P, lora_request: None."}


def test_words_in_the_middle_of_a_line_are_not_message() -> None:
    """A message begins after the prefix or at the begin of a line."""
    assert (
        scanned("[x.py:1] The client said: Successfully reset prefix cache", "say Successfully reset prefix cache")
        == []
    )
