"""Reads lines of excerpts that the scanner cannot read: quoted, cut, wrapped, run together, or with missing parts.

``* n_past = 30118, slot.prompt.tokens.size() = 31007, ...`` in a list, ``forcing full prompt re-processing due to lack
of cache data (...)`` in a chat. Only for a few hundred lines: each line is compared with all messages.

Memory failures in words of no known build, as forks and patches write them (``seq_rm failed at p0 = 18800, clearing
slot memory``), are read only after a slot's prefix, and only if the line names the failure and the reaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.engines.catalogue.base import CLOCK, HOLE, STAMP, Catalogue, Event, Message
from cachedoctor.engines.catalogue.reading import Partly
from cachedoctor.engines.catalogue.scanner import Scanner, ScanPlan
from cachedoctor.engines.llamacpp.client_lines import refusals
from cachedoctor.engines.llamacpp.printed_text import CHANGED, PrintedChange, first_change
from cachedoctor.inputs.envelope.shapes import columns
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Segment

if TYPE_CHECKING:
    from cachedoctor.engines.catalogue.reading import LineReading, RowMatch


CLEARED = Message("truncate_fail", "slot", 0, 0, "W0", "", "")
"""The memory could not be truncated and was cleared, in words of a fork; without a build, so that it narrows none."""
REFUSED = Message("ckpt_restore_fail", "slot", 0, 0, "W0", "", "")
"""A checkpoint could not be restored, in words of a fork."""

_LINE = late(
    rb"[ \t]*(?:" + CLOCK + rb" +)?(?:(?P<level>[IWED]) +)?slot +[^\s:|]{1,32}: *id +(?P<id>\d{1,3}) *\|"
    rb" *task +(?P<task>\d{1,15}) *\| *(?P<text>\S.{7,1000})"
)
_FAILURE = late(
    r"\b(?:fail(?:ed|s|ure)?|refus(?:ed|es|ing)|can(?:no|')t|could(?:n't| not)|unable|mismatch|abort(?:ed|ing)?)\b"
)
_MEMORY = late(r"\b(?:memory|checkpoints?|pos(?:ition)?s?|p0|pos_m(?:in|ax)|cache|seq_rm|tokens)\b")
_REMOVE = late(r"\b(?:seq_rm|remov(?:e|es|ed|ing|al)|roll(?:s|ed|ing)?[ -]?back)\b")
_CLEAR = late(r"\b(?:clear(?:s|ed|ing)?|reset(?:s|ting)?)\b")
_CHECKPOINT = late(r"\bcheckpoints?\b")
_RESTORE = late(r"\brestor(?:e|es|ed|ing)\b")
_RESCUE = late(
    r"\b(?:put(?:s|ting)? back|instead|f[ae]ll(?:s|ing)? back|recover(?:s|ed|ing)?|retry(?:ing)?|"
    r"(?:next|another|older|earlier) (?:one|checkpoint))\b"
)
_WHOLE = late(r"\b(?:from scratch|full|whole|entire)\b")
"""Recomputing the whole prompt is not a recovery."""
_SPECULATIVE = late(r"\b(?:drafts?|drafted|speculat\w*|mtp|spec)\b")
_POSITION = late(r"\b(?:p0|pos(?:ition)?|from) *+(?:(?:>?=|:) *+)?(\d{1,10})\b")
_COVERED = late(r"\bpos_max *[=:] *(\d{1,10})\b")


class Unknown(msgspec.Struct, frozen=True):
    """A slot's line that states something in unknown words."""

    event: Event | None
    """What it is taken for; None if it is not to be judged."""


