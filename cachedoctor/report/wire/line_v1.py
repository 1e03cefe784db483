"""The explanation of a line as JSON, ``cachedoctor.line/1``: frozen wire form, one object per line.

These structs are the contract: docs/schemas/line-v1.schema.json is made from them. Only additions are allowed here.
What is unknown or was cut off is null.
"""

from __future__ import annotations

from typing import IO, Annotated, Literal

import msgspec

from cachedoctor.model import Explanation, Line, Part, Wording
from cachedoctor.model.bounds import LineNumber, Positive, Text
from cachedoctor.redaction import sanitize


class LineTool(msgspec.Struct):
    """Program that wrote the document."""

    name: Literal["cachedoctor"]
    version: Text


class FieldRow(msgspec.Struct):
    """A value in the message."""

    name: str
    """Name in the catalogue."""
    label: str
    """Name as printed before the value, or the name in the catalogue if the line prints no name."""
    text: str | None
    """Value as printed; None if the line is truncated before its end."""
    unit: str | None
    """Unit of the value; None for text."""
    meaning: str
    here: str | None
    """Meaning of this particular value, if the value is not a plain number."""


class Builds(msgspec.Struct):
    """Builds of llama.cpp in which this wording was seen. For an engine with versions, a version is the number minor *
    100 + patch: 0.10.2 is 1002. The same holds for ``levels`` and ``other_wordings``."""

    first: Positive
    last: Positive
    words: str


class LevelRow(msgspec.Struct):
    """Builds that print the message at one level."""

    first: Positive
    last: Positive
    level: str
    shown: str
    """Whether the message is printed by default, or with which option."""


class Versions(msgspec.Struct):
    """Versions in which this wording was seen, of engines that have versions instead of builds."""

    program: str
    """Program that the versions belong to: `vLLM`, `SGLang`, or `LMCache` inside vLLM."""
    first: str
    last: str


class ReadingRow(msgspec.Struct):
    """A message, and its meaning."""

    message: str
    """Id of the message, the same for all wordings."""
    meaning: str
    """What the message shows about the prompt cache."""
    text: str
    """The message without wrapper and prefix."""
    origin: str | None
    """Server that the wrapper names: a router's port, a compose service."""
    parts: list[Part]
    """Parts of the line before the message."""
    fields: list[FieldRow]
    builds: Builds
    levels: Annotated[list[LevelRow], msgspec.Meta(min_length=1)]
    analyzed: bool
    """Whether `cachedoctor analyze` reads this message."""
    sample: str
    """Example of the line, as a server printed it."""
    other_wordings: list[Wording]
    cut: bool
    """True if the line ends before the end of the message."""
    undecided: bool
    """True if the truncated line also matches other wordings."""
    unknown_tail: str | None
    """Text after the message that no known build prints."""
    engine: str
    """Engine that wrote the line: `llama.cpp`, `vllm` or `sglang`."""
    versions: Versions | None
    """Versions in which the wording was seen; None for llama.cpp."""


class LineDocument(msgspec.Struct):
    """The meaning of one log line, as ``cachedoctor explain --line LINE --format json`` writes it; for several lines,
    one object per line."""

    schema: Literal["cachedoctor.line/1"]
    tool: LineTool
    line: LineNumber
    """1-based line number in the input."""
    text: str
    """The line without its wrapper."""
    readings: list[ReadingRow]
    """Possible meanings of the line: none if the line is unknown, several if the line is ambiguous."""
    nearest: str | None
    """If the line is not recognised: the start of the most similar known message."""


def document(line: Line, version: str) -> LineDocument:
    """Give the line in the order and with the names of the contract."""
    readings = [_reading(explanation) for explanation in line.explanations]
    tool = LineTool("cachedoctor", version)
    return LineDocument("cachedoctor.line/1", tool, line.number, line.text, readings, line.nearest or None)


def _reading(e: Explanation) -> ReadingRow:
    versions = Versions(e.program, e.named(e.first), e.named(e.last)) if e.program != "llama.cpp" else None
    return ReadingRow(
        e.message, e.meaning, e.text, e.origin, e.parts,
        [FieldRow(f.name, f.label, f.text, f.unit or None, f.meaning, f.here or None) for f in e.fields],
        Builds(e.first, e.last, e.builds), [LevelRow(v.first, v.last, v.level, v.shown) for v in e.levels],
        e.analyzed, e.sample, e.others, e.cut, e.undecided, e.more or None, e.engine, versions,
    )  # fmt: skip


def render(line: Line, out: IO[bytes], version: str) -> None:
    """Write one object and a newline."""
    out.write(msgspec.json.encode(document(sanitize.mask(line), version)) + b"\n")
