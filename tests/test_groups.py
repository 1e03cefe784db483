"""Matches grouped into findings, what they cost, and matches that are taken back."""

from __future__ import annotations

import made
import pytest

from cachedoctor.diagnosis.rules.kit import FindingText, Match, Proof, RequestRule, RuleContext, marked
from cachedoctor.diagnosis.rules.replaying import Setup
from cachedoctor.doctor.findings.groups import FindingGroups
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.model import Confidence, Facts, Mark, Request, Session

SESSION = Session(0, "server.log")


def request(index: int, processed: int = 10_000) -> Request:
    return made.request(index=index, processed_tokens=processed, prompt_ms=float(processed))


def match(tokens: int, confidence: Confidence = "medium") -> Match:
    return Match(tokens, confidence)


def add(groups: FindingGroups, code: str, found: Match, of: Request) -> None:
    """Count a match of a rule that proves it by the number of the request."""

    def prove(s: RuleContext, _: Match) -> Proof:
        return Proof((Mark(s.request.index, b"line"), "label"))

    rule = RequestRule(code, "spy", "", lambda _: None, prove, lambda _: FindingText("", "", []))
    groups.add(rule, found, RuleContext(of, Setup(Facts(0, "server.log")), [], None, 0, 0), SESSION, PromptSpeed())


@pytest.mark.parametrize("lost", [41_001, 258_000])
def test_no_fix_saves_more_than_was_computed(lost: int) -> None:
    """The conversation had 258,000 tokens, the request that lost them only 41,000."""
    groups = FindingGroups()
    add(groups, "CD108", match(lost), request(0, 41_000))
    ((_, group),) = groups.items()
    assert (group.tokens, group.ns) == (41_000, 41_000 * 10**6)
    assert (groups.avoidable_tokens, groups.avoidable_ms) == (41_000, 41_000.0)


def test_two_causes_of_one_request_count_once_in_the_sum() -> None:
    groups = FindingGroups()
    one = request(0)
    add(groups, "CD105", match(2_000), one)
    add(groups, "CD201", match(7_000), one)
    assert groups.avoidable_tokens == 7_000


def test_what_is_judged_again_keeps_its_place() -> None:
    """Of two that cost the same the first stands for both, also where it was asked about again."""
    groups = FindingGroups()
    first, second = request(0), request(1)
    for one in (first, second):
        add(groups, "CD105", match(1_000), one)
    groups.retract(first.index)
    add(groups, "CD105", match(1_000), first)
    ((_, group),) = groups.items()
    assert group.first == [0, 1]
    assert group.worst_request is first


def test_what_is_taken_back_leaves_no_trace() -> None:
    groups = FindingGroups()
    kept, mistaken = request(0), request(1)
    add(groups, "CD105", match(1_000), kept)
    add(groups, "CD105", match(5_000), mistaken)
    add(groups, "CD201", match(4_000), mistaken)
    groups.retract(mistaken.index)
    ((key, group),) = groups.items()
    assert key[0] == "CD105"
    assert (group.count, group.tokens, group.first, group.top) == (1, 1_000, [0], [(1_000, 0)])
    assert group.worst_request is kept
    assert groups.avoidable_tokens == 1_000


def test_a_surer_hit_shows_the_finding_better_than_a_somewhat_dearer_one() -> None:
    groups = FindingGroups()
    for index, said in enumerate(
        (match(5_000, "low"), match(4_000, "medium"), match(7_900, "low"), match(8_100, "low"))
    ):
        add(groups, "CD301", said, request(index))
        ((_, group),) = groups.items()
        assert group.worst_request.index == (0, 1, 1, 3)[index]
        assert group.proof is not None
        assert group.proof.primary[0].line == group.worst_request.index, "proved by the request that it shows"


def test_a_torn_log_leaves_the_first_line_of_the_request_as_proof() -> None:
    torn = request(0)
    torn.marks["start"] = Mark(7, b"processing task")
    assert marked(torn, ("select", "a"), ("timing", "b")) == [(Mark(7, b"processing task"), "the request")]
    torn.marks["timing"] = Mark(9, b"prompt eval time")
    assert marked(torn, ("select", "a"), ("timing", "b")) == [(Mark(9, b"prompt eval time"), "b")]
