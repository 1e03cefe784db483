"""What vLLM reuses of the prompts that it is sent, given the size of its blocks and of its cache.

Source: vllm/v1/core of 0.32.0 (kv_cache_manager.py, kv_cache_coordinator.py, single_type_kv_cache_manager.py,
sched/scheduler.py), and what differs in older versions (PR 43628, 53803, 54076: from 0.29 on states are kept at few
places on purpose). A hit is whole blocks, and never all of a prompt: its last token is computed again.

Models with recurrent layers can resume only where a state was kept. Models with sliding windows are taken for models
whose layers all see everything: what such a model loses beyond that is not replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from cachedoctor.replay.block_cache import BlockCache, BlockName, SentPrompt, in_order, names, one_by_one


class BlockSettings(msgspec.Struct, frozen=True):
    """A server, as far as it decides what is reused."""

    block: int
    """Tokens."""
    tokens: int | None = None
    """Tokens that the cache holds (``KV cache size``); None for one that holds everything."""
    states: Literal["none", "every", "few"] = "none"
    """Recurrent layers: none; a state wherever a chunk or a block of the reply ends (up to 0.28, and with retention
    None); at the end of a prompt and where prompts were seen to part (0.29 and newer)."""
    interval: int = 0
    """With ``few``: tokens between more states (--prefix-cache-retention-interval); 0 for none."""
    chunk: int = 8192
    """Prompt tokens that one step computes at most (--max-num-batched-tokens); it decides where states are."""
    split: int | None = None
    """Tokens at whose multiples the scheduler ends the steps of a prompt; None: the block. On CPUs 0.32 enlarges the
    block in the process of the model alone, and the scheduler goes on with 128: a state behind a step that ends
    within a block is lost, so that the second prompt of a conversation often finds none."""
    state_blocks: int = 1
    """Blocks of the cache that one state takes: the groups of recurrent layers."""
    gives_up_last: bool = False
    """EAGLE and MTP: the last block that matches is computed again."""

    def names(self, sent: SentPrompt) -> list[bytes]:
        """Name the blocks that a request fills: those of the prompt and the reply, whose last token is never kept."""
        return names(sent, self.block, _written(sent))


class ServedPrompt(NamedTuple):
    """What became of one request. Tokens."""

    reused: int
    """Found in the cache of this size."""
    endless: int
    """What the same server would have found with room for everything."""
    crowded: bool
    """More was running at once than there is room for: what was replayed is not what the server did."""


def serve(
    prompts: Sequence[SentPrompt], settings: BlockSettings, times: Iterable[tuple[float, float]] | None = None
) -> list[ServedPrompt]:
    """Replay prompts in the order in which they were taken up.

    Args:
        prompts: in any order, if ``times`` are given.
        settings: of the server.
        times: when each began and ended, by one clock; without them each began when the one before had ended.
    """
    sized = BlockServer(settings)
    endless = sized if settings.tokens is None else BlockServer(msgspec.structs.replace(settings, tokens=None))
    found: list[ServedPrompt | None] = [None] * len(prompts)
    for index, ends in in_order(one_by_one(len(prompts)) if times is None else times):
        if ends:
            sized.end(index)
            if endless is not sized:
                endless.end(index)
            continue
        blocks = settings.names(prompts[index])
        reused = sized.begin(index, prompts[index], blocks)
        best = reused if endless is sized else endless.begin(index, prompts[index], blocks)
        found[index] = ServedPrompt(reused, best, sized.crowded)
    return [served for served in found if served is not None]


class _Running(NamedTuple):
    blocks: list[BlockName]
    """In the order of the prompt and its reply, states among them."""
    unnamed: int


class BlockServer:
    """One server; requests begin and end."""

    def __init__(self, settings: BlockSettings) -> None:
        self._settings = settings
        # One block of the pool stands for those that are left out, and is never given to a request.
        room = None if settings.tokens is None else max(1, settings.tokens // settings.block - 1)
        self._cache = BlockCache(room)
        self._running: dict[int, _Running] = {}

    @property
    def crowded(self) -> bool:
        """Running requests hold more than there is."""
        return self._cache.crowded

    def reset(self) -> None:
        """The cache was emptied."""
        self._cache.empty()

    def begin(self, request: int, sent: SentPrompt, named: Sequence[bytes] | None = None) -> int:
        """Take up a request under a number of its own; give the tokens that are reused.

        ``named``: its blocks, where the caller has them already.
        """
        size, length = self._settings.block, len(sent.tokens)
        blocks = self._settings.names(sent) if named is None else named
        most = max(0, length - 1) // size
        matched = self._cache.leading(blocks[:most])
        if self._settings.gives_up_last and matched:
            matched -= 1
        hit = self._resumable(blocks, matched)
        kept = [_state(blocks, at, group) for at in self._states(sent, hit, matched) for group in self._groups()]
        used = [_state(blocks, hit, group) for group in self._groups()] if hit else []
        # States lie in the same pool; those that a request starts from are touched by it, too.
        held: list[BlockName] = [*blocks, *(state for state in kept if state is not None)]
        held += [state for state in used if state is not None and state not in kept]
        running = _Running(held, 1 if _written(sent) % size else 0)
        self._running[request] = running
        self._cache.hold(running.blocks, running.unnamed)
        return hit * size

    def end(self, request: int) -> None:
        """A request is over: what it held may be given up when room is needed."""
        running = self._running.pop(request)
        self._cache.let_go(running.blocks, running.unnamed)

    def _groups(self) -> range:
        return range(0 if self._settings.states == "none" else self._settings.state_blocks)

    def _resumable(self, blocks: Sequence[BlockName], matched: int) -> int:
        """Blocks up to the last place where the computation can go on."""
        if self._settings.states == "none":
            return matched
        for at in range(matched, 0, -1):
            if all(_state(blocks, at, group) in self._cache for group in self._groups()):
                return at
        return 0

    def _states(self, sent: SentPrompt, hit: int, matched: int) -> list[int]:
        """Places, in blocks, at which the request leaves a state: where a step ends with a block."""
        settings = self._settings
        if settings.states == "none":
            return []
        size, split, length = settings.block, settings.split or settings.block, len(sent.tokens)
        last, step = max(0, length - 1) // split * split, max(split, settings.chunk // split * split)
        ends = {*range(hit * size + step, last, step), last}
        if settings.states == "every":
            ends |= set(range(length // size * size + size, _written(sent) + 1, size))
        else:
            wanted, every = {max(0, length - 1) // size * size}, settings.interval
            ends = {end for end in ends if end in wanted or (every and end % every == 0)} | {matched * size}
        return sorted(end // size for end in ends if end > hit * size and end % size == 0)


def _written(sent: SentPrompt) -> int:
    return len(sent.tokens) + max(0, len(sent.reply) - 1)


def _state(blocks: Sequence[BlockName], at: int, group: int) -> BlockName | None:
    """Name of the state behind ``at`` blocks; None where there is no such block."""
    return (group, blocks[at - 1]) if 0 < at <= len(blocks) else None
