"""Catalogues of log messages: rows in printf words, compiled to patterns.

``clearing prompt with {n_tokens:d} tokens`` reads ``clearing prompt with 1913 tokens``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import methodcaller
from typing import Any

import msgspec

from cachedoctor.engines.catalogue.heads import NEVER, HeadPattern, literal_pattern
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Mark, Shows
from cachedoctor.model.bounds import AMOUNT, MIB, MS, NUMBERS, PERCENT, RATE, SHARE, NumberRange

_LOOK = 1 << 12
"""Bytes in which the literal beginning of a message ends, blanks included."""
_MOST_LOOKS = 64
"""Lines after which a message is compiled even if none of them may contain it: its pattern fails fast."""
_ALIGNED = NUMBERS - {"n"} | {"x"}
"""Kinds of holes that printf fills with blanks."""
HOLE = late(r"\{([A-Za-z_][\w.]*):(\w+)\}")
"""A hole of a template: its name and its kind."""
FUNC_NAME = late(rb"(\S+?): ")
"""The function that is named before a message."""
GROUPS = ("slot", "srv", "bare")
"""Where in a line a message can be, in the order of the last groups of a catalogue's pattern."""


_text: Callable[[bytes], str] = methodcaller("decode", "utf-8", "replace")


def _float(within: NumberRange) -> Callable[[bytes], float | None]:
    """Return what reads a number within these bounds; another one is unknown."""
    least, most = within.least, within.most

    def read(raw: bytes) -> float | None:
        value = float(raw.partition(b"(")[0] if raw[-1:] == b")" else raw)  # Windows prints -nan(ind)
        return value if least <= value <= most else None

    return read


_share = _float(SHARE)


def _keep(raw: bytes) -> float | None:
    """Read a share; that of an empty slot, by which nothing can be divided, is printed as -1.000."""
    return -1.0 if raw == b"-1.000" else _share(raw)


_KEY = 10
"""Characters by which lists of pairs are distinguished before they are read."""
_MOST_SHAPES = 16
_LEAST_PAIRS, _MOST_PAIRS = 4, 64
"""A list with fewer pairs is split as fast as it is matched; a server writes none with more."""
_LONGEST = 2048
"""Characters of a list whose names are remembered."""


class _PairShape(msgspec.Struct, frozen=True):
    """Lists of pairs with these names, in this order, whose values are single words."""

    names: tuple[str, ...]
    match: Callable[[str], re.Match[str] | None]


_shapes: dict[str, _PairShape] = {}
"""The first shapes that occurred, by their first characters: a server prints two or three."""


def as_pairs(raw: bytes) -> dict[str, str]:
    """Split ``Running: 2 reqs, KV usage: 1.0%``; a part without a name belongs to the value before it.

    If a name is repeated, the next line was glued to this one.
    """
    text = _text(raw)
    shape = _shapes.get(text[:_KEY])
    if shape is not None:
        found = shape.match(text)
        return _split(text) if found is None else dict(zip(shape.names, found.groups()))  # noqa: B905  # as many, and hot
    pairs = _split(text)
    if _LEAST_PAIRS <= len(pairs) <= _MOST_PAIRS and len(text) <= _LONGEST and len(_shapes) < _MOST_SHAPES:
        pattern = re.compile(", ".join(re.escape(name) + r": ([^\s,:]++)" for name in pairs) + r"(?:, ?)?")
        _shapes[text[:_KEY]] = _PairShape(tuple(pairs), pattern.fullmatch)
    return pairs


