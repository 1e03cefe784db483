"""Bytes of one input become blocks of whole lines, and these become unwrapped segments with line numbers.

Knows lines and wrappers. Knows no message.
"""

from __future__ import annotations

from cachedoctor.envelope import Unwrapper
from cachedoctor.model import InputInfo, Segment

MAX_LINE = 1 << 20
"""Bytes of one line that are kept; no message is longer, only printed prompts and bodies are."""


class Blocks:
    """Cuts what arrives anyhow into blocks of whole lines."""

    def __init__(self) -> None:
        self._carry: list[bytes] = []
        self._carried = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give the lines that they complete, each with its newline."""
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._keep(chunk)
            return b""
        block = b"".join([*self._carry, chunk[:cut]]) if self._carry else chunk[:cut]
        self._carry.clear()
        self._carried = 0
        self._keep(chunk[cut:])
        return block

    def finish(self) -> bytes:
        """The input ended: give the last line, if it had no newline."""
        rest = b"".join(self._carry)
        self._carry.clear()
        return rest + b"\n" if rest else b""

    def _keep(self, part: bytes) -> None:
        room = MAX_LINE - self._carried
        if part and room > 0:
            self._carry.append(part[:room])
            self._carried += len(part[:room])


class Intake:
    """Feeds on chunks cut anywhere."""

    def __init__(self, path: str) -> None:
        self.info = InputInfo(path)
        self._unwrapper = Unwrapper()
        self._blocks = Blocks()

    def feed(self, chunk: bytes) -> list[Segment]:
        """Take the next bytes; give the segments of the lines that they complete."""
        self.info.bytes += len(chunk)
        block = self._blocks.feed(chunk)
        return self._block(block) if block else []

    def finish(self) -> list[Segment]:
        """The input ended: give what is still held back."""
        rest = self._blocks.finish()
        return (self._block(rest) if rest else []) + self._unwrapper.flush()

    def _block(self, block: bytes) -> list[Segment]:
        first = self.info.lines + 1
        self.info.lines += block.count(b"\n")
        return self._unwrapper.feed(block, first)
