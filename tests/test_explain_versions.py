"""``explain --line`` for vLLM and SGLang: every message, prefixes, pairs, versions; and lines of several engines."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import jsonschema
import msgspec
import pytest
from command import run
from conftest import ROOT

from cachedoctor.doctor.explain import explain as versioned
from cachedoctor.doctor.explain.explain import explain
from cachedoctor.engines.catalogue.base import HOLE, Message
from cachedoctor.engines.sglang.messages import ROWS as SGLANG
from cachedoctor.engines.vllm.messages import ROWS as VLLM
from cachedoctor.model import Explanation
from cachedoctor.report.text import explain_text
from cachedoctor.report.wire import line_v1

SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "docs/schemas/line-v1.schema.json").read_text("utf-8")))
STATS = (
    "(EngineCore_DP1 pid=30) INFO 11-20 23:44:58 [loggers.py:335] Engine 001: Avg prompt throughput: 212.9 tokens/s, "
    "Avg generation throughput: 4.1 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.5%, "
    "Prefix cache hit rate: 0.0%, Brand new: 3"
)
PREFILL = (
    "[2026-07-04 04:31:24 DP0 TP1] Prefill batch, #new-seq: 1, #new-token: 310, #cached-token: 9344, "
    "full token usage: 0.07, mamba usage: 0.21, #running-req: 0"
)
SAMPLES = [("vllm", row) for row in VLLM] + [("sglang", row) for row in SGLANG]


def name_of(value: object) -> str:
    return f"{value.id}-{value.first}" if isinstance(value, Message) else str(value)


def all_of(line: str) -> list[Explanation]:
    (answer,) = explain(line.encode())
    return answer.explanations


def one(line: str) -> Explanation:
    (explanation,) = all_of(line)
    return explanation


def shown(line: str) -> str:
    out = io.StringIO()
    for answer in explain(line.encode()):
        explain_text.render_line(answer, out)
    return out.getvalue()


@pytest.mark.spread(9)
@pytest.mark.sample(10)
@pytest.mark.parametrize(("engine", "row"), SAMPLES, ids=name_of)
def test_a_sample_is_explained_by_its_row(engine: str, row: Message) -> None:
    """With all its fields and in the right versions; only a line that both engines print has two readings."""
    readings = all_of(row.sample)
    assert len(readings) == (2 if row.id == "access" and not row.sample.startswith("[") else 1)
    (found,) = (reading for reading in readings if reading.engine == engine)
    assert (found.message, found.sample, found.cut, found.more) == (row.id, row.sample, False, "")
    assert (found.first, found.last) == (row.first, row.last)
    holes = dict(HOLE.findall(row.template))
    names = [name for name in holes if holes[name] != "pairs"]
    assert [reading.name for reading in found.fields if reading.name in holes] == names
    assert len(found.fields) > len(names) or "pairs" not in holes.values()
    assert all(reading.meaning and reading.text is not None for reading in found.fields)
    assert all("not known" not in reading.meaning for reading in found.fields)
    assert found.levels[0].first == row.first
    assert all("left aside" not in part.meaning for part in found.parts)
    SCHEMA.validate(msgspec.to_builtins(line_v1.document(next(explain(row.sample.encode())), "0")))


def test_what_comes_before_a_message_of_vllm() -> None:
    """Process, its number, level, time, and the place in the source; LMCache names itself."""
    parts = {part.text: part.meaning for part in one(STATS).parts}
    assert list(parts) == ["EngineCore_DP1", "pid=30", "INFO", "11-20 23:44:58", "loggers.py:335"]
    assert "data" in parts["EngineCore_DP1"]
    assert "no year" in parts["11-20 23:44:58"]
    old = one("(VllmWorker rank=3 pid=5282) INFO 04-29 12:10:45 [block_pool.py:264] Successfully reset prefix cache")
    assert [part.text for part in old.parts][:3] == ["VllmWorker", "rank=3", "pid=5282"]
    hit = one(next(row.sample for row in VLLM if row.component == "lmcache" and row.id == "stored"))
    assert [part.text for part in hit.parts][-2:] == ["LMCache", "INFO"]
    assert hit.program == "LMCache"


def test_what_comes_before_a_message_of_sglang() -> None:
    """Time and ranks."""
    parts = {part.text: part.meaning for part in one(PREFILL).parts}
    assert list(parts) == ["2026-07-04 04:31:24", "DP0", "TP1"]
    assert "its own cache" in parts["DP0"]
    assert "TP0" in parts["TP1"]


def test_pairs_are_fields_of_their_own() -> None:
    """With unit, meaning, and what the very value says; one that nobody knows is said to be unknown."""
    fields = {reading.name: reading for reading in one(STATS).fields}
    assert "more" not in fields
    assert (fields["GPU KV cache usage"].text, fields["GPU KV cache usage"].unit) == ("1.5%", "%")
    assert "nothing was found" in fields["Prefix cache hit rate"].here
    assert "no checked version prints this field" in fields["Brand new"].meaning
    assert fields["engine"].text == "001"
    usual = {reading.name: reading for reading in one(STATS.replace("rate: 0.0%", "rate: 10.0%")).fields}
    assert usual["Prefix cache hit rate"].here == ""
    batch = {reading.name: reading for reading in one(PREFILL).fields}
    assert (batch["#cached-token"].text, batch["#cached-token"].unit) == ("9344", "tokens")
    assert "later chunks" in batch["#cached-token"].meaning


def test_versions_in_words_and_levels() -> None:
    """Minor and patch are one number in a row; a level may change between versions."""
    found = one(STATS)
    assert found.builds == "seen in 0.8.3 to 0.33.0 (newer versions were not checked)"
    mode = "Mamba cache mode is set to 'align' for Qwen3NextForCausalLM by default when prefix caching is enabled"
    levels = one(mode).levels
    assert [(level.level, level.shown) for level in levels] == [
        ("WARNING", "shown by default"),
        ("INFO", "shown by default"),
    ]
    assert levels[0].first == 1600
    assert 1600 < levels[0].last < levels[1].first == 2800
    text = shown(mode)
    assert "Versions of vLLM" in text
    assert "0.28.0 to 0.33.0: INFO" in text
    assert one("Enabling prefix caching by default").levels[0].shown == "only with VLLM_LOGGING_LEVEL=DEBUG"
    assert "Builds of llama.cpp" not in text
    version = msgspec.to_builtins(line_v1.document(next(explain(PREFILL.encode())), "0"))["readings"][0]["versions"]
    assert version == {"program": "SGLang", "first": "0.5.4", "last": "0.5.23"}


@pytest.mark.parametrize(
    "line",
    [
        STATS,
        f"vllm-1  | {STATS}",
        f"\x1b[0;36m(EngineCore_DP1 pid=30)\x1b[0;0m {STATS.partition(') ')[2]}",
        json.dumps({"log": STATS + "\n", "stream": "stdout", "time": "2026-11-20T23:44:58Z"}),
        STATS.partition("] ")[2],
        f"Loading:  50%|#####     | 1/2 [00:01<00:01, 1.2s/it]{STATS}",
        f"my own words: {STATS.partition('] ')[2]}",
    ],
)
def test_wrapped_lines_and_bare_messages(line: str) -> None:
    """The reading is that of the plain line."""
    assert (one(line).message, one(line).fields, one(line).engine) == ("stats", one(STATS).fields, "vllm")


def test_a_cut_line() -> None:
    """What is left is read, and the newest wording stands for all that fit."""
    found = one(STATS[: STATS.index("212.9") + 2] + "...")
    assert (found.message, found.cut, found.engine) == ("stats", True, "vllm")
    assert {reading.name: reading.text for reading in found.fields}["running"] is None


def test_a_line_of_two_engines_has_two_readings() -> None:
    """Their web servers print the same."""
    line = 'INFO:     127.0.0.1:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
    assert [(reading.engine, reading.message) for reading in all_of(line)] == [("vllm", "access"), ("sglang", "access")]
    assert "may also be" in shown(line)
    (found,) = all_of(f"[2026-07-04 04:31:24] {line}")
    assert found.engine == "sglang"


def test_a_line_of_llama_server_stays_one() -> None:
    """Also with a date before it, which SGLang prints as well."""
    line = "n_tokens = 18, memory_seq_rm [18, end)"
    for before in (
        "",
        "slot update_slots: id  0 | task 20 | ",
        "[2026-07-04 04:31:24] slot update_slots: id  0 | task 2 | ",
    ):
        assert (one(before + line).engine, one(before + line).message) == ("llama.cpp", "seq_rm")
    (answer,) = explain(line.encode())
    assert msgspec.to_builtins(line_v1.document(answer, "0"))["readings"][0]["versions"] is None


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("(EngineCore pid=1) INFO 11-20 23:55:26 [x.py:1] Succesfully resetted prefix cache", "Successfully reset"),
        ("[2026-07-04 04:50:00] Cache was flushed successfully", "Cache flushed successfully!"),
        ("(EngineCore pid=1) INFO 11-20 23:55:26 [x.py:1] Hello", ""),
    ],
)
def test_unknown_lines(line: str, nearest: str) -> None:
    """The nearest message is that of any engine; the prefix does not count."""
    (answer,) = explain(line.encode())
    assert answer.explanations == []
    assert answer.nearest.startswith(nearest)
    assert bool(answer.nearest) == bool(nearest)


@pytest.mark.sweep
def test_other_engines_are_imported_when_they_are_needed() -> None:
    """A line of llama-server costs no catalogue but its own."""
    code = (
        "import sys; from cachedoctor.doctor.explain.explain import explain; "
        "list(explain(b'slot update_slots: id  0 | task 20 | n_tokens = 18, memory_seq_rm [18, end)')); "
        "print([name for name in sys.modules if name.startswith('cachedoctor.engines.') "
        "and name.split('.')[2] in ('vllm', 'sglang') and name.count('.') > 2])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=60)
    assert done.stdout == b"[]\n"


@pytest.mark.sweep
def test_the_tables_are_those_of_the_engines() -> None:
    """Every name has its vocabulary, and the command says which engines it knows."""
    assert [words.engine for words in versioned.engine_vocabularies()] == ["vllm", "sglang"]
    done = run("explain", "--line", "hello world")
    assert done.returncode == 3
    assert b"llama-server, vLLM or SGLang" in done.stderr
