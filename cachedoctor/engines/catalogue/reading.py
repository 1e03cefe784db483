"""Reads one line by itself: whole, truncated, with unknown text after the message, or without its prefix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from cachedoctor.engines.catalogue.base import CLOCK, FUNC_NAME, Message, group_of
from cachedoctor.engines.catalogue.logger import Vocabulary
from cachedoctor.knowledge.late_patterns import late

OTHER = "other"
"""The kind of a pair that is not known."""
_NAMED_FIELDS_LINE_MAX = 1 << 10
"""Bytes: no line of this kind is longer."""
_FIELD = r"[A-Za-z_]\w* = \{[A-Za-z_]\w*:[a-z]+\}(?: MiB)?"
_TEMPLATE = late(rf"(?P<words>[^()]+?) \((?P<fields>{_FIELD}(?:, {_FIELD})+)\)")
_PAIR = rb"[A-Za-z_]\w{0,40} *= *[-\w.]{1,24}(?: MiB)?"
_PAIRS = late(rb"[ \t]*\((" + _PAIR + rb"(?:, *" + _PAIR + rb"){1,20})\)[ \t]*(?=\n|\Z)")
_ONE = late(rb"(?<!\w)(\w++) *+= *+([-\w.]++)(?: MiB)?")


class WithOthers(dict[str, Any]):
    """All fields of a message, among others that no known build prints."""


class Partly(dict[str, object]):
    """The fields of a line in which some fields are missing."""

    def __missing__(self, name: str) -> object:
        raise LacksFieldError(name)


class LacksFieldError(Exception):
    """A field that is needed was left out."""


class DataPlace(NamedTuple):
    """A place in the data."""

    start: int
    end: int


class Named(msgspec.Struct, frozen=True):
    """A message whose fields were all found by name, among other fields."""

    fields: dict[str, DataPlace]
    """What is printed in each, by the names of the row."""
    others: list[DataPlace]
    """The pairs that are not known, at least one."""
    end: int


class _TemplateShape(msgspec.Struct, frozen=True):
    """What of a template is words, and what are fields with names."""

    words: re.Pattern[bytes]
    """Pattern of what comes before the fields."""
    names: tuple[str, ...]
    """Names of that pattern's groups."""
    fields: dict[bytes, tuple[str, re.Pattern[bytes]]]
    """The name in the row, and the pattern, of each field by its printed name."""


def by_name(row: Message, data: bytes, start: int) -> Named | None:
    """Find every field of ``row`` in the message at ``start``; None if one is missing, or if there is no other field.

    A name that occurs twice is not a field: this happens when the lines of two writers run together.
    """
    shape = _shape(row)
    words = None if shape is None else shape.words.match(data, start, start + _NAMED_FIELDS_LINE_MAX)
    listed = None if words is None else _PAIRS.match(data, words.end(), start + _NAMED_FIELDS_LINE_MAX)
    if shape is None or words is None or listed is None:
        return None
    fields = {name: DataPlace(*words.span(at)) for at, name in enumerate(shape.names, 1)}
    others, seen = [], set()
    for pair in _ONE.finditer(data, *listed.span(1)):
        if pair[1] in seen:
            return None
        seen.add(pair[1])
        name, pattern = shape.fields.get(pair[1], ("", None))
        if pattern is None:
            others.append(DataPlace(*pair.span()))
        elif pattern.fullmatch(pair[2]) is None:
            return None
        else:
            fields[name] = DataPlace(*pair.span(2))
    whole = seen.issuperset(shape.fields)
    return Named(fields, others, listed.end(1) + 1) if whole and others else None


@lru_cache(maxsize=256)
def _shape(row: Message) -> _TemplateShape | None:
    """How the template of a row is made; None if it does not end in named fields."""
    found = _TEMPLATE.fullmatch(row.template)
    if found is None:
        return None
    patterns = {name: pattern for _, name, pattern in row.pieces()}
    named = re.findall(r"(\w+) = \{(\w+):", found["fields"])
    fields = {printed.encode(): (hole, re.compile(patterns[hole])) for printed, hole in named}
    words = Message(row.id, row.component, row.first, row.last, row.levels, found["words"], "")
    return _TemplateShape(re.compile(words.text_pattern()), words.names, fields)


