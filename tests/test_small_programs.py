"""Lines of llama-cpp-python and of LM Studio's engine of 2025 become answers of their session."""

from __future__ import annotations

from answered import numbers, sessions_of

HIT = "Llama.generate: {} prefix-match hit, remaining {} prompt tokens to eval\n"
TIMED = (
    "llama_perf_context_print: prompt eval time =     431.44 ms /    {} tokens (   17.98 ms per token,    55.63 tokens "
    "per second)\n"
)
SUMMARY = (
    "[2025-07-19 20:33:33][DEBUG] Looking for non-prefix contiguous prompt sequences of size >= 256 to reuse from "
    "cache\n"
    "Cache reuse summary: {}/{} of prompt ({}%), {} prefix, {} non-prefix\nTotal prompt tokens: {}\n"
)


def test_a_prefix_match_is_what_was_reused() -> None:
    [session] = sessions_of(HIT.format(2011, 24) + TIMED.format(24) + HIT.format(2060, 11) + TIMED.format(11))
    assert session.engine == "llama-cpp-python"
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(2035, 2011), (2071, 2060)]


def test_a_prompt_that_reuses_nothing_has_its_timings_alone() -> None:
    [session] = sessions_of(HIT.format(2011, 24) + TIMED.format(24) + TIMED.format(1990))
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(2035, 2011), (1990, 0)]


def test_an_old_one_says_no_number() -> None:
    [session] = sessions_of("Llama.generate: prefix-match hit\n" + TIMED.format(24))
    assert (session.answers[0].requests, session.answers[0].told) == (1, 0)


def test_timings_alone_are_anybodys() -> None:
    assert [session.engine for session in sessions_of(TIMED.format(1990))] in ([], ["llama.cpp"])


def test_the_last_token_is_computed_though_all_was_kept() -> None:
    [session] = sessions_of(SUMMARY.format(939, 939, 100, 939, 0, 939) + SUMMARY.format(600, 1200, 50, 344, 256, 1200))
    assert (session.engine, session.program) == ("lmstudio", "LM Studio")
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(939, 938), (1200, 600)]


def test_a_summary_that_is_quoted_is_not_a_request() -> None:
    assert sessions_of('it says "Cache reuse summary: 939/939 of prompt (100%), 939 prefix, 0 non-prefix"\n') == []
