"""Lines inside a printed prompt are not lines of the server, whatever they look like.

llama-server prints text of users as it is: ``old: ... a | b``, bodies of requests. Where its lines have a clock, what
comes after such a line without one, or with one that does not continue, belongs to the text up to the next line whose
clock continues; so does whatever has a wrapper that the line had not. Such lines are emptied, so that all others keep
their numbers, and those that looked like lines of a server are counted. Those of an ``old:`` or ``new:`` text are put
after the line that begins it: the bar is often on a later line of the prompt. Lines whose clock does not continue wait
for one that does: only without one a killed or suspended server wrote them. Where the line that begins a text has no
clock, a line with one belongs to the text; of the others nothing tells certainly: they are counted and read.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from cachedoctor.engines.detect import engines
from cachedoctor.engines.engine_record import Engine
from cachedoctor.engines.llamacpp import printed_text
from cachedoctor.engines.llamacpp.printed_text import LINE_END, Opening
from cachedoctor.engines.llamacpp.tracker import single_lines
from cachedoctor.inputs.envelope import Unwrapper, is_shaped
from cachedoctor.inputs.envelope.shapes import HEAD, candidates, drop_progress, shaped, strip_controls
from cachedoctor.inputs.envelope.unwrapper import Chain, unwrapped, with_text
from cachedoctor.knowledge.late_patterns import late

_AT_ONCE = 20_000
"""Microseconds within which the server continues: at most 14,423 in 1,014 texts, on a busy machine. Its clock never
ran backwards in 120,000 lines: it is read under the lock."""
_MOST = 4 << 20
"""Bytes that wait for the end of a text."""
_BYTES = 64 << 10
"""Bytes within which the texts of a server without timestamps end and two lists of token ids follow."""
_AGAIN = 4 << 10
"""Bytes too few for a server to restart and compare two prompts."""
_NEAR, _NEAR_WRAPPED = 1 << 10, 4 << 10
"""Bytes before a text whose clocks are checked; a record takes as many as four bare lines."""
_STRIDE = 64 << 10
"""Bytes between two checks for the debug level."""
_LOOK = 4 << 10
"""Bytes that are read for one check."""
_HEADED = late(HEAD)
_JOINED = 2000
"""Bytes of a text that are put after the line that begins it."""
_EARLIER = frozenset({"launch", "new_prompt", "diff_old", "diff_new"})
"""Messages of a request that come before the list of token ids, if they come at all."""


class _Text(msgspec.Struct):
    """A text that continues."""

    opening: Opening
    chain: Chain
    due: list[bytes] = msgspec.field(default_factory=list)
    """Lines that the server prints next, where it has no clock: ``new``, two times ``ids``."""
    size: int = 0
    """Bytes after its beginning that were checked: of texts that wait, or of a server without a clock."""
    waits: bool = False
    """Whether a line whose clock does not continue, and all lines after it, wait for what follows."""
    is_cut: bool = False
    """Whether the line of the server that was passed on last continues in the next record."""
    inside: bool = False
    """The same for the line that was checked last."""
    first: bytes | None = None
    """The line that begins it, as long as more of the text is put after it."""
    body: bytes = b""
    """The same without wrappers."""
    more: list[bytes] = msgspec.field(default_factory=list)
    """Lines of the text that are put there."""
    joined: int = 0
    """Bytes of these lines."""
    behind: list[bytes] = msgspec.field(default_factory=list)
    """Lines that are passed on after that line."""
    left: bool = False
    """Without a clock: a row of the same request came, which ends the text unless the expected rows still come."""

    def join(self, lines: list[bytes], out: list[bytes]) -> None:
        """Put lines of the text behind the line that begins it; pass that on once it is long enough."""
        if self.first is None:
            return
        self.more += lines
        self.joined += sum(len(LINE_END) + len(line) for line in lines)
        if self.joined >= _JOINED:
            self.release(out)

    def release(self, out: list[bytes]) -> None:
        """Pass on the line that begins the text, with what was put after it, and the lines that wait for that."""
        if self.first is None:
            return
        out.append(_behind(self.first, self.body, self.more) + b"\n")
        out += self.behind
        self.first, self.more, self.behind, self.joined = None, [], [], 0

    def sink(self, out: list[bytes]) -> list[bytes]:
        """Where the lines behind its first one go: they wait as long as that does."""
        return out if self.first is None else self.behind

    def times(self, block: bytes, at: int) -> Iterator[tuple[int, int]]:
        """Offset and clock of the lines after these wrappers that have one, from ``at`` on; each is asked for once."""
        if not self.chain:
            yield from printed_text.clocks(block, at)
            return
        while at < len(block):
            end = _line_end(block, at)
            body, goes_on = self.chain.read(block[at : end - 1])
            if body is not None:
                begins, self.inside = not self.inside, goes_on
                if begins and (time := printed_text.clock(body)) is not None:
                    yield at, time
            at = end


class _Left(msgspec.Struct, frozen=True):
    """A text that ended at a row of its request."""

    ids: tuple[object, ...]
    """Slot and task."""
    at: int
    """Position at which it ended."""
    lines: list[bytes]
    """What came after it, up to the end of the next one."""


class PromptText:
    """Feeds on blocks of whole stored lines."""

    def __init__(self) -> None:
        self.imitations = 0
        """Lines inside a text that looked like the server's."""
        self._inside: list[bytes] = []
        """Lines of texts in this block, which are checked together: most texts are short."""
        self._text: _Text | None = None
        self._held = b""
        self._tail = b""
        """The last lines that were passed on."""
        self._debug = False
        """Whether a line of the debug level was seen, at which whole prompts are printed."""
        self._passed = 0
        """Bytes before the block."""
        self._left: list[_Left] = []
        """Texts of the last ``_BYTES`` that were left without the rows that were due."""
        self._ended: tuple[tuple[object, ...], int] = ((), 0)
        """The last texts of a server without a clock: slot and task, and where they ended."""

    @property
    def settled(self) -> bool:
        """No text continues."""
        return self._text is None

    def feed(self, block: bytes, last: bool = False) -> bytes:
        """Take whole lines; give those of which it is known whose they are, as many.

        ``last``: nothing more comes, or not soon.
        """
        block = strip_controls(block)
        if not self._debug and (at := self._debug_at(block)) is not None:
            before = self._feed(block[:at], False)
            self._debug = True
            return before + self._feed(block[at:], last)
        return self._feed(block, last)

    def _debug_at(self, block: bytes) -> int | None:
        """Find the first line of a log at the debug level: nearly all are, so that a look now and then will do."""
        for start in range(-((self._passed + len(self._held)) % _STRIDE), len(block), _STRIDE):
            place = block.find(printed_text.DEBUG, max(start, 0), max(start + _LOOK, 0))
            if place >= 0:
                return block.rfind(b"\n", 0, place) + 1
        return None

    def _feed(self, block: bytes, last: bool) -> bytes:
        block = self._held + block
        places = self._places(block) if self._text is None else None
        if places == []:
            self._passed += len(block)
            self._tail = (self._tail + block[-_NEAR_WRAPPED:])[-_NEAR_WRAPPED:]
            return block
        out: list[bytes] = []
        at, waits = 0, False
        while at < len(block) and not waits:
            text = self._text
            if text is None:
                places = self._places(block) if places is None else places
                at = self._next(block, places, at, out)
            elif text.is_cut:
                at = self._rest(text, block, at, out)
            elif text.opening.clock is None:
                at = self._without_clock(text, block, at, out)
            else:
                at, waits = self._clocked(text, text.opening.clock, block, at, out, last)
        if last and self._text is not None:
            self._text.release(out)
        self._held = block[at:]
        self._passed += at
        self._tail = self._recent(out)
        if self._inside:
            self.imitations += _imitations(b"".join(self._inside))
            self._inside = []
        return b"".join(out)

    def finish(self) -> bytes:
        """Give what was held back: the input ended, or fell silent."""
        waits = self._text is not None and self._text.first is not None
        return self.feed(b"", last=True) if self._held or waits else b""

    def _places(self, block: bytes) -> list[int]:
        """Offsets at which a line that begins a text may be found."""
        found: list[int] = []
        for literal in printed_text.AT_DEBUG if self._debug else printed_text.ALWAYS:
            place = block.rfind(literal)  # in a third of the time of ``find``, whose way pays for longer literals
            while place >= 0:
                found.append(place)
                place = block.rfind(literal, 0, place + len(literal) - 1)
        return sorted(found)

    def _next(self, block: bytes, places: list[int], at: int, out: list[bytes]) -> int:
        """Pass everything on up to the end of the next line that begins a text; one may at each of ``places``."""
        done = at
        for number in range(bisect_left(places, at), len(places)):
            place = places[number]
            if place < done:
                continue
            start = block.rfind(b"\n", 0, place) + 1
            out.append(block[at:start])
            at, done = start, _line_end(block, place)
            if self._open(block[start : done - 1], self._passed + start, out):
                return done
        out.append(block[at:])
        return len(block)

    def _open(self, line: bytes, at: int, out: list[bytes], *, goes_on: bool = False) -> bool:
        """Pass a line on if a text begins in it; whether one does.

        Args:
            at: its offset in the input.
            goes_on: its clock is known to run as it should.
        """
        chain, body = unwrapped(line)
        opening = printed_text.opening(body)
        if opening is None:
            return False
        if chain.whole:
            first, _, rest = body.partition(b"\n")
            if rest:
                more = LINE_END + rest.rstrip(b"\n").replace(b"\n", LINE_END)[:_JOINED] if opening.side else b""
                line = with_text(line, first + more)
                self._inside.append(rest + b"\n")
        elif opening.clock is not None:
            if not goes_on and self._ran_backwards(opening, chain, out):
                return False
            self._text = _Text(opening, chain, is_cut=chain.goes_on)
        elif opening.side is not None:
            due = [b"new", b"ids", b"ids"][opening.side == b"new" :]
            self._text = _Text(opening, chain, due, is_cut=chain.goes_on)
            ids, end = self._ended
            again = opening.side == b"old" and opening[2:] == ids and at - end < _AGAIN
            self.imitations += again  # the server compares once: one of them was in a text
        if self._text is not None and opening.side is not None and not chain.whole and not chain.goes_on:
            self._text.first, self._text.body = line, body
        else:
            out.append(line + b"\n")
        return True

    @staticmethod
    def _rest(text: _Text, block: bytes, at: int, out: list[bytes]) -> int:
        """Pass on one line: what is left of the line of the server before it, or somebody else's."""
        end = _line_end(block, at)
        body, goes_on = text.chain.read(block[at : end - 1])
        text.is_cut = goes_on if body is not None else True
        out.append(block[at:end])
        return end

    # ---- with a clock

    def _ran_backwards(self, opening: Opening, chain: Chain, out: list[bytes]) -> bool:
        """Whether the clock of the lines shortly before tells nothing: of several servers, or of a log put together."""
        near = _NEAR_WRAPPED if chain else _NEAR
        recent = self._recent(out)[-near:]
        whole = recent.find(b"\n") + 1 if len(recent) == near else 0
        times = [time for _, time in _Text(opening, chain).times(recent, whole)]
        return any(later < time for time, later in itertools.pairwise(times))

    def _recent(self, out: list[bytes]) -> bytes:
        """Give the end of what was passed on."""
        parts, size = [], 0
        for part in reversed(out):
            parts.append(part[-_NEAR_WRAPPED:])
            size += len(part)
            if size >= _NEAR_WRAPPED:
                break
        else:
            parts.append(self._tail)
        return b"".join(reversed(parts))[-_NEAR_WRAPPED:]

    def _clocked(
        self, text: _Text, begin: int, block: bytes, at: int, out: list[bytes], last: bool
    ) -> tuple[int, bool]:
        """Find where a text ends, or is interrupted; gives where to continue, and whether more lines are needed for it.

        Where the server does not continue it was killed or suspended: from the first line with a clock on all is read.
        """
        for place, time in text.times(block, at + text.size):
            if text.waits and place - at > _MOST:
                break
            if begin <= time <= begin + _AT_ONCE:
                return self._goes_on(text, block, at, place, out), False
            if not text.waits:
                self._empty(text, block[at:place], out)
                at, text.waits = place, True
        else:
            if not text.waits:
                self._empty(text, block[at:], out)
                return len(block), False
            text.size = len(block) - at
            if not last and text.size <= _MOST:
                return at, True
        text.release(out)
        self._text = None
        return at, False

    def _goes_on(self, text: _Text, block: bytes, at: int, place: int, out: list[bytes]) -> int:
        """Pass on the line of the server that begins at ``place``, and empty those of the text before it.

        It may begin another text. After an ``old`` text the ``new`` one has to come: a line of another thread only
        interrupts it.
        """
        self._empty(text, block[at:place], out)
        text.release(out)
        end = _line_end(block, place)
        self._text = None
        if not self._open(block[place : end - 1], self._passed + place, out, goes_on=True):
            out.append(block[place:end])
        if text.opening.side == b"old" and not (self._text and _follows(text.opening, self._text.opening)):
            self._text = _Text(text.opening, text.chain, is_cut=text.inside)
        return end

    def _empty(self, text: _Text, lines: bytes, out: list[bytes]) -> None:
        """Empty the lines of a text; those that somebody else wrote stay."""
        if not lines:
            return
        if not text.chain:
            text.sink(out).append(b"\n" * lines.count(b"\n"))
            self._inside.append(lines)
            text.join(lines[:_JOINED].splitlines(), out)
            return
        for line in lines.split(b"\n")[:-1]:
            body = text.chain.body(line)
            text.sink(out).append(b"\n" if body is not None else line + b"\n")
            if body is not None:
                self._inside.append(body + b"\n")
                text.join([body], out)

    # ---- without one

    def _without_clock(self, text: _Text, block: bytes, at: int, out: list[bytes]) -> int:
        """Read one line after a text.

        Posts leave out the rows of token ids: there a text ends at a row of the same request. What comes from then on
        is counted only where such a list follows after all.
        """
        end = _line_end(block, at)
        line = block[at:end]
        body = text.chain.body(line.removesuffix(b"\n"))
        text.size += len(line)
        if text.size > _BYTES:
            self._text, self._left = None, []
            text.release(out)
        if body is None:
            text.sink(out).append(line)
            return end
        if not text.left and printed_text.clock(body.lstrip(b" \t")) is not None:
            self._inside.append(body + b"\n")  # this server's lines have none
            line = b"\n"
        elif self._is_due(text, body):
            text.release(out)
            if text.due.pop(0) == b"new":
                text.first, text.body, line = line.removesuffix(b"\n"), body, b""
            self._betrayed(text.opening[2:])
            text.left = not text.due  # the rows of a text before it may still come
            self._text = text if text.due or self._left else None
            self._ended = text.opening[2:], self._passed + end
        elif text.left and self._open(line.removesuffix(b"\n"), self._passed + at, out):
            return end
        else:
            self._keep(text, body, self._passed + at)
            if text.left or is_shaped(body):
                text.release(out)  # it may be a line of the server: what follows is in doubt
            else:
                text.join([body], out)
            line = b"\n" if unwrapped(body)[0] else line
        text.sink(out).append(line)
        return end

    def _keep(self, text: _Text, body: bytes, at: int) -> None:
        """Keep a line for the count of those that look like the server's."""
        if self._left and (found := printed_text.ids_of(body)) is not None:
            self._betrayed(found[2:])
        if not text.left and _leaves(text, body):
            text.left = True
            self._left = [one for one in self._left if at - one.at < _BYTES]
            self._left.append(_Left(text.opening[2:], at, []))
        (self._left[-1].lines if text.left and self._left else self._inside).append(body + b"\n")

    def _betrayed(self, ids: tuple[object, ...]) -> None:
        """Count what came after a text of this slot and task was left: its rows have come, so that it continued."""
        for number, left in enumerate(self._left):
            if left.ids == ids:
                self._inside += [line for one in self._left[number:] for line in one.lines]
                del self._left[number:]
                return

    @staticmethod
    def _is_due(text: _Text, body: bytes) -> bool:
        if not text.due:
            return False
        if text.due[0] == b"new":
            return _follows(text.opening, printed_text.opening(body))
        found = printed_text.ids_of(body)
        return found is not None and found[2:] == text.opening[2:]


