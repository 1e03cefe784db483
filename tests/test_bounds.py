"""A number that no server means, and a surrogate without its other half, cost their own value and nothing else."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from command import LOG
from conftest import FIXTURES, report_of
from fuzz import planted
from fuzz.planted import VALUES
from hypothesis import given
from hypothesis import strategies as st
from loops import each
from schemas import schema_of
from sglang_logs import START

from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.engines.catalogue.base import HOLE, Message, value_of
from cachedoctor.engines.detect import programs
from cachedoctor.engines.llamacpp import fields as llama_fields
from cachedoctor.engines.llamacpp.messages import ROWS as LLAMA
from cachedoctor.engines.sglang import fields as sglang_fields
from cachedoctor.engines.sglang.messages import ROWS as SGLANG
from cachedoctor.engines.vllm import fields as vllm_fields
from cachedoctor.engines.vllm.messages import ROWS as VLLM
from cachedoctor.knowledge.texts import sound, sound_json
from cachedoctor.model.bounds import COUNT, NUMBERS, SHARE
from cachedoctor.prompts import compare_prompts, inputs
from cachedoctor.prompts.tokenizers import base as tokenize
from cachedoctor.report.wire import diff_v1

STATS = (FIXTURES / "measured" / "vllm-kv-too-small.log").read_bytes()
RATE = b"Avg generation throughput: "
WRONG = ["1e308", "nan", "inf", "-1", "-1e308", "9" * 400, "1e999"]


def whole(log: bytes) -> dict[str, Any]:
    """The report of a log of which every output fits its contract and can be read back."""
    planted.outputs(log)
    return report_of(log)


def with_rate(value: str) -> bytes:
    """The log of vLLM with another rate in its second statistics line."""
    at = STATS.index(RATE, STATS.index(RATE) + 1) + len(RATE)
    return STATS[:at] + value.encode() + STATS[STATS.index(b" ", at) :]


@pytest.mark.sample(1)
@pytest.mark.parametrize("value", WRONG, ids=lambda v: v[:10])
def test_a_rate_that_cannot_be_is_unknown(value: str) -> None:
    """What else the line shows stays, and so do the other lines."""
    plain, found = report_of(STATS), whole(with_rate(value))
    assert len(plain["samples"]) > 2
    assert plain["samples"][1].pop("generation_rate") is not None
    sample = found["samples"][1]
    assert sample.pop("generation_rate") is None
    assert found["samples"] == plain["samples"]
    assert [f["code"] for f in found["findings"]] == [f["code"] for f in plain["findings"]]


@pytest.mark.sample(1)
@pytest.mark.parametrize("value", WRONG, ids=lambda v: v[:10])
def test_a_line_of_another_engine_in_a_printed_prompt(value: str) -> None:
    """Whatever it says, the requests of the server are reported."""
    line = next(line for line in with_rate(value).splitlines() if RATE + value.encode() in line)
    plain, found = report_of(LOG), whole(LOG.replace(b"| 0ed9c;\n", b"| 0ed9c;\n" + line + b"\n"))
    assert [r["prompt_tokens"] for r in found["requests"]] == [r["prompt_tokens"] for r in plain["requests"]]


KEPT = b"selected slot by LCP similarity, f_sim_best = 0.500 (> 0.100 thold), f_keep = "


@pytest.mark.sample(1)
@pytest.mark.parametrize("value", ["9999999999999999", "1.001", "-1.000", "nan", "1e308", "9" * 400])
def test_a_share_is_one(value: str) -> None:
    """Fused with the lines after it, or read by itself."""
    log = LOG.replace(b"selected slot by LRU, t_last = 9\n", KEPT + b"0.900\n")
    assert log != LOG
    assert [r["f_keep"] for r in report_of(log)["requests"]] == [None, 0.9]
    for between in (b"", b"something else\n"):
        found = whole(log.replace(b"f_keep = 0.900\n", b"f_keep = " + value.encode() + b"\n" + between))
        assert [(r["f_keep"], r["similarity"]) for r in found["requests"]] == [(None, None), (None, 0.5)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("value", ["-5", "-1900", "99999999999", "9" * 400], ids=lambda v: v[:12])
@pytest.mark.parametrize(
    "before", [b"task.n_tokens = ", b"stop processing: n_tokens = ", b"183.08 ms /  ", b"cached n_tokens = "]
)
def test_tokens_that_cannot_be_cancel_none_that_are(before: bytes, value: str) -> None:
    """The line is none of the server's: totals are those of the other lines."""
    totals = whole(_replaced(LOG, before, value.encode()))["totals"]
    assert totals["requests"] == 2
    assert 0 <= totals["cached_tokens"] <= totals["prompt_tokens"] <= 1900 + 2035


def _replaced(log: bytes, before: bytes, value: bytes) -> bytes:
    at = log.index(before) + len(before)
    end = min(log.index(mark, at) for mark in (b" ", b"\n", b","))
    return log[:at] + value + log[end:]


def test_a_context_of_nothing_is_unknown() -> None:
    """The prompt on the same line is known."""
    found = whole(LOG.replace(b"n_ctx_slot = 16384", b"n_ctx_slot = 0").replace(b"n_slots = 1", b"n_slots = 0"))
    (session,) = found["sessions"]
    assert (session["n_ctx_slot"], session["n_slots"]) == (None, None)
    assert [r["prompt_tokens"] for r in found["requests"]] == [1900, 2035]


@pytest.mark.sample(1)
@pytest.mark.parametrize("task", ["-2", "-9", "-999999999999999"])
def test_a_task_is_one(task: str) -> None:
    """-1 stands for none."""
    lines = f"srv  stop: cancel task, id_task = {task}\nE srv  send_error: task id = {task}, error: too long\n"
    found = whole(LOG + lines.encode() + LOG.replace(b"task 9 ", b"task " + task.encode() + b" "))
    assert {r["task"] for r in found["requests"]} <= {-1, 0, 9}


