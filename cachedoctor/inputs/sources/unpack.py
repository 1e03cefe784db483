"""Recognises and unpacks compressed bytes (gzip, bzip2, xz, zstd) and converts marked UTF-16 to UTF-8."""

from __future__ import annotations

import codecs
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

import msgspec

from cachedoctor.inputs.sources.base import READ_SIZE, SourceError

GzipFault = zlib.error

_GZIP_HEADER = 16 + zlib.MAX_WBITS


class GzipDecoder:
    """Unpacks one gzip member and checks its CRC; raises ``GzipFault`` on damaged data."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP_HEADER)
        self.needs_input = True
        """Whether nothing more can be unpacked before more input comes."""

    @property
    def eof(self) -> bool:
        """Whether the end of the member was reached."""
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        """Input that lies after the end of the member."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Take in ``data`` and give back at most ``max_length`` bytes."""
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        # zlib can have eaten all input and still owe the rest of a match: a full answer proves nothing.
        self.needs_input = len(out) < max_length and not self._inflate.unconsumed_tail
        return out


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
        """Input that lies after the end of the stream."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Take in ``data`` and give back at most ``max_length`` bytes."""


class Codec(msgspec.Struct, frozen=True):
    """One compression format, ready for use."""

    name: str
    decoder: Callable[[], Decoder]
    fault: type[Exception]
    """What the decoder raises on damaged data."""


def _gzip() -> Codec:

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