def unknown(line: bytes, number: int) -> Unknown | None:
    """Read a line that fits no message; None if it is not a slot's line, or states nothing.

    Args:
        line: without its wrapper.
        number: of the line in its input.
    """
    found = _LINE.match(line)
    if found is None:
        return None
    text = found["text"].decode("utf-8", "replace").lower()
    failure = _FAILURE.search(text) is not None
    if not failure and found["level"] not in (b"W", b"E"):
        return None
    judged = _judged(text) if failure and _MEMORY.search(text) else None
    if judged is None:
        return Unknown(None)
    row, fields = judged
    return Unknown(Event(row.id, row, fields, int(found["id"]), int(found["task"]), number, line, 0))


def _judged(text: str) -> tuple[Message, dict[str, object]] | None:
    """What a failure is taken for, and its numbers; None if the words do not say enough."""
    if _SPECULATIVE.search(text) or (_RESCUE.search(text) and not _WHOLE.search(text)):
        return None
    if _CHECKPOINT.search(text) and _RESTORE.search(text):
        covered = _COVERED.search(text)
        return None if covered is None else (REFUSED, {"pos_max": int(covered[1])})
    position = _POSITION.search(text)
    if position is None or not (_REMOVE.search(text) and _CLEAR.search(text)):
        return None
    return CLEARED, {"p0": int(position[1])}


MIN_HEAD = 16
"""Characters: with less of its first words a line may be prose."""
LINE_MAX = 1 << 12
_TELLING = 8
"""Bytes: shorter first words of a message occur in many lines, and identify it only after a slot and a task."""
_WRAPS = 4
"""Maximum lines over which one record is wrapped."""
_COLOUR = late(rb"\[(?:\d{1,3}(?:;\d{1,3}){0,4})?m")
"""A colour that lost its ESC byte."""
_LEADING = late(rb"[ \t]*(?:(?:[-*+>]|\xe2\x80\xa2|\d{1,3}[.)])[ \t]+)?`{0,3}[ \t]*")
_NO_ID = late(rb"(" + STAMP + rb")slot +(?:[a-z_()]{3,20}: +)(?!id +\d)")
"""The prefix of a slot's line without slot and task."""
PREFIXED = late(
    rb"[ \t]*" + STAMP + rb"(?:slot|srv|que|res|cmn|spec) +[\w<>.:()]+ |"
    rb"[ \t]*" + CLOCK + rb" +[IWEDT] "
)
"""A line that begins a record."""
_QUOTED = late(rb"`([^`\n]{16,1000})`")
"""What prose quotes in single backticks."""
_FUNCTION = late(rb"[a-z_]{3,20}: +(?=- )")
"""The function before a message of the RAM cache, without what comes before it."""
_REST_OF_NUMBER = late(rb"\d|[ \t]+\d{1,9}(?:[ \t]*\Z|[^\d \t])")
"""A continuation adds digits to the number before it; a row of tokens (``  26   285``) does not."""
_SLOTS, _TASKS = 1_000, 10**15
"""There are no higher numbers of either."""
_DIGITS = late(rb"\d")
_ROW_MAX = 1 << 14
"""Bytes of a row."""
_NAMED = rb"(?:slot|srv|que|res|cmn) +[a-z_]{3,14}(?:\(\))?: +"
_TIMES = rb"(?:prompt eval|(?<!prompt )eval|total) time +="
_BEFORE = late(rb"(?<=\S)[ \t]+(?=" + _NAMED + rb"|" + _TIMES + rb")")
_BEFORE_CLOCK = late(rb"(?<=\S)[ \t]+(?=" + CLOCK + rb" +[IWED] +(?:" + _NAMED + rb"|\S))")
_CLOCK = late(CLOCK + rb" +[IWED] ")
_FREE = frozenset({"text", "rest", "json", "sentence", "setting", "nolimit", "path", "pairs", "words", "ids"})
"""Kinds of holes that may hold anything."""
_CLOSED = frozenset({"chat_format", "sampler_chain"})
"""Messages that end in such a hole, and hold names of the server there."""
_PLAIN = late(rb"[\w .>?/-]{1,400}")


