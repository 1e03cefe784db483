"""Replays the reuse of SGLang for sent prompts: a radix tree of computed tokens, within the size of its pool.

Source: srt/mem_cache/radix_cache.py and schedule_policy of 0.4.3 to 0.5.23. A hit ends at any page, and never covers
all of a prompt: the last token is recomputed. If space is needed, the least recently used leaf is evicted as a whole;
leaves that running requests use stay. Models with recurrent layers or sliding windows have more rules than these: they
are not replayed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from cachedoctor.diagnosis.replay.block_cache import SentPrompt, in_order, one_by_one
from cachedoctor.knowledge.texts import common_prefix

_TOKEN = array("q").itemsize
"""Bytes."""


class RadixSettings(msgspec.Struct, frozen=True):
    """The settings of a server that decide its reuse."""

    page: int = 1
    """Tokens (page_size)."""
    tokens: int | None = None
    """Tokens of the pool (max_total_num_tokens); None for one that holds everything."""


class RadixServed(NamedTuple):
    """The result of one request, in tokens."""

    reused: int
    endless: int
    """What the same server would have found with room for everything."""


class _Node:
    """A stretch of tokens that no other prompt parts in."""

    __slots__ = ("children", "key", "locks", "parent", "used")

    def __init__(self, key: bytes, parent: _Node | None, used: int) -> None:
        self.key = key
        self.parent = parent
        self.used = used
        """Time of its last use."""
        self.locks = 0
        """Running requests that use it."""
        self.children: dict[bytes, _Node] = {}
        """Children by their first page."""


def serve(
    prompts: Sequence[SentPrompt], settings: RadixSettings, times: Iterable[tuple[float, float]] | None = None
) -> list[RadixServed]:
    """Replay prompts in the order in which they started; ``times`` as for vLLM.

    A prompt is in the tree as soon as it starts. On the server, prompts that are admitted in one batch share nothing
    with each other; this is not replayed.
    """
    sized = RadixServer(settings)
    endless = sized if settings.tokens is None else RadixServer(msgspec.structs.replace(settings, tokens=None))
    found: list[RadixServed | None] = [None] * len(prompts)
    for index, ends in in_order(one_by_one(len(prompts)) if times is None else times):
        if ends:
            sized.end(index)
            if endless is not sized:
                endless.end(index)
            continue
        reused = sized.begin(index, prompts[index])
        best = reused if endless is sized else endless.begin(index, prompts[index])
        found[index] = RadixServed(reused, best)
    return [served for served in found if served is not None]


class _RadixRequest(NamedTuple):
    last: _Node
    sent: SentPrompt
    own: int
    """Tokens that are not in the tree: the reply, and what is less than a page."""


class RadixServer:
    """One server; requests begin and end."""

    def __init__(self, settings: RadixSettings) -> None:
        if settings.page < 1:
            raise ValueError(f"a page of {settings.page} tokens")
        self._settings = settings
        self._page = settings.page * _TOKEN
        self._roots: dict[str, _Node] = {}
        self._running: dict[int, _RadixRequest] = {}
        self._clock = 0
        self._kept = 0
        self._own = 0
        """Tokens of running requests outside of it."""
        self.given_up = 0
        """Tokens that left the tree for lack of room."""

    @property
    def kept(self) -> int:
        """Number of tokens in the tree."""
        return self._kept

    def begin(self, request: int, sent: SentPrompt) -> int:
        """Start a request under its own number; returns the reused tokens."""
        text, length = _content(sent, len(sent.tokens)), len(sent.tokens)
        self._clock += 1
        reused = self._match(sent.key, text[: max(0, length - 1) * _TOKEN])
        last = self._insert(sent.key, text)
        self._lock(last, 1)
        own = length % self._settings.page + len(sent.reply)
        self._running[request] = _RadixRequest(last, sent, own)
        self._own += own
        self._make_room()
        return reused

    def end(self, request: int) -> None:
        """End a request: prompt and reply stay in the tree until space is needed."""
        last, sent, own = self._running.pop(request)
        self._clock += 1
        self._own -= own
        # The last token of a reply is never put into the cache.
        self._insert(sent.key, _content(sent, len(sent.tokens) + max(0, len(sent.reply) - 1)))
        self._lock(last, -1)
        self._make_room()

    def flush(self) -> None:
        """Forget everything, as POST /flush_cache does while no request runs."""
        self._roots.clear()
        self._kept = 0

    def _match(self, key: str, text: bytes) -> int:
        """Walk down as far as whole pages agree; a node in which they part is cut there. Gives tokens."""
        node, at = self._root(key), 0
        while True:
            node.used = self._clock
            child = node.children.get(text[at : at + self._page])
            if child is None:
                return at // _TOKEN
            common = self._common(child.key, text[at : at + len(child.key)])
            if common < len(child.key):
                self._cut(child, common).used = self._clock
                return (at + common) // _TOKEN
            node, at = child, at + common

    def _insert(self, key: str, text: bytes) -> _Node:
        """Put the whole pages of a text into the tree; gives the node where they end."""
        text = text[: len(text) // self._page * self._page]
        node, at = self._root(key), 0
        while at < len(text):
            node.used = self._clock
            child = node.children.get(text[at : at + self._page])
            if child is None:
                child = _Node(text[at:], node, self._clock)
                node.children[text[at : at + self._page]] = child
                self._kept += len(child.key) // _TOKEN
            common = self._common(child.key, text[at : at + len(child.key)])
            node = child if common == len(child.key) else self._cut(child, common)
            at += common
        node.used = self._clock
        return node

    def _root(self, key: str) -> _Node:
        return self._roots.setdefault(key, _Node(b"", None, 0))

    def _common(self, one: bytes, other: bytes) -> int:
        return common_prefix(one, other) // self._page * self._page

    def _cut(self, child: _Node, at: int) -> _Node:
        """Part a node in two; gives the upper one."""
        parent = child.parent
        upper = _Node(child.key[:at], parent, child.used)
        upper.locks = child.locks
        upper.children[child.key[at : at + self._page]] = child
        if parent is not None:
            parent.children[child.key[: self._page]] = upper
        child.key, child.parent = child.key[at:], upper
        return upper

    def _lock(self, node: _Node | None, by: int) -> None:
        while node is not None:
            node.locks += by
            node = node.parent

    def _make_room(self) -> None:
        """Give up leaves, the one used longest ago first, until all fits or everything left is in use."""
        room = self._settings.tokens
        if room is None or self._kept + self._own <= room:
            return
        leaves = [(node.used, id(node), node) for node in self._leaves()]
        heapify(leaves)
        while leaves and self._kept + self._own > room:
            _, _, node = heappop(leaves)
            parent = node.parent
            if parent is None:
                continue
            del parent.children[node.key[: self._page]]
            self._kept -= len(node.key) // _TOKEN
            self.given_up += len(node.key) // _TOKEN
            if not parent.children and not parent.locks and parent.parent is not None:
                heappush(leaves, (parent.used, id(parent), parent))

    def _leaves(self) -> Iterable[_Node]:
        """Nodes that nothing hangs on and no request uses."""
        nodes = list(self._roots.values())
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            if not node.children and not node.locks and node.parent is not None:
                yield node


def _content(sent: SentPrompt, length: int) -> bytes:
    """Tokens of prompt and reply as bytes; those of an image are numbers made of its content, as SGLang pads it."""
    tokens = array("q", sent.tokens)
    tokens.extend(sent.reply)
    for image in sent.images:
        digest = blake2b(image.content.encode("utf-8", "surrogatepass"), digest_size=7).digest()
        number = -1 - int.from_bytes(digest, "big")
        for at in range(max(0, image.start), min(image.end, len(tokens))):
            tokens[at] = number
    return tokens[:length].tobytes()
