"""How many conversations that alternate a server keeps, and the cheapest setting that keeps all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Cause, Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import first, steps
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.radix_cache import RadixServer, RadixSettings
from cachedoctor.doctor.whatif.accounts import account, candidate, saved_ms
from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
from cachedoctor.doctor.whatif.block_replay import BlockReplay
from cachedoctor.doctor.whatif.block_replay import candidate as block_candidate
from cachedoctor.doctor.whatif.block_setup import BlockSetup
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.doctor.whatif.more_memory import more_memory
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.engines import in_blocks
from cachedoctor.knowledge.server_options import lacking
from cachedoctor.model.whatif import AgentsFit, CacheSessions, ReplayAccount

_MIB = 1 << 20
LOST = 0.01
"""Share of what had been sent before that may be lost where all conversations are kept."""
_OF_SPACE: frozenset[Cause] = frozenset(
    {"busy", "other slot", "slot taken", "RAM cache off", "refused", "too small", "consumed", "purged"}
)
"""Causes that more slots or more RAM cache end."""
_OPEN = 0.25
"""Share of the computed tokens for which it may be unknown whether they had been sent before."""
_LEAST_SPAN = 3600.0
"""Seconds of a log from which on savings are given per day."""
_DAY = 86_400.0


def agents_fit(evidence: ServerTraffic, served: Sequence[Served], base: ReplayAccount) -> AgentsFit | None:
    """Say how many conversations alternate and are kept; None where no two do, or nothing distinguishes them.

    Args:
        evidence: what is replayed.
        served: the replay under the recorded settings.
        base: the sums of that.
    """
    at_once = alternating(evidence.conversations)
    if at_once < 2 or evidence.placed.open_tokens > _OPEN * base.computed_tokens:
        return None
    lost = _lost(evidence, served)
    best = sum(max(one.best, one.reused) for one in served)
    turns = {number for number in evidence.conversations if number is not None}
    missed = {number for number, tokens in lost.items() if tokens > LOST * best / max(1, len(turns))}
    found = AgentsFit(at_once, len(turns), len(turns - missed), _span(evidence.times))
    if sum(lost.values()) > LOST * best:
        for settings in _cheapest(evidence, at_once, best):
            now = account(evidence, serve(evidence.traffic, settings), settings)
            if now.too_long > base.too_long:
                continue
            saved, memory = now.reused_tokens - base.reused_tokens, more_memory(evidence.settings, settings)
            found.keep_all.append(candidate(evidence.settings, settings, saved, saved_ms(base, now), memory))
        found.keep_all.sort(key=lambda one: (one.memory_mib is None, one.memory_mib or 0.0))
        if found.span_s and found.span_s >= _LEAST_SPAN and found.keep_all and found.keep_all[0].saved_ms is not None:
            found.saved_ms_per_day = round(found.keep_all[0].saved_ms * _DAY / found.span_s, 3)
    return found


def alternating(conversations: Sequence[int | None]) -> int:
    """Conversations that are in use at once, at most: begun, and not at their end."""
    first_at, last_at = dict[int, int](), dict[int, int]()
    for at, number in enumerate(conversations):
        if number is not None:
            first_at.setdefault(number, at)
            last_at[number] = at
    most = running = 0
    for at, number in enumerate(conversations):
        if number is None or first_at[number] == last_at[number]:
            continue
        running += at == first_at[number]
        most = max(most, running)
        running -= at == last_at[number]
    return most


def _lost(evidence: ServerTraffic, served: Sequence[Served]) -> Counter[int | None]:
    """Tokens of each conversation that had been sent before and were lost for lack of slots or RAM cache."""
    found: Counter[int | None] = Counter()
    for number, one in zip(evidence.conversations, served, strict=True):
        if one.cause in _OF_SPACE:
            found[number] += max(0, one.best - one.reused)
    return found


def _cheapest(evidence: ServerTraffic, at_once: int, best: int) -> Iterator[ServerSettings]:
    """Of each way to keep all conversations the smallest value."""
    base = evidence.settings
    now = base.resolved()

    def keeps(settings: ServerSettings) -> bool:
        return sum(_lost(evidence, serve(evidence.traffic, settings)).values()) <= LOST * best

    slots = now.slots or 1
    numbers = list(range(slots + 1, max(at_once, slots + 1) + 2))
    wanted = first(numbers, lambda number: keeps(_more_slots(base, now, number)))
    if wanted is not None:
        yield _more_slots(base, now, wanted)
    if lacking(server_options.CACHE_RAM, now.build, now.build):
        return
    if not base.token_bytes:
        if 0 <= (now.cache_ram_mib or 0) < 8192 and keeps(settings := replace(base, cache_ram_mib=8192)):
            yield settings
        return
    length = evidence.traffic.tree.length
    longest = max(length(one.content) for one in evidence.traffic.asked)
    each = base.token_bytes * longest + base.state_bytes + base.checkpoint_bytes * (now.ctx_checkpoints or 0)
    limits = [mib for mib in steps(int(each * (at_once + 1) / _MIB) + 1) if mib > (now.cache_ram_mib or 0)]
    wanted = first(limits, lambda mib: keeps(replace(base, cache_ram_mib=mib))) if limits else None
    if wanted is not None:
        yield replace(base, cache_ram_mib=wanted)


def _more_slots(base: ServerSettings, now: ServerSettings, number: int) -> ServerSettings:
    """So many slots, each with the context that it has."""
    context = now.context // (now.slots or 1) * number
    return replace(base, slots=number, context=context, kv_unified=now.kv_unified)


def _span(times: Sequence[str | None]) -> float | None:
    """Seconds from the first request to the last, where the log has a clock."""
    try:
        known = sorted(datetime.fromisoformat(time) for time in times if time is not None)
    except (ValueError, TypeError):  # with and without a time zone
        return None
    return (known[-1] - known[0]).total_seconds() if len(known) > 1 else None


# ---- vLLM and SGLang


_TIMES = tuple(1 + step / 8 for step in range(1, 25))
"""Multiples of the existing cache, in steps of an eighth, up to four times."""


def block_agents_fit(replay: BlockReplay) -> AgentsFit | None:
    """Say how many conversations alternate and are kept; None where no two do.

    Kept is a conversation of which no block left the cache before it was used again. No log shows the
    memory per token, so it is unknown.
    """
    evidence = replay.evidence
    base, numbers = evidence.setup, evidence.conversations
    at_once = alternating(numbers)
    if at_once < 2 or base.tokens is None or not base.caching:
        return None
    whole = sum(one.endless for one in replay.served(base))
    lost = _lost_blocks(replay, base)
    known = {number for number in numbers if number is not None}
    missed = {number for number, tokens in lost.items() if tokens > LOST * whole / max(1, len(known))}
    found = AgentsFit(at_once, len(known), len(known - missed), None)
    if sum(lost.values()) > LOST * whole:
        sizes = [int(times * base.tokens) // base.block for times in _TIMES]
        wanted = first(sizes, lambda size: sum(_lost_blocks(replay, _sized(base, size)).values()) <= LOST * whole)
        if wanted is not None:
            found.keep_all.append(block_candidate(replay, replay.account(base), _sized(base, wanted)))
    found.sessions = _sessions(evidence)
    return found


def _sessions(evidence: BlockEvidence) -> CacheSessions | None:
    """What all sessions that the bodies name take in the cache together; None where none is named."""
    if not any(evidence.sessions) or evidence.setup.tokens is None:
        return None
    both = zip(evidence.sessions, evidence.prompts, strict=True)
    named = [(name, prompt) for name, prompt in both if name is not None]
    endless = RadixServer(RadixSettings(evidence.setup.block))
    for at, (_, prompt) in enumerate(named):
        endless.begin(at, prompt)
        endless.end(at)
    return CacheSessions(len({name for name, _ in named}), len(named), endless.kept, evidence.setup.tokens)


def _sized(base: BlockSetup, blocks: int) -> BlockSetup:
    return replace(base, tokens=blocks * base.block, blocks_given=blocks if in_blocks(base.engine) else None)


def _lost_blocks(replay: BlockReplay, setup: BlockSetup) -> Counter[int | None]:
    """Tokens of each conversation whose blocks had left the cache."""
    found: Counter[int | None] = Counter()
    for number, one in zip(replay.evidence.conversations, replay.served(setup), strict=True):
        found[number] += max(0, one.endless - one.reused)
    return found
