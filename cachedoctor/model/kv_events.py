"""KV events of vLLM and SGLang: the lines of a recording, and what they add up to.

No token and no hash of the server is in a recording: the hashes are keyed, and the key is discarded.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from cachedoctor.model.bounds import Amount, Count

FORMAT: Final = "cachedoctor.kv/1"
MAX_BLOCKS = 1_000_000
"""Blocks of one event; a message of vLLM has those of one step."""

_Id = Annotated[str, msgspec.Meta(max_length=64)]
_Ids = Annotated[list[_Id], msgspec.Meta(max_length=MAX_BLOCKS)]


class StoredBlocks(msgspec.Struct, tag="stored", omit_defaults=True):
    """Blocks that were computed and can be found from now on, each the continuation of the one before."""

    ids: _Ids
    """Content of a block and of all before it."""
    size: Count
    """Tokens per block."""
    parent: _Id | None = None
    """Id of the block before the first."""
    texts: _Ids = msgspec.field(default_factory=list)
    """Content of each block alone; empty if the message does not show which tokens belong to which block."""
    medium: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    """Where the blocks are stored; None for GPU memory."""
    group: Count = 0
    """Group of layers, if the model has several kinds."""


class RemovedBlocks(msgspec.Struct, tag="removed", omit_defaults=True):
    """Blocks that cannot be found any more."""

    ids: _Ids
    medium: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    group: Count = 0


class ClearedBlocks(msgspec.Struct, tag="cleared"):
    """The cache was emptied."""


class KvMessage(msgspec.Struct, tag="message", omit_defaults=True):
    """What a server published after one step."""

    number: Count
    """Counts up by one from the start of the server."""
    time: float
    """Seconds since 1970, by the server's clock."""
    events: list[StoredBlocks | RemovedBlocks | ClearedBlocks]
    source: Count = 0
    """Which of the endpoints."""
    rank: Count | None = None
    """Data-parallel rank."""


class KvHead(msgspec.Struct, tag="head"):
    """The first line of a recording."""

    format: Literal["cachedoctor.kv/1"]
    tool: str
    """Version of cachedoctor."""
    endpoints: list[str]


class KvUnread(msgspec.Struct, tag="unread"):
    """Messages of an endpoint that are not KV events."""

    source: Count
    messages: Count


KvLine = KvHead | KvMessage | KvUnread


class KvEvents(msgspec.Struct):
    """What recorded KV events show about a server. Counts are tokens of whole blocks, including blocks of replies.
    ``stored`` is the sum of ``new``, ``evicted``, ``emptied``, ``changed``, ``salted``, ``routed`` and ``present``."""

    path: str
    messages: Count = 0
    missing: Count = 0
    """Messages that never arrived, according to the message numbers."""
    unread: Count = 0
    """Messages or lines with no known content."""
    late: bool = False
    """True if the recording began after the server had published events; the recording then lacks some stored
    blocks."""
    forgotten: Count = 0
    """Blocks that cachedoctor stopped tracking, the least recently used first, because there were too many blocks."""
    restarts: Count = 0
    publishers: Count = 0
    """Number of engines that published events: ranks of data parallelism, or servers."""
    doubt: Literal["groups", "tiers", "names"] | None = None
    """Why the causes are unknown: several kinds of layers have separate blocks, blocks are restored from slower memory,
    or the hashes do not include the text before a block (SGLang of 2025). All tokens then count as ``new``."""
    stored: Amount = 0
    """Tokens computed and stored."""
    new: Amount = 0
    """No equal block was stored before at the same offset within a block."""
    evicted: Amount = 0
    """Stored again after a removal for lack of space."""
    emptied: Amount = 0
    """Stored again after the cache was emptied or the server was restarted."""
    changed: Amount = 0
    """The same block had been stored after another prefix: the client changed something before the block."""
    salted: Amount = 0
    """The same text, including its prefix, had been stored under another salt, adapter or image."""
    routed: Amount = 0
    """Another engine had already stored the same block."""
    present: Amount = 0
    """Stored although the cache had the block: by requests that ran at the same time, or as the last block of a
    prompt."""
    removed: Amount = 0
    """Tokens of blocks that were removed for lack of space."""

    @property
    def complete(self) -> bool:
        """True if the recording contains everything that the servers published since their start."""
        return not (self.missing or self.unread or self.late or self.forgotten)

    def share(self, part: int) -> float:
        """What a part is of all that was stored, from 0 to 1."""
        return part / self.stored if self.stored else 0.0