def _behind(line: bytes, body: bytes, more: list[bytes]) -> bytes:
    """Put lines of a text behind the line that begins it, inside of its record; one that is written otherwise stays."""
    if not more:
        return line
    text = b"".join(LINE_END + part for part in more)[:_JOINED]
    if line.endswith(body):
        return line + text
    for escaped in (_escaped, _escaped_by_go):
        before, found, after = line.partition(escaped(body))
        if found and body:
            return before + found + escaped(text) + after
    return line


def _escaped(text: bytes) -> bytes:
    """Write text as in a string of JSON."""
    return json.dumps(text.decode("utf-8", "replace"), ensure_ascii=False)[1:-1].encode()


def _escaped_by_go(text: bytes) -> bytes:
    """The same by programs in Go, such as Docker."""
    return _escaped(text).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _follows(old: Opening, new: Opening | None) -> bool:
    """Whether ``new`` is the other text of the same request."""
    return new is not None and new.side == b"new" and new[2:] == old[2:]


def _leaves(text: _Text, body: bytes) -> bool:
    """Whether a line is a row of the request whose text continues, and none that comes before the text."""
    row = printed_text.row_of(body)
    if row is None or row[2:] != text.opening[2:]:
        return False
    found = {event.message for event in single_lines().recognise(body)}
    return bool(found) and found.isdisjoint(_EARLIER)


