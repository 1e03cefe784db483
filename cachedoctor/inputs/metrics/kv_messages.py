"""KV events of vLLM, SGLang and Dynamo, and the recordings that hold them as lines of JSON."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec

from cachedoctor.inputs.metrics.prometheus import whole_lines
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.bounds import MOST
from cachedoctor.model.kv_events import (
    MAX_BLOCKS,
    ClearedBlocks,
    KvHead,
    KvLine,
    KvMessage,
    KvUnread,
    RemovedBlocks,
    StoredBlocks,
)

_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx",
)  # fmt: skip
_FIELDS = {"BlockStored": _STORED, "BlockRemoved": ("block_hashes", "medium", "group_idx"), "AllBlocksCleared": ()}
"""Names of fields, in the order of an array."""
_GPU = (None, "GPU", "gpu")
_COMPONENTS = (None, "full", "swa", "mamba")
"""Kinds of layers whose blocks SGLang reports separately on request, numbered as vLLM numbers groups."""
_NUMBER_BYTES = 8
_ID_BYTES = 8
"""Bytes of a hash: among a million blocks, two share an id with a probability of 1 in 10^7."""
_LONGEST = 128
"""Bytes of a hash of a server, SHA-256 has 32."""
_WORD = 64
"""Characters of the name of a medium."""

_Event = StoredBlocks | RemovedBlocks | ClearedBlocks


class Blinder:
    """Makes lines of messages with a separate key for each recording: equal content has equal ids within one recording
    only."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def message(self, frames: Sequence[bytes], source: int = 0) -> KvMessage | None:
        """Make a line of a message; None for one without KV events."""
        if len(frames) < 2 or len(frames[-2]) != _NUMBER_BYTES:
            return None
        number = int.from_bytes(frames[-2], "big")
        batch = _unpacked(frames[-1])
        if isinstance(batch, dict):
            batch = [batch.get("ts"), batch.get("events"), batch.get("data_parallel_rank")]
        if number > MOST or not isinstance(batch, list) or len(batch) < 2:
            return None
        time, events, rank = batch[0], batch[1], batch[2] if len(batch) > 2 else None
        if type(time) not in (int, float) or not isfinite(time) or not isinstance(events, list):
            return None
        found = [self._event(event) for event in events]
        if events and not any(known for known, _ in found):
            return None
        kept: list[_Event] = []
        for _, event in found:
            if event is not None and not (kept and _joined(kept[-1], event)):
                kept.append(event)
        return KvMessage(number, float(time), kept, source, _whole(rank))

    def _event(self, event: object) -> tuple[bool, _Event | None]:
        """Whether an event has a known name, and its line."""
        if isinstance(event, list) and event:
            name, fields = event[0], dict(zip(_FIELDS.get(_text(event[0]), ()), event[1:], strict=False))
        elif isinstance(event, dict):
            name, fields = event.get("type"), event
        else:
            return False, None
        if _text(name) not in _FIELDS:
            return False, None
        if name == "AllBlocksCleared":
            return True, ClearedBlocks()
        hashes = fields.get("block_hashes")
        if not isinstance(hashes, list) or not 0 < len(hashes) <= MAX_BLOCKS:
            return True, None
        ids = [self._id(one) for one in hashes]
        known = [one for one in ids if one is not None]
        if len(known) < len(ids):
            return False, None
        group, medium = _group(fields), fields.get("medium")
        medium = None if medium in _GPU else str(medium)[:_WORD]
        if name == "BlockRemoved":
            return True, RemovedBlocks(known, medium, group)
        return True, self._stored(fields, known, medium, group)

    def _stored(self, fields: dict[str, Any], ids: list[str], medium: str | None, group: int) -> StoredBlocks | None:
        size, tokens, parent = (
            _whole(fields.get("block_size")),
            fields.get("token_ids"),
            fields.get("parent_block_hash"),
        )
        if not size:
            return None
        texts = []
        if isinstance(tokens, list) and len(tokens) == size * len(ids):
            texts = [self._hash(b"text", _packed(tokens[at : at + size])) for at in range(0, len(tokens), size)]
        return StoredBlocks(ids, size, None if parent is None else self._id(parent), texts, medium, group)

    def _id(self, name: object) -> str | None:
        """Id of a block from the server's hash; None for what is not a hash."""
        if isinstance(name, bytes | str) and len(name) <= _LONGEST:
            return self._hash(b"block", _packed(name))
        return self._hash(b"block", _packed(name)) if type(name) is int else None

    def _hash(self, kind: bytes, content: bytes) -> str:
        return blake2b(content, digest_size=_ID_BYTES, key=self._key, person=kind).hexdigest()


def _joined(before: _Event, event: _Event) -> bool:
    """Merge removed blocks with those removed just before, if both are of the same kind: vLLM sends each on its own."""
    if not (isinstance(before, RemovedBlocks) and isinstance(event, RemovedBlocks)):
        return False
    alike = (before.medium, before.group) == (event.medium, event.group) and len(before.ids) < MAX_BLOCKS - len(
        event.ids
    )
    if alike:
        before.ids += event.ids
    return alike


def _group(fields: dict[str, Any]) -> int:
    """Which of several kinds of layers a block is of; 0 if there is one."""
    component = fields.get("component_type")
    if component in _COMPONENTS:
        return _whole(fields.get("group_idx")) or max(0, _COMPONENTS.index(component) - 1)
    return len(_COMPONENTS)


def _unpacked(payload: bytes) -> object:
    try:
        return msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


MAX_LINE = 64 * 1024 * 1024
"""Bytes; a step of vLLM with 8,192 tokens has about 50 KB."""
_HINT = "cachedoctor watch --kv-events tcp://HOST:5557 -o kv.jsonl writes a recording"


def lines(chunks: Iterable[bytes], path: str) -> Iterator[KvLine]:
    """Yield the lines of a recording; a broken or truncated one counts as a message that was not read.

    Raises:
        CacheDoctorError: it is not a recording.
    """
    decoder = msgspec.json.Decoder(KvLine)
    first = True
    for text in whole_lines(chunks, lambda size: _refuse_large(size, path)):
        if not text.strip():
            continue
        try:
            line: KvLine = decoder.decode(sound_json(text))
        except (msgspec.DecodeError, RecursionError, ValueError):
            if first:
                raise CacheDoctorError(f"{path}: is not a recording of KV events", _HINT) from None
            line = KvUnread(0, 1)
        if first and not isinstance(line, KvHead):
            raise CacheDoctorError(
                f"{path}: is only part of a recording of KV events", "give the recording from its first line"
            )
        first = False
        yield line
    if first:
        raise CacheDoctorError(f"{path}: is not a recording of KV events", _HINT)


def _refuse_large(size: int, path: str) -> None:
    if size > MAX_LINE:
        raise CacheDoctorError(f"{path}: has a line of more than {MAX_LINE >> 20} MiB", _HINT)
