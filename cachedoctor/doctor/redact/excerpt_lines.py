"""Rewrites lines that only the lenient reader of excerpts understands, and the head of a pasted issue."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.doctor.analysis.intake import BROKEN_BYTES, BROKEN_LINES, EXCERPT_BYTES, EXCERPT_LINES
from cachedoctor.engines.catalogue.base import HOLE
from cachedoctor.engines.llamacpp.excerpts import (
    CLEARED,
    LINE_MAX,
    REFUSED,
    ExcerptReader,
    ExcerptRecord,
    Fitted,
    leading,
    parts,
    plain_of,
)
from cachedoctor.engines.llamacpp.pasted_issue import FENCE, read_issue
from cachedoctor.engines.llamacpp.printed_text import CHANGED
from cachedoctor.engines.llamacpp.tracker import PLAN, catalogue, fork_lines, of_fork
from cachedoctor.inputs.envelope.shapes import are_broken
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import GivenOption, Segment
from cachedoctor.redaction.known_words import TYPES
from cachedoctor.redaction.redact_lines import UNKNOWN, LineRedactor
from cachedoctor.redaction.stand_ins import StandInNames

_QUOTE = late(rb"[> \t]*")


def with_issue(lines: list[bytes], written: list[bytes], tokens: StandInNames) -> list[bytes]:
    """Return the lines ``written`` for ``lines``, an excerpt, with what its issue says where nothing was left of it."""
    if len(lines) != len(written):
        return written  # a document of records, which holds no issue
    issue, out = read_issue(lines), list(written)
    kept: dict[int, bytes] = {at: fence[0] for at, line in enumerate(lines) if (fence := FENCE.match(line))}
    if issue.build is not None and issue.build_at is not None:
        kept[issue.build_at] = b"version: %d (0000000)" % issue.build
    if issue.given and issue.given_at is not None:
        kept[issue.given_at] = b"$ " + _command(issue.given, tokens)
    for at, text in kept.items():
        if UNKNOWN in out[at]:
            quote = _QUOTE.match(lines[at])
            out[at] = text if text.startswith((b">", b" ", b"\t")) or quote is None else quote[0] + text
    return out


def _command(given: list[GivenOption], tokens: StandInNames) -> bytes:
    """A command line with these options, and no other."""
    variables = [_variable(one, tokens) for one in given if one.env]
    return b" ".join([*variables, b"llama-server", *(_option(one, tokens) for one in given if not one.env)])


def _variable(one: GivenOption, tokens: StandInNames) -> bytes:
    return one.written.encode() + b"=" + _value(one, tokens)


def _option(one: GivenOption, tokens: StandInNames) -> bytes:
    written, name = one.written.encode(), server_options.plain(one.written)
    if name in server_options.NEVER:
        return written  # its number is read by nobody
    option, _, on = server_options.BY_NAME[name]
    return written if option.kind == "switch" or not on else written + b" " + _value(one, tokens)


def _value(one: GivenOption, tokens: StandInNames) -> bytes:
    value = one.value
    if value is None:
        return b"<text>"  # not read either
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return f"{value:.18f}".rstrip("0").encode() + b"0"
    raw = value.encode("utf-8", "surrogateescape")
    return raw if raw in TYPES else tokens.give("path", raw) or b"<path>"


_WORDS = {
    CLEARED.id: b"could not remove tokens from position %d, resetting slot memory",
    REFUSED.id: b"failed to restore a checkpoint (pos_max = %d)",
}
"""Known wording in place of a fork's unknown wording; it is read the same way."""
_VALUES = {
    "date or time": (b"2026-01-01", b"2026-01-02"),
    "UUID": (b"00000000-0000-0000-0000-000000000000", b"11111111-1111-1111-1111-111111111111"),
    "random id": (b"0a0a0a0a", b"1b1b1b1b"),
}
"""Placeholders of a value that changed in a diff of two prompts, by its kind."""
_STATED = UNKNOWN + b" failed"
"""In place of a slot's statement in unknown words that is not judged."""


class ExcerptBuffer:
    """Holds back the bytes of an input until it shows that it is more than an excerpt."""

    def __init__(self) -> None:
        self._held: list[bytes] | None = []
        self._lines = self._bytes = 0
        self._broken: bool | None = None
        """Whether a terminal broke its lines; None before there are enough."""

    def take(self, chunk: bytes) -> bytes:
        """Take bytes; give those that are to be read by now."""
        if self._held is None:
            return chunk
        self._held.append(chunk)
        self._lines += chunk.count(b"\n")
        self._bytes += len(chunk)
        if self._lines <= EXCERPT_LINES and self._bytes <= EXCERPT_BYTES:
            return b""
        if self._broken is None:
            self._broken = are_broken([row.rstrip(b"\r") for row in self._first().split(b"\n")[:-1][:EXCERPT_LINES]])
        more = not self._broken or self._lines > BROKEN_LINES or self._bytes > BROKEN_BYTES
        return self.release() if more else b""

    def _first(self) -> bytes:
        return b"".join(self._held or [])[:EXCERPT_BYTES]

    def quiet(self) -> bytes:
        """The live input fell silent: give what is held.

        Where nothing has come yet, an excerpt may still come.
        """
        return self.release() if self._held else b""

    def release(self) -> bytes:
        """Give what is held; from now on nothing is."""
        held, self._held = self._held or [], None
        return b"".join(held)