def _line_end(block: bytes, at: int) -> int:
    """Offset after the newline of the line in which ``at`` lies."""
    return block.index(b"\n", at) + 1


def _imitations(lines: bytes) -> int:
    """How many of these lines look like a server's."""
    lines = drop_progress(lines)
    wrapped = {at: _bodies(lines[at : _line_end(lines, at) - 1]) for at in candidates(lines)}
    text = b"\n".join([lines, *itertools.chain.from_iterable(wrapped.values())])
    others = [engine for engine in engines() if engine.looks.search(text)]
    # Any line may be of another engine; of llama-server only those of its shape, or behind a wrapper, are.
    found = _starts(lines) if others else sorted({*wrapped, *shaped(lines)})
    bodies = (wrapped[at] if at in wrapped else [lines[at : _line_end(lines, at) - 1]] for at in found)
    return sum(any(_is_servers(body, others) for body in each) for each in bodies)


def _starts(lines: bytes) -> list[int]:
    """Offsets of all lines."""
    return list(itertools.accumulate((len(line) + 1 for line in lines.split(b"\n")[:-1]), initial=0))[:-1]


def _bodies(line: bytes) -> list[bytes]:
    """Take the wrappers off one line; a record may hold several."""
    unwrapper = Unwrapper()
    segments = unwrapper.feed(line + b"\n", 1) + unwrapper.flush()
    return [body for segment in segments for body in segment.data.split(b"\n")[:-1]]


def _is_servers(body: bytes, engines: list[Engine]) -> bool:
    if is_shaped(body):
        return _HEADED.match(body) is not None or bool(single_lines().recognise(body))
    return any(engine.looks.search(body) and engine.reader().catalogue.recognise(body) for engine in engines)
