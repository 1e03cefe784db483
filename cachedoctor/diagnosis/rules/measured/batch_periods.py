"""Facts for the rules about SGLang: the periods of a session, its known requests, its effective settings.

A batch is not a request: totals of a period are exact up to a page, single lines are not. A request is known only if it
ran alone from start to end, if the server logged it, or if its response was given.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model import Answer, Answers, BatchPeriod, Confidence, Mark, Session, Severity

Strategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]

ENOUGH = 4
"""Requests: the first is always cold, and two or three more may each begin a conversation of their own."""
LONG = 1000
"""Tokens: a prompt of this length has a system prompt or a history, of which something should be reused."""
PAGES = 4
"""Pages: a prompt of fewer loses so much by rounding down to whole pages that little reuse proves nothing."""
LITTLE = 0.2
"""Share of the prompt tokens: traffic that shares a beginning reuses far more, chats and agents 0.6 to 0.95."""
HALF = 0.5
"""Share of the prompt tokens: below it more is computed than reused, so that a loss matters."""
TINY = 0.25
"""Share of the prompt tokens: tools and a system prompt before the change are rarely more than this in an agent's
prompt."""
FEWER = 0.25
"""Drop of the reused share: more than the mix of requests changes from hour to hour."""
SOME = 5000
"""Tokens on each side of such a comparison: fewer are one or two prompts."""
TWICE = 2
"""Logged prompts that had been cached: a single one may have met an eviction that nothing could have avoided."""
EARLY = 1000
"""Bytes: a logged prompt is cut to its first and last 1,024 characters at --log-requests-level 2, so that a shorter common
prefix is a real one (request_logger.py, 0.4.3 to 0.5.23)."""
BYTES_PER_TOKEN = 8
"""Maximum bytes per token over a whole prompt: it gives the minimum tokens of a common prefix."""
MOSTLY = 0.8
"""Share of the logged prompts: a few side requests always have different text."""


class WholeRequests(msgspec.Struct):
    """Requests that are known one by one, in tokens."""

    count: int
    least: int
    """Fewest tokens reused by a request after the first."""
    most: int
    smallest: int
    """The shortest prompt."""
    largest: int
    best: float
    """The largest part of its own prompt that one after the first reused."""
    tokens: int
    """Tokens of all prompts together."""
    cached: int
    cold: int
    """Requests that reused nothing, including the first."""

    @property
    def share(self) -> float:
        """Reused share of their tokens."""
        return self.cached / self.tokens if self.tokens else 0.0

    @property
    def barely(self) -> bool:
        """Whether little was reused: nothing or a small beginning, and half of a prompt by no request."""
        return self.count > ENOUGH and self.largest >= LONG and self.best < HALF and self.share <= TINY


# ---- periods


def periods(session: Session) -> list[BatchPeriod]:
    """Periods with prefill batches, the one with the most tokens first."""
    found = [p for p in session.periods if isinstance(p, BatchPeriod) and p.batches]
    return sorted(found, key=lambda p: -(p.new_tokens + p.cached_tokens))


def every(session: Session) -> list[BatchPeriod]:
    """All periods, including those without prefill batches, because their other lines prove something by themselves."""
    return [p for p in session.periods if isinstance(p, BatchPeriod)]


def totals(found: list[BatchPeriod]) -> tuple[int, int, int]:
    """(requests, computed tokens, reused tokens) of all periods."""
    return sum(p.seqs for p in found), sum(p.new_tokens for p in found), sum(p.cached_tokens for p in found)


def share(cached: int, new: int) -> float | None:
    """Reused share; None if there were no tokens."""
    return cached / (cached + new) if cached + new > 0 else None


def reuse(period: BatchPeriod) -> float:
    """Reused share of all prompt tokens of a period, 0 if it has none."""
    return share(period.cached_tokens, period.new_tokens) or 0.0


def wanting(session: Session) -> bool:
    """Whether in some period less than half of the prompt tokens were reused; otherwise there is nothing to explain."""
    return any(reuse(p) < HALF for p in periods(session) if p.seqs > ENOUGH)


def one_by_one(session: Session) -> bool:
    """Whether enough requests of some period are known one by one."""
    return any(s is not None and s.count > ENOUGH for s in (seen(session, p) for p in periods(session)))


def fell(period: BatchPeriod, new: int, cached: int) -> bool | None:
    """Whether the part of a period with these tokens reused clearly less than the rest; None if either is too small."""
    rest_new, rest_cached = period.new_tokens - new, period.cached_tokens - cached
    if new + cached < SOME or rest_new + rest_cached < SOME:
        return None
    return rest_cached / (rest_cached + rest_new) - cached / (cached + new) >= FEWER


def pressed(session: Session, period: BatchPeriod, new: int, cached: int) -> tuple[Severity, Confidence] | None:
    """Confidence that the part of a period with these tokens lost reuse to a full pool; None if it did not.

    A drop in reuse makes it only likely: the requests that fill a pool may be other texts with nothing to reuse. None
    also if too little is known.
    """
    lost = fell(period, new, cached)
    if lost:
        return "warning", "high" if known(session) >= TWICE else "medium"
    if lost is False or period.seqs <= ENOUGH or reuse(period) >= HALF:
        return None
    return "note", "medium"


def seen(session: Session, period: BatchPeriod) -> WholeRequests | None:
    """The requests of a period that are known one by one; None if there are none.

    ``Seen.count`` includes the first request, which had nothing to reuse unless the log begins in the middle.
    """
    answers = max((_token_pairs(s) for s in session.answers), key=len, default=[])
    if len(answers) > period.wholes and len(periods(session)) == 1:
        return _of_answers(answers)
    if not period.wholes or period.largest_prompt is None:
        return None
    return WholeRequests(
        period.wholes,
        period.cached_least or 0,
        period.cached_most or 0,
        period.smallest_prompt or period.largest_prompt,
        period.largest_prompt,
        period.best_share if period.best_share is not None else 1.0,
        period.whole_tokens,
        period.whole_cached,
        period.cold,
    )


def _token_pairs(answers: Answers) -> list[tuple[int, int]]:
    """(prompt, reused) tokens of the responses that say both."""
    return [(a.prompt_tokens, a.cached_tokens) for a in answers.each if a.prompt_tokens and a.cached_tokens is not None]


def _of_answers(told: list[tuple[int, int]]) -> WholeRequests:
    prompts, cached = [p for p, _ in told], [c for _, c in told]
    later = cached[1:] or [0]
    best = max((c / p for p, c in told[1:]), default=0.0)
    return WholeRequests(
        len(told), min(later), max(later), min(prompts), max(prompts), best, sum(prompts), sum(cached), cached.count(0)
    )


def marks(period: BatchPeriod, *wanted: tuple[str, str]) -> list[tuple[Mark, str]]:
    """Lines of a period by name with their labels, each line once; names that it does not have are left out."""
    found: dict[int, tuple[Mark, str]] = {}
    for name, label in wanted:
        if name in period.marks:
            found.setdefault(period.marks[name].line, (period.marks[name], label))
    return list(found.values())


def replica(period: BatchPeriod) -> str | None:
    """Data-parallel rank of a period, ``DP0``; None if its lines name none."""
    parts = (period.rank or "").split()
    return next((part for part in parts if part.startswith("DP")), None)


# ---- what the settings come to


def caching(session: Session) -> bool | None:
    """Whether the radix cache is on, by a line or because something was reused; None if unknown."""
    if any(p.cached_tokens for p in periods(session)):
        return True
    said = session.setting("radix_cache")
    return said if isinstance(said, bool) else None


def page(session: Session) -> int:
    """Tokens of a page; 1 if the log does not show it, which is the default of most backends."""
    size = session.setting("page_size")
    return size if isinstance(size, int) and size > 0 else 1


def hybrid(session: Session) -> bool | None:
    """Whether the model has states beside its KV cache (Mamba, gated delta net, linear attention); None if unknown.

    Batches of such a model print ``mamba usage`` from 0.5.4 on.
    """
    said = session.setting("hybrid_ssm")
    if isinstance(said, bool):
        return said
    if any(p.mamba_usage is not None for p in periods(session)):
        return True
    return False if any(p.token_usage is not None for p in periods(session)) and session.since("0.5.4") else None


def strategy(session: Session) -> Strategy | None:
    """How the states of a hybrid model are kept, as the version resolves the setting; None if unknown.

    0.5.4 to 0.5.6 have only no_buffer (PR 11214); ``auto`` is no_buffer up to 0.5.13 (server_args.py). From 0.5.14 on
    it depends on model and device, where pages of more than one token are only possible with extra_buffer.
    """
    if hybrid(session) is not True:
        return None
    asked = session.setting("mamba_strategy")
    if asked in ("no_buffer", "extra_buffer", "extra_buffer_lazy"):
        return asked  # type: ignore[no-any-return]
    if session.since("0.5.14") is False:
        return "no_buffer" if asked == "auto" or session.since("0.5.7") is False else None
    if session.since("0.5.14") and page(session) > 1:
        return "extra_buffer"
    return None


def capacity(session: Session) -> int | None:
    """Tokens of the KV pool, or None."""
    size = session.setting("kv_tokens")
    return size if isinstance(size, int) and size > 0 else None


def evicts(session: Session, period: BatchPeriod) -> bool | None:
    """Whether prompts may have been evicted though usage was low; None if unknown.

    A given dump of /metrics counts evictions (``sglang:evicted_tokens_total``). Without it: usage counts only tokens of
    running requests. Computed tokens use space until they are evicted, so a pool larger than all computed tokens has
    evicted nothing.
    """
    counted = [c for c in session.counters if c.evicted is not None]
    if any(c.evicted for c in counted):
        return True
    if any(c.since is None for c in counted):
        return False
    pool = capacity(session)
    return None if pool is None else period.new_tokens >= HALF * pool


def crowded(period: BatchPeriod) -> bool:
    """Whether running requests left the cache no space: a full pool, or requests put back for lack of space."""
    return bool(period.retracted or period.full_new_tokens or period.full_cached_tokens)


def stateless(period: BatchPeriod) -> bool:
    """Whether the pool of states of a hybrid model was full."""
    return bool(period.states_new_tokens or period.states_cached_tokens)


# ---- what logged prompts prove


def logged(session: Session) -> list[Answer]:
    """Logged requests whose prompts could be compared with an earlier one."""
    return [a for s in session.answers for a in s.each if a.prefix is not None]


def differ(session: Session) -> int:
    """Number of long logged prompts that share almost nothing with any earlier one; 0 unless most of them do."""
    found = [a for a in logged(session) if (a.prefix or 0) < EARLY and (a.prompt_tokens or 0) >= LONG]
    return _most(session, len(found))


def known(session: Session) -> int:
    """Number of logged prompts whose beginning was cached and that reused less than half of it."""
    least = max(EARLY, 2 * page(session) * BYTES_PER_TOKEN)
    return sum(
        a.cached_tokens is not None and 2 * a.cached_tokens * BYTES_PER_TOKEN < (a.prefix or 0)
        for a in logged(session)
        if (a.prefix or 0) >= least
    )


def shared(session: Session) -> int:
    """Number of logged prompts that were cached and not reused; 0 unless most of them were."""
    return _most(session, known(session))


def _most(session: Session, found: int) -> int:
    return found if found >= ENOUGH - 1 and found >= MOSTLY * len(logged(session)) else 0
