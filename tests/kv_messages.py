"""KV events as servers send them, made by hand: vLLM and SGLang of 2026 send maps, those of 2025 arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

SIZE = 4
"""Tokens of a block."""


def frames(number: int, *events: object, rank: int | None = 0, time: float = 1.0) -> list[bytes]:
    """A message: topic, number, payload."""
    return [b"", number.to_bytes(8, "big"), msgspec.msgpack.encode([time, list(events), rank])]


def stored(*names: str, text: str = "", parent: str | None = None, **more: Any) -> dict[str, Any]:
    """Blocks by the names that the server gives them; ``text``: a letter for the tokens of each, the name if empty."""
    tokens = [ord(letter) for letter in text or "".join(names) for _ in range(SIZE)]
    return {
        "type": "BlockStored", "block_hashes": [name.encode() for name in names],
        "parent_block_hash": None if parent is None else parent.encode(), "token_ids": tokens, "block_size": SIZE,
        "lora_id": None, "medium": "GPU", "lora_name": None, **more,
    }  # fmt: skip


def removed(*names: str, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": [name.encode() for name in names], "medium": "GPU", **more}


CLEARED = {"type": "AllBlocksCleared"}


def as_arrays(event: dict[str, Any]) -> Sequence[object]:
    """The same event as older versions send it."""
    fields = dict(event)
    return [fields.pop("type"), *fields.values()]