def _split(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    more: dict[str, list[str]] = {}
    last = None
    for part in text.split(","):
        name, colon, value = part.partition(":")
        if colon and (name := name.strip()):
            if name in found:
                break
            found[name] = value.strip()
            last = name
        elif last is not None and (rest := part.strip()):
            more.setdefault(last, [found[last]]).append(rest)
    for name, parts in more.items():
        found[name] = ", ".join(parts)
    return found


# A whole number that cannot be one makes the line another one; the digits are those of model/bounds.py. Python converts
# no thousands of them.
_COUNT = r"\d{1,10}(?!\d)"
_FLOAT = r"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|inf|nan(?:\([a-z]*\))?)"

# kind of a hole: pattern and converter; url, path, host, json and text can hold a user's words
_KINDS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "count": (_COUNT, int),
    "n": (r"(?:\d(?:,\d{3}){3}|\d{1,3}(?:,\d{3}){1,2})(?![,\d])|" + _COUNT, lambda raw: int(raw.replace(b",", b""))),
    "slot": (r"\d{1,3}(?!\d)", int),
    "task": (r"(?:-1|\d{1,15})(?!\d)", int),
    "d": (r"-?\d{1,15}(?!\d)", int),  # positions, clocks, limits
    "share": (_FLOAT, _float(SHARE)),
    "keep": (_FLOAT, _keep),
    "ms": (_FLOAT, _float(MS)),
    "mib": (_FLOAT, _float(MIB)),
    "percent": (_FLOAT, _float(PERCENT)),
    "rate": (_FLOAT, _float(RATE)),
    "f": (_FLOAT, _float(AMOUNT)),
    "x": (r"(?:0x)?[0-9a-fA-F]+", _text),
    "func": (r"[^\s:]+", _text),
    "word": (r"[^\s,()']*", _text),
    "words": (r"[^,()']*?", _text),
    "method": (r"[A-Z]+", _text),
    "url": (r"[^\s)]*", _text),
    "path": (r".*?", _text),
    "host": (r"\S+?", _text),
    "json": (r"[\[{<\"].*", _text),
    "ids": (r"-?\d+(?: +-?\d+)*", _text),
    "sentence": (r"[A-Z<].*?[^,\s]", _text),
    "setting": (r"unset.*?|\S+", _text),
    "nolimit": (r"[a-z].*", _text),
    "text": (r".*?", _text),
    "rest": (r".*", _text),  # to the end of the line, which may be a megabyte: no attempt at each of its bytes
    "pairs": (r".*", as_pairs),  # so do these
}


_WORDS = (r"\S+?", r"[^\s)]*", r"[^\s,()']*", r"[A-Z]+")
"""Patterns of holes that hold no blank."""


def value_of(kind: str, raw: bytes) -> Any:
    """Convert the text of a hole of this kind: to a number, to None for an impossible number, or to text."""
    return _KINDS[kind][1](raw)


class Event(msgspec.Struct, gc=False):
    """A line that a row of the catalogue recognised. Valid while the block it points into is being scanned."""

    message: str
    """Id of the message, the same over all its wordings."""
    row: Message | None
    """None for an event that stands for several lines."""
    fields: dict[str, Any]
    slot: int
    """Slot id, -1 when the line names none."""
    task: int
    """Task id, -1 when the line names none."""
    line: int
    """1-based line number in the input."""
    block: bytes
    start: int
    """Offset of the line in the block."""
    end: int = 0
    """Offset after the last line, for an event that stands for several."""
    match: re.Match[bytes] | None = None
    """Match of the fused pattern, for an event that stands for several lines."""
    lines: Sequence[int] = ()
    """Their line numbers; for lines matched by the fused pattern only if they are not consecutive."""
    texts: Sequence[bytes] = ()
    """The lines themselves, where the fused pattern matched them; of many those between the first and the last ones
    are empty. Slot and task are in its match alone."""

    @property
    def numbers(self) -> Sequence[int]:
        """Line numbers of an event that stands for several lines."""
        return self.lines or range(self.line, self.line + len(self.texts))

    def mark(self, at: int) -> Mark:
        """The line with this index, of an event that stands for several."""
        return Mark(self.lines[at] if self.lines else self.line + at, self.texts[at])

    @property
    def text(self) -> bytes:
        """The whole line without its wrapper."""
        end = self.block.find(b"\n", self.start)
        return self.block[self.start : end if end >= 0 else None]

    @property
    def whole(self) -> bytes:
        """All lines of an event that stands for several."""
        return self.block[self.start : self.end]

    @property
    def stamp(self) -> bytes:
        """Uptime as printed at the start of the line, ``M.SS.mmm.uuu``; empty when the line carries no clock."""
        return stamp_of(self.block, self.start)


def stamp_of(block: bytes, start: int = 0) -> bytes:
    """Uptime at the start of the line that begins at ``start``; empty when it carries no clock."""
    return block[start : block.find(b" ", start)] if block[start : start + 1].isdigit() else b""