KINDS = {
    "tokens": "count", "requests": "count", "cells": "count", "blocks": "count", "count": "count", "task": "task",
    "share": "share", "MiB": "mib", "ms": "ms", "tokens/s": "rate", "%": "percent",
}  # fmt: skip
SIGNED = {
    "n_keep", "n_predict", "n_left", "n_discard", "limit_tokens", "limit_tokens_est", "LLAMA_SERVER_SLOTS_N_DIFF", "i",
    "idx", "off", "cap", "load", "chunked_prefill", "gained", "states_gained", "thold", "max", "min_step", "iteration",
    "limit_mib", "t0", "t1", "took_ms", "attempts", "nodes", "mean_len", "mean_acceptance_length", "concurrency",
}  # fmt: skip
"""They may be negative (-1: all, or no limit), are fractions, or are read by nobody."""


@each("row", [*LLAMA, *VLLM, *SGLANG], ids=lambda row: row.id)
def test_the_kind_of_a_hole_is_that_of_its_unit(row: Message) -> None:
    fields = llama_fields if row in LLAMA else vllm_fields if row in VLLM else sglang_fields
    for name, kind in HOLE.findall(row.template):
        known = fields.field(row.id, name)
        if kind in NUMBERS - {"n", "keep"} and known is not None and known.unit in KINDS and name not in SIGNED:
            assert kind == KINDS[known.unit], (name, known.unit)


@pytest.mark.sample(1)
@pytest.mark.spread(9)
@pytest.mark.parametrize("value", VALUES, ids=lambda v: str(v[:12]))
def test_every_engine_outlives_every_value(value: bytes) -> None:
    """In the first, the middle and the last place where its log has a number: lines that do not know of each other."""
    for base in planted.logs()[-2:]:
        log = base.text
        for at in (len(base.places) - 1, len(base.places) // 2, 0):
            start, end = base.places[at]
            log = log[:start] + value + log[end:]
        assert report_of(log)["inputs"][0]["error"] is None


@given(st.sampled_from(sorted(NUMBERS)), st.floats(allow_nan=True) | st.integers())
def test_what_a_hole_holds_is_in_its_range(kind: str, number: float) -> None:
    """Whatever its pattern would let through; patterns of whole numbers let nothing else."""
    if kind in ("count", "n", "slot", "task", "d"):
        return
    found = value_of(kind, str(number).encode())
    assert found is None or (math.isfinite(found) and (found == -1.0 or found >= 0))
    assert kind != "share" or found is None or SHARE.of(found) == found


def test_sums_of_what_is_believed_fit_64_bits() -> None:
    """Of a thousand million requests."""
    assert COUNT.most * 10**8 < 2**63


# ---- surrogates

LONE = b'{"time": 1, "rid": "a\\ud83d", "obj": {"text": "b\\ude00c"}, "out": {"meta_info": {"prompt_tokens": 9}}}\n'


def test_a_lone_surrogate_ends_no_output() -> None:
    """In what SGLang logs as JSON, and in its settings."""
    settings = "server_args=ServerArgs(model_path='m\\ud83d', schedule_policy='l\\udc00pm', page_size=1)"
    log = "".join(f"{line}\n" for line in START).encode() + f"[2026-07-04 04:31:24] {settings}\n".encode() + LONE
    found = whole(log)
    assert [s["model"] for s in found["sessions"]][-1] == "m\ufffd"
    redactor = Redactor()
    assert (redactor.feed(log) + redactor.finish()).decode()


@pytest.mark.sample(1)
@pytest.mark.parametrize("program", programs(), ids=lambda p: p.tracker.engine)
def test_nor_in_lines_of_the_small_programs(program: programs.Program) -> None:
    whole("".join(f'{row.sample} "\\ud83d"\n' for row in program.rows * 2).encode() + LONE)


def test_a_lone_surrogate_in_a_body() -> None:
    """Request bodies, dumps of slots: the text has the mark of what cannot be read, and the diff can be written."""
    chat = b'{"model": "\\ud83d", "messages": [{"role": "user", "content": "a \\ud83d b"}]}'
    slots = b'[{"id": 0, "n_ctx": 9, "is_processing": false, "prompt": "a \\udc00 b"}]'
    for data in (chat, slots):
        (a,), (b,) = inputs.parse(data, "a"), inputs.parse(data.replace(b" b", b" c"), "b")
        assert "a \ufffd b" in a.text
        out = io.BytesIO()
        diff_v1.render([compare_prompts.compare(a, b, tokenize.pieces(), compare_prompts.DiffOptions())], out, "0")
        schema_of("diff").validate(json.loads(out.getvalue()))


@given(st.text(alphabet=st.characters(codec=None, categories=None) | st.sampled_from('"\\ud8dc03é')))
def test_json_is_made_sound(text: str) -> None:
    """Whole characters, escaped or not, and backslashes stay; offsets as well."""
    written = json.dumps([text, {text: 1}])
    made = sound_json(written)
    assert len(made) == len(written)
    assert json.loads(made)[0] == sound(text)
    assert sound_json(written.encode()).decode() == made
    json.dumps(json.loads(made), ensure_ascii=False).encode()
    if text == sound(text):
        assert made == written


def test_an_escaped_backslash_is_not_an_escape() -> None:
    assert sound_json(r'"\\ud83d"') == r'"\\ud83d"'
    assert sound_json(r'"\\\ud83d"') == r'"\\\ufffd"'
    assert sound_json(r'"\ud83d\ude00\ude00"') == r'"\ud83d\ude00\ufffd"'
