"""Blocks of a KV cache, as vLLM keeps them: named by all that comes before them, the oldest unused one given up first.

Source: vllm/v1/core/block_pool.py and kv_cache_utils.py of 0.32.0. A block that no running request uses stays in the
cache until its room is needed. A request gives its blocks back from its end to its beginning, so that of one prompt
the head is given up last.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise

import msgspec

BlockName = Hashable
"""Content of a block and of all before it."""

_NAME_BYTES = 12
"""Of a hash: two in a billion blocks have one name with a chance of one to 10^11."""
_TOKEN_BYTES = array("q").itemsize


class Image(msgspec.Struct, frozen=True):
    """Where an image stands in a prompt; its tokens are the same for every image, its blocks are not."""

    start: int
    """Index of its first token."""
    end: int
    """Index behind its last token."""
    content: str
    """What tells it from another image: a hash of it."""


class SentPrompt(msgspec.Struct, frozen=True):
    """A prompt as the cache of blocks sees it, and what was generated behind it."""

    tokens: Sequence[int]
    reply: Sequence[int] = ()
    """Generated tokens, where they are known."""
    key: str = ""
    """What keeps equal texts apart: cache_salt, LoRA adapter."""
    images: Sequence[Image] = ()


def names(sent: SentPrompt, size: int, length: int | None = None) -> list[bytes]:
    """Name the whole blocks of ``size`` tokens of a prompt and its reply, up to ``length`` tokens of both.

    Raises:
        ValueError: ``size`` is no size of a block.
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
    """The blocks of one server: those that running requests hold, and those that are kept until room is needed.

    Equal blocks that two running requests computed side by side count once; vLLM holds both until the requests end.
    """

    def __init__(self, room: int | None) -> None:
        """``room``: blocks in all; None for a cache that never gives anything up."""
        self._room = room
        self._held: dict[BlockName, int] = {}
        """Running requests that hold a block."""
        self._unnamed = 0
        """Blocks of running requests that are not whole, so that nobody can find them."""
        self._kept: OrderedDict[BlockName, None] = OrderedDict()
        """Blocks that nobody holds, the next to be given up first."""
        self.given_up = 0
        """Blocks that were found no more because their room was needed."""

    def __contains__(self, block: BlockName) -> bool:
        return block in self._held or block in self._kept

    @property
    def crowded(self) -> bool:
        """Running requests hold more than there is: the server let one of them wait or start again."""
        return self._room is not None and len(self._held) + self._unnamed > self._room

    def leading(self, blocks: Sequence[BlockName]) -> int:
        """Count the blocks from the first on that are all here."""
        for at, block in enumerate(blocks):
            if block not in self:
                return at
        return len(blocks)

    def hold(self, blocks: Iterable[BlockName], unnamed: int = 0) -> None:
        """A request starts to use blocks, found or new, and makes room for those that are new."""
        for block in blocks:
            self._kept.pop(block, None)
            self._held[block] = self._held.get(block, 0) + 1
        self._unnamed += unnamed
        self._make_room()

    def let_go(self, blocks: Sequence[BlockName], unnamed: int = 0) -> None:
        """A request ends; ``blocks`` in the order of its prompt. Each is kept until its room is needed."""
        for block in reversed(blocks):
            left = self._held.get(block, 0) - 1
            if left > 0:
                self._held[block] = left
            elif self._held.pop(block, None) is not None:
                self._kept[block] = None
        self._unnamed -= unnamed
        self._make_room()

    def empty(self) -> None:
        """Forget what nobody holds, as POST /reset_prefix_cache does."""
        self._kept.clear()

    def _make_room(self) -> None:
        if self._room is None:
            return
        while self._kept and len(self._held) + self._unnamed + len(self._kept) > self._room:
            self._kept.popitem(last=False)
            self.given_up += 1


def in_order(events: Iterable[tuple[float, float]]) -> list[tuple[int, bool]]:
    """Put starts and ends of requests into one order: (index, whether it ends).

    Args:
        events: when each request began and ended, by one clock; at one moment ends come before starts.
    """
    found = []
    for index, (start, end) in enumerate(events):
        found += [(start, 1, index), (max(start, end), 0 if end > start else 2, index)]
    return [(index, kind != 1) for _, kind, index in sorted(found)]


def one_by_one(count: int) -> list[tuple[float, float]]:
    """Times of requests none of which overlaps with another one."""
    return list(pairwise(range(count + 1)))
