"""Sums what a replay, or the server itself, reused: tokens, causes, and seconds by the log's own speed at depth."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.doctor.diagnosis.prompt_speed import PromptSpeed
from cachedoctor.doctor.whatif.evidence import Evidence
from cachedoctor.model.whatif import ReplayAccount, ReplayFit
from cachedoctor.replay.llamacpp.served import Served
from cachedoctor.replay.llamacpp.server_settings import Settings


def fits(evidence: Evidence, settings: Settings) -> list[bool]:
    """Say of every request whether its prompt fits the context that a slot has then."""
    whole = settings.resolved()
    room = whole.context if whole.kv_unified else whole.context // (whole.slots or 1)
    length = evidence.traffic.tree.length
    return [length(one.prompt) < room for one in evidence.traffic.asked]


def account(evidence: Evidence, served: Sequence[Served], settings: Settings) -> ReplayAccount:
    """Sum up a replay."""
    found = ReplayAccount(0, 0, 0, 0, 0, {}, None)
    new, lost, ms = 0, dict[str, int](), 0.0
    room = fits(evidence, settings)
    for one, asked, enough in zip(served, evidence.traffic.asked, room, strict=True):
        if not enough or one.chosen_by == "none" or asked.refused:
            found.too_long += not enough
            continue
        length = evidence.traffic.tree.length(asked.prompt)
        found.requests += 1
        found.prompt_tokens += length
        found.reused_tokens += one.reused
        best = max(one.best, one.reused)
        new += length - best
        if best > one.reused:
            lost[one.cause or "other"] = lost.get(one.cause or "other", 0) + best - one.reused
        ms += span_ms(evidence.speed, one.reused, length)
    found.computed_tokens = found.prompt_tokens - found.reused_tokens
    found.new_tokens, found.lost_tokens = new, dict(sorted(lost.items(), key=lambda row: -row[1]))
    found.prompt_ms = round(ms, 3) if evidence.speed.count else None
    return found


def span_ms(speed: PromptSpeed, start: int, end: int) -> float:
    """Milliseconds that the tokens from ``start`` to ``end`` of a prompt take; 0 where no speed is known.

    The time per token at depth 0 is the one that gives the measured time of all that was learnt.
    """
    slope = speed.slope
    weighted = speed.weight + slope * speed.depth
    if not weighted:
        return 0.0
    return speed.per_token / weighted * (end - start) * (1 + slope * (start + end) / 2)


def server_account(evidence: Evidence) -> ReplayAccount | None:
    """Sum up what the server said, of the requests of which it did; None where nothing does."""
    if not evidence.is_counted:
        return None
    found = ReplayAccount(0, 0, 0, 0, None, None, None)
    times = list[float | None]()
    for asked, reused, ms in zip(evidence.traffic.asked, evidence.reused, evidence.prompt_ms, strict=True):
        if reused is None:
            continue
        found.requests += 1
        found.prompt_tokens += evidence.traffic.tree.length(asked.prompt)
        found.reused_tokens += reused
        times.append(ms)
    found.computed_tokens = found.prompt_tokens - found.reused_tokens
    known = [ms for ms in times if ms is not None]
    found.prompt_ms = round(sum(known), 3) if known and len(known) == len(times) else None
    return found


def fit(evidence: Evidence, served: Sequence[Served]) -> ReplayFit | None:
    """Hold the replay under the recorded settings against what the server said; None where nothing does."""
    if not evidence.is_counted:
        return None
    found = ReplayFit(0, 0, 0, 0, 0, 0)
    for asked, one, reused in zip(evidence.traffic.asked, served, evidence.reused, strict=True):
        if reused is None:
            continue
        found.requests += 1
        found.equal += one.reused == reused
        found.prompt_tokens += evidence.traffic.tree.length(asked.prompt)
        found.server_reused_tokens += reused
        found.replay_reused_tokens += one.reused
        found.wrong_tokens += abs(one.reused - reused)
    return found