_ENCODINGS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``chunks`` as UTF-8 without byte order mark; bytes that have no mark pass unchanged.

    UTF-16 (what PowerShell's ``>`` writes) is known by its mark only; what is invalid in it becomes U+FFFD.
    Empty (idle) chunks pass through. A ``SourceError`` of ``chunks`` is raised on, after the bytes held back.
    """
    waiting = iter(chunks)
    head = b""
    try:
        for chunk in waiting:
            if not chunk:
                yield chunk
                continue
            head += chunk
            if not _may_become_mark(head):
                break
    except SourceError:
        if head:
            yield head
        raise
    mark = next((mark for mark in _ENCODINGS if head.startswith(mark)), b"")
    rest = head[len(mark) :]
    if _ENCODINGS.get(mark, "utf-8") == "utf-8":
        if rest:
            yield rest
        yield from waiting
    else:
        yield from _transcoded(rest, waiting, _ENCODINGS[mark])


def _may_become_mark(head: bytes) -> bool:
    return any(len(head) < len(mark) and mark.startswith(head) for mark in _ENCODINGS)


def _transcoded(first: bytes, chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    if text := decoder.decode(first):
        yield text.encode()
    try:
        for chunk in chunks:
            text = decoder.decode(chunk)
            # Half a character gives no text yet: that must not look like an idle chunk.
            if text or not chunk:
                yield text.encode()
    except SourceError:
        yield from _remainder(decoder)
        raise
    yield from _remainder(decoder)


def _remainder(decoder: codecs.IncrementalDecoder) -> Iterator[bytes]:
    if text := decoder.decode(b"", final=True):
        yield text.encode()


MAX_BYTES = 64 * 1024**3
"""Default limit of unpacked bytes: far above any real log, far below what a crafted file can unpack to."""

_PIECE = 64 * 1024
_JOURNAL_BYTES = 8 * 1024 * 1024


def unpacked(path: str, raw: Iterator[bytes], max_bytes: int = MAX_BYTES) -> Iterator[bytes]:
    """Yield the bytes of ``raw``, unpacked when its first bytes are those of gzip, xz, bzip2 or zstd.

    Idle chunks pass through. Raises ``SourceError`` after everything readable was yielded: data that ends early
    or is damaged, more than ``max_bytes`` unpacked bytes, or a fault of ``raw``.
    """
    held: list[bytes] = []
    yield from _head(raw, held)
    name = format_of(b"".join(held))
    pieces = chain(held, raw)
    if name is None:
        yield from pieces
        return
    inner = _Unpacker(path, _codec(path, name), max_bytes).chunks(pieces)
    held = []
    yield from _head(inner, held)
    if again := format_of(b"".join(held)):
        raise SourceError(
            f"{path}: is compressed twice ({again} data in {name} data)", "unpack the file once and give the result"
        )
    yield from chain(held, inner)


def _head(raw: Iterator[bytes], held: list[bytes]) -> Iterator[bytes]:
    """Put into ``held`` what decides on a format; yield the idle chunks before, and all of it before a fault."""
    try:
        for piece in raw:
            if not piece:
                yield piece
                continue
            held.append(piece)
            if not undecided(b"".join(held)):
                break
    except SourceError:
        yield from held
        raise


def _codec(path: str, name: str) -> Codec:
    try:
        return load(name)
    except ImportError as fault:
        raise SourceError(f"{path}: this Python cannot read {name} data ({fault})", "unpack the file first") from fault


def _raised(size: int) -> str:
    """A limit well above ``size``, in the form of ``--max-unpacked``."""
    gib = 1
    while gib * 1024**3 < 2 * size:
        gib *= 2
    return f"{gib}G"


class _Unpacker:
    def __init__(self, path: str, used: Codec, max_bytes: int) -> None:
        self._path = path
        self._codec = used
        self._max_bytes = max_bytes
        self._total = 0
        self._open_member()

    def chunks(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in raw:
            if not chunk:
                yield chunk
            for start in range(0, len(chunk), _PIECE):
                yield from self._members(chunk[start : start + _PIECE])
        if not self._decoder.eof:
            raise self._error("ends early", "the file is incomplete or still being written; copy it again")

    def _open_member(self) -> None:
        self._decoder = self._codec.decoder()
        self._member_bytes = 0
        self._journal: list[bytes] = []
        self._journal_bytes = 0

    def _members(self, piece: bytes) -> Iterator[bytes]:
        while piece:
            if self._decoder.eof:
                # Zeros fill up the blocks of tapes and the alignment of xz; anything else must be a new member.
                piece = piece.lstrip(b"\0")
                if not piece:
                    return
                self._open_member()
            yield from self._member(piece)
            piece = self._decoder.unused_data if self._decoder.eof else b""

    def _member(self, piece: bytes) -> Iterator[bytes]:
        self._remember(piece)
        while True:
            try:
                out = self._decoder.decompress(piece, READ_SIZE)
            except MemoryError as fault:
                raise self._too_large() from fault
            except self._codec.fault as fault:
                if "memory" in str(fault).lower():  # both libraries say so; neither has a kind of error for it
                    raise self._too_large() from fault
                yield from self._salvaged()
                raise self._error("is damaged", "fetch the file again; the readable part was used") from fault
            if out:
                yield self._counted(out)
            if self._decoder.eof or self._decoder.needs_input:
                return
            piece = b""

    def _remember(self, piece: bytes) -> None:
        self._journal_bytes += len(piece)
        if self._journal_bytes <= _JOURNAL_BYTES:
            self._journal.append(piece)
        else:
            self._journal.clear()

    def _salvaged(self) -> Iterator[bytes]:
        """Yield what the failed step had unpacked and discarded with its exception.

        Decoders cannot be copied, so a fresh one gets the same member, the last piece byte by byte: all before the
        faulty byte comes out. A member above ``_JOURNAL_BYTES`` is not kept and loses at most ``READ_SIZE`` bytes.
        """
        if not self._journal:
            return
        *whole, last = self._journal
        decoder, skip = self._codec.decoder(), self._member_bytes
        for piece in chain(whole, (last[at : at + 1] for at in range(len(last)))):
            more = True
            while more:
                try:
                    out = decoder.decompress(piece, READ_SIZE)
                except self._codec.fault:
                    return
                if len(out) > skip:
                    yield self._counted(out[skip:])
                skip = max(0, skip - len(out))
                piece, more = b"", not decoder.needs_input

    def _counted(self, out: bytes) -> bytes:
        self._total += len(out)
        self._member_bytes += len(out)
        if self._total > self._max_bytes:
            raise SourceError(
                f"{self._path}: the {self._codec.name} data unpacks to more than {self._max_bytes:,} bytes",
                f"if you trust the file, unpack it; analyze and fleet accept --max-unpacked {_raised(self._total)}",
            )
        return out

    def _too_large(self) -> SourceError:
        return self._error("needs too much memory", "if you trust the file, unpack it yourself and give the result")

    def _error(self, what: str, hint: str) -> SourceError:
        return SourceError(f"{self._path}: the {self._codec.name} data {what} (after {self._total:,} bytes)", hint)