def furthest(rows: list[Message], data: bytes, start: int) -> tuple[Message, Named] | None:
    """The row with the most fields in the message, and its place; None if no row has all of its fields there."""
    if len(rows) == 1 and _shape(rows[0]) is None:
        return None
    end = data.find(b"\n", start)
    if data.find(b"=", start, end if end >= 0 else len(data)) < 0:
        return None  # as nearly every line of an engine that logs no such fields
    found = [(row, named) for row in rows if (named := by_name(row, data, start)) is not None]
    return max(found, key=lambda one: len(one[1].fields), default=None)


_PREFIX = late(
    rb"(?:(?P<stamp>" + CLOCK + rb") +)?(?:(?P<level>[IWEDT]) +)?"
    rb"(?:(?:(?P<slot>slot) +)?(?:(?P<slot_func>[^\s:|]*): *)?id +(?P<id>\d+) *\| *task +(?P<task>-?\d+) *\| *"
    rb"|(?P<other>srv|que|res|cmn|spec) +(?:(?P<other_func>[^\s:]*): *)?)?[ \t]*"
)
_LEFT_OUT = late(rb"(?<![ \t])[ \t]*(?:\[\.\.\. [\d,]+ characters \.\.\.\].*|\.\.\.|\xe2\x80\xa6)[ \t]*\Z", re.DOTALL)
"""How reports, terminals and people mark what they leave out."""
_SEPARATOR = late(rb"\| *|: +")
_SEPARATORS_MAX = 6
_LAST_WORDS = late(rb"[A-Za-z_][\w.()]{0,80}[^\w]{0,20}\Z")
"""What names a field: the last word before it, and the signs after that."""
_MIN_CUT = 16
"""Characters: a fragment shorter than this and than its first words may be of another message (``loading model``)."""
_MIN_LIKE = 10
_MIN_LIKENESS = 0.6
_NEAREST_MAX = 200
_READING_LINE_MAX = 1 << 12
"""Bytes of a line that are read; what lies after them is a prompt or a body."""


class RowMatch(msgspec.Struct, frozen=True):
    """A row that fits a line."""

    row: Message
    fields: list[tuple[str, bytes | None]]
    """Names and what is printed, in their order; None if the line ends before."""
    start: int
    """Offset of the message in the line, after everything that comes before it."""
    func: bytes = b""
    """Function or library that is named between prefix and message."""
    more: bytes = b""
    """Unknown text after the message."""


class LineReading(msgspec.Struct):
    """What was recognised in a line."""

    prefix: dict[str, bytes]
    """Parts before the message by name: stamp, level, component, func, id, task; those that are there."""
    found: list[RowMatch]
    """Rows that fit, one unless their wording alone does not decide."""
    cut: bool = False
    """The line ends before the message does."""
    unknown: bytes = b""
    """What comes before the message and is not part of a known prefix."""

    @property
    def clean(self) -> bool:
        """Nothing is missing and nothing is left over."""
        return bool(self.found) and not (self.cut or self.unknown.strip() or self.found[0].more)


_Fit = Callable[[Message, bytes, int], RowMatch | None]


def read(rows: Iterable[Message], line: bytes) -> LineReading:
    """Read ``line``, which has lost its wrapper; an unknown line has no ``found``."""
    line = line[:_READING_LINE_MAX].rstrip(b"\r\n")
    parts, start = _prefix(line)
    group = "slot" if "id" in parts else "srv" if parts.get("component") else "bare"
    groups = {group, "bare"} if group == "srv" else {group}  # library texts are reprinted under a server prefix
    # An empty message has nothing but its function to be told by.
    rows = [row for row in rows if row.template or _prefix(row.sample.encode())[0].get("func") == parts.get("func")]
    own = [row for row in rows if group_of(row) in groups]
    return _fitted(
        [(own, start)], [row for row in rows if _literal(row)] if group == "bare" else [], parts, line, start
    )


