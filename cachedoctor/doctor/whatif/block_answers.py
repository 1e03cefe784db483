"""Answers ``tune`` for vLLM and SGLang: another size of cache, of blocks, caching on or off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

import cachedoctor
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
from cachedoctor.doctor.whatif.block_replay import BlockReplay
from cachedoctor.doctor.whatif.block_setup import BlockSetup, changed, command_line, listed
from cachedoctor.knowledge.engines import ENGINES, in_blocks
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.whatif import Candidate, ReplayAccount, Simulation, Tuning

LEAST_SHARE = 0.01
"""Of the computed tokens: what saves less is not worth a restart."""
_ENOUGH = 0.99
"""Share of the best saving of a setting with which its smallest value is taken."""
_TIMES = (1.25, 1.5, 2, 3, 4, 6, 8, 16)
"""Of the cache."""


def simulate(
    evidence: BlockEvidence, words: Sequence[str], paths: Sequence[str], ran: Sequence[str] = ()
) -> Simulation:
    """Replay under the recorded settings, and under those that ``words`` (NAME=VALUE) make of them.

    Raises:
        CacheDoctorError: a setting is not known, or the replay does not explain what the server said.
    """
    _learn(evidence, ran)
    wanted, replay = changed(evidence.setup, words), BlockReplay(evidence)
    fit = replay.fit()
    return Simulation(
        cachedoctor.__version__, [printable(path) for path in paths], evidence.placed, fit, replay.settings(wanted),
        replay.server(), replay.account(evidence.setup), replay.account(wanted), replay.conversations(wanted),
    )  # fmt: skip


def tune(
    evidence: BlockEvidence, paths: Sequence[str], limit_mib: float | None = None, words: Sequence[str] = ()
) -> Tuning:
    """Rank settings by what they would have saved.

    Raises:
        CacheDoctorError: the replay does not explain what the server said, or a setting is not known or said otherwise.
    """
    _learn(evidence, words)
    replay = BlockReplay(evidence)
    fit = replay.fit()
    base = replay.account(evidence.setup)
    least = max(fit.wrong_tokens, int(LEAST_SHARE * base.computed_tokens)) + 1
    helped = [one for family in _families(evidence) if (one := _smallest(replay, base, least, family)) is not None]
    helped.sort(key=lambda one: base.reused_tokens - replay.account(one).reused_tokens)
    candidates = [_candidate(replay, base, one) for one in helped]
    within = [] if limit_mib is not None else helped
    merged = _merged(evidence.setup, replay, base, least, within)
    best = None if merged is None else _candidate(replay, base, merged)
    return Tuning(
        cachedoctor.__version__, [printable(path) for path in paths], evidence.placed, fit,
        replay.settings(evidence.setup if merged is None else merged), base, least, limit_mib,
        [] if limit_mib is None else [one.options for one in candidates],
        candidates if limit_mib is None else [], best,
    )  # fmt: skip


def _learn(evidence: BlockEvidence, words: Sequence[str]) -> None:
    """Take settings that ran and that the log does not say."""
    said = changed(evidence.setup, words)
    old, new = listed(evidence.setup), listed(said)
    for name, value in new.items():
        if value != old[name] and name not in evidence.assumed and old[name] != "unknown":
            raise CacheDoctorError(f"--ran: the log says otherwise of {name}", "leave it out")
    evidence.assumed -= {name for name in new if new[name] != old[name]}
    evidence.setup = said


def _families(evidence: BlockEvidence) -> Iterator[list[BlockSetup]]:
    """Values of one setting after the other, the cheapest first."""
    base = evidence.setup
    if not base.caching:
        yield [replace(base, caching=True)]
        return
    if base.tokens is not None:
        larger = [int(times * base.tokens) // base.block for times in _TIMES]
        counted = in_blocks(base.engine)
        yield [replace(base, tokens=n * base.block, blocks_given=n if counted else None) for n in larger]
    yield [replace(base, block=size, blocks_given=_same_memory(base, size)) for size in ENGINES[base.engine].block_sizes
           if size < base.block]  # fmt: skip


def _same_memory(base: BlockSetup, size: int) -> int | None:
    """Blocks of another size in the memory that there is, where their number was asked for."""
    return None if base.blocks_given is None or base.tokens is None else base.tokens // size


def _smallest(replay: BlockReplay, base: ReplayAccount, least: int, family: Sequence[BlockSetup]) -> BlockSetup | None:
    """Of values that save about the same the first; None where none saves enough of the same requests."""
    saved = [(one, replay.account(one)) for one in family]
    found = [
        (one, account.reused_tokens - base.reused_tokens)
        for one, account in saved
        if (account.requests, account.too_long) == (base.requests, base.too_long)
    ]
    most = max((tokens for _, tokens in found), default=0)
    return next((one for one, tokens in found if tokens >= least and tokens >= _ENOUGH * most), None)


def _merged(
    setup: BlockSetup, replay: BlockReplay, base: ReplayAccount, least: int, helped: Sequence[BlockSetup]
) -> BlockSetup | None:
    """The best single change, with the other one where that adds enough."""
    if not helped:
        return None
    best = helped[0]
    for other in helped[1:]:
        block = other.block if other.block != setup.block else best.block
        sized = best if best.tokens != setup.tokens else other
        blocks = None if sized.tokens is None or sized.blocks_given is None else sized.tokens // block
        both = replace(sized, block=block, blocks_given=blocks)
        gain = replay.account(both).reused_tokens - replay.account(best).reused_tokens
        if gain >= least and replay.account(both).requests == base.requests:
            best = both
    return best


def _candidate(replay: BlockReplay, base: ReplayAccount, one: BlockSetup) -> Candidate:
    options = command_line(replay.evidence.setup, one)
    saved = replay.account(one).reused_tokens - base.reused_tokens
    more = (one.tokens or 0) - (replay.evidence.setup.tokens or 0)
    if more <= 0:
        return Candidate(options, saved, None, 0.0, "")
    return Candidate(options, saved, None, None, f"{more:,} tokens of KV cache; the log does not say what one takes")
