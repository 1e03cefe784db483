"""Rewrites lines: the server's own words stay, what a user may have written is replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction.holes import DIGITS_MAX, PLAIN, replaced
from cachedoctor.redaction.known_words import FUNCTIONS, HEADER_FIELDS
from cachedoctor.redaction.stand_ins import StandInNames

BAR = " | "
OTHER_FIELD = "cc_field"
FIELDS = ("cch", "cc_version", "cc_entrypoint", OTHER_FIELD)
"""Fields of a billing header that are named; any other is called ``cc_field``."""
_READ_MAX = 2000
"""Characters of a text that the analysis reads; later divergence bars are ignored."""
_BEFORE = (
    "", *(f" {field}=" for field in FIELDS), " x-anthropic-billing-header:", " cc_version=0; behind it", " cch= 0",
)  # fmt: skip
_AFTER = (
    "", "a ", "0 ", "0:00 ", "a date ", "0a0a0a0a-0a0a ", "a0a0a0a0-a0a0 ", "0a0a0a ", "a0a0a0 ",
)  # fmt: skip
"""Ways in which a value may begin: empty, a letter or digit that may start a number, a time, UUIDs, random ids."""


class Printed:
    """Writes such texts again."""

    def __init__(self, facts: Callable[[str], Hashable]) -> None:
        """``facts``: all that the analysis reads in such a text; texts with equal facts are the same to it."""
        self._facts = facts
        self._shapes: dict[Hashable, tuple[str, str, bool]] = {}
        for before, after, lead in product(_BEFORE, _AFTER, (True, False)):
            if lead or not before:
                sample = self._written(before, after, "<text-1>" if lead else "", "<text-2>")
                self._shapes.setdefault(facts(sample), (before, after, lead))

    def rewrite(self, text: str, tokens: StandInNames) -> str:
        """Return a text with the same facts that contains nothing of ``text`` except the bar."""
        text = text[:_READ_MAX]
        before, bar, after = text.partition(BAR)
        if not bar:
            return f" {self._token(text, tokens)}"
        tail, head, lead = self._shapes.get(self._facts(text), ("", "", bool(before.strip(" ."))))
        return self._written(
            tail, head, self._token(before, tokens) if lead else "", self._token(after, tokens) or "<text>"
        )

    @staticmethod
    def _written(tail: str, head: str, before: str, after: str) -> str:
        return f" {before}{tail}{BAR}{head}{after}"

    @staticmethod
    def _token(text: str, tokens: StandInNames) -> str:
        return tokens.give("text", text.encode("utf-8", "surrogateescape")).decode()


OTHER = "other"
"""The kind of a value that is in a line with its name, and is not known."""
UNKNOWN = b"<line>"
"""Placeholder for all unrecognised text; not numbered, because such lines are unlimited."""
_FUNCTION, _LIBRARY = b"function", b"init"
_NAME = late(rb"(?<![^\s:])[^\s:]++(?=:)")
_CALLER = rb"(?:[\w~]+(?:\(\))?: *)"
_COMPONENT = (
    rb"(?:slot +" + _CALLER + rb"id +-?\d{1,4}(?: *\| *task +-?\d{1,9} *\| ?)?"
    rb"|(?:srv|que|res|cmn|spec) +" + _CALLER + _CALLER + rb"?)"
)
_PREFIX = late(
    rb" {0,8}(?:\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] (?:"
    + _COMPONENT
    + rb"|"
    + _CALLER
    + rb")?|(?:[IWED] )?"
    + _COMPONENT
    + rb")"
)
"""What comes before the text of a server's line, with a clock or a component: without them it may be a user's."""

_HEADER_FIELD = late(rb"(cch|cc_[a-z_]{1,32})=([^;\s\"\\]{1,128})")
_HEADER = late(rb"(?:" + _HEADER_FIELD.pattern + rb"[; \",]*)+")
"""A client's billing header: readers need to see which of its values differ."""


