"""Redacts a log: the stages from chunks to lines that can be shown, and a count of unknown lines by shape."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import IO

from cachedoctor.diagnosis.rules.client.cd102_volatile_prefix import volatile_kind
from cachedoctor.diagnosis.rules.client.changes import header_field, stands_inside
from cachedoctor.doctor.analysis.intake import BEGIN, Blocks
from cachedoctor.doctor.analysis.run import source_of
from cachedoctor.doctor.redact import rewrite
from cachedoctor.doctor.redact.excerpt_lines import ExcerptBuffer, ExcerptLines, with_issue
from cachedoctor.doctor.redact.rewrite import EngineLineRewriter
from cachedoctor.doctor.redact.scan import EngineLines, ProgramLines
from cachedoctor.doctor.scratch import printable
from cachedoctor.engines.catalogue.spans import RecognisedLine, Spans
from cachedoctor.engines.detect import certain_literals
from cachedoctor.engines.llamacpp.tracker import fork_lines
from cachedoctor.engines.programs import ik_llama
from cachedoctor.engines.sentences import harmless
from cachedoctor.inputs.envelope import Documents, Rewriter, is_shaped
from cachedoctor.inputs.sources.base import SourceError
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import UnknownShape
from cachedoctor.redaction.redact_lines import BAR, FIELDS, OTHER_FIELD, UNKNOWN, FieldSpan, LineRedactor, Printed
from cachedoctor.redaction.secrets import hidden
from cachedoctor.redaction.stand_ins import StandInNames

_NUMBER = late(rb"\d+(?:\.\d+)*")
_BLANKS = late(rb"[ \t]+")
_MOST, _LONGEST = 512, 160
"""Number of shapes that are distinguished, and characters of one."""


class UnknownLines:
    """Reads what an analysis reads."""

    def __init__(self) -> None:
        self._redactor: Redactor | None = None
        self._path, self._line = "", 0
        self._found: dict[str, UnknownShape] = {}

    def open(self, path: str) -> None:
        """Begin an input."""
        self.close()
        self._redactor, self._path, self._line = Redactor(), printable(path), 0

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the open input, cut anywhere."""
        if self._redactor is not None:
            self._take(self._redactor.feed(chunk))

    def idle(self) -> None:
        """The live input fell silent."""
        if self._redactor is not None:
            self._take(self._redactor.quiet())

    def close(self) -> None:
        """End of the open input."""
        if self._redactor is not None:
            self._take(self._redactor.finish())
        self._redactor = None

    def shapes(self) -> list[UnknownShape]:
        """Give the shapes, the most frequent first."""
        return sorted(self._found.values(), key=lambda one: -one.count)

    def _take(self, lines: bytes) -> None:
        for line in lines.removesuffix(b"\n").split(b"\n") if lines else ():
            self._line += 1
            if UNKNOWN in line:
                self._count(line)

    def _count(self, line: bytes) -> None:
        plain = _BLANKS.sub(b" ", _NUMBER.sub(b"N", line.strip())).decode("ascii", "replace")
        shape = hidden(plain)[:_LONGEST]
        if shape not in self._found and len(self._found) >= _MOST:
            shape = UNKNOWN.decode()
        found = self._found.setdefault(shape, UnknownShape(shape, 0, self._path, self._line))
        found.count += 1


