"""Writes the lines of the small programs around llama.cpp anew for ``redact``: prefix, message, values."""

from __future__ import annotations

from cachedoctor.doctor.redact.scan import ProgramReader
from cachedoctor.engines.catalogue.spans import Recognised
from cachedoctor.redact import holes_programs
from cachedoctor.redact.holes import DIGITS_MAX, PLAIN
from cachedoctor.redact.redact_lines import UNKNOWN
from cachedoctor.redact.tokens import Tokens


def write(data: bytes, reader: ProgramReader, found: Recognised, tokens: Tokens) -> bytes:
    """Write a line anew; of one that only begins like a message the begin stays."""
    parts = [holes_programs.prefix(data[found.start : found.message], reader.before, tokens)]
    done, rest = found.message, data[found.end : found.stop]
    for hole in found.holes:
        raw = data[hole.start : hole.end]
        if hole.kind in PLAIN and len(raw) <= DIGITS_MAX and not raw.endswith(b")"):
            continue
        parts += [data[done : hole.start], holes_programs.replaced(hole.name, hole.kind, raw, tokens)]
        done = hole.end
    parts.append(data[done : found.end])
    if rest.strip():
        parts.append(b" " + (UNKNOWN if found.row is None else tokens.give("text", rest)))
    return b"".join(parts)
