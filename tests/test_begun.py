"""A source whose first line is checked before it is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.inputs.sources.stdin import BegunSource


class Given:
    """A source of these chunks; what is not a chunk is raised."""

    path = "-"

    def __init__(self, *chunks: bytes | SourceError) -> None:
        self._chunks = chunks

    def chunks(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if isinstance(chunk, SourceError):
                raise chunk
            yield chunk


@pytest.mark.parametrize(
    ("chunks", "head", "waited"),
    [
        ((b"", b"ab", b"", b"c\nd", b"e"), b"abc\nd", 2),
        ((b"abcdefgh", b"ij", b"k\n"), b"abcdefgh", 0),
        ((b"ab",), b"ab", 0),
        ((), b"", 0),
    ],
)
def test_what_was_checked_is_read_as_well(chunks: tuple[bytes, ...], head: bytes, waited: int) -> None:
    waits: list[int] = []
    source = BegunSource(Given(*chunks))
    assert source.head(8, lambda: waits.append(1)) == head
    assert len(waits) == waited
    assert list(source.chunks()) == list(chunks)


def test_a_fault_is_said_where_it_is_read() -> None:
    source = BegunSource(Given(b"ab", SourceError("-: broken", "mend it")))
    assert source.head(8, lambda: None) == b"ab"
    found = source.chunks()
    assert next(found) == b"ab"
    with pytest.raises(SourceError, match="-: broken"):
        next(found)
