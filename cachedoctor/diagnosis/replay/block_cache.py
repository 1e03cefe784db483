"""Replays the reuse of vLLM for sent prompts, with its block size and the size of its KV cache."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

BlockName = Hashable
"""Content of a block and of all blocks before it."""

_NAME_BYTES = 12
"""Bytes of a hash: the chance that two of a billion blocks get the same name is one in 10^11."""
_TOKEN_BYTES = array("q").itemsize


class Image(msgspec.Struct, frozen=True):
    """The place of an image in a prompt; its tokens are the same for every image, its blocks are not."""

    start: int
    """Index of its first token."""
    end: int
    """Index after its last token."""
    content: str
    """Hash that distinguishes it from other images."""


class SentPrompt(msgspec.Struct, frozen=True):
    """A prompt for the cache of blocks, and the tokens generated after it."""

    tokens: Sequence[int]
    reply: Sequence[int] = ()
    """Generated tokens, where they are known."""
    key: str = ""
    """What keeps equal texts apart: cache_salt, LoRA adapter."""
    images: Sequence[Image] = ()


def names(sent: SentPrompt, size: int, length: int | None = None) -> list[bytes]:
    """Name the whole blocks of ``size`` tokens of a prompt and its reply, up to ``length`` tokens of both.

    Raises:
        ValueError: ``size`` is not a block size.
    """
    if size < 1:
        raise ValueError(f"a block of {size} tokens")
    content = array("q", sent.tokens)
    content.extend(sent.reply)
    text, whole = content.tobytes(), (len(content) if length is None else min(length, len(content))) // size
    found, before = [], sent.key.encode("utf-8", "surrogatepass")
    for at in range(whole):
        digest = blake2b(before, digest_size=_NAME_BYTES)
        digest.update(text[at * size * _TOKEN_BYTES : (at + 1) * size * _TOKEN_BYTES])
        for image in sent.images:
            if image.start < (at + 1) * size and image.end > at * size:
                digest.update(image.content.encode("utf-8", "surrogatepass"))
        before = digest.digest()
        found.append(before)
    return found


class BlockCache:
    """The blocks of one server: blocks of running requests, and blocks that are kept until space is needed.

    Equal blocks that two running requests computed at the same time count once; vLLM keeps both until the requests end.
    """

    def __init__(self, room: int | None) -> None:
        """``room``: blocks in all; None for a cache that never evicts anything."""
        self._room = room
        self._held: dict[BlockName, int] = {}
        """Running requests that hold a block."""
        self._unnamed = 0
        """Incomplete blocks of running requests, which no other request can find."""
        self._kept: OrderedDict[BlockName, None] = OrderedDict()
        """Blocks that no request holds, in eviction order."""
        self.given_up = 0
        """Number of blocks that were evicted to make room."""

    def __contains__(self, block: BlockName) -> bool:
        return block in self._held or block in self._kept

    @property
    def crowded(self) -> bool:
        """Running requests use more blocks than there are: the server made one of them wait or start again."""
        return self._room is not None and len(self._held) + self._unnamed > self._room

    def leading(self, blocks: Sequence[BlockName]) -> int:
        """Count the leading blocks that are all in the cache."""
        for at, block in enumerate(blocks):
            if block not in self:
                return at
        return len(blocks)

    def hold(self, blocks: Iterable[BlockName], unnamed: int = 0) -> None:
        """Start to use blocks for a request, found or new; new blocks may evict others."""
        for block in blocks:
            self._kept.pop(block, None)
            self._held[block] = self._held.get(block, 0) + 1
        self._unnamed += unnamed
        self._make_room()

    def let_go(self, blocks: Sequence[BlockName], unnamed: int = 0) -> None:
        """End a request; ``blocks`` in the order of its prompt.

        Each block is kept until its space is needed.
        """
        for block in reversed(blocks):
            left = self._held.get(block, 0) - 1
            if left > 0:
                self._held[block] = left
            elif self._held.pop(block, None) is not None:
                self._kept[block] = None
        self._unnamed -= unnamed
        self._make_room()

    def empty(self) -> None:
        """Forget all blocks that no request uses, as POST /reset_prefix_cache does."""
        self._kept.clear()

    def _make_room(self) -> None:
        if self._room is None:
            return
        while self._kept and len(self._held) + self._unnamed + len(self._kept) > self._room:
            self._kept.popitem(last=False)
            self.given_up += 1


def in_order(events: Iterable[tuple[float, float]]) -> list[tuple[int, bool]]:
    """Sort starts and ends of requests into one order: (index, whether it ends).

    Args:
        events: when each request began and ended, by one clock; at one moment ends come before starts.
    """
    found = []
    for index, (start, end) in enumerate(events):
        found += [(start, 1, index), (max(start, end), 0 if end > start else 2, index)]
    return [(index, kind != 1) for _, kind, index in sorted(found)]


def one_by_one(count: int) -> list[tuple[float, float]]:
    """Return times at which no requests overlap."""
    return list(pairwise(range(count + 1)))


class BlockSettings(msgspec.Struct, frozen=True):
    """The settings of a server that decide its reuse."""

    block: int
    """Block size in tokens."""
    tokens: int | None = None
    """Tokens that the cache holds (``KV cache size``); None for one that holds everything."""
    states: Literal["none", "every", "few"] = "none"
    """Recurrent layers: none; a state wherever a chunk or a block of the reply ends (up to 0.28, and with retention
    None); at the end of a prompt and where prompts were seen to diverge (0.29 and newer)."""
    interval: int = 0
    """With ``few``: tokens between additional states (--prefix-cache-retention-interval); 0 for none."""
    chunk: int = 8192
    """Prompt tokens that one step computes at most (--max-num-batched-tokens); it decides where states are."""
    split: int | None = None
    """Tokens at whose multiples the scheduler ends the steps of a prompt; None: the block. On CPUs 0.32 enlarges the
    block in the process of the model alone, and the scheduler continues 128: a state after a step that ends
    within a block is lost, so that the second prompt of a conversation often finds none."""
    state_blocks: int = 1
    """Blocks of the cache that one state takes: the groups of recurrent layers."""
    gives_up_last: bool = False
    """EAGLE and MTP: the last block that matches is recomputed."""

    def names(self, sent: SentPrompt) -> list[bytes]:
        """Name the blocks that a request fills: of the prompt and the reply, whose last token is never kept."""
        return names(sent, self.block, _written(sent))


class ServedPrompt(NamedTuple):
    """The result of one request, in tokens."""

    reused: int
    """Tokens found in the cache of this size."""
    endless: int
    """Tokens that the same server would have found with room for everything."""
    crowded: bool
    """More requests ran at once than the cache has room for: the replay differs from the server."""


def serve(
    prompts: Sequence[SentPrompt], settings: BlockSettings, times: Iterable[tuple[float, float]] | None = None
) -> list[ServedPrompt]:
    """Replay prompts in the order in which they started.

    Args:
        prompts: in any order, if ``times`` are given.
        settings: of the server.
        times: when each began and ended, by one clock; without them each began when the previous one ended.
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