class ExcerptSegment(msgspec.Struct):
    """A segment for the scanner, and the events of lines that only a lenient reader understands."""

    segment: Segment
    events: list[Event]
    mended: bool
    """A line was read that is not as the server printed it."""
    unknown: int = 0
    """Lines of a slot that state something in words that are not known."""
    joined: int = 0
    """Lines that continue a record, less the additional records in rows that hold several."""


class ExcerptRecord(msgspec.Struct, frozen=True):
    """A line, or the lines over which a record was wrapped."""

    at: int
    """Index of its first line."""
    used: int
    """Number of its lines."""
    text: bytes
    """As the scanner reads it; empty if only ``event`` says what is there."""
    event: Event | None
    """What only a lenient reader understands."""
    mended: bool = False
    """It is not as the server printed it."""
    unknown: bool = False
    """A slot states something in words that are not known."""


class Fitted(msgspec.Struct, frozen=True):
    """A message that fits a line."""

    text: bytes
    """The line, without a function name that appears without slot and task."""
    prefix: bytes
    """What comes before the message, with that function."""
    reading: LineReading
    hit: RowMatch


@cache
def _heads(catalogue: Catalogue, wanted: frozenset[str]) -> tuple[bytes, ...]:
    """First words of the messages that somebody listens to."""
    heads = {head[:MIN_HEAD].strip() for row in catalogue.rows if row.id in wanted for head in row.heads}
    return tuple(head.encode() for head in sorted(heads) if head)


class _EveryLine(Scanner):
    """Gives every line that a scanner reads, also those that are repeated for one task."""

    def _repeated(self, message: str, slot: bytes, task: bytes) -> bool:
        return False