class FieldSpan(NamedTuple):
    """A value in a line; offsets count from the start of the line."""

    name: str
    kind: str
    start: int
    end: int


class LineRedactor:
    """Writes the lines of one log."""

    def __init__(self, tokens: StandInNames, printed: Printed, shaped: Callable[[bytes], bool]) -> None:
        """``shaped``: whether a line looks like a server's line to the code that removes wrappers."""
        self._tokens = tokens
        self._printed = printed
        self._shaped = shaped

    def known(self, line: bytes, at: int, end: int, message: str, spans: Sequence[FieldSpan]) -> bytes:
        """Write a line whose message begins at ``at`` and is understood up to ``end``.

        ``message`` is empty if the line only begins like one.
        """
        parts, done, others = [_NAME.sub(self._function, line[:at])], at, 0
        for span in spans:
            if span.kind == OTHER:
                others += 1
                parts += line[done : span.start], b"other_%d = 0" % others
                done = span.end
                continue
            if span.kind in PLAIN and span.end - span.start <= DIGITS_MAX and line[span.end - 1 : span.end] != b")":
                continue
            parts.append(line[done : span.start])
            parts.append(self._value(message, span, line[span.start : span.end]))
            done = span.end
        parts.append(line[done:end])
        if line[end:].strip():
            blank = b"" if not message and not line[end : end + 1].isspace() else b" "
            parts.append(blank + (self._tokens.give("text", line[end:]) if message else UNKNOWN))
        return b"".join(parts)

    def unknown(self, line: bytes) -> bytes:
        """Write a line that no message explains: its clock and the function that printed it, nothing else."""
        if not line.strip():
            return b""
        found = _PREFIX.match(line)
        prefix = b"" if found is None else found[0]
        kept = _NAME.sub(self._function, prefix) + (UNKNOWN if line[len(prefix) :].strip() else b"")
        if self._shaped(line) and not self._shaped(kept):
            return b"init: " + UNKNOWN  # whether the line belongs to a server decides how those around it are read
        return kept

    def names(self, prefix: bytes) -> bytes:
        """Write what comes before a message, without names of functions that are not the server's."""
        return _NAME.sub(self._function, prefix)

    def value(self, message: str, name: str, kind: str, raw: bytes) -> bytes:
        """Write a value of a message."""
        if kind in PLAIN and len(raw) <= DIGITS_MAX and not raw.endswith(b")"):
            return raw
        return self._value(message, FieldSpan(name, kind, 0, len(raw)), raw)

    def hidden(self, text: bytes) -> bytes:
        """Write what a user may have written."""
        return self._tokens.give("text", text)

    def _function(self, found: re.Match[bytes]) -> bytes:
        name = found[0]
        behind_file = found.string[found.start() - 1 : found.start()] == b":"
        if name in FUNCTIONS or (behind_file and name.isdigit() and len(name) < 6):
            return name
        if b"/" in name or b"\\" in name or b"." in name:
            return self._tokens.give("path", name)
        return _LIBRARY if self._shaped(name + b": ") else _FUNCTION  # it decides how wrappers around it are read

    def _value(self, message: str, span: FieldSpan, raw: bytes) -> bytes:
        if span.kind in PLAIN and b"(" in raw:
            return b"nan"  # Windows prints -nan(ind)
        if message in ("diff_old", "diff_new") and span.kind == "text":
            return self._printed.rewrite(raw.decode("utf-8", "replace"), self._tokens).encode()
        if message == "client_header":
            return _HEADER_FIELD.sub(self._header_field, raw) if _HEADER.fullmatch(raw) else self.hidden(raw)
        return replaced(message, span.name, span.kind, raw, self._tokens)

    def _header_field(self, found: re.Match[bytes]) -> bytes:
        return (found[1] if found[1] in HEADER_FIELDS else b"cc_field") + b"=" + self._tokens.give("text", found[2])
