"""Which header fields pass a proxy (RFC 9110, 7.6.1), and the Via by which a proxy knows itself. Knows no library."""

from __future__ import annotations

import re
from collections.abc import Iterable

Fields = list[tuple[bytes, bytes]]

LONGEST_LINE = 1 << 16
"""Bytes of a line of a head."""
_CONTROL = re.compile(rb"[\0-\x08\x0a-\x1f\x7f]")

_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"proxy-authenticate", b"proxy-authorization"}
)
"""Fields that are about one connection. ``Proxy-Auth...`` is spoken with the next proxy (RFC 9110, 11.7)."""


def passing(fields: Iterable[tuple[bytes, bytes]], without: frozenset[bytes] = frozenset()) -> Fields:
    """Give the fields that go on, in their order and spelling, without those named in ``without`` (lower case)."""
    fields = list(fields)
    named = {
        word.strip().lower() for name, value in fields if name.lower() == b"connection" for word in value.split(b",")
    }
    # A field that frames the body is none that a sender may have dropped by naming it.
    dropped = (_HOP | named | without) - {b"content-length", b"content-type", b"content-encoding", b"host"} | without
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def went_through(fields: Iterable[tuple[bytes, bytes]], name: str) -> bool:
    """Whether a proxy that calls itself ``name`` has passed this request already."""
    words = (
        part.split()[1:2]
        for key, value in fields
        if key.lower() == b"via"
        for part in value.decode("latin-1").split(",")
    )
    return any(word == [name] for word in words)


def is_writable(start: Iterable[str], fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a head can be written again byte for byte: aiohttp writes UTF-8, and names in ASCII.

    ``start``: words of the first line as aiohttp gives them, with surrogates for bytes that are not UTF-8.
    """
    fields = list(fields)
    values = [*(word.encode("utf-8", "surrogateescape") for word in start), *(value for _, value in fields)]
    return all(name.isascii() for name, _ in fields) and all(map(_is_text, values))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(value) is None
