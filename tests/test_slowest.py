"""The slowest requests: which are kept, what their time went to, and what is said of it."""

from __future__ import annotations

import pytest
from conftest import FIXTURES, report_of
from made import request

from cachedoctor.doctor.analysis.sums import Slowest
from cachedoctor.model import Judged, Report, Request, SlowTurn, Totals, Verdict
from cachedoctor.report.words.traffic_words import not_the_cache, reason, split


def turn(**changes: object) -> SlowTurn:
    fields: dict[str, object] = {
        "request": 0, "session": 0, "path": "s.log", "line": 1, "slot": 0, "task": 41, "prompt_ms": 161_000.0,
        "reused_tokens": 0, "new_tokens": 35_000, "again_tokens": 0, "undecided_tokens": 0, "reply_tokens": 300,
        "reply_ms": 17_000.0,
    }  # fmt: skip
    return SlowTurn(**{**fields, **changes})  # type: ignore[arg-type]


def judged(index: int, ms: float | None, **fields: object) -> Judged:
    asked: Request = request(index=index, prompt_ms=ms, **fields)
    return Judged(asked, Verdict())


def test_three_are_kept_and_parts_add_up() -> None:
    """Whatever the order; a request that is judged again takes its own place."""
    times = [30.0, 500.0, None, 7.0, 500.0, 80.0]
    whole = Slowest()
    for at, ms in enumerate(times):
        whole.add(judged(at, ms))
    assert [(t.request, t.prompt_ms) for t in whole.turns()] == [(1, 500.0), (4, 500.0), (5, 80.0)]
    first, later = Slowest(), Slowest()
    for at, ms in enumerate(times):
        (first if at < 3 else later).add(judged(at if at < 3 else at - 3, ms))
    first.merge(later, 3, 1)
    assert [(t.request, t.session) for t in first.turns()] == [(1, 0), (4, 1), (5, 1)]
    whole.add(judged(4, 500.0))
    assert len(whole.turns()) == 3


def test_the_numbers_are_those_of_the_log() -> None:
    """Its timing lines print 234.74 ms and 1,966 tokens, 7.11 ms and 6 tokens of task 10."""
    slow = report_of((FIXTURES / "cases/billing-header-hybrid/server.log").read_bytes())["slowest"]
    assert [t["task"] for t in slow] == [10, 32, 21]
    assert (slow[0]["prompt_ms"], slow[0]["reply_ms"], slow[0]["reply_tokens"]) == (234.74, 7.11, 6)
    assert [sum(t[f"{k}_tokens"] for k in ("reused", "new", "again", "undecided")) for t in slow] == [1966, 2104, 2035]


@pytest.mark.parametrize(
    ("changes", "said", "why"),
    [
        ({}, "2 min 58 s = 2 min 41 s prompt (35,000 tokens new, 217/s) + 17.0 s reply (300 tokens)", "not the cache"),
        ({"reused_tokens": 9, "again_tokens": 35_001}, "(9 tokens reused, 35,000 new, 35,001", "the cache was lost"),
        ({"new_tokens": 1, "undecided_tokens": 90}, "(1 token new, 90 either new or ", "could have been reused"),
        ({"new_tokens": None, "again_tokens": None}, "(the log does not show", "could have been reused"),
        ({"reply_ms": 900_000.0}, "15 min 00 s reply", "mostly the reply"),
        ({"reply_ms": None}, "of unknown duration", "not the cache"),
    ],
)  # fmt: skip
def test_what_is_said(changes: dict[str, object], said: str, why: str) -> None:
    assert said in split(turn(**changes))
    assert why in reason(turn(**changes), Report("0", [], [], Totals(1), None, [], [], []))  # type: ignore[arg-type]


def test_a_row_beside_findings_only_where_the_cache_is_not_why() -> None:
    class Of:
        def __init__(self, *slowest: SlowTurn) -> None:
            self.slowest = list(slowest)

    assert not_the_cache(Of(turn())) is not None  # type: ignore[arg-type]
    assert not_the_cache(Of()) is None  # type: ignore[arg-type]
    assert not_the_cache(Of(turn(prompt_ms=900.0, reply_ms=3.0))) is None, "too quick"  # type: ignore[arg-type]
    assert not_the_cache(Of(turn(new_tokens=1, again_tokens=99))) is None, "the cache"  # type: ignore[arg-type]
    assert not_the_cache(Of(turn(undecided_tokens=99_000))) is None, "not known"  # type: ignore[arg-type]
