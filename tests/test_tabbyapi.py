"""The line that TabbyAPI logs of each request becomes an answer of its session, also broken at 80 columns."""

from __future__ import annotations

import textwrap

import pytest
from answered import numbers, sessions_of


def metrics(generated: int, seconds: float, cached: int, new: int) -> str:
    return (
        f"INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): {generated} tokens generated in {seconds} seconds "
        f"(Queue: 0.0 s, Process: {cached} cached tokens and {new} new tokens at 1034.0 T/s, Generate: 26.71 T/s, "
        f"Context: {cached + new} tokens)"
    )


def test_cached_and_new_tokens_are_the_prompt() -> None:
    [session] = sessions_of(
        metrics(242, 9.55, 3072, 517) + "\n" + metrics(31, 1.2, 0, 88) + " <-- Not accurate (truncated)\n"
    )
    assert session.engine == "tabbyapi"
    assert numbers(session) == [(3589, 3072, 1), (88, 0, 2)]


def broken(line: str) -> list[str]:
    return textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False)


@pytest.mark.parametrize("generated", [7, 42, 242, 4096, 10240])
@pytest.mark.parametrize(("seconds", "cached", "new"), [(9.55, 3072, 517), (201.55, 30072, 13571), (0.3, 0, 1)])
def test_broken_between_words(generated: int, seconds: float, cached: int, new: int) -> None:
    lines = broken(metrics(generated, seconds, cached, new))
    assert len(lines) > 2
    [session] = sessions_of("\n".join(lines) + "\n")
    assert numbers(session) == [(cached + new, cached, 2)]


def test_broken_after_a_time() -> None:
    """As a log of September 2026 has it, with a draft model."""
    log = (
        "2026-09-06 04:04:21.722 INFO:     Metrics (ID:\n"
        "133d6431af7c486a8ed0820d01972528): 196 tokens generated in 14.98 seconds (Queue:\n"
        "0.01 s, Process: 64 cached tokens and 5436 new tokens at 474.76 T/s, Generate:\n"
        "55.68 T/s, Context: 5500 tokens, Draft: 141 / 165 tokens accepted (85.45%))\n"
    )
    [session] = sessions_of(log + log)
    assert numbers(session) == [(5500, 64, 3), (5500, 64, 7)]


@pytest.mark.parametrize("at", range(70, 83))
def test_broken_anywhere_it_is_a_request_and_no_number_is_wrong(at: int) -> None:
    lines = textwrap.wrap(metrics(242, 9.55, 3072, 517), at, break_long_words=False)
    [session] = sessions_of("\n".join(lines) + "\n" + metrics(31, 1.2, 0, 88) + "\n")
    assert session.answers[0].requests == 2
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] in ([(3589, 3072), (88, 0)], [(88, 0)])


def test_broken_between_the_numbers_it_is_a_request_without_numbers() -> None:
    lines = broken(metrics(102400, 11201.55, 130072, 13571))
    assert lines[1].endswith(" cached tokens and")
    [session] = sessions_of("\n".join(lines) + "\n" + metrics(31, 1.2, 0, 88) + "\n")
    assert (session.answers[0].requests, session.answers[0].told) == (2, 1)
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(88, 0)]


def test_numbers_far_after_are_not_its_own() -> None:
    log = "INFO:     Metrics (ID:\n" + "a line\n" * 3 + "Process: 3 cached tokens and 4 new tokens at\n"
    [session] = sessions_of(log)
    assert (numbers(session), session.answers[0].requests) == ([], 1)


def test_before_cached_tokens_were_told_apart() -> None:
    old = (
        "INFO:     Metrics: 242 tokens generated in 9.55 seconds (Queue: 0.0 s, Process: 1034.0 T/s, Context: 8 tokens)"
    )
    assert sessions_of(old + "\n") == []


def test_a_rest_without_its_begin_is_nothing() -> None:
    assert sessions_of("in 9.55 seconds (Queue: 0.0 s, Process: 0 cached tokens and 517 new tokens at\n") == []