class ExcerptReader:
    """Reads the lines of short inputs."""

    def __init__(self, catalogue: Catalogue, plan: ScanPlan) -> None:
        """``plan``: what the scanner of whole logs delivers."""
        self._catalogue = catalogue
        self._plan = plan
        self._heads: Sequence[bytes] = ()
        """First words of messages that are in the open segment."""
        self._dashed = tuple(head for head in _heads(catalogue, plan.wanted) if head.startswith(b"- "))
        """First words of messages that begin like an item of a list."""
        self._prefixed = False
        """Lines are here as the server printed them: what else looks like one may be prose about them."""

    def read(self, segment: Segment) -> ExcerptSegment:
        """Repair damaged lines; lines that the scanner can read stay as they are."""
        lines = segment.data.removesuffix(b"\n").split(b"\n")
        several = parts(lines, self._catalogue)
        if several:
            segment = _parted(segment, lines, several)
            lines = segment.data.removesuffix(b"\n").split(b"\n")
        out: list[bytes] = []
        events, mended, left = [], bool(several), 0
        joined = -sum(self._records(pieces) - 1 for pieces in several.values())
        for record in self.records(segment, lines):
            if record.event is not None:
                events.append(record.event)
            mended |= record.mended
            left += record.unknown
            joined += record.used - 1
            out += [record.text, *[b""] * (record.used - 1)]
        if not mended:
            return ExcerptSegment(segment, events, False, left)
        numbers = segment.numbers or list(range(segment.first, segment.first + len(lines)))
        data = b"\n".join(out) + b"\n"
        return ExcerptSegment(msgspec.structs.replace(segment, data=data, numbers=numbers), events, True, left, joined)

    def _records(self, pieces: list[bytes]) -> int:
        """How many of the parts of a row the scanner counts."""
        scanner = _EveryLine(self._catalogue, self._plan)
        for _ in scanner.scan(Segment(None, b"\n".join(pieces) + b"\n", 0)):
            pass
        return scanner.recognised

    def records(self, segment: Segment, lines: list[bytes]) -> Iterator[ExcerptRecord]:
        """Return the records of a segment with these lines."""
        scanned, to_the_end = self._read_by_scanner(segment, lines)
        self._prefixed = any(PREFIXED.match(lines[at]) for at in to_the_end)
        text = b" ".join(segment.data.split())
        self._heads = [head for head in _heads(self._catalogue, self._plan.wanted) if head in text]
        widest = self._columns(lines, to_the_end)
        refused = refusals(lines)
        change = first_change(lines)
        at = 0
        while at < len(lines):
            if at in refused and at not in to_the_end:
                used, text = refused[at]
                yield ExcerptRecord(at, used, text, None, mended=True)
                at += used
                continue
            if change is not None and at == change.begin and scanned.isdisjoint({change.before, change.after}):
                used = change.after - at + 1
                yield ExcerptRecord(at, used, b"", _changed(change, segment), mended=True)
                at += used
                continue
            record = self._record(lines, at, segment.number(at), widest, sure=at in to_the_end)
            if record.event is None and record.used == 1 and at not in scanned:
                words = self._unknown(lines[at], segment.number(at))
                if words is not None:
                    record = msgspec.structs.replace(record, event=words.event, unknown=words.event is None)
            yield record
            at += record.used

    def _record(self, lines: list[bytes], at: int, number: int, widest: int, *, sure: bool) -> ExcerptRecord:
        """The record that begins with a line; ``sure``: the scanner reads it to its end."""
        line = lines[at]
        full = _width(line) >= widest
        if (sure and not full) or not self._has_head(line):
            return ExcerptRecord(at, 1, line, None)
        text, used = self._joined(lines[at : at + _WRAPS], full=full)
        event = self._event(text, number)
        if event is not None:
            return ExcerptRecord(at, used, b"", event, mended=True)
        if text == line[:LINE_MAX]:
            return ExcerptRecord(at, 1, line, None)
        return ExcerptRecord(at, used, text, None, mended=True)

    def _read_by_scanner(self, segment: Segment, lines: list[bytes]) -> tuple[set[int], set[int]]:
        """Indexes of the lines that the scanner reads as they stand, and of those that it reads to their end."""
        scanned: set[int] = set()
        to_the_end: set[int] = set()
        for event in _EveryLine(self._catalogue, self._plan).scan(Segment(None, segment.data, 0)):
            row = event.row
            scanned.update(event.numbers if row is None else (event.line,))
            if row is None:
                to_the_end.update(event.numbers)
                continue
            start = max(0, lines[event.line].find(row.heads[0].encode()))
            # settings and the like are left to the scanner: a cut one says nothing wrong
            if row.component != "slot" or row.exact_match(lines[event.line], start):
                to_the_end.add(event.line)
        return scanned, to_the_end

    def _unknown(self, line: bytes, number: int) -> Unknown | None:
        """What a line that no message fits states; None if one fits, or it states nothing."""
        text = plain_of(line[:LINE_MAX])
        found = unknown(text, number)
        return None if found is None or self._whole(text) else found

    def _columns(self, lines: list[bytes], known: set[int]) -> int:
        """Bytes of the longest lines that begin a record: others may be longer by their indentation."""
        begun = [_width(line) for line in lines if PREFIXED.match(line)]
        return columns(begun or [len(lines[at]) for at in known] or [len(line) for line in lines])

    def _has_head(self, line: bytes) -> bool:
        text = b" ".join(line[:LINE_MAX].split())
        shortest = 1 if b" task " in text else _TELLING
        return any(head in text for head in self._heads if len(head) >= shortest)

    def _whole(self, line: bytes, *, bare: bool = False) -> bool:
        """Whether the scanner reads the line as it stands; ``bare``: or would, with the prefix that it lost."""
        if self._catalogue.recognise(line):
            return True
        if not bare:
            return False
        from cachedoctor.engines.catalogue.reading import read

        reading = read(self._catalogue.rows, line)
        return reading.clean and self._row(reading, line) is not None

    def _joined(self, lines: Sequence[bytes], *, full: bool) -> tuple[bytes, int]:
        """The record that begins with the first line, without decoration, and how many lines it takes.

        ``full``: the line is as wide as any, so that a terminal may have cut it in the middle of a number.
        """
        first = lines[0][:LINE_MAX]
        plain = first if self._whole(first) or first.lstrip().startswith(self._dashed) else plain_of(first)
        if self._whole(plain) and not full:
            return plain, 1
        if (message := self._message_alone(plain)) is not None:
            return message, 1
        bare = full and not PREFIXED.match(plain)
        ways = [plain, plain, plain, plain + b" "]
        for used, more in enumerate(lines[1:], 2):
            if not more.strip() or len(more) > LINE_MAX or PREFIXED.match(more) or self._whole(more):
                break
            if bare and self._has_head(more):
                break
            text = more.strip()
            ways = [ways[0] + more.lstrip(b" \t"), ways[1] + more, ways[2].rstrip() + text, ways[3] + text + b" "]
            if len(ways[1]) > LINE_MAX:
                break
            for way in ways:
                if self._whole(way.rstrip(), bare=bare) and not self._whole_and_apart(plain, more, bare=bare):
                    return way.rstrip(), used
        return plain, 1

    def _message_alone(self, plain: bytes) -> bytes | None:
        """A message that prose quotes in backticks, or that lost all before the function that printed it."""
        quoted = [] if PREFIXED.match(plain) else _QUOTED.findall(plain)
        quoted += [plain[found.end() :]] if (found := _FUNCTION.match(plain)) else []
        return next((text for text in quoted if self._whole(text, bare=True)), None)

    def _whole_and_apart(self, plain: bytes, more: bytes, *, bare: bool) -> bool:
        """Whether a line is complete, and the next one adds no digits to a number at its end."""
        return self._whole(plain, bare=bare) and not (plain[-1:].isdigit() and _REST_OF_NUMBER.match(more))

    def _event(self, line: bytes, number: int) -> Event | None:
        """The event of a line that only a lenient reader understands; None for others."""
        if self._whole(line):
            return None
        fitted = self.fitted(line)
        if fitted is None:
            return None
        text, reading, hit = fitted.text, fitted.reading, fitted.hit
        row = hit.row
        fields = {name: row.value(name, raw) for name, raw in hit.fields if raw is not None and name in row.names}
        if reading.cut and _ends_in_number(text):
            last, raw = next(((name, raw) for name, raw in reversed(hit.fields) if raw is not None), ("", b""))
            if re.search(rb"(?<![\d.])" + re.escape(raw) + rb"\s*\Z", text):
                fields.pop(last, None)  # there may have been more digits
        slot, task = (int(reading.prefix.get(name, b"-1")) for name in ("id", "task"))
        if not -1 <= slot < _SLOTS or not -1 <= task < _TASKS:
            return None
        return Event(row.id, row, Partly(fields), slot, task, number, line, 0)

    def fitted(self, line: bytes) -> Fitted | None:
        """The message of a line that only a lenient reader understands; None if it is not certain enough."""
        from cachedoctor.engines.catalogue.reading import read  # most inputs have no such line

        line = line.lstrip(b" \t")
        found = _NO_ID.match(line)
        text = line if found is None else found[1] + line[found.end() :]
        reading = read(self._catalogue.rows, text)
        row = self._row(reading, text)
        if row is None:
            return None
        hit = next(hit for hit in reading.found if hit.row is row)
        before = b"" if found is None else line[len(found[1]) : found.end()]
        named = 0 if found is None else len(found[1])
        return Fitted(text, text[:named] + before + text[named : hit.start], reading, hit)

    def _row(self, reading: LineReading, text: bytes) -> Message | None:
        """The message of a reading that is sure enough to be judged by, if somebody listens to it."""
        rows = [hit.row for hit in reading.found]
        if not rows or len({row.id for row in rows}) > 1 or reading.unknown.strip():
            return None
        row, behind = rows[0], text[reading.found[0].start :]
        if row.id not in self._plan.wanted:
            return None
        if reading.found[0].more and not reading.cut and ("id" in reading.prefix or self._prefixed):
            return None  # unknown text after a message: the scanner reads that as well; or prose about the log
        known = any(len(head) >= MIN_HEAD for head in row.heads) or "id" in reading.prefix or not reading.cut
        said = bool(_DIGITS.search(behind)) or not row.names or any(_begins(h.encode(), behind) for h in row.heads)
        return row if known and said and len(behind) >= MIN_HEAD else None


