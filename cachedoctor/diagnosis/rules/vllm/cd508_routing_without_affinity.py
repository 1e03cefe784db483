"""CD508: several engines have separate caches, and requests of one conversation go to any engine."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling

_MOST = 0.5
"""Share of turns that must reuse less than the previous turn left, to call routing alternating."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report the evidence of lines, counters and responses; only a note if no response proves it."""
    engines = _engines(session)
    if engines < 2:
        return []
    short, turns = _alternating(session)
    proven = bool(turns) and short >= _MOST * turns
    if not _busy(session) and (not proven or _engines_known(session)):
        return []
    seen = (
        f": in {kit.n(short)} of {kit.n(turns)} turns the response reports less reuse than the previous turn left in a cache"
        if proven
        else "; the log does not show which request went where"
    )
    return [
        kit.finding(
            f"{kit.n(engines)} engines have separate caches, and requests are spread over them{seen}",
            "A prompt finds only tokens that the same engine computed. A long conversation that changes engines is computed in full once per engine; later each engine's cache has only an older turn. Many short conversations lose the most.",
            [
                kit.Remedy(
                    "Send all requests of a conversation to one engine: the header X-data-parallel-rank selects the engine.",
                ),
                kit.Remedy("Or put a prefix-aware router in front, or start one engine per group of users."),
            ],
            references=["https://github.com/vllm-project/vllm/issues/52463"],
            evidence=[
                *kit.said_by(session.settings.get("data_parallel"), f"{kit.n(engines)} engines"),
                *_lines(session),
            ],
            severity="warning" if proven else "note",
            confidence="high" if proven and _equal(session) else "medium",
        )
    ]


def _engines(session: kit.Session) -> int:
    asked = session.setting("data_parallel")
    seen = {p.engine for p in session.periods if isinstance(p, kit.SamplePeriod) and p.busy}
    counted = {c.engine for c in session.counters if c.prompt_tokens}
    return max(asked if isinstance(asked, int) else 1, len(seen), len(counted))


def _busy(session: kit.Session) -> bool:
    """Whether more than one of them had traffic."""
    seen = {p.engine for p in session.periods if isinstance(p, kit.SamplePeriod) and p.busy}
    return len(seen) > 1 or len({c.engine for c in session.counters if c.prompt_tokens}) > 1


def _engines_known(session: kit.Session) -> bool:
    """Whether lines or counters say which engines had traffic."""
    return any(isinstance(p, kit.SamplePeriod) and p.busy and p.engine is not None for p in session.periods) or any(
        c.prompt_tokens and c.engine is not None for c in session.counters
    )


def _equal(session: kit.Session) -> bool:
    """Whether counters show that the engines had a share each."""
    tokens = [c.prompt_tokens for c in session.counters if c.prompt_tokens]
    return len(tokens) > 1 and min(tokens) * 3 >= max(tokens)


def _alternating(session: kit.Session) -> tuple[int, int]:
    """(turns with less reuse than the turn before had left, turns) of a conversation that only grows."""
    size = rolling.block(session) or rolling.SMALLEST_BLOCK
    for answers in session.answers:
        each = [a for a in answers.each if a.cached_tokens is not None]
        if len(each) < 2 * rolling.MIN_REQUESTS or not _grows(each):
            continue
        pairs = list(pairwise(each))
        older = [0, *(a.prompt_tokens or 0 for a in each[:-2])]
        # What the turn before the last one left, at most: more comes from the last one, cut short for another reason.
        most = [max(left, size) for left in older]
        short = sum(
            (b.cached_tokens or 0) < (a.prompt_tokens or 0) // size * size and (b.cached_tokens or 0) <= left
            for (a, b), left in zip(pairs, most, strict=True)
        )
        return short, len(pairs)
    return 0, 0


def _grows(each: list[kit.Answer]) -> bool:
    return all((a.prompt_tokens or 0) < (b.prompt_tokens or 0) for a, b in pairwise(each))


def _lines(session: kit.Session) -> rolling.Shown:
    marks = [p.marks["last"] for p in session.periods if isinstance(p, kit.SamplePeriod) and "last" in p.marks]
    return [(mark, "one of the engines") for mark in marks[-2:]]


RULE = kit.session_rule(
    __name__,
    "Several engines have separate caches, and conversations move between them",
    inspect,
    severity="warning",
    unless=("CD502", "CD503"),
)
