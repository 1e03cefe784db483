"""``export --table events`` for logs of vLLM and SGLang: a row per message, its values by their printed names."""

from __future__ import annotations

import json
from typing import Any

from conftest import FIXTURES

from cachedoctor.doctor.tables.tables import Listing
from cachedoctor.report.tables.columns import EVENTS

SGLANG = (
    "[2026-07-04 04:31:09] The server is fired up and ready to roll!\n"
    "[2026-07-04 04:31:24.5 DP0 TP1] Prefill batch, #new-seq: 1, #new-token: 310, token usage: 0.07\n"
    "[2026-07-04 04:31:24.5 DP0 TP1] What is this\n"
    '[2026-07-04 04:31:25] INFO:     127.0.0.1:49294 - "POST /generate HTTP/1.1" 200 OK\n'
)


def rows_of(log: str | bytes, size: int = 1 << 20) -> list[dict[str, Any]]:
    listing, data = Listing("log"), log.encode() if isinstance(log, str) else log
    found = [row for at in range(0, len(data), size) for row in listing.feed(data[at : at + size])]
    return [json.loads(row) | {"fields": json.loads(json.loads(row)["fields"])} for row in [*found, *listing.finish()]]


def test_lines_of_vllm() -> None:
    """With engine, process, level, and the time that the line prints; every access line counts as well."""
    log = (FIXTURES / "measured/vllm-two-engines.log").read_bytes()
    rows = rows_of(log)
    assert [row["line"] for row in rows] == list(range(1, 34)), "every line of it is a message"
    assert {row["engine"] for row in rows} == {"vllm"}
    assert set(rows[0]) == {column.name for column in EVENTS.columns}
    stats = next(row for row in rows if row["message"] == "stats")
    assert (stats["process"], stats["level"], stats["slot"], stats["uptime_ms"]) == ("APIServer", "I", None, None)
    assert stats["time"].startswith("--11-20T23:4")
    assert stats["fields"]["engine"] in ("000", "001")
    assert isinstance(stats["fields"]["prompt_rate"], float)
    assert stats["fields"]["Prefix cache hit rate"].endswith("%")
    assert next(row for row in rows if row["message"] == "kv_size")["fields"]["kv_tokens"] == 1_048_576


def test_lines_of_sglang() -> None:
    """Ranks are the process; numbers are numbers; lines that are not messages have no row."""
    rows = rows_of(SGLANG)
    assert [(row["line"], row["message"]) for row in rows] == [(1, "ready"), (2, "prefill"), (4, "access")]
    assert rows[1]["fields"] == {"#new-seq": 1, "#new-token": 310, "token usage": 0.07}
    assert [row["process"] for row in rows] == [None, "DP0 TP1", None]
    assert [row["time"] for row in rows] == ["2026-07-04T04:31:09", "2026-07-04T04:31:24.5", "2026-07-04T04:31:25"]


def test_one_table_for_all_engines() -> None:
    """A line of llama-server stays one; the wrapper's time is preferred."""
    llama = "slot update_slots: id  0 | task 20 | n_tokens = 18, memory_seq_rm [18, end)\n"
    rows = rows_of(SGLANG + llama)
    assert [(row["engine"], row["line"]) for row in rows] == [
        ("sglang", 1),
        ("sglang", 2),
        ("sglang", 4),
        ("llama.cpp", 5),
    ]
    assert (rows[3]["slot"], rows[3]["task"], rows[3]["process"]) == (0, 20, None)
    wrapped = "".join(f"2025-01-01T00:00:0{at}Z {line}\n" for at, line in enumerate(SGLANG.splitlines()))
    assert rows_of(wrapped)[0]["time"].startswith("2025-01-01T00:00:00")


def test_prompts_and_secrets_are_cut_and_hidden() -> None:
    """As in every other table and report."""
    prompt = "word " * 1000
    (row,) = rows_of(
        f"INFO 04-29 08:20:40 [logger.py:39] Received request a: prompt: '{prompt}', params: SamplingParams(n=1)\n"
    )
    assert row["message"] == "request"
    assert len(row["fields"]["prompt"]) < 200


def test_where_the_input_is_cut_does_not_matter() -> None:
    """Access lines before the first line that looks like one are read in a block of their own, or with it."""
    assert rows_of(SGLANG, 50) == rows_of(SGLANG)