CLOCK = rb"[0-9]{1,9}+\.[0-9][0-9]\.[0-9][0-9][0-9]\.[0-9][0-9][0-9]"
"""Uptime at the start of a line: ``M.SS.mmm.uuu``."""
NAME = rb"[^ \t-\r:|]"
"""A byte of the function name in a slot's line: anything but a blank, written out as one range."""
STAMP = rb"(?:" + CLOCK + rb" +)?(?:[IWEDT] +)?"
"""Uptime and level before a line, either of which may be missing."""


class Message:
    """A row of a catalogue: one wording of one message.

    ``template`` repeats the server's printf string with typed holes, ``{name:kind}``. Runs of
    blanks match any run of blanks, so that pasted text with collapsed columns is recognised.
    ``levels`` says from which build on the message has which level: ``"I6751 T9873"`` is INFO from b6751 and TRACE
    from b9873 (I, W, E, D as usual; T trace, L library info, O always printed, P part of an error's text).
    """

    def __init__(
        self,
        id: str,
        component: str,
        first: int,
        last: int,
        levels: str,
        template: str,
        sample: str,
        heads: tuple[str, ...] = (),
        shows: tuple[Shows, ...] = (),
        meaning: str = "",
    ) -> None:
        self.id = id
        self.component = component
        self.first = first
        self.last = last
        self.levels = levels
        self.template = template
        self.sample = sample
        self.shows = shows
        """What a log with this line can show; rules require this instead of ids."""
        self.meaning = meaning
        """What it means for the prompt cache, for people; given with one wording of a message."""
        self.has_func = template.startswith(("{__func__:func}: ", "{func:func}: "))
        self._body = template.split("}: ", 1)[1] if self.has_func else template
        self.heads = heads or (re.split(r"\{[A-Za-z_][\w.]*:", self._body, maxsplit=1)[0].strip(),)
        wild = HOLE.match(template) is not None and not self.has_func  # begins with a value: the heads are some of many
        self._heads = (b"",) if wild else tuple(head.encode() for head in self.heads)
        self.first_bytes = {head[:1] for head in self._heads}
        """First bytes with which the message may begin; an empty one where it may begin with anything."""
        self._prepared = False
        self._looks = 0
        self.exact_match: Callable[[bytes, int], re.Match[bytes] | None] = self._first_match
        self.loose_match: Callable[[bytes, int], re.Match[bytes] | None] = self._first_loose_match
        """Like ``exact_match``, but unknown text may follow."""
        self.quoted = component in ("client", "embedded")
        """Words of a client that are in any text, or of the library in any program: they do not identify a server's
        log."""
        self.repeats = False
        """Printed again and again for one task; set by the scanner's plan."""

    def may_begin(self, text: bytes) -> bool:
        """Check cheaply before a pattern is compiled; ``text`` begins with the message, its blanks collapsed."""
        return text.startswith(self._heads)

    def _may_stand(self, data: bytes, start: int) -> bool:
        """Cheap look before a pattern is compiled: whether all words of the message are at ``start``, in order."""
        self._looks += 1
        if self._looks > _MOST_LOOKS or ":words}" in self._body:  # words may continue in the next line
            return True
        end, at = data.find(b"\n", start), 0
        line = b" ".join(data[start : end if end >= 0 else None].split())
        for part in HOLE.split(self._body)[::3]:
            words = " ".join(part.split()).encode()
            at = line.find(words, at) + len(words)
            if at < len(words):
                return False
        return True

    def _first_match(self, data: bytes, start: int) -> re.Match[bytes] | None:
        if not self._may_stand(data, start):
            return None
        self.prepare()
        return self.exact_match(data, start)

    def _first_loose_match(self, data: bytes, start: int) -> re.Match[bytes] | None:
        if not self._may_stand(data, start):
            return None
        self.loose_match = re.compile(self.text_pattern()).match
        return self.loose_match(data, start)

    def prepare(self) -> None:
        """Compile the pattern of the whole message up to the end of its line; until then it is too costly to hold."""
        if self._prepared:
            return
        self._prepared = True
        self.exact_match = re.compile(self.text_pattern() + rb"(?:(?<![ \t])[ \t]*)?$", re.M).match

    @cached_property
    def _holes(self) -> list[tuple[str, Callable[[bytes], Any]]]:
        return [(name, _KINDS[kind][1]) for name, kind in HOLE.findall(self._body)]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of its fields."""
        return tuple(name for name, _ in self._holes)

    @cached_property
    def integers(self) -> bool:
        """All fields are integers: the scanner converts them without running Python code per field."""
        return all(convert is int for _, convert in self._holes)

    def text_pattern(self) -> bytes:
        """Pattern of the message without the end of its line, one group per field in the order of ``names``."""
        template, out, at, lazy = self._body, [], 0, False
        for hole in HOLE.finditer(template):
            literal = template[at : hole.start()]
            # a text ends where its blanks begin; to look for the literal after each of them would cost their square
            out.append(b"(?<![ \t])" if lazy and literal[:1] == " " else b"")
            out.append(literal_pattern(literal))
            pattern = _KINDS[hole.group(2)][0]
            lazy = "*?" in pattern
            if pattern in _WORDS and template[hole.end() : hole.end() + 1] == " ":
                pattern = pattern.rstrip("?") + "+"  # it ends at the blank, and gives nothing back
            blank = b"[ \t]*" if hole.group(2) in _ALIGNED else b""
            out.append(blank + b"(" + pattern.encode() + b")")
            at = hole.end()
        out.append(b"(?<![ \t])" if lazy and template[at : at + 1] == " " else b"")
        out.append(literal_pattern(template[at:]))
        return b"".join(out)

    def convert(self, found: re.Match[bytes]) -> dict[str, Any]:
        """Fields of a match of the pattern."""
        return {name: convert(raw) for (name, convert), raw in zip(self._holes, found.groups())}  # noqa: B905  # as many, and hot

    def match(self, data: bytes, start: int) -> dict[str, Any] | None:
        """Fields of the message that starts at ``start``, or None."""
        found = self.exact_match(data, start)
        return None if found is None else self.convert(found)

    def value(self, name: str, raw: bytes) -> Any:
        """Convert what is printed in a field."""
        return next(convert for known, convert in self._holes if known == name)(raw)

    def pieces(self) -> list[tuple[str, str, bytes]]:
        """For each field the literal before it, its name, and the pattern of what is printed in it."""
        found, at = [], 0
        for hole in HOLE.finditer(self._body):
            pattern = b"[ \t]*(" + _KINDS[hole.group(2)][0].encode() + b")"
            found.append((self._body[at : hole.start()], hole.group(1), pattern))
            at = hole.end()
        return found

    @property
    def words(self) -> str:
        """The text that is printed after the last field."""
        return HOLE.split(self._body)[-1]

    def level_at(self, build: int) -> str:
        """Letter of the level at ``build``: I, W, E, D, T, L, O or P."""
        letter = self.levels[0]
        for part in self.levels.split():
            if int(part[1:]) <= build:
                letter = part[0]
        return letter


class Catalogue:
    """The rows of one engine, found by the literal head of their message."""

    # Possessive: a stamp followed by nothing but blanks would else be read in as many ways as there are blanks.
    _STAMP = rb"(?:" + CLOCK + rb" ++)?+(?:[IWEDT] ++)?+"
    _SLOT = rb"(?:slot ++)?+(?:" + NAME + rb"*+: *+)?+id ++([0-9]{1,3}+) *+\| *+task ++(-1|[0-9]{1,18}+) *+\| *+"
    _OTHER = rb"(?:srv|que|res|cmn|spec) ++(?:[^ \t-\r:]*+: *+)?"
    _DATED = rb"\[[0-9]{4}-[0-9]{2}-[0-9]{2} "
    """Begins lines of other programs: none of our lines begins with a date in brackets, and one begins with a number in
    brackets."""
    _FUNC = rb"(?:[^ \t-\r:]++:(?:[0-9]++:)?+ )?"

    def __init__(self, rows: list[Message], fused: bytes = b"", groups: int = 0) -> None:
        """``fused``: a pattern after the slot prefix that reads several lines at once, with so many groups.

        It is for long logs: in a short one their lines are read one by one, which gives the same.
        """
        self.rows = rows
        self.by_head: dict[tuple[str, bytes], list[Message]] = {}
        heads: dict[str, set[str]] = {"slot": set(), "srv": set(), "bare": set()}
        for row in rows:
            for head in row.heads:
                if head:
                    heads[group_of(row)].add(head)
                self.by_head.setdefault((group_of(row), head.encode()), []).append(row)
        heads["srv"] |= heads["bare"]  # library texts are reprinted under a server prefix
        self._fused, self._no_fused = fused, NEVER + rb"()" * groups
        self.pattern = HeadPattern(heads, self._compiled)
        """Anchored at the newline before a line. Groups: slot id, task id, those of ``fused``, and last the head, in
        one of three groups: after a slot prefix, after a server prefix, bare."""

    def _compiled(self, heads: Mapping[str, bytes], whole: bool) -> re.Pattern[bytes]:
        # An empty message is the header of a timing block, `slot print_timing: id  0 | task 9 | `;
        # digits are token ids.
        shortcut = (self._fused if whole else self._no_fused) + rb"|" if self._fused else b""
        slot, other, bare = heads["slot"], heads["srv"], heads["bare"]
        return re.compile(
            rb"\n"
            + self._STAMP
            + rb"(?:"
            + self._SLOT
            + rb"(?:"
            + shortcut
            + rb"("
            + slot
            + rb"|(?=[ \t]*(?:\n|-?\d))))"
            rb"|"
            + self._OTHER
            + self._FUNC
            + rb"("
            + other
            + rb")|(?!"
            + self._DATED
            + rb")[ \t]*"
            + self._FUNC
            + rb"("
            + bare
            + rb"))"
        )

    def candidates(self, group: str, head: bytes) -> list[Message]:
        """Rows that begin with ``head``; blanks in the log may be collapsed or doubled."""
        plain = b" ".join(head.split())
        rows = list(self.by_head.get((group, plain), ()))
        return rows + self.by_head.get(("bare", plain), []) if group == "srv" else rows

    def recognise(self, body: bytes) -> list[Event]:
        """Every row that matches the single line ``body`` exactly (one, unless the catalogue is ambiguous)."""
        head = self._STAMP + rb"(?:" + self._SLOT + rb"()|" + self._OTHER + rb"()|)[ \t]*"
        found = re.match(head, body)
        if found is None:
            return []
        slot, task, is_slot, is_other = found.groups()
        group = "slot" if is_slot is not None else "srv" if is_other is not None else "bare"
        func = FUNC_NAME.match(body, found.end())
        places = self._beginning(group, body, found.end(), has_func=False)
        if func is not None:
            places |= self._beginning(group, body, func.end(), has_func=True)
        events = []
        for place in sorted(places):
            row = self.rows[place]
            fields = row.match(body, func.end() if row.has_func and func else found.end())
            if fields is not None:
                if row.has_func and func:
                    fields = {row.template[1:].split(":")[0]: _text(func.group(1)), **fields}
                events.append(Event(row.id, row, fields, int(slot or -1), int(task or -1), 1, body, 0))
        return events

    @cached_property
    def _by_first(self) -> dict[tuple[str, bool], dict[bytes, list[int]]]:
        """Indexes of the rows by the place in which they stand, whether they name a function, and their first byte."""
        found: dict[tuple[str, bool], dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, row in enumerate(self.rows):
            group = group_of(row)
            for first in row.first_bytes:
                for where in (group, "srv") if group == "bare" else (group,):  # reprinted under a server prefix
                    found[where, row.has_func][first].append(place)
        return found

    def _beginning(self, group: str, body: bytes, start: int, *, has_func: bool) -> set[int]:
        """Indexes of the rows of a group that may begin at an offset; ``has_func``: after the name of a function."""
        text = b" ".join(body[start : start + _LOOK].split())
        rows = self._by_first[group, has_func]
        return {place for first in (text[:1], b"") for place in rows.get(first, ()) if self.rows[place].may_begin(text)}


def group_of(row: Message) -> str:
    """Where in a line the message of ``row`` is: after a slot prefix, after a server prefix, or bare."""
    if row.component == "slot":
        return "slot"
    return "srv" if row.component in ("srv", "que", "res", "cmn", "spec") else "bare"
