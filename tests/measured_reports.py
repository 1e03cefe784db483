"""Reports of logs that have measurements instead of requests, built by hand as the trackers of engines fill them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import IO, Any

from cachedoctor.model import (
    Answer,
    Answers,
    BatchPeriod,
    CacheSample,
    Counters,
    InputInfo,
    Mark,
    PrefillBatch,
    Report,
    RequestRow,
    RuleInfo,
    SamplePeriod,
    Session,
    Setting,
    Totals,
)
from cachedoctor.report.base import Appearance, write
from cachedoctor.report.wire.report_v1 import encode_row, render
from cachedoctor.report.wire.stored import read

STATS = b"Engine 000: Avg prompt throughput: 212.9 tokens/s, Avg generation throughput: 4.1 tokens/s, Running: 0 reqs"


class NoRequests:
    """The requests of a report that has none."""

    def check(self) -> None:
        """None can be lost."""

    def __iter__(self) -> Iterable[RequestRow]:  # type: ignore[misc]
        return iter(())

    def lines(self) -> Iterable[bytes]:
        return iter(())

    def copy_to(self, out: IO[bytes]) -> None:
        """Nothing to write."""


class GivenRows:
    """Samples or batches, written as the analyzer keeps them."""

    def __init__(self, rows: Iterable[CacheSample | PrefillBatch]) -> None:
        self._rows = list(rows)

    def check(self) -> None:
        """None can be lost."""

    def lines(self) -> Iterable[bytes]:
        return map(encode_row, self._rows)


def vllm(**changes: Any) -> Session:
    """A server of vLLM whose three busy intervals say what they say in the first example of the text."""
    settings = {
        "architecture": Setting("Qwen3ForCausalLM", 5),
        "prefix_caching": Setting(True, 7, b"enable_prefix_caching=True"),
        "kv_tokens": Setting(1_048_576, 20),
    }
    fields: dict[str, Any] = {
        "engine": "vllm", "version": "0.32.0", "build_source": "line", "settings": settings, "last_line": 90,
        "seen": {"stats"}, "periods": [intervals()],
    }  # fmt: skip
    return Session(0, "vllm.log", **{**fields, **changes})


def intervals(**changes: Any) -> SamplePeriod:
    fields: dict[str, Any] = {
        "engine": "000", "since": "start", "first_line": 40, "last_line": 80, "samples": 4, "busy": 3, "seconds": 30.0,
        "computed_tokens": 4349, "answered": 26, "rates": 4, "first_rate": 0.852, "last_rate": 0.91,
        "least_rate": 0.852, "most_rate": 0.91, "kv_usage": 0.004, "marks": {"first": Mark(40, STATS)},
    }  # fmt: skip
    return SamplePeriod(**{**fields, **changes})


def sglang(**changes: Any) -> Session:
    settings = {"architecture": Setting("Qwen3NextForCausalLM", 2), "radix_cache": Setting(True, 4),
                "kv_tokens": Setting(180_000, 9)}  # fmt: skip
    fields: dict[str, Any] = {
        "engine": "sglang", "version_min": "0.5.11", "version_max": "0.5.20", "build_source": "wording",
        "memory": "hybrid", "settings": settings, "last_line": 60, "seen": {"prefill"}, "periods": [batches()],
    }  # fmt: skip
    return Session(0, "sglang.log", **{**fields, **changes})


def batches(**changes: Any) -> BatchPeriod:
    fields: dict[str, Any] = {
        "rank": None, "since": "start", "first_line": 10, "last_line": 55, "batches": 12, "seqs": 11,
        "new_tokens": 9702, "cached_tokens": 9344, "wholes": 5, "cold": 1, "cached_least": 1024, "cached_most": 2048,
        "largest_prompt": 4096, "token_usage": 0.94, "mamba_usage": 0.21, "usage_at_mamba": 0.5, "retracted": 2,
    }  # fmt: skip
    return BatchPeriod(**{**fields, **changes})


COUNTERS = Counters(
    "b.txt", "a.txt", "vllm", engine="0", looked_up=47_936, reused=43_520, prompt_tokens=48_304, preemptions=0,
    config={"block_size": "16"},
)  # fmt: skip
ANSWERS = Answers("usage.json", "responses", 26, 26, 48_304, 43_904, [Answer(1858, 1792, 1), Answer(1900, None, 2)])


def samples(session: int = 0) -> list[CacheSample]:
    """Three intervals of one engine, the last one idle."""
    return [
        CacheSample(session, "vllm.log", 40 + 20 * at, "000", f"--11-20T23:44:{18 + 10 * at}", 10.0, rate, 4.1, 0, 0,
                    kv_usage=0.0, hit_rate=hits, computed_tokens=round(10 * rate), answered=answered)
        for at, (rate, hits, answered) in enumerate([(212.9, 0.852, 12), (222.0, 0.91, 14), (0.0, 0.91, 0)])
    ]  # fmt: skip


def prefills(session: int = 0) -> list[PrefillBatch]:
    """A cold prompt in two batches, and a turn that reuses it."""
    return [
        PrefillBatch(session, "sglang.log", 10, None, "2026-07-04T04:31:24", 1, 8192, 0, 0.05, None, 0.1, 0, 0),
        PrefillBatch(session, "sglang.log", 11, None, "2026-07-04T04:31:26", 1, 1000, 0, 0.06, continues=True),
        PrefillBatch(session, "sglang.log", 14, None, "2026-07-04T04:31:40", 1, 128, 9152, 0.06, whole=True),
    ]


def report(*sessions: Session, rules: Iterable[str] = (), **changes: Any) -> Report:
    """A report of these sessions, one input each; ``rules``: codes of those that there are."""
    for at, session in enumerate(sessions):
        session.index = at
    fields: dict[str, Any] = {
        "tool_version": "0",
        "inputs": [InputInfo(s.path, s.engine, 9000, s.last_line, 20) for s in sessions],
        "sessions": list(sessions), "totals": Totals(), "requests": NoRequests(), "findings": [], "not_evaluated": [],
        "rules": [RuleInfo(code, "some-rule", "Something is wrong", "u.md") for code in rules],
        "samples": GivenRows(row for s in sessions if s.engine == "vllm" for row in samples(s.index)),
        "batches": GivenRows(row for s in sessions if s.engine == "sglang" for row in prefills(s.index)),
    }  # fmt: skip
    return Report(**{**fields, **changes})


def everything() -> Report:
    """Servers of both engines with all that can be beside a log."""
    return report(
        vllm(counters=[COUNTERS], answers=[ANSWERS], periods=[intervals(), intervals(engine="001")]),
        sglang(periods=[batches(rank="DP0 TP0"), batches(rank="DP1 TP0", since="reset")]),
        rules=["CD501", "CD601"],
    )


def stored(of: Report) -> Report:
    """The same report, written and read again."""
    out = io.BytesIO()
    render(of, out)
    return read(out.getvalue(), "report.json")


def as_json(of: Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written("json", of))
    return found


def written(name: str, of: Report, look: Appearance | None = None) -> bytes:
    out = io.BytesIO()
    write(name, of, out, look or Appearance())  # type: ignore[arg-type]
    return out.getvalue()
