"""A span of a plain log file. Knows paths and offsets; knows no line and no compression."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import msgspec

from cachedoctor.sources import codec
from cachedoctor.sources.base import READ_SIZE, SourceError
from cachedoctor.sources.file import is_stream, open_log, read_some

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class FileSpan(msgspec.Struct, frozen=True):
    """Whole lines of a file: bytes from ``start`` up to ``end``, the first of them line ``line`` (1-based)."""

    start: int
    end: int
    line: int


class SpanSource:
    """The bytes of ``span`` in the file at ``path``."""

    def __init__(self, path: str, span: FileSpan) -> None:
        self.path = path
        self._span = span

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they are stored. Raises ``SourceError`` when they cannot be read, or are there no more."""
        with open_log(self.path) as file:
            file.seek(self._span.start)
            left = self._span.end - self._span.start
            while left:
                data = read_some(self.path, file, self._span.end - left)[:left]
                if not data:
                    raise SourceError(f"{self.path}: became shorter while it was read", "read it again without --jobs")
                left -= len(data)
                yield data


def plain_size(path: str) -> int:
    """Bytes of a regular file that is stored as plain UTF-8; 0 for anything else, which has no spans."""
    if path == "-" or is_stream(path):
        return 0
    try:
        with open_log(path) as file:
            head = file.read(READ_SIZE) or b""
            size = file.seek(0, 2)
    except (SourceError, OSError):
        return 0  # whoever reads it says why
    return 0 if codec.format_of(head) or head.startswith(_MARKS) else size
