"""Whole lines out of chunks that may be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def whole_lines(chunks: Iterable[bytes], refuse_large: Callable[[int], None]) -> Iterator[bytes]:
    """Yield lines without their newlines; what stands behind the last one, too.

    ``refuse_large``: is told how many bytes of a line are held that has not ended, and raises if they are too many.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        refuse_large(size)
    yield b"".join(parts)
