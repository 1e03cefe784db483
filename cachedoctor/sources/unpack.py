"""Unpacking: recognises compressed bytes and yields what is in them. Knows no file, no pipe and no text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from cachedoctor.sources import codec
from cachedoctor.sources.base import READ_SIZE, SourceError

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
    name = codec.format_of(b"".join(held))
    pieces = chain(held, raw)
    if name is None:
        yield from pieces
        return
    inner = _Unpacker(path, _codec(path, name), max_bytes).chunks(pieces)
    held = []
    yield from _head(inner, held)
    if again := codec.format_of(b"".join(held)):
        raise SourceError(
            f"{path}: is packed twice ({again} data in {name} data)", "unpack it once and give the result"
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
            if not codec.undecided(b"".join(held)):
                break
    except SourceError:
        yield from held
        raise


def _codec(path: str, name: str) -> codec.Codec:
    try:
        return codec.load(name)
    except ImportError as fault:
        raise SourceError(f"{path}: this Python cannot read {name} data ({fault})", "unpack the file first") from fault


def _raised(size: int) -> str:
    """A limit well above ``size``, in the form of ``--max-unpacked``."""
    gib = 1
    while gib * 1024**3 < 2 * size:
        gib *= 2
    return f"{gib}G"


class _Unpacker:
    def __init__(self, path: str, used: codec.Codec, max_bytes: int) -> None:
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
            raise self._error("ends early", "it was cut or is still being written: copy it again if it can be whole")

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
                raise self._error("is damaged", "fetch the file again; what could be read was used") from fault
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
        """Yield what the failed step had unpacked and thrown away with its exception.

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
                f"if you trust the file: --max-unpacked {_raised(self._total)}, or unpack it yourself",
            )
        return out

    def _too_large(self) -> SourceError:
        return self._error("demands too much memory", "unpack it yourself, if you trust the file, and give the result")

    def _error(self, what: str, hint: str) -> SourceError:
        return SourceError(f"{self._path}: the {self._codec.name} data {what} (after {self._total:,} bytes)", hint)