class _BlockRequest(NamedTuple):
    blocks: list[BlockName]
    """Blocks in the order of the prompt and its reply, including states."""
    unnamed: int


class BlockServer:
    """One server; requests begin and end."""

    def __init__(self, settings: BlockSettings) -> None:
        self._settings = settings
        # One block of the pool stands for those that are left out, and is never given to a request.
        room = None if settings.tokens is None else max(1, settings.tokens // settings.block - 1)
        self._cache = BlockCache(room)
        self._running: dict[int, _BlockRequest] = {}

    @property
    def crowded(self) -> bool:
        """Running requests use more blocks than there are."""
        return self._cache.crowded

    def reset(self) -> None:
        """Empty the cache."""
        self._cache.empty()

    def begin(self, request: int, sent: SentPrompt, named: Sequence[bytes] | None = None) -> int:
        """Start a request under its own number; returns the reused tokens.

        ``named``: its blocks, if the caller has them already.
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
        running = _BlockRequest(held, 1 if _written(sent) % size else 0)
        self._running[request] = running
        self._cache.hold(running.blocks, running.unnamed)
        return hit * size

    def end(self, request: int) -> None:
        """End a request: its blocks may be evicted when space is needed."""
        running = self._running.pop(request)
        self._cache.let_go(running.blocks, running.unnamed)

    def _groups(self) -> range:
        return range(0 if self._settings.states == "none" else self._settings.state_blocks)

    def _resumable(self, blocks: Sequence[BlockName], matched: int) -> int:
        """Blocks up to the last place where the computation can continue."""
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
    """Name of the state after ``at`` blocks; None where there is no such block."""
    return (group, blocks[at - 1]) if 0 < at <= len(blocks) else None
