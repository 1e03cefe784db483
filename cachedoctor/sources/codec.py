"""Compression formats: their first bytes and their decoders. Knows no file and no error of ours."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

_MEMORY = 256 * 1024 * 1024
"""Bytes that an xz file may demand for its dictionary; ``xz -9`` needs 65 MiB. zstd's own limit is 128 MiB."""


class Decoder(Protocol):
    """An incremental decoder of one compressed stream, as bz2, lzma and zstd have it."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more can be unpacked before more input comes."""

    @property
    def unused_data(self) -> bytes:
        """Input that lies behind the end of the stream."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Take in ``data`` and give back at most ``max_length`` bytes."""


class Codec(NamedTuple):
    """One compression format, ready for use."""

    name: str
    decoder: Callable[[], Decoder]
    fault: type[Exception]
    """What the decoder raises on damaged data."""


def _gzip() -> Codec:
    from cachedoctor.sources.gzip_decoder import GzipDecoder, GzipFault

    return Codec("gzip", GzipDecoder, GzipFault)


def _xz() -> Codec:
    import lzma

    return Codec("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY), lzma.LZMAError)


def _bzip2() -> Codec:
    import bz2

    return Codec("bzip2", bz2.BZ2Decompressor, OSError)


def _zstd() -> Codec:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return Codec("zstd", zstd.ZstdDecompressor, zstd.ZstdError)


# The mark of bzip2 is text ("BZh9"), so the mark of its first block (or of an empty stream's end) must follow.
_MAGICS: list[tuple[bytes, str]] = [
    (b"\x1f\x8b\x08", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    # pzstd and others put a skippable frame first.
    *((bytes([0x50 + low]) + b"\x2a\x4d\x18", "zstd") for low in range(16)),
    *((b"BZh%d%b" % (level, mark), "bzip2") for level in range(1, 10) for mark in (b"1AY&SY", b"\x17rE8P\x90")),
]
_LOADERS: dict[str, Callable[[], Codec]] = {"gzip": _gzip, "xz": _xz, "bzip2": _bzip2, "zstd": _zstd}


def undecided(head: bytes) -> bool:
    """Say whether ``head`` is only the beginning of a format's first bytes."""
    return any(len(head) < len(magic) and magic.startswith(head) for magic, _ in _MAGICS)


def format_of(head: bytes) -> str | None:
    """Name the compression that begins with ``head``: gzip, xz, bzip2, zstd, or None for plain bytes."""
    return next((name for magic, name in _MAGICS if head.startswith(magic)), None)


def load(name: str) -> Codec:
    """Import the codec called ``name``; raises ``ImportError`` when this Python was built without it."""
    return _LOADERS[name]()
