"""Bytes of one input become blocks of whole lines, and these become unwrapped segments with line numbers.

Lines end at ``\\n`` only: ``splitlines()`` also breaks at U+2028, VT and NEL, and then no line number would agree with
an editor.
"""

from __future__ import annotations

from collections.abc import Iterator

from cachedoctor.doctor.analysis.prompt_text import PromptText
from cachedoctor.inputs.envelope import Documents, NewestFirst, Unwrapper
from cachedoctor.model import InputInfo, Segment

MAX_LINE = 1 << 20
"""Bytes of one line that are kept; no message is longer, only printed prompts and bodies are."""

BEGIN = 1 << 14
"""First bytes of an input, by which it is said what it looks like, or what started the server."""
EXCERPT_LINES = 500
EXCERPT_BYTES = 1 << 18
"""An input with no more is an excerpt."""


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
        begun = b""
        first = 0
        if self._carry:
            first = chunk.index(b"\n")
            self._keep(chunk[:first])
            begun = b"".join(self._carry)
            self._carry.clear()
            self._carried = 0
        lines = chunk[first:cut] if cut - first <= MAX_LINE else _shortened(chunk[first:cut])
        self._keep(chunk[cut:])
        return begun + lines

    def finish(self) -> bytes:
        """The input ended: give the last line, if it had no newline."""
        rest = b"".join(self._carry)
        self._carry.clear()
        self._carried = 0
        return rest + b"\n" if rest else b""

    def _keep(self, part: bytes) -> None:
        room = MAX_LINE - self._carried
        if part and room > 0:
            self._carry.append(part[:room])
            self._carried += len(part[:room])


class Intake:
    """Feeds on chunks cut anywhere."""

    def __init__(self, path: str, first: int = 1) -> None:
        """``first``: number of the first line, where the input is a part of a file."""
        self.info = InputInfo(path)
        self._first = first
        self._documents = Documents()
        self._order = NewestFirst()
        self._unwrapper = Unwrapper()
        self._blocks = Blocks()
        self._texts = PromptText()

    def feed(self, chunk: bytes) -> list[Segment]:
        """Take the next bytes; give the segments of the lines that they complete."""
        self.info.bytes += len(chunk)
        return self._ordered(self._order.feed(self._documents.feed(chunk)))

    def quiet(self) -> list[Segment]:
        """The live input fell silent: give what was held to find out its order, or waits for the end of a text."""
        return self._ordered(self._order.quiet()) + self._block(self._texts.finish())

    def finish(self) -> Iterator[list[Segment]]:
        """The input ended: give what is still held back, in pieces."""
        yield self._ordered(self._order.feed(self._documents.finish()))
        for chunk in self._order.finish():
            yield self._ordered(chunk)
        rest = self._blocks.finish()
        segments = self._block(self._texts.feed(rest)) if rest else []
        yield segments + self._block(self._texts.finish()) + self._unwrapper.flush()

    @property
    def settled(self) -> bool:
        """No line before has a say in how the next one is read."""
        return self._unwrapper.settled and self._texts.settled

    def _ordered(self, chunk: bytes) -> list[Segment]:
        if self._order.turned:
            self.info.counted = "newest first"
        elif self._documents.opened:
            self.info.counted = "records"
        block = self._blocks.feed(chunk)
        return self._block(self._texts.feed(block)) if block else []

    def _block(self, block: bytes) -> list[Segment]:
        first = self.info.lines + self._first
        self.info.lines += block.count(b"\n")
        self.info.imitations = self._texts.imitations
        return self._unwrapper.feed(block, first)


class HeldBack:
    """Holds back the first lines of an input until it shows that it is more than an excerpt.

    An excerpt is read leniently, as a whole; a log is not, which costs nothing then.
    """

    def __init__(self, *, patient: bool = True) -> None:
        """``patient``: someone who waits; nothing is held back from who does not."""
        self._held: list[Segment] | None = [] if patient else None
        self._lines = self._bytes = 0

    def take(self, segments: list[Segment]) -> list[Segment]:
        """Take segments; give those that are to be read by now."""
        if self._held is None:
            return segments
        self._held += segments
        self._bytes += sum(len(segment.data) for segment in segments)
        if self._bytes > EXCERPT_BYTES:
            return self.release()
        self._lines += sum(segment.data.count(b"\n") for segment in segments)
        return self.release() if self._lines > EXCERPT_LINES else []

    def quiet(self) -> list[Segment]:
        """The live input fell silent: give what is held.

        Where nothing has come yet, an excerpt may still come.
        """
        return self.release() if self._held else []

    def release(self) -> list[Segment]:
        """Give what is held, one segment for each origin, as if all had come at once; from now on nothing is held."""
        held, self._held = self._held or [], None
        by_origin: dict[str | None, list[Segment]] = {}
        for segment in held:
            by_origin.setdefault(segment.origin, []).append(segment)
        return [_together(parts) for parts in by_origin.values()]


def _together(parts: list[Segment]) -> Segment:
    """Consecutive segments of one origin as one."""
    if len(parts) == 1:
        return parts[0]
    numbers = [part.number(i) for part in parts for i in range(part.data.count(b"\n"))]
    stored = {number: line for part in parts for number, line in part.stored.items()}
    whole = bool(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1
    data = b"".join(part.data for part in parts)
    return Segment(parts[0].origin, data, parts[0].first, None if whole else numbers, stored)


def _shortened(lines: bytes) -> bytes:
    """Cut lines as they would be cut if they had come in small chunks."""
    return b"\n".join(line[:MAX_LINE] for line in lines.split(b"\n"))
