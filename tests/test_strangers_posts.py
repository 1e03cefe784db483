"""What people post of programs that are set in other ways than llama-server: no advice that their program lacks."""

from __future__ import annotations

from typing import Any

from conftest import report_of

FORCED = "forcing full prompt re-processing due to lack of cache data"
SHIFT = (
    '{"function":"update_slots","level":"INFO","line":1613,"msg":"slot context shift","n_cache_tokens":2048,'
    '"n_ctx":2048,"n_discard":1023,"n_keep":1,"n_left":2046,"n_past":2047,"n_system_tokens":0,"slot_id":0,'
    '"task_id":9,"tid":"1398","timestamp":1710561044}'
)
GIN = '[GIN] 2024/03/16 - 03:50:10 | 200 |  8.175488506s |       127.0.0.1 | POST     "/api/generate"'
JOURNAL = "Aug 28 16:17:40 host ollama[29]: "


def finding(code: str, *lines: str) -> dict[str, Any]:
    found = report_of("".join(f"{line}\n" for line in lines).encode())["findings"]
    (one,) = (finding for finding in found if finding["code"] == code)
    return dict(one)


def advice(code: str, *lines: str) -> list[str]:
    return [remedy["text"] for remedy in finding(code, *lines)["remedies"]]


def test_a_build_that_may_be_new_enough_is_not_told_first_to_update() -> None:
    """Words from b9714 on tell no more; the two checkpoints did not fill a list of 32 either."""
    said = advice(
        "CD201",
        "slot get_availabl: selected slot by LCP similarity, f_sim_best = 0.887 (> 0.100 thold)",
        "slot   operator(): checking checkpoint with [41210, 41210] against 36890...",
        "slot   operator(): checking checkpoint with [40702, 40702] against 36890...",
        f"slot   operator(): {FORCED}",
    )
    assert said[0].startswith("In the client: ")
    assert said[-1].startswith("Update llama.cpp: ")


def test_an_old_build_is_told_first_to_update() -> None:
    slot = "slot update_slots: id  0 | task 9 |"
    said = advice(
        "CD201",
        f"{slot} new prompt, n_ctx_slot = 65536, n_keep = 0, task.n_tokens = 41300",
        f"{slot} n_past = 36890, slot.prompt.tokens.size() = 41216, seq_id = 0, pos_min = 41215, n_swa = 1",
        f"{slot} {FORCED} (likely due to SWA or hybrid/recurrent memory)",
        f"{slot} n_tokens = 0, memory_seq_rm [0, end)",
    )
    assert said[0].startswith("Update llama.cpp: ")


def test_llama_cpp_of_2024_could_not_switch_the_shift_off() -> None:
    assert not [remedy for remedy in finding("CD402", SHIFT)["remedies"] if remedy["options"]]


def test_ollama_of_2024_is_known_by_its_access_log() -> None:
    (said,) = advice("CD402", GIN, SHIFT)
    assert said.startswith("Set num_ctx to 8192 ")


def test_a_context_in_ollama_is_that_of_one_request() -> None:
    """No line shows the number of slots: num_ctx needs no share for others."""
    slot = f"{JOURNAL}slot   operator(): id  0 | task 2044 |"
    said = advice(
        "CD401",
        f"{slot} new prompt, n_ctx_slot = 4096, n_keep = 4, task.n_tokens = 9000",
        f"{JOURNAL}srv    send_error: task id = 2044, error: request (9000 tokens) exceeds the available context size "
        "(4096 tokens), try increasing it",
    )
    assert said[0].startswith("Set num_ctx to 16384 ")


def test_nothing_is_said_of_a_turn_before_that_is_not_there() -> None:
    slot = "slot   operator(): id  0 | task 35089 |"
    said = finding(
        "CD901",
        "slot get_availabl: id  0 | task -1 |  - checking sim = 0.016 (86/5450) > 0.100",
        f"{slot} new prompt, n_ctx_slot = 8448, n_keep = 4, task.n_tokens = 5450",
        f"{slot} {FORCED}",
        "slot print_timing: id  0 | task 35089 | prompt processing, n_tokens =   3072, progress = 0.56, "
        "t =   3.98 s / 772.76 tokens per second",
    )
    assert "reused 0 tokens. Of this prompt, 86 tokens" in said["why"]
