"""Copies of bodies as they were before their Content-Encoding. Knows codings, no HTTP."""

from __future__ import annotations

import zlib

MOST = 64 << 20
"""Bytes that a body may unpack to."""
_ANY = 32 + zlib.MAX_WBITS
"""gzip or zlib, whichever its head says."""


def unpacked(data: bytes, coding: str) -> bytes | None:
    """Give the bytes behind a coding; None where it is not known here, broken, or unpacks to too much."""
    match coding.strip().lower():
        case "" | "identity":
            return data
        case "gzip" | "x-gzip":
            return _inflated(data, _ANY)
        case "deflate":  # zlib by the standard, bare by what some servers send
            found = _inflated(data, _ANY)
            return _inflated(data, -zlib.MAX_WBITS) if found is None else found
        case _:
            return None


def _inflated(data: bytes, window: int) -> bytes | None:
    """What is there of a stream that was cut off is given, too."""
    decoder = zlib.decompressobj(window)
    try:
        out = decoder.decompress(data, MOST)
    except zlib.error:
        return None
    return None if decoder.unconsumed_tail else out
