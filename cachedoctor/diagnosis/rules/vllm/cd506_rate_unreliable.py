"""CD506: the hit rate of this version does not mean what it seems to mean."""

from __future__ import annotations

from collections.abc import Iterator

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling

_RETRIED = 1.5
"""Minimum ratio of looked-up tokens to prompt tokens: running requests were looked up and have not ended."""
_TRUTH = kit.Remedy(
    "Pass the responses, which have the correct number for each request.",
    ["--enable-prompt-tokens-details", "cachedoctor analyze vllm.log --responses responses.jsonl"],
    options=kit.as_typed("--enable-prompt-tokens-details"),
    purpose="look",
)


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if the version is known and the fault can have affected this log."""
    retried = _retried(session)
    if retried:
        return retried
    rated = [p for p in session.periods if isinstance(p, kit.SamplePeriod) and p.rates]
    if not rated or "stats" not in session.seen:  # the old V0 engine had a rate of its own, over its whole life
        return []
    return [_note(key, claim, why, rated[-1]) for key, claim, why in _faults(session, rated)]


def _retried(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if /metrics counts far more look-ups than there were prompt tokens."""
    for counted in session.counters:
        asked, prompts = counted.looked_up, counted.prompt_tokens
        if not asked or not prompts or asked < _RETRIED * prompts or (counted.requests or 0) < rolling.MIN_REQUESTS:
            continue
        words = kit.FindingText(
            f"{kit.n(asked)} tokens were looked up but the prompts had {kit.n(prompts)}: waiting requests count at every attempt, so hit rates are unreliable "
            f"({counted.path})",
            "Up to 0.26, a look-up is counted at every attempt to schedule a waiting request; later versions count one look-up per request, when the request is admitted. Requests that are still running count only in the looked-up tokens.",
            [_TRUTH],
            [],
            _REFERENCES["retries"],
        )
        return [kit.SessionFinding(words, "retries", [])]
    return []


def _faults(session: kit.Session, rated: list[kit.SamplePeriod]) -> Iterator[tuple[str, str, str]]:
    waiting = max(p.waiting for p in rated)
    if session.since("0.8") is False:
        yield (
            "zero",
            "the hit rate of this version is always 0.0 %, whatever was reused",
            "In 0.7 the engine resets the counters just before it prints them.",
        )
        return
    if not any(p.most_rate or p.last_rate for p in rated):  # what makes a rate too high makes none of nothing
        return
    if session.since("0.9") is False:
        yield (
            "blocks",
            "the hit rate of this version counts blocks, not tokens",
            "The part of a prompt that fills no block is not counted, so the rate is too high for short prompts.",
        )
    if not waiting:
        return
    if session.since("0.11.1") is False:
        yield (
            "preempted",
            f"the hit rate of this version may be too high: up to {kit.n(waiting)} requests waited, and a preempted request finds its own prompt again",
            "Up to 0.11.0, the second look-up of a preempted request counts as reuse.",
        )
    if session.since("0.27") is False:
        yield (
            "retries",
            f"the hit rate of this version may be too high: up to {kit.n(waiting)} requests waited, and each is counted again at every attempt to schedule it",
            "Up to 0.26, a look-up is counted at every attempt to schedule a waiting request, not only once when the request is admitted.",
        )


def _note(key: str, claim: str, why: str, period: kit.SamplePeriod) -> kit.SessionFinding:
    marks = [(period.marks["last"], "the rate")] if "last" in period.marks else []
    return kit.finding(claim, why, [_TRUTH], references=_REFERENCES[key], key=key, evidence=marks)


_REFERENCES = {
    "zero": [],
    "blocks": [],
    "preempted": ["https://github.com/vllm-project/vllm/issues/25780"],
    "retries": ["https://github.com/vllm-project/vllm/issues/43736"],
}

RULE = kit.session_rule(__name__, "The hit rate of this version is unreliable", inspect, needs=rolling.needs_statistics)
