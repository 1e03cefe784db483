"""Logs of vLLM that look like a fault and are another one, or none: what is said must be true of all that fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command import run
from conftest import report_of as read_here

PLACE = {"0.9.2": 118, "0.11.0": 127, "0.14.1": 257, "0.20.2": 271, "0.32.0": 335, "0.33.0": 335}


def start(
    version: str, caching: bool, arch: str = "Qwen3ForCausalLM", kv: int = 1_048_576, args: str = "{'model': 'm'}",
    spec: str = "None", pooler: str = "None",
) -> str:  # fmt: skip
    """The start of a server."""
    engine = "V0" if version < "0.10" and version > "0.8" and arch == "JambaForCausalLM" else "V1"
    return (
        f"INFO 11-20 23:44:10 [utils.py:233] non-default args: {args}\n"
        f"INFO 11-20 23:44:10 [model.py:547] Resolved architecture: {arch}\n"
        f"INFO 11-20 23:44:25 [core.py:77] Initializing a {engine} LLM engine (v{version}) with config: model='m', "
        f"speculative_config={spec}, max_seq_len=8192, data_parallel_size=1, device_config=cuda, "
        f"enable_prefix_caching={caching}, enable_chunked_prefill=True, pooler_config={pooler}\n"
        f"INFO 11-20 23:44:45 [kv_cache_utils.py:1087] GPU KV cache size: {kv:,} tokens\n"
    )


def stats(second: int, version: str, prompt: float, hit: str | None, engine: str = "000", more: str = "") -> str:
    rate = "" if hit is None else f", Prefix cache hit rate: {hit}%"
    return (
        f"INFO 11-20 23:45:{second:02d} [loggers.py:{PLACE[version]}] Engine {engine}: "
        f"Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: {4.1 if prompt else 0.0} tokens/s, Running: 0 reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: 0.0%{rate}{more}\n"
    )


def access(requests: int) -> str:
    return 'INFO:     127.0.0.1:40000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n' * requests


def busy(version: str, prompt: float, *rates: str | None, more: str = "") -> str:
    """Intervals of four requests each."""
    return "".join(access(4) + stats(10 * at, version, prompt, hit, more=more) for at, hit in enumerate(rates))


def report_of(log: str, folder: Path, *options: str) -> dict[str, Any]:
    """The report of a log; by the command where it takes options."""
    if not options:
        return read_here(log)
    (folder / "vllm.log").write_text(log)
    done = run("analyze", folder / "vllm.log", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def findings(log: str, folder: Path) -> dict[str, dict[str, Any]]:
    return {f["code"]: f for f in report_of(log, folder)["findings"]}


def test_what_a_cache_outside_gave_counts_as_reused(tmp_path: Path) -> None:
    """LMCache serves 99 % of what the engine did not have: the prompts share their beginning."""
    log = start("0.14.1", True) + busy("0.14.1", 1300.0, *["0.0"] * 3, more=", External prefix cache hit rate: 99.0%")
    assert findings(log, tmp_path) == {}
    assert "CD510" in findings(start("0.14.1", True) + busy("0.14.1", 1300.0, *["0.0"] * 3), tmp_path)


def test_without_the_start_all_causes_are_named(tmp_path: Path) -> None:
    """Caching off prints 0.0 % up to 0.30, and a cache too small does in every version."""
    said = findings(busy("0.20.2", 1200.0, *["0.0"] * 4), tmp_path)["CD510"]
    assert said["confidence"] == "low"
    for cause in ("prefix caching is off", "share nothing", "changes them within their first block", "evicted"):
        assert cause in said["claim"]


def test_a_rate_that_falls_proves_no_eviction(tmp_path: Path) -> None:
    """From 40 % to 12 % once the cache is full: so it does where another client's unrelated prompts join."""
    head = start("0.32.0", True, kv=20_000)
    fell = findings(head + busy("0.32.0", 1500.0, "40.0", "25.0", "12.0"), tmp_path)["CD504"]
    never = findings(head + busy("0.32.0", 1500.0, "12.0", "12.0", "12.0"), tmp_path)["CD504"]
    for found in (fell, never):
        assert (found["severity"], found["confidence"]) == ("note", "low")
        assert "share hardly any text" in found["claim"]


def test_up_to_014_computed_tokens_are_unknown(tmp_path: Path) -> None:
    """There the throughput counts reused tokens, too: whether the cache overflowed cannot be told, and that is said."""
    report = report_of(start("0.11.0", True, kv=20_000) + busy("0.11.0", 1500.0, "12.0", "12.0", "12.0"), tmp_path)
    assert "CD504" not in [f["code"] for f in report["findings"]]
    assert "CD504" in [rule["code"] for rule in report["not_evaluated"]]


