"""Lines that state something by themselves: said where no request shows it, and silent on what looks like them."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import report_of
from loops import each

from cachedoctor.doctor.analysis.analyzer import Analyzer

FORCED = (
    "forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see "
    "https://github.com/ggml-org/llama.cpp/pull/13194#issuecomment-2868343055)"
)
OVERFLOW = "request (41012 tokens) exceeds the available context size (40960 tokens), try increasing it"
POSITIONS = """\
init: the tokens of sequence 0 in the input batch have inconsistent sequence positions:
 - the last position stored in the memory module of the context (i.e. the KV cache) for sequence 0 is X = 213
 - the tokens for sequence 0 in the input batch have a starting position of Y = 0
 it is required that the sequence positions remain consecutive: Y = X + 1
"""
WHOLE = """\
slot launch_slot_: id  0 | task 0 | processing task, is_child = 0
slot update_slots: id  0 | task 0 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2110
slot update_slots: id  0 | task 0 | n_tokens = 0, memory_seq_rm [0, end)
slot print_timing: id  0 | task 0 |
prompt eval time =     205.77 ms /  2110 tokens (    0.10 ms per token, 10254.17 tokens per second)
       eval time =       1.64 ms /     5 tokens (    0.33 ms per token,  3048.78 tokens per second)
