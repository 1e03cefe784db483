"""The gzip decoder in the manner of bz2 and lzma. Knows zlib only."""

from __future__ import annotations

import zlib

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
        """Input that lies behind the end of the member."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Take in ``data`` and give back at most ``max_length`` bytes."""
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        # zlib can have eaten all input and still owe the rest of a match: a full answer proves nothing.
        self.needs_input = len(out) < max_length and not self._inflate.unconsumed_tail
        return out
