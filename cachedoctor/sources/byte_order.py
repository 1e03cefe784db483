"""Byte order marks: turns marked UTF-16 into UTF-8. Knows no file, no compression and no line."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from cachedoctor.sources.base import SourceError

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
