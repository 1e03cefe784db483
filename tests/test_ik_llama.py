"""ik_llama.cpp: what its server reused of each request, and that none of its lines is taken for llama-server's."""

from __future__ import annotations

import pytest
from answered import numbers, report_of, sessions_of

TAIL = 'tid="127061612023808" timestamp=1772656428'
START = f"INFO [                    main] build info | {TAIL} build=4226\nprint_info: n_swa                = 0\n"


def common(exact: int, in_slot: int, in_prompt: int) -> str:
    return (
        f"======== Cache: cache_size = 11967, n_past0 =  {exact}, n_past1 =  {in_slot}, n_past_prompt1 = {in_prompt},  "
        f"n_past2 =  {in_slot}, n_past_prompt2 =  {in_prompt}\n"
    )


def chosen(held: int = 11967) -> str:
    return (
        f"======== Prompt cache: cache size: {held}, n_keep: 0, n_discarded_prompt: 0, cache_ram_n_min: 0, "
        "f_keep: 1.00, cache_ram_similarity: 0.50\n"
    )


def launched(task: int, slot: int = 0) -> str:
    return f"INFO [   launch_slot_with_task] slot is processing task | {TAIL} id_slot={slot} id_task={task}\n"


def kept(task: int, p0: int, slot: int = 0) -> str:
    return f"INFO [    batch_pending_prompt] kv cache rm [p0, end) | {TAIL} id_slot={slot} id_task={task} p0={p0}\n"


def timings(computed: int, slot: int = 0, task: int = -1) -> str:
    return (
        f"slot print_timing: id  {slot} | task {task} | \n"
        f"prompt eval time =      21.47 ms / {computed:5d} tokens (   21.47 ms per token,    46.58 tokens per second)\n"
        "       eval time =      17.94 ms /     2 tokens (    8.97 ms per token,   111.50 tokens per second)\n"
        f"      total time =      39.40 ms / {computed + 2:5d} tokens\n"
    )


def test_the_first_batch_says_what_was_reused() -> None:
    """11,900 computed of 11,900; then 11,967 reused and 2,071 computed, in two batches."""
    log = (
        chosen(0) + launched(0) + common(0, 0, 0) + kept(0, 0) + timings(11900)
        + chosen() + launched(55) + common(11967, 11967, 11967) + kept(55, 11967) + kept(55, 14015) + timings(2071)
    )  # fmt: skip
    [session] = sessions_of(log)
    assert session.engine == "ik_llama.cpp"
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(11900, 0), (14038, 11967)]


def test_timings_with_their_prefix_on_every_line() -> None:
    words = timings(60).split("\n")[1]
    [session] = sessions_of(chosen() + launched(7) + kept(7, 40) + f"slot print_timing: id  0 | task 7 | {words}\n")
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(100, 40)]


def test_slots_do_not_mix() -> None:
    log = (
        chosen() + launched(7, 0) + chosen() + launched(8, 1) + common(100, 100, 100) + kept(7, 100, 0)
        + common(40, 40, 40) + kept(8, 40, 1) + timings(60, 1) + timings(20, 0)
    )  # fmt: skip
    [session] = sessions_of(log)
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(100, 40), (120, 100)]


@pytest.mark.parametrize(
    ("p0", "prompt", "cached"),
    [
        (110, 150, 100),  # all of the common text: 110 tokens in the slot, 100 in the prompt
        (109, 149, 99),  # but the last token, which is computed for the reply
        (0, 50, 0),
    ],
)
def test_the_same_text_in_other_tokens(p0: int, prompt: int, cached: int) -> None:
    [session] = sessions_of(chosen() + launched(1) + common(70, 110, 100) + kept(1, p0) + timings(50))
    assert [(a, b) for a, b, _ in numbers(session)] == [(prompt, cached)]


def test_a_checkpoint_in_other_tokens_tells_nothing() -> None:
    [session] = sessions_of(chosen() + launched(1) + common(70, 110, 100) + kept(1, 64) + timings(50))
    assert (numbers(session), session.answers[0].requests, session.answers[0].told) == ([], 1, 0)


def test_a_request_without_its_begin_is_left_out() -> None:
    [session] = sessions_of(chosen() + timings(50) + launched(1) + kept(1, 9) + timings(1))
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(10, 9)]


def test_no_line_of_it_is_taken_for_llama_server() -> None:
    """Newer ones may name the task with the timings, as llama-server does."""
    log = START + chosen(0) + launched(0) + common(0, 0, 0) + kept(0, 0) + timings(11900, task=0)
    found = report_of(log)
    assert [session.engine for session in found.sessions] == ["ik_llama.cpp"]
    assert found.inputs[0].engine == "ik_llama.cpp"
    assert found.totals.requests == 0
    assert list(found.requests.lines()) == []
    assert [session.engine for session in sessions_of(log)] == ["ik_llama.cpp"]


def test_such_words_inside_a_line_are_none_of_it() -> None:
    assert sessions_of("a user pasted " + chosen()) == []