def read_logged(vocabulary: Vocabulary, line: bytes) -> LineReading:
    """Read ``line`` as one of an engine with a Python logger, whose prefix it may have lost."""
    line = line[:_READING_LINE_MAX].rstrip(b"\r\n")
    parts, start, unknown = vocabulary.prefix(line)
    reading = _fitted([(vocabulary.rows, start)], [row for row in vocabulary.rows if _literal(row)], parts, line, start)
    reading.unknown = unknown + reading.unknown
    return reading


def _fitted(
    tries: list[tuple[list[Message], int]],
    headed: list[Message],
    parts: dict[str, bytes],
    line: bytes,
    start: int,
) -> LineReading:
    """Fit rows to the message of ``line``: whole, then begun, then with unknown text after it.

    Args:
        tries: rows, and the offset at which a message of theirs may begin.
        headed: rows that are known by their first words: they may begin after something unknown, too.
        parts: what comes before the message, by name.
        line: without its wrapper.
        start: where its known prefix ends.
    """
    if headed:
        tries = [*tries, (headed, start)]
        separators = _SEPARATOR.finditer(line, start, start + _NEAREST_MAX)
        tries += [(headed, at.end()) for at in islice(separators, _SEPARATORS_MAX)]
    tries = [(_beginning(some, line, at), at) for some, at in tries]
    ways: list[tuple[_Fit, bytes]] = [
        (_whole, line),
        (_begun, _LEFT_OUT.sub(b"", line)),
        (_longer, line),
        (_with_others, line),
        (_elided, line),
    ]
    for fit, text in ways:
        for some, at in tries:
            found = _furthest([hit for row in some if (hit := fit(row, text, at)) is not None])
            if found:
                return LineReading(parts, found, fit in (_begun, _elided), line[start:at])
    return LineReading(parts, [])


def nearest(rows: Iterable[Message], line: bytes, start: int | None = None) -> tuple[float, str]:
    """Similarity of ``line`` to the most similar message, from 0 to 1, and the start of that message; (0, "") for none.

    ``start``: offset of the message, unless llama-server's prefix comes before it.
    """
    text = _plain(line[_prefix(line)[1] if start is None else start :][:_NEAREST_MAX]).decode("utf-8", "replace")
    best, likeness = "", _MIN_LIKENESS
    for head in sorted({head for row in rows for head in row.heads if len(head) >= _MIN_LIKE}):
        matcher = SequenceMatcher(None, text[: len(head)].lower(), head.lower(), autojunk=False)
        if matcher.quick_ratio() > likeness and (ratio := matcher.ratio()) > likeness:
            best, likeness = head, ratio
    return (likeness, best) if best else (0.0, "")


def _prefix(line: bytes) -> tuple[dict[str, bytes], int]:
    """Parts before the message by name, and where they end; slot and other prefixes have the same parts."""
    names = {"slot": "component", "other": "component", "slot_func": "func", "other_func": "func"}
    match = _PREFIX.match(line)
    if match is None:
        return {}, 0
    return {names.get(name, name): raw for name, raw in match.groupdict().items() if raw is not None}, match.end()


def _plain(text: bytes) -> bytes:
    return b" ".join(text.split())


@lru_cache(maxsize=16)
def _words(line: bytes, start: int) -> bytes:
    """The words from ``start`` on; asked for by every row, and a line that holds a prompt is long."""
    return _plain(line[start:])


def _literal(row: Message) -> bool:
    """Whether the message begins with words of its own."""
    return (bool(row.heads[0]) and not row.template.startswith("{")) or row.has_func


def _beginning(rows: list[Message], line: bytes, start: int) -> list[Message]:
    """The rows of which any way of fitting may make something: a look at their first byte, as there are hundreds."""
    named = FUNC_NAME.match(line, start)
    bare = {b"", _words(line, start)[:1]}
    behind = bare if named is None else {b"", _words(line, named.end())[:1]}
    return [row for row in rows if not row.first_bytes.isdisjoint(behind if row.has_func else bare)]