def test_up_to_0110_a_hybrid_model_cannot_be_asked_to_cache(tmp_path: Path) -> None:
    """Asking makes the start fail, or is undone; from 0.11.1 on it is the way."""
    old = findings(start("0.9.2", False, "JambaForCausalLM") + busy("0.9.2", 1200.0, "0.0", "0.0"), tmp_path)["CD502"]
    new = findings(start("0.20.2", False, "JambaForCausalLM") + busy("0.20.2", 1200.0, "0.0", "0.0"), tmp_path)["CD502"]
    assert "--enable-prefix-caching" not in json.dumps(old["remedies"])
    assert "--enable-prefix-caching" in json.dumps(new["remedies"])


def test_a_model_for_embeddings_without_caching_is_not_a_fault(tmp_path: Path) -> None:
    log = start("0.32.0", False, "BertModel", pooler="PoolerConfig(pooling_type='CLS')") + busy(
        "0.32.0", 1200.0, None, None
    )
    assert findings(log, tmp_path)["CD503"]["severity"] == "note"
    assert (
        findings(start("0.32.0", False) + busy("0.32.0", 1200.0, None, None), tmp_path)["CD503"]["severity"]
        == "warning"
    )


def test_the_drafters_block_is_kept_from_033_on(tmp_path: Path) -> None:
    """But for servers with a KV connector, whose blocks have hashes of the old kind."""
    spec = "SpeculativeConfig(method='eagle3', model='m', num_spec_tokens=2)"
    kv = "{'model': 'm', 'kv_transfer_config': KVTransferConfig(kv_connector='LMCacheConnectorV1')}"
    for version, args, wanted in (("0.32.0", "{}", True), ("0.33.0", "{}", False), ("0.33.0", kv, True)):
        log = start(version, True, spec=spec, args=args) + busy(version, 100.0, "80.0", "80.0")
        assert ("CD512" in findings(log, tmp_path)) is wanted


def test_requests_of_several_engines_are_not_those_of_the_first(tmp_path: Path) -> None:
    """Prompts of 1,500 tokens on two engines with blocks of 1,056: no prompt is shorter than a block."""
    block = (
        "INFO 11-20 23:44:20 [c.py:6] Setting attention block size to 1056 tokens to ensure that attention page size "
        "is >= mamba page size.\n"
    )
    log = start("0.32.0", True, "Qwen3_5ForConditionalGeneration") + block
    for at in range(3):
        log += access(8) + stats(10 * at, "0.32.0", 600.0, "0.0") + stats(10 * at, "0.32.0", 600.0, "0.0", engine="001")
    assert "shorter than one block" not in json.dumps(findings(log, tmp_path))


def responses(folder: Path, *told: tuple[int, int]) -> str:
    lines = [{"usage": {"prompt_tokens": p, "prompt_tokens_details": {"cached_tokens": c}}} for p, c in told]
    (folder / "usage.json").write_text(json.dumps(lines))
    return str(folder / "usage.json")


def test_a_conversation_that_stays_on_one_engine_is_not_spread(tmp_path: Path) -> None:
    """Each turn reuses a little less than the last one left, as where a template drops reasoning."""
    args = "{'model': 'm', 'data_parallel_size': 2, 'api_server_count': 1}"
    told = responses(tmp_path, *[(1000 + 200 * turn, 800 + 200 * turn - 80 if turn else 0) for turn in range(12)])
    head = start("0.32.0", True, args=args)
    one = head + "".join(access(4) + stats(10 * at, "0.32.0", 100.0, "80.0") for at in range(3))
    both = one + stats(20, "0.32.0", 100.0, "80.0", engine="001")
    for log in (one, both):
        report = report_of(log, tmp_path, "--responses", told)
        assert [f["severity"] for f in report["findings"] if f["code"] == "CD508"] in ([], ["note"])


def test_a_life_of_the_server_ends_where_the_next_begins(tmp_path: Path) -> None:
    first = start("0.32.0", True) + busy("0.32.0", 100.0, "80.0", "80.0")
    lives = report_of(first + first, tmp_path)["sessions"]
    lines = first.count("\n")
    assert [(s["first_line"], s["last_line"]) for s in lives] == [(1, lines), (lines + 1, 2 * lines)]
