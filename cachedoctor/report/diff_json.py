"""The JSON diff, ``cachedoctor.diff/1``: frozen wire form.

Knows the contract (docs/schemas/diff-v1.schema.json). Only additions are allowed here.
"""

from __future__ import annotations

from typing import IO, Any

import msgspec

from cachedoctor.model import PromptDiff
from cachedoctor.report import quoted

SCHEMA = "cachedoctor.diff/1"


def as_dict(diff: PromptDiff, version: str) -> dict[str, Any]:
    """Give the diff in the order and with the names of the contract."""
    first = diff.first
    out: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": {"name": "cachedoctor", "version": version},
        "equal": diff.equal,
        "a": diff.a,
        "b": diff.b,
        "tokenizer": {"name": diff.tokenizer, "exact": diff.exact},
        "first": None
        if first is None
        else {
            "token": first.token,
            "char": first.char,
            "line": first.line,
            "column": first.column,
            "place": first.place,
            "kind": first.kind,
            "field": first.field,
            "a": first.a,
            "b": first.b,
            "advice": first.advice,
        },
        "common_prefix_tokens": diff.common_prefix_tokens,
        "common_suffix_tokens": diff.common_suffix_tokens,
        "reusable": diff.reusable,
    }
    if diff.edits is not None:
        out["edits"] = diff.edits
    return out


def render(diffs: list[PromptDiff], out: IO[bytes], version: str) -> None:
    """Write one diff as one object, several as JSON lines."""
    for diff in diffs:
        out.write(msgspec.json.encode(as_dict(quoted.diff(diff), version)) + b"\n")
