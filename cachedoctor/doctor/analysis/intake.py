"""Bytes of one input become blocks of whole lines, and these become unwrapped segments with line numbers.

Lines end at ``\\n`` only: ``splitlines()`` also breaks at U+2028, VT and NEL, and then no line number would agree with
an editor.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter

from cachedoctor.doctor.analysis.prompt_text import PromptText
from cachedoctor.inputs.envelope import Documents, NewestFirst, Unwrapper
from cachedoctor.inputs.envelope.shapes import are_broken, is_written, width_of
from cachedoctor.model import InputInfo, Segment

MAX_LINE = 1 << 20
"""Bytes of one line that are kept; no message is longer, only printed prompts and bodies are."""

BEGIN = 1 << 14
"""First bytes of an input, used to describe what it looks like or what started the server."""
EXCERPT_LINES = 500
EXCERPT_BYTES = 1 << 18
"""An input with no more is an excerpt."""
BROKEN_LINES = 20_000
BROKEN_BYTES = 1 << 21
"""The same for an input whose lines a terminal broke into rows: only the reader of excerpts joins them."""
_Row = tuple[int, str | None, bytes]
"""Number of a row, its origin, and its text without the wrapper."""
_SURE = 3
"""This many rows without the previous row's wrapper cannot be a coincidence."""


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
        first = 0
        if self._carry:
            first = chunk.index(b"\n")
            self._keep(chunk[:first])
        lines = memoryview(chunk)[first:cut] if cut - first <= MAX_LINE else _shortened(chunk[first:cut])
        block = b"".join((*self._carry, lines))
        self._carry.clear()
        self._carried = 0
        self._keep(chunk[cut:])
        return block

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
        if not block:
            return []
        read = self._texts.feed(block)
        return self._block(read, stripped=read is block)  # what it removes makes another text

    def _block(self, block: bytes, *, stripped: bool = False) -> list[Segment]:
        first = self.info.lines + self._first
        self.info.lines += len(block) - len(block.replace(b"\n", b""))  # in half the time of ``count``
        self.info.imitations = self._texts.imitations
        return self._unwrapper.feed(block, first, stripped=stripped)


class HeldBack:
    """Holds back the first lines of an input until it shows that it is more than an excerpt.

    An excerpt is read leniently, as a whole; a log is not, which costs nothing then.
    """

    def __init__(self, *, patient: bool = True) -> None:
        """``patient``: someone who waits; nothing is held back from who does not."""
        self._held: list[Segment] | None = [] if patient else None
        self._lines = self._bytes = 0
        self._broken: bool | None = None
        """Whether a terminal broke its lines; None before there are enough."""

    def take(self, segments: list[Segment]) -> list[Segment]:
        """Take segments; give those that are to be read by now."""
        if self._held is None:
            return segments
        self._held += segments
        self._bytes += sum(len(segment.data) for segment in segments)
        self._lines += sum(segment.data.count(b"\n") for segment in segments)
        if self._lines <= EXCERPT_LINES and self._bytes <= EXCERPT_BYTES:
            return []
        if self._broken is None:
            self._broken = are_broken(self._first_rows())
        more = not self._broken or self._lines > BROKEN_LINES or self._bytes > BROKEN_BYTES
        return self.release() if more else []

    def _first_rows(self) -> list[bytes]:
        """The rows of an excerpt, however the input was cut; none where each begins a line."""
        held = self._held or []
        if all(segment.is_plain for segment in held):
            return []
        rows = [
            (segment.number(index), row)
            for segment in held
            for index, row in enumerate(segment.data[:EXCERPT_BYTES].split(b"\n")[:-1][:EXCERPT_LINES])
        ]
        return [row for _, row in sorted(rows, key=itemgetter(0))[:EXCERPT_LINES]]

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


def with_rests(segments: list[Segment]) -> list[Segment]:
    """Give rows without a wrapper to the server whose full row comes before: a terminal put the wrapper on one row."""
    bare = [segment for segment in segments if segment.origin is None]
    if not bare or len(segments) == 1:
        return segments
    rows = sorted(
        (
            (segment.number(index), segment.origin, row)
            for segment in segments
            for index, row in enumerate(segment.data.removesuffix(b"\n").split(b"\n"))
        ),
        key=itemgetter(0),
    )
    owners = _owners(rows, _full_widths(rows))
    if sum(owner is not None and origin is None for owner, (_, origin, _) in zip(owners, rows, strict=True)) < _SURE:
        return segments
    stored = {number: line for segment in segments for number, line in segment.stored.items()}
    parted: dict[str | None, list[tuple[int, bytes]]] = {}
    for owner, (number, _, row) in zip(owners, rows, strict=True):
        parted.setdefault(owner, []).append((number, row))
    return [
        Segment(owner, b"".join(row + b"\n" for _, row in mine), mine[0][0], [number for number, _ in mine], stored)
        for owner, mine in parted.items()
    ]


def _full_widths(rows: list[_Row]) -> dict[str | None, int]:
    """How wide the rows of each server are that fill a terminal: most of those that go on without a wrapper."""
    widths: dict[str | None, Counter[int]] = {}
    for (number, origin, row), (after, bare, rest) in itertools.pairwise(rows):
        if bare is None and after == number + 1 and not is_written(rest):
            widths.setdefault(origin, Counter())[width_of(row)] += 1
    return {origin: found.most_common(1)[0][0] for origin, found in widths.items()}


def _owners(rows: list[_Row], widest: dict[str | None, int]) -> list[str | None]:
    """The server of each row; that of the row before, where this one continues a row that is full."""
    owners: list[str | None] = []
    before = -1
    """Number of the previous row, if that is full and from a server."""
    for number, origin, row in rows:
        owner = owners[-1] if origin is None and before == number - 1 and not is_written(row) else origin
        full = owner is not None and origin in widest and width_of(row) >= widest[origin]
        before = number if full else -1
        owners.append(owner)
    return owners


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
