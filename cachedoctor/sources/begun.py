"""A live source of which the first bytes are looked at before somebody reads it. Knows chunks; knows no line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cachedoctor.sources.base import Source, SourceError


class BegunSource:
    """``source``, once: what was looked at comes first when it is read."""

    def __init__(self, source: Source) -> None:
        self.path = source.path
        self._chunks = source.chunks()
        self._seen: list[bytes] = []
        self._fault: SourceError | None = None

    def head(self, most: int, waiting: Callable[[], None]) -> bytes:
        """Wait for the first line, and give it with what came at once, ``most`` bytes at most; less at the end.

        ``waiting`` is called when nothing comes for a while.
        """
        head = b""
        try:
            while b"\n" not in head and len(head) < most and (chunk := next(self._chunks, None)) is not None:
                self._seen.append(chunk)
                head += chunk
                if not chunk:
                    waiting()
        except SourceError as fault:  # whoever reads it says so
            self._fault = fault
        return head[:most]

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as the source does, those that were looked at among them; raises what it raises."""
        yield from self._seen
        self._seen.clear()
        if self._fault is not None:
            raise self._fault
        yield from self._chunks
