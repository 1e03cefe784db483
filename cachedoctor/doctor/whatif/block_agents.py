"""How many conversations the cache of a vLLM or SGLang keeps, and the smallest cache that keeps all of them."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.memory_use import first
from cachedoctor.doctor.whatif.agents import LOST, alternating
from cachedoctor.doctor.whatif.block_replay import BlockReplay
from cachedoctor.doctor.whatif.block_setup import BlockSetup, command_line
from cachedoctor.knowledge.engines import in_blocks
from cachedoctor.model.whatif import AgentsFit, Candidate

_TIMES = tuple(1 + step / 8 for step in range(1, 25))
"""Times the cache that there is, in steps of an eighth, up to four times."""


def agents_fit(replay: BlockReplay) -> AgentsFit | None:
    """Say how many conversations alternate and are kept; None where no two do.

    Kept is a conversation of which no block left the cache before it was used again. What a token of the cache takes no
    log says, so that its memory is unknown.
    """
    evidence = replay.evidence
    base, numbers = evidence.setup, evidence.conversations
    at_once = alternating(numbers)
    if at_once < 2 or base.tokens is None or not base.caching:
        return None
    whole = sum(one.endless for one in replay.served(base))
    lost = _lost(replay, base)
    known = {number for number in numbers if number is not None}
    missed = {number for number, tokens in lost.items() if tokens > LOST * whole / max(1, len(known))}
    found = AgentsFit(at_once, len(known), len(known - missed), None)
    if sum(lost.values()) > LOST * whole:
        sizes = [int(times * base.tokens) // base.block for times in _TIMES]
        wanted = first(sizes, lambda size: sum(_lost(replay, _sized(base, size)).values()) <= LOST * whole)
        if wanted is not None:
            settings = _sized(base, wanted)
            saved = replay.account(settings).reused_tokens - replay.account(base).reused_tokens
            more = (settings.tokens or 0) - base.tokens
            why = f"{more:,} tokens of KV cache; the log does not say what one takes"
            found.keep_all.append(Candidate(command_line(base, settings), saved, None, None, why))
    return found


def _sized(base: BlockSetup, blocks: int) -> BlockSetup:
    return replace(base, tokens=blocks * base.block, blocks_given=blocks if in_blocks(base.engine) else None)


def _lost(replay: BlockReplay, setup: BlockSetup) -> Counter[int | None]:
    """Tokens of each conversation whose blocks had left the cache."""
    found: Counter[int | None] = Counter()
    for number, one in zip(replay.evidence.conversations, replay.served(setup), strict=True):
        found[number] += max(0, one.endless - one.reused)
    return found