slot      release: id  0 | task 0 | stop processing: n_tokens = 2114, truncated = 0
"""
"""A request from its start to its end."""
CHECKED = """\
slot update_slots: id  0 | task 95 | n_past = 30000, slot.prompt.tokens.size() = 33120, seq_id = 0, pos_min = 33119, n_swa = 0
slot update_slots: id  0 | task 95 | Checking checkpoint with [20990, 20990] against 30000...
"""
MAKING_ROOM = "srv         alloc:  - making room for prompt cache entry, removing oldest entry (size = 1822.004 MiB)\n"


def findings(log: str) -> list[dict[str, Any]]:
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    return [
        {"code": f.code, "severity": f.severity, "confidence": f.confidence, "tokens": f.cost.tokens, "claim": f.claim,
         "line": f.evidence[0].line}
        for f in analyzer.finish().findings
        if f.code not in ("CD902", "CD903")
    ]  # fmt: skip


@each(
    ("log", "code", "severity", "confidence", "line", "says"),
    [
        (
            "srv          load:  - found better prompt with f_keep = 0.912, sim = 0.774\n"
            "srv          load: failed to restore state with size 120334411\n"
            "slot  prompt_load: id  1 | task -1 | failed to load prompt from cache\n",
            "CD305", "error", "high", 2, "114.8 MiB",
        ),
        ("slot  prompt_load: id  1 | task -1 | failed to load prompt from cache\n", "CD305", "error", "high", 1, "RAM"),
        (
            "0.01.025.178 E state_seq_set_data: error loading state: failed to restore kv cache\n",
            "CD305", "error", "medium", 1, "a saved state",
        ),
        (
            "E state_read_meta: failed to find 2087 available cells in kv cache\n",
            "CD305", "error", "medium", 1, "a saved state",
        ),
        (OVERFLOW + "\n", "CD401", "error", "high", 1, "41,012 tokens did not fit into a context of 40,960"),
        (
            '{"error":{"code":400,"message":"' + OVERFLOW + '","type":"exceed_context_size_error","n_ctx":40960}}\n',
            "CD401", "error", "high", 1, "41,012 tokens did not fit into a context of 40,960",
        ),
        (
            "openai.BadRequestError: Error code: 400 - {'error': {'code': 400, 'message': '" + OVERFLOW + "'}}\n",
            "CD401", "error", "high", 1, "41,012 tokens did not fit into a context of 40,960",
        ),
        (
            "the request exceeds the available context size. try increasing the context size or enable context shift\n",
            "CD401", "error", "high", 1, "a prompt did not fit into the context",
        ),
        (
            "srv    load_model: prompt cache is enabled, size limit: 4096 MiB\n" + MAKING_ROOM,
            "CD304", "note", "medium", 2, "1,822.0 MiB was evicted from the RAM prompt cache of 4,096 MiB to make room: the cache holds about 2 prompts of",
        ),
        (MAKING_ROOM, "CD304", "note", "medium", 1, "a prompt of 1,822.0 MiB was evicted from the RAM prompt cache to make room"),
        (
            "0.01.208.820 W srv         alloc:  - prompt state size 1800.5 MiB exceeds cache size limit 1000.000 MiB, skipping\n",
            "CD304", "note", "medium", 1, "1,800.5 MiB did not fit into the RAM prompt cache of 1,000 MiB and was not saved",
        ),
        (WHOLE + MAKING_ROOM, "CD304", "note", "medium", 8, "evicted from the RAM prompt cache"),
        (
            "0.51.220.100 W srv  try_clear_id: purging slot 3 with 18422 tokens\n",
            "CD306", "note", "high", 1, "slot 3 with 18,422 tokens",
        ),
        (
            "srv    load_model: cache_reuse is not supported by this context, it will be disabled\n",
            "CD210", "note", "high", 1, "switched the option off at start",
        ),
        (
            POSITIONS + "srv  update_slots: Invalid input batch. i = 0, n_batch = 2048, ret = -1\n",
            "CD214", "error", "high", 1, "ends at position 213, but the batch begins at 0",
        ),
        (POSITIONS, "CD214", "error", "medium", 1, "ends at position 213, but the batch begins at 0"),
        (
            "srv  update_slots: Invalid input batch. i = 0, n_batch = 2048, ret = -1\n",
            "CD214", "error", "medium", 1, "the batch was rejected",
        ),
        (
            "srv    send_error: task id = 7, error: Invalid input batch.\n",
            "CD214", "error", "medium", 1, "1 request failed",
        ),
        (
            "srv  update_slots: Compute error. i = 0, n_batch = 512, ret = -3\n",
            "CD408", "error", "high", 1, "the model could not compute a batch",
        ),
        (
            "srv  update_slots: Context size has been exceeded. i = 0, n_batch = 1, ret = 1\n",
            "CD408", "error", "high", 1, "the KV memory had no room left",
        ),
        (
            "srv  update_slots: failed to decode the batch: KV cache is full - try increasing it via the context size, i = 0, "
            "n_batch = 1, ret = 1\n",
            "CD408", "error", "high", 1, "the KV memory had no room left",
        ),
        (
            "srv                send_error: task 40 | error = the request exceeds the available context size. try increasing "
            "the context size or enable context shift\n",
            "CD401", "error", "high", 1, "context",
        ),
        (
            "srv    send_error: task id = 1310, error: Compute error.\n",
            "CD408", "error", "high", 1, "the model could not compute a batch: 1 request failed",
        ),
        (
            "0.12.345.678 E slot   operator(): id  3 | task 71 | failed to process image, res = 1\n",
            "CD408", "error", "high", 1, "an image or audio clip could not be processed",
        ),
        ("failed to process image\n", "CD408", "error", "high", 1, "an image or audio clip could not be processed"),
        (
            "input (5120 tokens) is too large to process. increase the physical batch size (current batch size: 512)\n",
            "CD408", "error", "high", 1, "longer than one physical batch",
        ),
        (
            "srv    send_error: task id = 5, error: Unable to restore slot\n",
            "CD408", "error", "high", 1, "the server answered with an error",
        ),
        (
            "/src/tools/server/server-context.cpp:2345: failed to restore context checkpoint\n",
            "CD213", "error", "high", 1, "the server process ended",
        ),
        (
            "/src/common/common.cpp:2093: checkpoint size mismatch: expected 73924608, got 0\n",
            "CD213", "error", "high", 1, "the server process ended",
        ),
    ],
)  # fmt: skip
def test_a_line_speaks_for_itself(log: str, code: str, severity: str, confidence: str, line: int, says: str) -> None:
    (found,) = findings(log)
    assert (found["code"], found["severity"], found["confidence"]) == (code, severity, confidence)
    assert (found["line"], found["tokens"]) == (line, 0)
    assert says in found["claim"]


@each(
    "log",
    [
        "srv         alloc:  - prompt is already in the cache, skipping\n"
        "srv         alloc:  - removing obsolete cached prompt with length 5120\n"
        "srv        update:  - cache state: 2 prompts, 812.300 MiB (limits: 8192.000 MiB, 65536 tokens, 65536 est)\n",
        "srv        update:  - cache state: 0 prompts, 0.000 MiB (limits: 0.000 MiB, 65536 tokens, 65536 est)\n",
        "srv          init: init: idle slots will be saved to prompt cache and cleared upon starting a new task\n",
        "srv    load_model: prompt cache is disabled - use `--cache-ram N` to enable it\n" + MAKING_ROOM,
        MAKING_ROOM + WHOLE,  # evicted and never missed
        "0.51.220.100 W srv  try_clear_id: purging slot 3 with 18422 tokens\n" + WHOLE,
        "srv    load_model: cache_reuse is not supported by this context, it will be disabled\n" + WHOLE,
        WHOLE + POSITIONS,  # of a draft model, as no request failed
        "srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, i = 0, n_batch = 64, ret = 1\n",
        "/src/common/common.cpp:2093: checkpoint size mismatch: expected 73924608, got 512\n",  # one that was being made
        WHOLE + "find_slot: non-consecutive token position 1864 after 1863 for sequence 0 with 16 new tokens\n",
        'The docs say: "' + OVERFLOW + '" is printed when the prompt is too long.\n',
        "srv          stop: cancel task, id_task = 1310\n",
    ],
)
def test_what_looks_like_it_is_silent(log: str) -> None:
    assert findings(log) == []


def test_what_the_library_says_in_any_program_is_not_a_log_of_a_server() -> None:
    line = "find_slot: non-consecutive token position 4 after 4 for sequence 0 with 512 new tokens\n"
    assert [info["recognised"] for info in report_of(line * 3)["inputs"]] == [0]
    (whole,) = report_of(WHOLE)["inputs"]
    (both,) = report_of(WHOLE + line * 3)["inputs"]
    assert both["recognised"] == whole["recognised"]


FRESH = "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1\n"
PROGRESS = "slot print_timing: id  0 | task 9 | prompt processing, n_tokens =  72791, progress = 1.00\n"


@pytest.mark.parametrize("progress", ["", PROGRESS])
def test_a_prompt_has_at_least_what_was_computed_of_it(progress: str) -> None:
    timing = "prompt eval time =   31213.84 ms / 72795 tokens (    0.43 ms per token,  2332.14 tokens per second)"
    (request,) = report_of(f"{progress}slot print_timing: id  0 | task 9 | {timing}\n")["requests"]
    assert (request["prompt_tokens"], request["cached_tokens"], request["processed_tokens"]) == (None, None, 72_795)
    assert request["at_least"] == {"prompt_tokens": 72_795}


def test_a_request_that_is_cut_is_not_whole() -> None:
    """Its lines do not show whether what was discarded came back."""
    cut = "0.51.220.100 W srv  try_clear_id: purging slot 3 with 18422 tokens\n" + "".join(WHOLE.splitlines(True)[:3])
    assert [f["code"] for f in findings(cut)] == ["CD306"]


@pytest.mark.parametrize(
    ("log", "confidence", "tokens", "line"),
    [
        (
            "slot update_slots: id  0 | task 95 | failed to restore context checkpoint (pos_min = 20990, pos_max = 20990, size = 70.500 MiB)\n"
            "slot update_slots: id  0 | task 95 | n_tokens = 0, memory_seq_rm [0, end)\n",
            "high", 20991, 1,
        ),
        (
            CHECKED + "slot update_slots: id  0 | task 95 | failed to restore context checkpoint (pos_min = 20990, pos_max = 20990, "
            f"n_tokens = 20991, size = 70.500 MiB)\nslot update_slots: id  0 | task 95 | {FORCED}\n",
            "high", 20991, 3,
        ),
        (
            CHECKED + "state_seq_set_data: error loading state: failed to restore kv cache\n"
            f"slot update_slots: id  0 | task 95 | {FORCED}\n",
            "medium", 20991, 3,
        ),
        (CHECKED + "/src/common/common.cpp:2093: checkpoint size mismatch: expected 73924608, got 0\n", "high", 20991, 3),
    ],
)  # fmt: skip
def test_a_checkpoint_that_could_not_be_restored(log: str, confidence: str, tokens: int, line: int) -> None:
    """Its tokens are the cost, whatever else of the request the log has; no other rule speaks of checkpoints then."""
    found = [f for f in findings(log) if f["code"].startswith("CD2")]
    assert [(f["code"], f["severity"], f["confidence"], f["tokens"], f["line"]) for f in found] == [
        ("CD213", "error", confidence, tokens, line)
    ]


def test_a_restore_that_failed_is_not_a_wrong_comparison() -> None:
    """A whole request whose usable checkpoint was taken and failed: the comparison was right."""
    log = WHOLE + (
        "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.900 (> 0.100 thold), f_keep = 0.900\n"
        "slot launch_slot_: id  0 | task 7 | processing task, is_child = 0\n"
        "slot update_slots: id  0 | task 7 | new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = 2300\n"
        "slot update_slots: id  0 | task 7 | n_past = 2000, slot.prompt.tokens.size() = 2114, seq_id = 0, pos_min = 2113, n_swa = 0\n"
        "slot update_slots: id  0 | task 7 | Checking checkpoint with [1587, 1587] against 2000...\n"
        "slot update_slots: id  0 | task 7 | failed to restore context checkpoint (pos_min = 1587, pos_max = 1587, n_tokens = 1588, size = 0.100 MiB)\n"
        f"slot update_slots: id  0 | task 7 | {FORCED}\n"
        "slot update_slots: id  0 | task 7 | n_tokens = 0, memory_seq_rm [0, end)\n"
        "slot print_timing: id  0 | task 7 |\n"
        "prompt eval time =     205.77 ms /  2300 tokens (    0.10 ms per token, 10254.17 tokens per second)\n"
        "       eval time =       1.64 ms /     5 tokens (    0.33 ms per token,  3048.78 tokens per second)\n"
        "slot      release: id  0 | task 7 | stop processing: n_tokens = 2304, truncated = 0\n"
    )
    found = {f["code"]: f for f in findings(log)}
    assert found.keys() & {"CD201", "CD203", "CD204", "CD205", "CD208", "CD901"} == set()
    assert (found["CD213"]["confidence"], found["CD213"]["tokens"]) == ("high", 1588)


def test_a_slot_that_held_at_least_so_much_bounds_no_cost_from_above() -> None:
    """Checkpoints tell the least that it held; of the 28,367 computed tokens all but the common ones may be repeated.

    The checkpoint ends at position 1972, so it held 1,973; 3 or 4 are common, which a threshold of 3 leaves open.
    """
    log = (
        "checking checkpoint with [1972, 1972] against 3...\n"
        "checking checkpoint with [1460, 1460] against 3...\n"
        f"{FORCED}\n"
        "prompt eval time = 301603.16 ms / 28367 tokens (10.63 ms per token, 94.05 tokens per second)\n"
    )
    (found,) = (f for f in findings(log) if f["code"] == "CD108")
    assert found["confidence"] == "low"
    assert "1,969 to 28,364 tokens recomputed" in found["claim"]


@pytest.mark.parametrize(
    ("chosen", "reused", "outcome"),
    [("", 0, "unknown"), ("", 900, "unknown"), (FRESH, 0, "cold")],
    ids=["nothing reused", "something reused", "a fresh slot"],
)
def test_a_request_is_cold_only_where_its_slot_held_nothing(chosen: str, reused: int, outcome: str) -> None:
    """A log that begins with it does not say what was there before."""
    log = (
        f"{chosen}slot launch_slot_: id  0 | task 1 | processing task\n"
        "slot update_slots: id  0 | task 1 | new prompt, n_ctx_slot = 8192, n_keep = 0, task.n_tokens = 2300\n"
        f"slot update_slots: id  0 | task 1 | n_tokens = {reused}, memory_seq_rm [{reused}, end)\n"
        "slot print_timing: id  0 | task 1 |\n"
        f"prompt eval time =  205.77 ms / {2300 - reused} tokens (    0.10 ms per token, 10254.17 tokens per second)\n"
        "       eval time =    1.64 ms /     5 tokens (    0.33 ms per token,  3048.78 tokens per second)\n"
        "slot      release: id  0 | task 1 | stop processing: n_tokens = 2304, truncated = 0\n"
    )
    (request,) = report_of(log)["requests"]
    assert request["outcome"] == outcome