class ExcerptLines:
    """The lines of one excerpt."""

    def __init__(self, lines: LineRedactor, *, fork: bool) -> None:
        """``fork``: a fork of llama-server wrote them."""
        self._catalogue = fork_lines() if fork else catalogue()
        self._reader = ExcerptReader(self._catalogue, of_fork(PLAN) if fork else PLAN)
        self._lines = lines

    def write(self, data: bytes, others: frozenset[int], write: Callable[[bytes], bytes]) -> bytes:
        """Write lines of which a lenient reader may understand more than ``write``, which takes them as they stand.

        Args:
            data: lines, each with its newline.
            others: indexes of those that another program wrote.
            write: gives as many lines as it takes.
        """
        lines = data.removesuffix(b"\n").split(b"\n")
        found = [r for r in self._reader.records(Segment(None, data, 1), lines) if r.mended or r.event or r.unknown]
        found = [r for r in found if others.isdisjoint(range(r.at, r.at + r.used))]
        plain = list(lines)
        for record in found:
            plain[record.at : record.at + record.used] = [record.text, *[b""] * (record.used - 1)]
        written = write(b"\n".join(plain) + b"\n").removesuffix(b"\n").split(b"\n")
        for record in found:
            span = slice(record.at, record.at + record.used)
            written[span] = self._record(record, lines[span], written[span])
        for at, pieces in parts(lines, self._catalogue).items():
            written[at] = b" ".join(write(b"\n".join(pieces) + b"\n").removesuffix(b"\n").split(b"\n"))
        return b"\n".join(written) + b"\n"

    def _record(self, record: ExcerptRecord, lines: list[bytes], written: list[bytes]) -> list[bytes]:
        """The lines of a record; ``written``: as they were written without a lenient reader."""
        event, blank = record.event, [b""] * (record.used - 1)
        if record.unknown:
            return [written[0].replace(UNKNOWN, _STATED)]
        if event is not None and event.row in (CLEARED, REFUSED):
            known = self._lines.unknown(plain_of(lines[0]))
            return [known.replace(UNKNOWN, _WORDS[event.message] % next(iter(event.fields.values())))]
        if event is not None and event.row is CHANGED:
            was, is_now = _VALUES[event.fields["kind"]]
            hunk = b"@@ -%d +%d @@" % (event.fields["place"], event.fields["place"])
            return [hunk, b"-" + was, b"+" + is_now, *[b""] * (record.used - 3)]
        if event is not None:
            fitted = self._reader.fitted(event.text)
            return [UNKNOWN if fitted is None else self._fitted(fitted), *blank]
        if written[0] == record.text and max(map(len, lines)) < LINE_MAX:
            return lines  # nothing in it had to be hidden
        return [leading(lines[0]) + written[0], *blank]

    def _fitted(self, fitted: Fitted) -> bytes:
        row, hit = fitted.hit.row, fitted.hit
        kinds = dict(HOLE.findall(row.template))
        values = hit.fields[1:] if row.has_func else hit.fields
        out, at, left_out = [self._lines.names(fitted.prefix)], hit.start, False
        literal = row.pieces()[0][0] if values else row.words
        for number, (name, raw) in enumerate(values):
            literal = row.pieces()[number][0]
            if raw is None:
                left_out = True
                continue
            out.append(b" ... " + literal.lstrip(" ,").encode() if left_out else literal.encode())
            out.append(self._lines.value(row.id, name, kinds[name], raw))
            at, left_out = fitted.text.find(raw, at) + len(raw), False
        if values and values[-1][1] is not None:
            literal = row.words
        elif values:
            missing = next(number for number in range(len(values)) if all(raw is None for _, raw in values[number:]))
            literal = row.pieces()[missing][0]
        return b"".join(out) + self._end(fitted, literal.encode(), fitted.text[at:])

    def _end(self, fitted: Fitted, literal: bytes, rest: bytes) -> bytes:
        """What comes after the last value: as much as is there of the ``literal`` that the server prints there."""
        said, there = b" ".join(literal.split()), b" ".join(rest.split())
        if said.startswith(there):
            return rest.rstrip()
        if not fitted.reading.cut or there.startswith(said):
            return literal + (b" " + self._lines.hidden(fitted.hit.more) if fitted.hit.more else b"")
        return literal if fitted.hit.fields[-1][1] is not None else b" ..."
