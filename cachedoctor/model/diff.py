"""The difference of two prompts. Knows no engine, no rule, no file."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.model.bounds import Long

Op = Literal["equal", "replace", "insert", "delete", "move"]


class Advice(msgspec.Struct):
    """What to do about a difference, and commands that can be copied."""

    text: str
    commands: list[str] = msgspec.field(default_factory=list)


class Side(msgspec.Struct):
    """One of the two prompts in numbers."""

    path: str
    kind: str
    chars: Long
    """Code points."""
    tokens: Long


class First(msgspec.Struct):
    """The first difference."""

    token: Long
    """Index of the first differing token: the length of the common prefix in tokens."""
    char: Long
    """Offset of the first differing code point of the rendered prompt."""
    line: Long
    column: Long
    place: str | None
    """Path in the request, ``system[0].text``."""
    kind: str
    """Name of the recogniser that knew it: ``billing-header``, ``timestamp``, ..."""
    field: str | None
    """What varies in it: ``cch``."""
    a: str
    b: str
    """The few differing tokens as text."""
    advice: list[Advice]


class Excerpt(msgspec.Struct):
    """Text around the first difference, for people."""

    before: str
    a: str
    b: str
    after_a: str
    after_b: str


class Edit(msgspec.Struct):
    """One step of a script; ranges count tokens, from and to.

    A script is read in the order of B: its ``b`` ranges follow each other without a gap. Its ``a`` ranges cover A
    without gap or overlap, and rise except at a ``move``, which stands where the block is in B and names where it was
    in A (nothing stands where it was). To get B, take ``a`` of equal and move, ``b`` of insert and replace.
    """

    op: Op
    a: tuple[int, int]
    b: tuple[int, int]


class PromptDiff(msgspec.Struct):
    """The answer of ``cachedoctor diff``."""

    equal: bool
    a: Side
    b: Side
    tokenizer: str
    exact: bool
    """Token counts are the model's own."""
    first: First | None
    explanation: str
    """What the first difference is, in words."""
    sure: bool
    common_prefix_tokens: int
    common_suffix_tokens: int
    reusable: dict[str, int]
    """Tokens the server can reuse, by kind of memory: attention, swa, hybrid."""
    edits: list[Edit] | None
    """Only when the whole difference was asked for."""
    summary: str | None
    """What the edits amount to, in words."""
    excerpt: Excerpt | None
