"""Hits grouped into findings, what they cost, and hits that are taken back."""

from __future__ import annotations

from cachedoctor.doctor.groups import Groups
from cachedoctor.model import Confidence, Mark, Request, Session
from cachedoctor.rules.base import Hit, proof

SESSION = Session(0, "server.log")


def request(index: int, processed: int = 10_000) -> Request:
    made = Request(index, 0, "server.log", 0, index, 10 * index + 1, 10 * index + 9)
    made.processed_tokens, made.prompt_ms = processed, float(processed)
    return made


def hit(tokens: int, confidence: Confidence = "medium") -> Hit:
    return Hit(tokens, confidence, (Mark(1, b"line"), "label"))


def test_no_fix_saves_more_than_was_computed() -> None:
    """The conversation had 258,000 tokens, the request that lost them only 41,000."""
    groups = Groups()
    groups.add("CD108", hit(258_000), request(0, 41_000), SESSION)
    ((_, group),) = groups.items()
    assert (group.tokens, group.ns) == (41_000, 41_000 * 10**6)
    assert (groups.avoidable_tokens, groups.avoidable_ms) == (41_000, 41_000.0)


def test_two_causes_of_one_request_count_once_in_the_sum() -> None:
    groups = Groups()
    one = request(0)
    groups.add("CD105", hit(2_000), one, SESSION)
    groups.add("CD201", hit(7_000), one, SESSION)
    assert groups.avoidable_tokens == 7_000


def test_what_is_taken_back_leaves_no_trace() -> None:
    groups = Groups()
    kept, mistaken = request(0), request(1)
    groups.add("CD105", hit(1_000), kept, SESSION)
    groups.add("CD105", hit(5_000), mistaken, SESSION)
    groups.add("CD201", hit(4_000), mistaken, SESSION)
    groups.retract(mistaken)
    ((key, group),) = groups.items()
    assert key[0] == "CD105"
    assert (group.count, group.tokens, group.first, group.top) == (1, 1_000, [0], [(1_000, 0)])
    assert group.worst_request is kept
    assert groups.avoidable_tokens == 1_000


def test_a_surer_hit_shows_the_finding_better_than_a_somewhat_dearer_one() -> None:
    groups = Groups()
    for index, said in enumerate((hit(5_000, "low"), hit(4_000, "medium"), hit(7_900, "low"), hit(8_100, "low"))):
        groups.add("CD301", said, request(index), SESSION)
        ((_, group),) = groups.items()
        assert group.worst_request.index == (0, 1, 1, 3)[index]


def test_a_torn_log_leaves_the_first_line_of_the_request_as_proof() -> None:
    torn = request(0)
    torn.marks["start"] = Mark(7, b"processing task")
    assert proof(torn, ("select", "a"), ("timing", "b")) == [(Mark(7, b"processing task"), "the request")]
    torn.marks["timing"] = Mark(9, b"prompt eval time")
    assert proof(torn, ("select", "a"), ("timing", "b")) == [(Mark(9, b"prompt eval time"), "b")]
