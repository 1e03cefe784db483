"""The explanation of a line as JSON, ``cachedoctor.line/1``: frozen wire form, one object per line.

Only additions are allowed here. What is unknown or was cut off is null.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec

from cachedoctor.model import Explanation, Line
from cachedoctor.report import quoted

SCHEMA = "cachedoctor.line/1"


def as_dict(line: Line, version: str) -> dict[str, Any]:
    """Give the line in the order and with the names of the contract."""
    return {
        "schema": SCHEMA,
        "tool": {"name": "cachedoctor", "version": version},
        "line": line.number,
        "text": line.text,
        "readings": [_reading(e) for e in line.explanations],
        "nearest": line.nearest or None,
    }


def _reading(e: Explanation) -> dict[str, Any]:
    return {
        "message": e.message,
        "meaning": e.meaning,
        "text": e.text,
        "origin": e.origin,
        "parts": [{"text": p.text, "meaning": p.meaning} for p in e.parts],
        "fields": [
            {
                "name": f.name,
                "label": f.label,
                "text": f.text,
                "unit": f.unit or None,
                "meaning": f.meaning,
                "here": f.here or None,
            }
            for f in e.fields
        ],
        "builds": {"first": e.first, "last": e.last, "words": e.builds},
        "levels": [{"first": v.first, "last": v.last, "level": v.level, "shown": v.shown} for v in e.levels],
        "analyzed": e.analyzed,
        "sample": e.sample,
        "other_wordings": [{"first": o.first, "last": o.last, "text": o.text} for o in e.others],
        "cut": e.cut,
        "undecided": e.undecided,
        "unknown_tail": e.more or None,
        "engine": e.engine,
        "versions": None
        if e.program == "llama.cpp"
        else {"program": e.program, "first": e.named(e.first), "last": e.named(e.last)},
    }


def render(line: Line, out: IO[bytes], version: str) -> None:
    """Write one object and a newline."""
    out.write(msgspec.json.encode(as_dict(quoted.line(line), version)) + b"\n")
