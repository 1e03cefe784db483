"""Timing rows without slot and task belong to the only open request: posts leave out the row ``print_timing`` above."""

from __future__ import annotations

import pytest

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.report.words import coverage


def rows(slot: int, task: int, prompt: int, cached: int) -> list[str]:
    before = f"slot update_slots: id  {slot} | task {task} | "
    return [
        f"slot launch_slot_: id  {slot} | task {task} | processing task",
        f"{before}new prompt, n_ctx_slot = 16384, n_keep = 0, task.n_tokens = {prompt}",
        f"{before}n_past = {cached}, slot.prompt.tokens.size() = 8500, seq_id = {slot}, pos_min = 4, n_swa = 0",
        f"{before}n_tokens = {cached}, memory_seq_rm [{cached}, end)",
    ]


def timings(computed: int, ms: float) -> list[str]:
    return [
        f"prompt eval time = {ms:10.2f} ms / {computed:5d} tokens (    0.36 ms per token,  2807.50 tokens per second)",
        "       eval time =      15.75 ms /     6 tokens (    2.62 ms per token,   381.05 tokens per second)",
        f"      total time = {ms + 15.75:10.2f} ms / {computed + 6:5d} tokens",
    ]


def release(slot: int, task: int, tokens: int) -> str:
    return f"slot      release: id  {slot} | task {task} | stop processing: n_tokens = {tokens}, truncated = 0"


def read(*lines: str) -> Report:
    analyzer = Analyzer()
    analyzer.open("post")
    analyzer.feed("".join(f"{line}\n" for line in lines).encode())
    return analyzer.finish()


def measured(report: Report) -> list[tuple[int | None, int | None, float | None, str]]:
    """Task, computed tokens, prompt milliseconds and outcome of each request."""
    return sorted((r.task, r.processed_tokens, r.prompt_ms, r.outcome) for r in report.requests)


def is_said_to_be_missing(report: Report) -> bool:
    said = coverage.cannot_tell(report)
    return said is not None and any("prompt eval time" in row for row in said.missing)


def test_rows_without_a_header_are_of_the_only_open_request() -> None:
    report = read(*rows(0, 5, 9000, 100), *timings(8900, 3170.1), release(0, 5, 9005))
    assert measured(report) == [(5, 8900, 3170.1, "reprocessed")]
    assert not is_said_to_be_missing(report)


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_post_that_ends_within_the_rows_lacks_no_prompt_time(kept: int) -> None:
    report = read(*rows(0, 5, 9000, 100), *timings(8900, 3170.1)[:kept])
    assert [row[:3] for row in measured(report)] == [(5, 8900, 3170.1)]
    assert not is_said_to_be_missing(report)


def test_a_request_without_the_rows_lacks_them() -> None:
    report = read(*rows(0, 5, 9000, 100), release(0, 5, 9005))
    assert [row[:3] for row in measured(report)] == [(5, None, None)]
    assert is_said_to_be_missing(report)


def test_requests_in_turn_have_their_own_rows() -> None:
    lines = []
    for task in (5, 14):
        lines += [*rows(0, task, 9000, task), *timings(9000 - task, 1000.0 + task), release(0, task, 9005)]
    assert measured(read(*lines)) == [(5, 8995, 1005.0, "reprocessed"), (14, 8986, 1014.0, "reprocessed")]


def test_of_several_open_requests_the_numbers_decide() -> None:
    begun = [*rows(0, 5, 9000, 100), *rows(1, 6, 5000, 100)]
    first, second = [*timings(8900, 3170.1), release(0, 5, 9005)], [*timings(4900, 20.5), release(1, 6, 5005)]
    expected = [(5, 8900, 3170.1, "reprocessed"), (6, 4900, 20.5, "reprocessed")]
    assert measured(read(*begun, *first, *second)) == expected
    assert measured(read(*begun, *second, *first)) == expected


def test_rows_that_fit_two_open_requests_or_none_have_no_request() -> None:
    same = [*rows(0, 5, 9000, 100), *rows(1, 6, 9000, 100)]
    other = [*rows(0, 5, 9000, 100), *rows(1, 6, 5000, 100)]
    for begun, computed in ((same, 8900), (other, 7)):
        report = read(*begun, *timings(computed, 3170.1))
        assert [row[2] for row in measured(report)] == [None, None]


def test_rows_before_any_request_have_no_request() -> None:
    """A log that was cut inside the block."""
    report = read(*timings(700, 5.0), *rows(0, 5, 9000, 100), *timings(8900, 3170.1), release(0, 5, 9005))
    assert measured(report) == [(5, 8900, 3170.1, "reprocessed")]
