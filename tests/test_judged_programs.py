"""Programs that log numbers of each request: what is concluded from them, with bounds, and what is not."""

from __future__ import annotations

import pytest
from answered import report_of

from cachedoctor.model import Finding
from tests.command import run


def found(log: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in report_of(log.encode()).findings}


def slot(held: int, prompt: int, used: int) -> str:
    return (
        'time=2026-02-03T21:14:05.118Z level=DEBUG source=cache.go:151 msg="loading cache slot" '
        f"id=0 cache={held} prompt={prompt} used={used} remaining={prompt - used}\n"
    )


def kobold(context: int, computed: int, generated: int = 50) -> str:
    return (
        f"[21:04:11] CtxLimit:{context}/32768, Init:0.02s, Processed:{computed} in 4.00s (900.00T/s), "
        f"Generated:{generated}/300 in 3.00s (20.00T/s), Total:7.02s\n"
    )


def tabby(cached: int, new: int) -> str:
    return (
        "INFO:     Metrics (ID: 0c3f2a5e7d1b4c6f8a9e0d2b4c6f8a9e): 242 tokens generated in 9.55 seconds "
        f"(Queue: 0.0 s, Process: {cached} cached tokens and {new} new tokens at 1034.0 T/s, "
        "Generate: 26.71 T/s, Context: 3589 tokens)\n"
    )


def python(reused: int, computed: int) -> str:
    return f"Llama.generate: {reused} prefix-match hit, remaining {computed} prompt tokens to eval\n"


def studio(reused: int, prompt: int) -> str:
    return f"[DEBUG] Cache reuse summary: {reused}/{prompt} of prompt (4.5%), {reused} prefix, 0 non-prefix\n".replace(
        "[DEBUG]", "[2025-07-13 12:00:01][DEBUG]"
    )


def test_ollama_prints_what_its_slot_held_and_what_is_common() -> None:
    """31 of 20,400 tokens: almost nothing, of a prompt that is as long as what was held."""
    causes = found(slot(0, 20000, 0) + slot(20400, 20600, 31))
    assert list(causes) == ["CD108"]
    one = causes["CD108"]
    assert (one.name, one.severity, one.confidence) == ("prefix-diverges-early", "note", "low")
    assert "only 31 of 20,400 cached tokens match (20,569 of 20,600 prompt tokens computed)" in one.claim
    assert "slot-held-other-prompt" in {out.name for out in one.ruled_out}
    assert any("OLLAMA_NUM_PARALLEL" in remedy.text for remedy in one.remedies)


def test_a_history_that_changed_in_its_middle() -> None:
    """9,000 of 20,400 tokens are common: 11,400 of what was held come after that place."""
    causes = found(slot(0, 20000, 0) + slot(20400, 20600, 9000))
    assert list(causes) == ["CD105"]
    assert (
        "11,400 tokens in 1 request differ from the prompt cached by ollama, from token 9,000 of 20,400 on"
        in causes["CD105"].claim
    )


def test_a_conversation_that_goes_on_has_no_finding() -> None:
    assert found(slot(0, 5000, 0) + slot(5120, 5213, 5104) + slot(5300, 5400, 5290)) == {}


def test_a_shorter_prompt_loses_what_it_could_have_had_alone() -> None:
    """A title of 600 tokens behind a conversation of 20,400: at most 600 could have been common."""
    causes = found(slot(0, 20000, 0) + slot(20400, 600, 31))
    assert "CD105" not in causes
    assert "only 31 of 20,400 cached tokens match (569 of 600 prompt tokens computed)" in causes["CD108"].claim


def test_koboldcpp_keeps_one_conversation() -> None:
    """The second prompt of 13,185 tokens computed 12,935 of them; its context had held 13,100."""
    causes = found(kobold(13100, 13050) + kobold(13235, 12935))
    assert list(causes) == ["CD108"]
    assert "only 250 of 13,100 cached tokens match (12,935 of 13,185 prompt tokens computed)" in causes["CD108"].claim
    assert any("--smartcache" in remedy.text for remedy in causes["CD108"].remedies)


def test_koboldcpp_with_memory_that_cannot_go_back_is_not_excluded() -> None:
    causes = found(kobold(13100, 13050) + kobold(13235, 13185))
    assert "no-usable-checkpoint" in {out.name for out in causes["CD108"].ruled_out}
    assert "no-usable-checkpoint" not in {
        out.name for out in found(kobold(13100, 13050) + kobold(13235, 12935))["CD108"].ruled_out
    }


def test_what_koboldcpp_held_is_not_known_behind_a_prompt_that_was_given_up() -> None:
    assert list(found(kobold(13100, 13050) + kobold(4000, 4000, 0) + kobold(13235, 12935))) == ["CD707"]


@pytest.mark.parametrize(
    ("log", "setting"),
    [
        (tabby(0, 9000) + tabby(256, 9000), "cache_size in config.yml"),
        (studio(0, 9000) + studio(1000, 22000), "This engine has no setting for their number"),
    ],
    ids=["TabbyAPI", "LM Studio"],
)
def test_a_program_that_prints_no_place_is_undecided(log: str, setting: str) -> None:
    """What was held is not told, so the cause stays open; it is not an all-clear."""
    causes = found(log)
    assert list(causes) == ["CD707"]
    assert causes["CD707"].confidence == "low"
    assert any(setting in remedy.text for remedy in causes["CD707"].remedies)


def test_llama_cpp_python_holds_its_last_prompt_at_least() -> None:
    causes = found(python(100, 9000) + python(2000, 8000))
    assert list(causes) == ["CD105"]
    assert (
        "7,100 tokens in 1 request differ from the prompt cached by llama-cpp-python, from token 2,000 of 9,100 on"
        in causes["CD105"].claim
    )
    assert any("--cache_size" in remedy.text for remedy in causes["CD105"].remedies)


@pytest.mark.parametrize("log", [kobold(13100, 13050), slot(0, 20000, 0), tabby(0, 9000)])
def test_one_first_request_is_nothing_to_compare_with(log: str) -> None:
    assert found(log) == {}
    done = run("analyze", "-", stdin=log.encode())
    assert b"cannot tell" in done.stdout
    assert done.returncode == 3


def test_half_that_was_reused_is_not_a_finding_and_says_how_much() -> None:
    done = run("analyze", "-", stdin=(tabby(0, 9000) + tabby(6000, 4000)).encode())
    assert b"6,000" in done.stdout
    assert b"reused all it could" not in done.stdout
