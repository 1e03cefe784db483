"""The JSON diff, ``cachedoctor.diff/1``: frozen wire form.

These structs are the contract: docs/schemas/diff-v1.schema.json is made from them. Only additions are allowed here.
"""

from __future__ import annotations

from typing import IO, Literal

import msgspec
from msgspec import UNSET, UnsetType

from cachedoctor.model import Edit, First, PromptDiff, RequestSetting, Side
from cachedoctor.model.bounds import Amount, Text
from cachedoctor.model.diff import LeastChange
from cachedoctor.redaction import sanitize


class DiffTool(msgspec.Struct):
    """Program that wrote the document."""

    name: Literal["cachedoctor"]
    version: Text


class TokenizerRow(msgspec.Struct):
    """Tokenizer that counted the tokens."""

    name: Text
    """Name of the tokenizer. pieces: no tokenizer was given, so words and punctuation count as tokens."""
    exact: bool
    """True if the counts come from the model's own tokenizer. False without a tokenizer, and for chat bodies that were
    not rendered with a chat template."""


class Reusable(msgspec.Struct):
    """Tokens of b that a server with a in its cache can reuse, by kind of memory (docs/diff.md lists the
    assumptions)."""

    attention: Amount
    swa: Amount
    hybrid: Amount


class DiffDocument(msgspec.Struct):
    """The difference of two prompts, as ``cachedoctor diff --format json`` writes it. Several pairs (consecutive
    prompts, or dumps of several slots) are written as one object per line."""

    schema: Literal["cachedoctor.diff/1"]
    tool: DiffTool
    equal: bool
    """True if the rendered prompts are equal, including images."""
    a: Side
    """The older prompt, which the server has in its cache."""
    b: Side
    """The newer prompt."""
    tokenizer: TokenizerRow
    first: First | None
    """The first difference; None only if the prompts are equal."""
    common_prefix_tokens: Amount
    """Tokens equal at the start, including a begin-of-text token that the server adds."""
    common_suffix_tokens: Amount
    """Tokens equal at the end, without tokens of the common prefix."""
    reusable: Reusable
    edits: list[Edit] | UnsetType = UNSET
    """Only with --full: the steps that turn a into b. The ranges of b have no gaps."""
    settings: list[RequestSetting] | UnsetType = UNSET
    """Other differences between the requests that affect what a cache can reuse: salts, adapters, images. Only if there
    are any."""
    alone: list[Side] | UnsetType = UNSET
    """Prompts of the input that were not compared, because the input has no other prompt of their conversation. Only in
    the last object, if there are any."""
    notes: list[Text] | UnsetType = UNSET
    """Parts of the prompts that the recordings do not contain, and that were not compared. Only in the last object, if
    there are any."""
    least: LeastChange | UnsetType = UNSET
    """Only with --least: the smallest set of changes that restores reuse."""


FIRST_UNLESS_EQUAL = {
    "allOf": [
        {
            "if": {"properties": {"equal": {"const": True}}},
            "then": {"properties": {"first": {"type": "null"}}},
            "else": {"properties": {"first": {"type": "object"}}},
        }
    ]
}
"""Guarantees of the diff contract that types cannot express."""


def document(diff: PromptDiff, version: str) -> DiffDocument:
    """Give the diff in the order and with the names of the contract."""
    return DiffDocument(
        "cachedoctor.diff/1", DiffTool("cachedoctor", version), diff.equal, diff.a, diff.b,
        TokenizerRow(diff.tokenizer, diff.exact), diff.first, diff.common_prefix_tokens, diff.common_suffix_tokens,
        Reusable(**diff.reusable), UNSET if diff.edits is None else diff.edits, diff.settings or UNSET,
        diff.alone or UNSET, diff.notes or UNSET, UNSET if diff.least is None else diff.least,
    )  # fmt: skip


def render(diffs: list[PromptDiff], out: IO[bytes], version: str) -> None:
    """Write one diff as one object, several as JSON lines."""
    for diff in diffs:
        out.write(msgspec.json.encode(document(sanitize.mask(diff), version)) + b"\n")
