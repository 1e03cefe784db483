"""Reads the metadata of a GGUF file, and nothing behind it. Knows the container; must not know tokens or prompts.

Source: the GGUF specification (ggml, ``docs/gguf.md``), versions 2 and 3. Every length in the file is checked
against what is left of the file and a limit before anything is read: a damaged file costs neither memory nor time.
"""

from __future__ import annotations

import array
import os
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import open_file

MAGIC = b"GGUF"
MAX_ENTRIES = 65_536
"""Metadata entries; models have 20 to 60."""
MAX_KEY = 65_535
"""Bytes of a key, by the specification."""
MAX_STRINGS = 4 * 1024 * 1024
"""Strings of one array; the largest vocabularies have some 260,000 tokens and 600,000 merges."""
MAX_BYTES = 256 * 1024 * 1024
"""Bytes of the whole metadata; the largest vocabularies need about 20 MiB."""
MAX_TEMPLATE = 4 * 1024 * 1024
"""Characters; the longest in use have some 30,000."""
MAX_DEPTH = 3
"""Arrays inside each other."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_HINT = "give a .gguf that llama-server can load; a download may have been cut, or this is a Git LFS pointer"


class _DamagedError(Exception):
    """The bytes are not what the specification says; the message says where."""


class _Reader:
    """Little-endian values from a file whose end is known."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._left = min(size, MAX_BYTES)
        self._cut = size > MAX_BYTES

    def take(self, count: int) -> bytes:
        if count > self._left:
            raise _DamagedError(
                f"its metadata exceeds {MAX_BYTES // 1024**2} MiB" if self._cut else "it ends inside its metadata"
            )
        data = self._file.read(count)
        if len(data) != count:
            raise _DamagedError("it ends inside its metadata")
        self._left -= count
        return data

    def scalar(self, kind: int) -> Any:
        code = _SCALARS.get(kind)
        if code is None:
            raise _DamagedError(f"it has a value of the unknown type {kind}")
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def u32(self) -> int:
        return int(self.scalar(4))

    def u64(self) -> int:
        return int(self.scalar(10))

    def string(self, limit: int = MAX_BYTES) -> str:
        length = self.u64()
        if length > limit:
            raise _DamagedError(f"it has a string of {length:,} bytes")
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        return self.array(depth) if kind == _ARRAY else self.scalar(kind)

    def array(self, depth: int) -> Any:
        kind, count = self.u32(), self.u64()
        if kind in _SCALARS:
            return self.numbers(_SCALARS[kind], count)
        if kind not in (_STRING, _ARRAY):
            raise _DamagedError(f"it has an array of the unknown type {kind}")
        # 8 bytes is the least that a string or an array takes in the file
        if count > MAX_STRINGS or count * 8 > self._left or depth + 1 >= MAX_DEPTH:
            raise _DamagedError(f"it has an array of {count:,} elements that cannot be")
        return [self.value(kind, depth + 1) for _ in range(count)]

    def numbers(self, code: str, count: int) -> Any:
        data = self.take(count * struct.calcsize("<" + code))
        values = array.array("B" if code == "?" else code)
        values.frombytes(data)
        if sys.byteorder == "big":
            values.byteswap()
        return values


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read the key-value pairs of a GGUF file (version 2 or 3).

    Strings come as ``str`` (bytes that are not UTF-8 as U+FFFD), arrays of strings as ``list``, arrays of numbers as
    ``array.array``. Tensors are never read. Raises ``CacheDoctorError`` for everything that is not a sound GGUF.
    """
    try:
        with open_file(path, _HINT) as file:
            return _entries(_Reader(file, os.fstat(file.fileno()).st_size))
    except _DamagedError as error:
        raise CacheDoctorError(f"{path} is no usable GGUF file: {error}", _HINT) from None
    except OSError as error:
        raise CacheDoctorError(f"cannot read {path}: {error.strerror or error}", "check the path") from None


def chat_template(meta: dict[str, Any], path: str | Path) -> str | None:
    """The chat template among the metadata, if any; raises ``CacheDoctorError`` for one without measure."""
    found = meta.get("tokenizer.chat_template")
    if not isinstance(found, str):
        return None
    if len(found) > MAX_TEMPLATE:
        raise CacheDoctorError(f"{path} holds a chat template of {len(found):,} characters", _HINT)
    return found


def _entries(reader: _Reader) -> dict[str, Any]:
    if reader.take(4) != MAGIC:
        raise _DamagedError("it does not begin with GGUF")
    version = reader.u32()
    if version and version & 0xFFFF == 0:
        raise _DamagedError("it is big-endian, and only little-endian files are supported")
    if version not in (2, 3):
        raise _DamagedError(f"it has version {version}, and only 2 and 3 are supported")
    reader.u64()  # the number of tensors, which lie behind the metadata
    count = reader.u64()
    if count > MAX_ENTRIES:
        raise _DamagedError(f"it claims {count:,} metadata entries")
    found: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string(MAX_KEY)
        if key in found:
            raise _DamagedError(f"it has the key {key[:80]!r} twice")
        found[key] = reader.value(reader.u32())
    return found
