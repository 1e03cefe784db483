"""What goes through the pipes to and from the child: ``{"op": "encode"}`` and bytes behind it. No code, no pickles.

A message is the lengths of its two parts (unsigned, 8 bytes each, little-endian), a JSON object, and raw bytes. The
JSON is ASCII, so that lone surrogates and integers of any size come through as they are.
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any, NamedTuple

MAX_BYTES = 1 << 30
"""Of either part of a message."""
_LENGTHS = struct.Struct("<QQ")


class Message(NamedTuple):
    """A JSON object and the bytes that belong to it."""

    head: dict[str, Any]
    data: bytes = b""


def write(out: IO[bytes], message: Message) -> None:
    """Write a message; raises ``OSError`` where nobody reads."""
    head = json.dumps(message.head).encode()
    out.write(_LENGTHS.pack(len(head), len(message.data)))
    out.write(head)
    out.write(message.data)
    out.flush()


def read(source: IO[bytes]) -> Message | None:
    """Read a message; None where the other side has gone, or writes something else."""
    lengths = source.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    sizes = _LENGTHS.unpack(lengths)
    if max(sizes) > MAX_BYTES:
        return None
    head, data = source.read(sizes[0]), source.read(sizes[1])
    if (len(head), len(data)) != sizes:
        return None
    found = json.loads(head)
    return Message(found, data) if isinstance(found, dict) else None


def text_bytes(text: str) -> bytes:
    """A text as bytes, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """The text that ``text_bytes`` made bytes of."""
    return data.decode("utf-8", "surrogatepass")