def _width(line: bytes) -> int:
    """Bytes of a line, without the indentation of one that begins a record: who took a wrapper off left it in some."""
    return len(line.lstrip(b" \t")) if PREFIXED.match(line) else len(line)


def _parted(segment: Segment, lines: list[bytes], several: dict[int, list[bytes]]) -> Segment:
    """The segment with every part of a row on a line of its own, which has the number of the row."""
    rows = [(piece, segment.number(at)) for at, line in enumerate(lines) for piece in several.get(at, (line,))]
    data = b"\n".join(piece for piece, _ in rows) + b"\n"
    return msgspec.structs.replace(segment, data=data, numbers=[number for _, number in rows])


def _changed(change: PrintedChange, segment: Segment) -> Event:
    """The event of a value that changed in a diff of two prompts; of these it keeps nothing else."""
    fields: dict[str, object] = {
        "line": segment.number(change.before), "was": b"-" + change.was, "kind": change.kind, "place": change.place,
    }  # fmt: skip
    return Event(CHANGED.id, CHANGED, fields, -1, -1, segment.number(change.after), b"+" + change.is_now, 0)


def plain_of(line: bytes) -> bytes:
    """Remove what people and programs put around a line: bullets, quotes, backticks, colours without ESC."""
    text = _COLOUR.sub(b"", line)
    text = text[_LEADING.match(text).end() :].rstrip().rstrip(b"`")  # type: ignore[union-attr]  # it matches nothing, too
    return line if text == line.strip() else text


