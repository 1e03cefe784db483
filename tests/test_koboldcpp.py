"""The line that KoboldCpp prints after each reply becomes an answer of its session."""

from __future__ import annotations

import io

import pytest
from answered import numbers, report_of, sessions_of

from cachedoctor.report.base import Appearance, FormatName, write
from cachedoctor.report.wire import stored

START = "***\nWelcome to KoboldCpp - Version 1.120\n"


def progress(computed: int, word: str = "BATCH") -> str:
    shown = [f"\rProcessing Prompt [{word}] ({done} / {computed} tokens)" for done in (0, 512)]
    return "\n" + "".join(shown) + "\n"


def done(context: int, computed: int, generated: int) -> str:
    return (
        f"\rGenerating (1 / 300 tokens)\rGenerating ({generated} / 300 tokens)\n"
        f"[21:04:11] CtxLimit:{context}/8192, Init:0.41s, Processed:{computed} in 34.68s (47.19T/s), "
        f"Generated:{generated}/300 in 9.12s (8.55T/s), Total:44.21s\n"
    )


def done_before(context: int, generated: int) -> str:
    return (
        f"\n[19:46:37] CtxLimit:{context}/8192, Amt:{generated}/470, Init:0.00s, Process:1.24s (2020.24T/s), "
        "Generate:0.18s (27.17T/s), Total:1.42s\n"
    )


def test_what_is_neither_computed_nor_generated_was_reused() -> None:
    """2,475 - 78 = 2,397 tokens of prompt, all computed; then 2,715 - 50 = 2,665, of which 190 were computed."""
    [session] = sessions_of(START + progress(2397) + done(2475, 2397, 78) + progress(190) + done(2715, 190, 50))
    assert (session.engine, session.version) == ("koboldcpp", "1.120")
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(2397, 0), (2665, 2475)]
    [answers] = session.answers
    assert (answers.requests, answers.told, answers.prompt_tokens, answers.cached_tokens) == (2, 2, 5062, 2475)


def test_older_versions_tell_what_is_computed_while_they_compute() -> None:
    """2,500 - 5 = 2,495 tokens of prompt; 2,495 - 2,400 = 95 were reused."""
    [session] = sessions_of(progress(2400, "BLAS") + done_before(2500, 5))
    assert numbers(session) == [(2495, 95, 4)]


def test_without_that_line_the_reuse_is_unknown() -> None:
    [session] = sessions_of(progress(2400, "BLAS") + done_before(2500, 5) + done_before(2600, 10))
    assert [(prompt, cached) for prompt, cached, _ in numbers(session)] == [(2495, 95), (2590, None)]
    [answers] = session.answers
    assert (answers.requests, answers.told, answers.prompt_tokens) == (2, 1, 2495)


def test_the_debug_wording() -> None:
    line = (
        "CtxLimit:1082/4096, Amt:74/400, Init:0.01s, Process:2.37s (2.4ms/T = 425.14T/s), "
        "Generate:2.07s (28.0ms/T = 35.77T/s), Total:4.44s (16.67T/s)\n"
    )
    [session] = sessions_of(f"Processing Prompt [BLAS] (1008 / 1008 tokens)\n{line}")
    assert numbers(session) == [(1008, 0, 2)]


def test_a_prompt_that_was_given_up_tells_nothing() -> None:
    """The context then holds what was computed until then, and the line names all that was to be."""
    [session] = sessions_of(progress(2400) + done(600, 2400, 0))
    assert (numbers(session), session.answers[0].requests, session.answers[0].told) == ([], 1, 0)


@pytest.mark.parametrize(("context", "computed", "generated"), [(100, 2000, 50), (50, 10, 60)])
def test_numbers_that_cannot_be_tell_no_reuse(context: int, computed: int, generated: int) -> None:
    """Phrases that were banned and generated again count twice as generated."""
    [session] = sessions_of(done(context, computed, generated))
    assert all(cached is None for _, cached, _ in numbers(session))
    assert session.answers[0].told == 0


def test_a_start_begins_another_session() -> None:
    first, second = sessions_of(START + done(110, 100, 10) + START.replace("120", "121") + done(220, 200, 20))
    assert [session.version for session in (first, second)] == ["1.120", "1.121"]
    assert [numbers(session)[0][:2] for session in (first, second)] == [(100, 0), (200, 0)]


def test_the_library_that_it_loads_is_not_a_llama_server() -> None:
    log = "print_info: n_swa                = 0\nprint_info: n_swa                = 0\n"
    assert [session.engine for session in report_of(log).sessions] == ["llama.cpp"]
    found = report_of(log + done(110, 100, 10))
    assert [session.engine for session in found.sessions] == ["koboldcpp"]
    assert (found.inputs[0].engine, found.inputs[0].recognised) == ("koboldcpp", 3)


def test_what_is_not_a_version_is_not_shown() -> None:
    for version in ("\x07" * 9, "1." + "1" * 99, "<b>"):
        [session] = sessions_of(START.replace("1.120", version) + done(110, 100, 10))
        assert session.version is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("format", ["text", "markdown", "html"])
def test_the_program_is_written_as_it_writes_itself(format: FormatName) -> None:
    """Of a report that was stored, too."""
    report, kept = report_of(START + done(2475, 2397, 78)), io.BytesIO()
    write("json", report, kept, Appearance())
    for found in (report, stored.read(kept.getvalue(), "report.json")):
        out = io.BytesIO()
        write(format, found, out, Appearance())
        assert b"KoboldCpp 1.120" in out.getvalue()
        assert b"koboldcpp 1.120" not in out.getvalue()


WINDOW = (
    "Note: SWA context cannot be reused (Desired n_past=940, SWA lowest n_past=943), to avoid this, disable SWA or "
    "increase SWA padding), output may degrade.\n"
)


def test_a_window_that_does_not_reach_back_is_the_servers_part() -> None:
    """LostRuins/koboldcpp issue 2335: 940 tokens in common, 944 of prompt of which 896 are computed: 940 - 48 = 892."""
    report = report_of(done(943, 900, 43) + WINDOW + done(1000, 896, 56))
    assert [(prompt, cached) for prompt, cached, _ in numbers(report.sessions[0])] == [(900, 0), (944, 48)]
    (finding,) = report.findings
    assert (finding.code, finding.severity, finding.confidence) == ("CD705", "note", "high")
    assert "892 cached tokens recomputed in 1 request: 48 of 940 matching tokens reused" in finding.claim
    assert "--useswa" in finding.remedies[0].text


def test_the_note_on_the_window_alone() -> None:
    (finding,) = report_of(WINDOW).findings
    assert (finding.code, finding.severity, finding.confidence) == ("CD705", "note", "low")
    assert "had 940 tokens of a prompt in its cache" in finding.claim