def _places(row: Message, line: bytes, start: int) -> tuple[int, bytes] | None:
    """Where the words of ``row`` begin, and the function named before them; None when it names none but should."""
    if not row.has_func:
        return start, b""
    named = FUNC_NAME.match(line, start)
    return None if named is None else (named.end(), named.group(1))


def _fields(row: Message, func: bytes, groups: Iterable[bytes | None]) -> list[tuple[str, bytes | None]]:
    first = [(row.template[1:].split(":")[0], func)] if row.has_func else []
    return [*first, *zip(row.names, groups, strict=True)]


def _whole(row: Message, line: bytes, start: int) -> RowMatch | None:
    place = _places(row, line, start)
    if place is None or not row.may_begin(_words(line, place[0])):
        return None
    match = row.exact_match(line, place[0])
    return None if match is None else RowMatch(row, _fields(row, place[1], match.groups()), place[0], place[1])


def _begun(row: Message, line: bytes, start: int) -> RowMatch | None:
    """Fit a message whose end is missing."""
    place = _places(row, line, start)
    text = b"" if place is None else _words(line, place[0])
    if place is None or not _literal(row):
        return None
    heads = [head.encode() for head in row.heads]
    if not any(text.startswith(h) or (len(text) >= _MIN_CUT and h.startswith(text)) for h in heads):
        return None
    import regex  # type: ignore[import-untyped]  # only it tells a text that fits so far from one that does not

    match = regex.compile(row.text_pattern()).fullmatch(line, place[0], partial=True)
    return None if match is None else RowMatch(row, _fields(row, place[1], match.groups()), place[0], place[1])


def _longer(row: Message, line: bytes, start: int) -> RowMatch | None:
    """Fit a message after which unknown text follows, as newer builds append fields."""
    place = _places(row, line, start)
    if place is None or not _literal(row) or not row.may_begin(_words(line, place[0])):
        return None
    match = re.compile(row.text_pattern()).match(line, place[0])
    if match is None:
        return None
    return RowMatch(row, _fields(row, place[1], match.groups()), place[0], place[1], line[match.end() :].strip())


def _with_others(row: Message, line: bytes, start: int) -> RowMatch | None:
    """Fit a message that has all its fields by their names, among others that are not known."""
    place = _places(row, line, start)
    found = None if place is None or not _literal(row) else by_name(row, line, place[0])
    if place is None or found is None:
        return None
    fields: list[tuple[str, bytes | None]] = [(name, line[slice(*found.fields[name])]) for name in row.names]
    return RowMatch(row, fields, place[0], place[1], b", ".join(line[slice(*other)] for other in found.others))


def _elided(row: Message, line: bytes, start: int) -> RowMatch | None:
    """Fit a message of which fields were left out, or to which some were added: those count that are found in order."""
    place = _places(row, line, start)
    if place is None or not _literal(row) or not row.may_begin(_words(line, place[0])):
        return None
    at, fields, known = place[0], [], False
    for literal, name, pattern in row.pieces():
        words = _LAST_WORDS.search(literal.rstrip().encode())
        if words is not None:  # its own words come before it
            found = re.compile(rb"(?<![\w.])" + _spaced(words.group()) + pattern).search(line, at)
        else:  # it follows the one before it at once: [a, b]
            found = re.compile(_spaced(literal.strip().encode()) + pattern).match(line, at) if known else None
        known = found is not None
        fields.append((name, None if found is None else found[found.re.groups]))
        at = at if found is None else found.end()
    if not any(raw is not None for _, raw in fields):
        return None
    return RowMatch(row, fields, place[0], place[1])


def _spaced(words: bytes) -> bytes:
    """Pattern of words between which any blanks may stand."""
    return rb"[ \t]*".join(re.escape(word) for word in words.split())


def _furthest(hits: list[RowMatch]) -> list[RowMatch]:
    """Those that leave least of the line unread."""
    least = min((len(hit.more) for hit in hits), default=0)
    return [hit for hit in hits if len(hit.more) == least]