class Redactor:
    """Takes a log in chunks cut anywhere, gives the redacted log with as many lines. Memory is bounded."""

    def __init__(self) -> None:
        self._tokens = StandInNames()
        self._spans = Spans(fork_lines())
        self._lines = LineRedactor(self._tokens, Printed(facts), is_shaped)
        self._logged = EngineLines()
        self._rewriting = EngineLineRewriter(self._tokens)
        self._of_programs = ProgramLines()
        self._rewriter = Rewriter(self._bodies, self._name)
        self._documents = Documents()
        self._blocks = Blocks()
        self._held = ExcerptBuffer()
        self._excerpt: ExcerptLines | None = None
        self.begin = b""
        """First bytes of the input."""
        self.lines = 0
        """Lines read."""
        self.recognised = 0
        """Lines, without their wrappers, that are messages of the server."""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes; give the lines that are finished.

        None before it is known whether it is an excerpt.
        """
        self.begin = self.begin or chunk[:BEGIN]
        return self._read(self._held.take(chunk))

    def quiet(self) -> bytes:
        """The live input fell silent: give what was held."""
        return self._read(self._held.quiet())

    def _read(self, chunk: bytes) -> bytes:
        return self._block(self._blocks.feed(self._documents.feed(chunk))) if chunk else b""

    def finish(self) -> bytes:
        """The input ended: give the rest."""
        excerpt = self._held.release()
        if excerpt:
            self._excerpt = ExcerptLines(self._lines, fork=ik_llama.PROGRAM.looks.search(excerpt) is not None)
        rest = self._read(excerpt)
        rest += self._block(self._blocks.feed(self._documents.finish()))
        rest += self._block(self._blocks.finish()) + self._rewriter.flush()
        return b"\n".join(with_issue(excerpt.split(b"\n"), rest.split(b"\n"), self._tokens)) if excerpt else rest

    def replaced(self) -> dict[str, int]:
        """How many different secrets of each kind were replaced."""
        return dict(self._tokens.counts)

    def _block(self, block: bytes) -> bytes:
        self.lines += block.count(b"\n")
        return self._rewriter.feed(block) if block else b""

    def _name(self, kind: str, secret: bytes) -> bytes:
        return self._tokens.name(kind, secret)

    def _bodies(self, data: bytes) -> bytes:
        if self._excerpt is None:
            return self._written(data)
        text, lines = b"\n" + data, data.count(b"\n")
        by_others = {**self._logged.read(text), **self._of_programs.read(text)}
        others = {text.count(b"\n", 1, at) for at, (_, found) in by_others.items() if found.row is not None}
        return self._excerpt.write(data, frozenset(others) & frozenset(range(lines)), self._written)

    def _written(self, data: bytes) -> bytes:
        text = b"\n" + data
        logged, printed = self._logged.read(text), self._of_programs.read(text)
        own = {found.start: found for found in self._spans.read(text)}
        has_certain = bool(certain_literals(text, text))
        out: list[bytes] = []
        at = 1
        while at < len(text):
            stop = text.find(b"\n", at)
            found, other, small = own.get(at), logged.get(at), printed.get(at)
            if other is not None and _is_better(other[1], found):
                self.recognised += other[1].row is not None
                out.append(self._rewriting.write(text, *other))
            elif small is not None and _is_better(small[1], found):
                self.recognised += small[1].row is not None
                out.append(rewrite.write(text, *small, self._tokens))
            elif found is not None:
                out.append(self._known(text[at:stop], found))
            else:
                certain = harmless(text[at:stop]) if has_certain else None
                self.recognised += certain is not None
                out.append(self._lines.unknown(text[at:stop]) if certain is None else certain)
            at = stop + 1
        return b"\n".join(out) + b"\n"

    def _known(self, line: bytes, found: RecognisedLine) -> bytes:
        self.recognised += found.row is not None
        start = found.start
        spans = [FieldSpan(h.name, h.kind, h.start - start, h.end - start) for h in found.holes]
        name = "" if found.row is None else found.row.id
        return self._lines.known(line, found.message - start, found.end - start, name, spans)


def _is_better(other: RecognisedLine, own: RecognisedLine | None) -> bool:
    """Whether a line is rather another engine's than llama-server's."""
    return own is None or (own.row is None and other.row is not None)


def facts(text: str) -> Hashable:
    """Return all that the rules read in the text of an ``old:`` or ``new:`` line, each by itself.

    A rule compares the two texts of a request; here each is compared with a text that leaves the answer to it.
    """
    field = header_field(text)
    probe: Callable[[str, str], str | None] = volatile_kind
    return (
        BAR in text,
        field is None and BAR in text and bool(text.partition(BAR)[0].strip(" .")),
        OTHER_FIELD if field and field not in FIELDS else field,
        field == "" and stands_inside(text),
        probe(f"x{BAR}0", text),
        probe(text, f"date:{BAR}0") is not None,
        probe(text, f"x{BAR}0"),
    )


def redact_to(path: str, redactor: Redactor, out: IO[bytes], max_unpacked: int) -> SourceError | None:
    """Write the redacted log, live as it arrives; returns the error that stopped the input, or None."""
    stopped = None
    try:
        for chunk in source_of(path, max_unpacked).chunks():
            out.write(redactor.feed(chunk) if chunk else redactor.quiet())
            if not chunk:
                out.flush()
    except SourceError as error:
        stopped = error
    out.write(redactor.finish())
    return stopped