def leading(line: bytes) -> bytes:
    """Return the text that people put before a line: a bullet or a quote."""
    return _LEADING.match(line)[0]  # type: ignore[index]  # it matches nothing, too


def _begins(head: bytes, text: bytes) -> bool:
    """Whether a text begins with the first words of a message, or is most of these and nothing else."""
    return text.startswith(head) or (len(text) >= 2 * MIN_HEAD and head.startswith(text.rstrip()))


def _ends_in_number(text: bytes) -> bool:
    return text.rstrip()[-1:].isdigit()


# ---- rows in which several records stand


def parts(lines: list[bytes], catalogue: Catalogue) -> dict[int, list[bytes]]:
    """Return the parts of each row that has several parts, by its index."""
    before = _BEFORE_CLOCK if any(_CLOCK.match(line) for line in lines) else _BEFORE
    found = {}
    for at, line in enumerate(lines):
        if len(line) > _ROW_MAX or before.search(line) is None or _is_whole(line, catalogue):
            continue
        pieces = _parts(line, before, catalogue)
        if len(pieces) > 1:
            found[at] = pieces
    return found


def _parts(line: bytes, before: re.Pattern[bytes], catalogue: Catalogue) -> list[bytes]:
    """The records of a row, as far as each is whole; what follows the last of these stays together."""
    found: list[bytes] = []
    begin = 0
    for blank in before.finditer(line):
        if not _is_whole(line[begin : blank.start()], catalogue):
            break
        found.append(line[begin : blank.start()])
        begin = blank.end()
    return [*found, line[begin:]]


def _is_whole(piece: bytes, catalogue: Catalogue) -> bool:
    return any(event.row is not None and _is_closed(event.row, piece) for event in catalogue.recognise(piece))


def _is_closed(row: Message, piece: bytes) -> bool:
    holes = HOLE.findall(row.template)
    if row.quoted or not holes or row.words.strip() or holes[-1][1] not in _FREE:
        return not row.quoted
    return row.id in _CLOSED and _PLAIN.fullmatch(piece.rpartition(b": ")[2]) is not None
