"""Which context checkpoints could have been restored, by the kind of memory: one test for every rule that asks."""

from __future__ import annotations

import made
import pytest

from cachedoctor.diagnosis.rules.checkpoints import held_whole, serves
from cachedoctor.diagnosis.rules.client import cd108_prefix_diverges_early as cd108
from cachedoctor.diagnosis.rules.kit import RuleContext
from cachedoctor.diagnosis.rules.memory import cd205_swa_threshold_misfire as cd205
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.model import Check, Confidence, Facts, Mark, Memory


def context(
    lcp: int,
    *checks: tuple[int, int],
    memory: Memory | None = "swa",
    window: int | None = 1024,
    build: int | None = 8672,
    forced: bool = True,
    oldest: int | None = None,
) -> RuleContext:
    """A request of 6,000 tokens on a slot that held 5,900, of which ``lcp`` are the same."""
    request = made.request(
        thread=0, held_thread=0, thread_turn=1, prompt_tokens=6000, cached_tokens=0, processed_tokens=6000,
        common_prefix_tokens=lcp, lcp_exact=True, prefix_between=(lcp, lcp), held_tokens=5900, reference_tokens=5900,
        lost_tokens=5900, lost_client=5900 - lcp, lost_server=lcp, outcome="reprocessed", forced=forced,
        checks=[Check(a, b, max(0, lcp - (window or 0)), 7) for a, b in checks], oldest_position=oldest,
        marks={"start": Mark(1, b"x")},
    )  # fmt: skip
    return RuleContext(request, Setup(Facts(0, "log", build=build, memory=memory, window=window)), [], None, 1, 0)


@pytest.mark.parametrize(
    ("position", "lcp", "memory", "window", "usable"),
    [
        ((4000, 4000), 4001, "recurrent", 0, True),
        ((4000, 4000), 4000, "recurrent", 0, False),  # it comes after the prefix, and cannot be cut
        ((0, 815), 700, "swa", 1024, True),  # ends beyond the prefix, and begins at 0
        ((0, 815), 700, "swa", None, True),  # whatever the window
        ((0, 815), 0, "swa", 1024, False),
        ((3000, 6000), 5000, "swa", 1024, True),
        ((3976, 6000), 5000, "swa", 1024, True),  # exactly where the window begins
        ((3977, 6000), 5000, "swa", 1024, False),
        ((7400, 8430), 5200, "swa", 1024, False),
        ((600, 650), 700, "swa", 1024, False),  # below the prefix, and not all of the window
        ((3000, 6000), 5000, "swa", None, None),
        ((5000, 6000), 5000, "swa", None, False),  # begins after the prefix
        ((3000, 6000), 5000, "hybrid", 1024, False),
    ],
)
def test_a_checkpoint_serves(
    position: tuple[int, int], lcp: int, memory: Memory, window: int | None, usable: bool | None
) -> None:
    assert serves(Check(*position, 0, 1), lcp, context(lcp, memory=memory, window=window)) is usable


@pytest.mark.parametrize(
    ("build", "lcp", "check", "tokens", "confidence"),
    [
        (8672, 700, (0, 815), 700, "high"),
        (8672, 700, (0, 500), 501, "high"),
        (None, 700, (0, 815), 700, "high"),
        (9294, 700, (0, 815), 700, "medium"),  # no rule of this build refuses it
    ],
)
def test_a_window_that_could_be_cut_back_was_refused(
    build: int | None, lcp: int, check: tuple[int, int], tokens: int, confidence: Confidence
) -> None:
    found = cd205.decide(context(lcp, check, build=build))
    assert found is not None
    assert (found.tokens, found.confidence) == (tokens, confidence)


@pytest.mark.parametrize(
    "s",
    [
        context(5200, (7400, 8430)),
        context(700, (0, 815), forced=False),  # another one may have been taken
        context(700, (0, 815), build=9713),  # by this build's own rule
        context(5000, (3000, 6000), build=9713),
        context(5000, (3000, 6000), window=None),
        context(4000, (4000, 4000), memory="recurrent", window=0),
    ],
)
def test_no_refusal_where_the_checkpoint_could_not_serve(s: RuleContext) -> None:
    assert cd205.decide(s) is None


@pytest.mark.parametrize(
    ("lcp", "oldest", "window", "whole"),
    [(700, 0, 1024, True), (1024, 0, 1024, True), (1025, 0, 1024, False), (700, 1, 1024, False),
     (700, None, 1024, False), (700, 0, None, False), (0, 0, 1024, False), (1, 0, 1, False)],
)  # fmt: skip
def test_memory_that_reached_back_to_the_start_held_all(
    lcp: int, oldest: int | None, window: int | None, whole: bool
) -> None:
    s = context(lcp, window=window, oldest=oldest)
    assert held_whole(s) is whole
    found = cd205.decide(s)
    assert (found is not None) == (whole and lcp > 16)
    if found is not None:
        assert (found.tokens, found.confidence) == (lcp, "high")


@pytest.mark.parametrize(
    ("s", "beyond"),
    [
        (context(700, (0, 815)), 0),
        (context(700, (5000, 5800), (5100, 5899)), 2),
        (context(700, (5000, 5800), (0, 815)), 0),
        (context(700, (5000, 5800), oldest=0), 0),
        (context(2000, (1500, 2600)), 1),
        (context(2000, (1500, 2600), window=None), 0),  # not known: nothing is said of it
    ],
)
def test_no_threshold_could_have_used_them_is_said_of_those_alone(s: RuleContext, beyond: int) -> None:
    match = cd108.decide(s)
    assert match is not None
    assert cd108.prove(s, match).numbers["beyond"] == beyond
