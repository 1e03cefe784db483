"""ik_llama.cpp: what its server reused of each request, and what its lines about the memory say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from answered import numbers, report_of, sessions_of
from conftest import FIXTURES

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.redact.redact import Redactor
from cachedoctor.model import Report

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


def search(task: int, lcp: int, held: int) -> str:
    return (
        f"slot apply_checkp: id  0 | task {task} | n_past = {lcp}, slot.prompt.tokens.size() = {held}, seq_id = 0, "
        f"pos_min = {held - 1}\n"
    )


def restored(task: int, at: int) -> str:
    return (
        f"slot apply_checkp: id  0 | task {task} | restored context checkpoint took  7.10 ms (pos_min = {at - 1}, "
        f"pos_max = {at - 1}, size = 63.100 MiB)\n"
    )


def created(task: int, at: int) -> str:
    return (
        f"slot create_check: id  0 | task {task} | created context checkpoint 3 of 32 (pos_min = {at - 1}, "
        f"pos_max = {at - 1}, size = 63.100 MiB, took 12.20 ms)\n"
    )


def released(task: int, tokens: int) -> str:
    return (
        f"INFO [           release_slots] slot released | {TAIL} id_slot=0 id_task={task} n_ctx=360192 n_past={tokens} "
        f"n_system_tokens=0 n_cache_tokens={tokens} truncated=false\n"
    )


REWRITTEN = (
    chosen(0) + launched(0) + kept(0, 0) + created(0, 51900) + timings(52010) + released(0, 52011)
    + chosen(52011) + launched(88) + search(88, 37083, 52011) + restored(88, 36864) + kept(88, 36864)
    + kept(88, 38912) + created(88, 51000) + timings(14500) + released(88, 51365)
)  # fmt: skip
"""Two requests on memory that needs checkpoints: the second diverges, and goes back to one."""


def requests_of(found: Report) -> list[dict[str, Any]]:
    return [json.loads(line) for line in found.requests.lines()]


@pytest.mark.parametrize("more", [0, 400], ids=["excerpt", "log"])
def test_lines_about_the_memory_make_requests(more: int) -> None:
    """In one session: 36,864 of 51,364 reused, 219 lost by the server, 14,928 by the client."""
    found = report_of(REWRITTEN + "a line of nobody\n" * more)
    (requests,) = found.sessions
    assert requests.answers == []
    assert (requests.program, requests.build_min, requests.build_max) == ("ik_llama.cpp", None, None)
    first, second = requests_of(found)
    assert [first[key] for key in ("prompt_tokens", "cached_tokens", "outcome", "partial")] == [52010, 0, "cold", False]
    assert [second[key] for key in ("prompt_tokens", "cached_tokens", "held_tokens", "common_prefix_tokens")] == [
        51364, 36864, 52011, 37083,
    ]  # fmt: skip
    assert (second["lost_tokens"], second["partial"]) == (219 + 14928, False)
    assert [finding.name for finding in found.findings] == ["history-rewritten"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("step", [1, 7, 100])
def test_requests_are_the_same_however_the_log_arrives(step: int) -> None:
    log = REWRITTEN + "a line of nobody\n" * 400
    assert requests_of(report_of(log, step)) == requests_of(report_of(log))


def test_a_request_in_between_without_such_lines_makes_the_slot_unknown() -> None:
    """What it left in the slot is not what an earlier request left there."""
    between = launched(60) + kept(60, 100) + timings(20) + released(60, 122)
    last = launched(90) + kept(90, 0) + created(90, 700) + timings(900) + released(90, 901)
    found = report_of(REWRITTEN + between + last)
    (session,) = found.sessions
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [
        (52010, 0), (51364, 36864), (120, 100), (900, 0),
    ]  # fmt: skip
    third = requests_of(found)[-1]
    assert (third["prompt_tokens"], third["cached_tokens"]) == (900, 0)
    assert (third["held_tokens"], third["common_prefix_tokens"]) == (None, None)


def test_remedies_name_the_program() -> None:
    """The numbers of llama.cpp's builds are none of the fork's."""
    forced = "slot apply_checkp: id  0 | task 88 | forcing full prompt re-processing\n"
    log = REWRITTEN.replace(restored(88, 36864), forced).replace(kept(88, 36864), kept(88, 0))
    (lost,) = (finding for finding in report_of(log).findings if finding.name == "no-usable-checkpoint")
    advised = [remedy.text for remedy in lost.remedies]
    assert any(text.startswith("Update ik_llama.cpp, which has its own builds. In llama.cpp: ") for text in advised)
    assert not any(text.startswith("Update llama.cpp") for text in advised)


def test_such_requests_are_counted_with_the_answers_alone() -> None:
    log = "".join(chosen() + launched(n) + kept(n, 100) + timings(20) + released(n, 122) for n in range(3))
    assert requests_of(report_of(log)) == []
    assert [session.engine for session in sessions_of(log)] == ["ik_llama.cpp"]


@pytest.mark.parametrize(
    ("p0", "prompt", "cached"),
    [(110, 150, 100), (109, 149, 99), (0, 50, 0)],
)
def test_requests_count_tokens_of_the_prompt_as_the_answers_do(p0: int, prompt: int, cached: int) -> None:
    """110 tokens in the slot are 100 of the prompt, as the line before the first batch says."""
    log = chosen() + launched(1) + common(70, 110, 100) + kept(1, p0) + created(1, 140) + timings(50) + released(1, 161)
    (request,) = requests_of(report_of(log))
    (answers,) = sessions_of("".join(line for line in log.splitlines(keepends=True) if "create_check" not in line))
    assert [(a, b) for a, b, _ in numbers(answers)] == [(prompt, cached)]
    assert (request["prompt_tokens"], request["cached_tokens"]) == (prompt, cached)


LINES = REWRITTEN.splitlines(keepends=True)


@pytest.mark.parametrize("first", range(10, len(LINES)))
def test_a_line_that_proves_the_program_makes_no_answer_worse(first: int) -> None:
    """Whatever was found and recognised without it is with it."""
    rest = "".join(line for line in LINES[first:] if not line.startswith("="))
    alone, proved = report_of(rest), report_of(chosen(52011) + rest)
    assert proved.inputs[0].recognised > alone.inputs[0].recognised
    said = {finding.name for finding in alone.findings} - {"unknown-format", "log-cut"}
    assert said <= {finding.name for finding in proved.findings}
    assert "unknown-format" not in {finding.name for finding in proved.findings}


def test_a_choice_alone_is_read_as_llama_servers() -> None:
    """Nothing names the slot: about 12 of 1,000 tokens of 48,210 are common."""
    looking = " - looking for better prompt, base f_keep = 0.012, sim = 0.012, n_keep = 0, n_discarded_prompt = 0\n"
    found = report_of(chosen(48210) + looking)
    (request,) = requests_of(found)
    assert request["held_tokens"] == 48210
    assert [finding.name for finding in found.findings if finding.name != "log-cut"] == ["prefix-diverges-early"]


LLAMA = (FIXTURES / "cases" / "mmproj-truncation-b7551" / "server.log").read_text("utf-8")


def test_llama_servers_lines_after_such_a_line_are_still_read() -> None:
    """A user may have pasted it: requests and findings stay."""
    at = LLAMA.index("\n", len(LLAMA) // 3) + 1
    whole, proved = report_of(LLAMA), report_of(LLAMA[:at] + chosen() + LLAMA[at:])
    assert [r["cached_tokens"] for r in requests_of(proved)] == [r["cached_tokens"] for r in requests_of(whole)]


@pytest.mark.parametrize("end", [" - saving prompt with length", " - saving prompt with length 2823, total state si"])
def test_an_excerpt_may_end_within_a_line_of_the_choice(end: str) -> None:
    """The line is held back until the slot is known, and then lacks what it is about."""
    analyzer = Analyzer()
    analyzer.open("log")
    analyzer.feed((chosen() + end).encode())
    report = analyzer.finish()
    assert not analyzer.crashed
    assert [session.program for session in report.sessions] == ["ik_llama.cpp"]


def test_an_excerpt_may_end_within_the_timings_of_an_open_request() -> None:
    """What it computed is not known then."""
    log = chosen(0) + launched(0) + kept(0, 40) + created(0, 51900) + timings(60, task=0)[:64]
    found = report_of(log)
    assert [(info.error, info.engine) for info in found.inputs] == [(None, "ik_llama.cpp")]
    [request] = requests_of(found)
    assert (request["cached_tokens"], request["prompt_tokens"]) == (40, None)


def test_a_redacted_log_shows_the_same() -> None:
    redactor = Redactor()
    redacted = redactor.feed(REWRITTEN.encode()) + redactor.finish()
    assert b"restored context checkpoint took" in redacted
    assert requests_of(report_of(redacted)) == requests_of(report_of(REWRITTEN))
