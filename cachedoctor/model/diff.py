"""The difference of two prompts."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cachedoctor.model.bounds import Amount, LineNumber, Long, Text

Op = Literal["equal", "replace", "insert", "delete", "move"]


_INPUTS = [
    "text", "slots", "openai-chat", "openai-completion", "openai-responses", "anthropic-messages", "llama-infill",
    "prompt-dump",
]  # fmt: skip
DIFFERENCES = [
    "billing-header", "timestamp", "uuid", "random-id", "counter", "path", "git-state", "json-key-order",
    "json-spacing", "tool-added", "tool-removed", "tools-reordered", "tool-edited", "reasoning-dropped",
    "reasoning-added", "message-edited", "message-removed", "message-inserted", "message-moved", "front-truncated",
    "compacted", "whitespace", "retokenised", "image", "template", "special-token", "appended", "other",
    "system-hoisted", "mode-switched", "compaction-request", "cache-salt", "adapter",
]  # fmt: skip
"""Kinds of a first difference."""


OWN_VERDICT = "own verdict"
"""Value of ``RequestSetting.place`` for an agent's own statement of why less was reused."""


class Advice(msgspec.Struct):
    """What to do about a difference, and commands that can be copied."""

    text: Text
    commands: list[Text] = msgspec.field(default_factory=list)


class KnownClient(msgspec.Struct):
    """A program that is known to write the text that differs (docs/clients.md)."""

    title: Text
    """Usual name of the program: ``Claude Code``."""
    habit: Text
    """Row of docs/clients.md: ``claude-code/billing-header``."""
    writes: Text
    """What the program writes, as the predicate of a sentence that begins with the title."""
    fixed: str | None
    """First version that no longer writes this text; None if no such version is known."""
    sources: list[Text]
    """Threads, changelogs and source files that prove that the program writes this text."""


class RequestSetting(msgspec.Struct):
    """A difference between the two requests that is not in the prompt, but affects the cache."""

    place: Text
    """Path in the request: ``cache_salt``, ``lora``, ``lora_path``, ``model``, ``images[2]``. ``own verdict`` is not a
    field of the request, but the reason that the agent itself gives for less reuse."""
    a: str
    """Value of the setting, or length and hash of the value; empty if the request has no such setting."""
    b: str
    words: Text
    """What the difference means for the cache."""


class Side(msgspec.Struct):
    """One of the two prompts in numbers."""

    path: Text
    """Path as given, with #N for one of many; <stdin> is the standard input."""
    kind: Annotated[str, msgspec.Meta(extra_json_schema={"contract": {"enum": _INPUTS}})]
    chars: Long
    """Code points of the rendered prompt."""
    tokens: Long


class First(msgspec.Struct):
    """The first difference."""

    token: Long
    """Index of the first differing token: the length of the common prefix in tokens, from 0."""
    char: Long
    """Offset of the first differing code point of the rendered prompt, from 0."""
    line: LineNumber
    column: LineNumber
    place: str | None
    """Path in the request, ``system[0].text``; None for plain text and for text that the template wrote."""
    kind: Annotated[str, msgspec.Meta(extra_json_schema={"contract": {"enum": DIFFERENCES}})]
    """Kind of the difference (docs/diff.md), named after the recogniser that found it."""
    field: str | None
    """Name of the part that varies, such as ``cch``; with --hash-text a hash if the name comes from the prompt."""
    a: str
    """The few differing tokens as text; with --hash-text, length and hash of the text."""
    b: str
    """The few differing tokens as text."""
    advice: list[Advice]
    """What to do about the difference, the most specific advice first."""
    client: KnownClient | None = None
    """Client that writes the differing text, if the prompts prove it."""


class Excerpt(msgspec.Struct):
    """Text around the first difference, for people."""

    before: str
    a: str
    b: str
    after_a: str
    after_b: str


class Around(msgspec.Struct):
    """Text around the first difference: secrets are searched for in it before it is truncated and shown."""

    a: str
    b: str
    common: int
    """Code points that both have in common at the start."""
    spans_a: list[tuple[int, int]]
    """Offsets in ``Around.a`` of ``before``, ``a`` and ``after_a`` of the excerpt, and of ``a`` of the first
    difference."""
    spans_b: list[tuple[int, int]]


class Edit(msgspec.Struct):
    """One step of a script that turns A into B; ranges are first and last token. The steps are in the order of B, and
    their ``b`` ranges have no gaps. The ``a`` ranges cover A without gap or overlap. They rise, except at a ``move``:
    this step is at the position of the block in B, and its ``a`` range is the position in A. To get B, take ``a`` of
    equal and move, ``b`` of insert and replace."""

    op: Op
    a: tuple[Amount, Amount]
    """First and last token of the range in a; for a move, the old position of the block."""
    b: tuple[Amount, Amount]
    """First and last token of the range in b."""


class LeastEdit(msgspec.Struct):
    """One change that, when undone, restores reuse."""

    kind: Annotated[str, msgspec.Meta(extra_json_schema={"contract": {"enum": DIFFERENCES}})]
    """Kind of the change (docs/diff.md)."""
    field: str | None
    """Name of the part that varies, or name of a tool; with --hash-text a hash if the name comes from the prompt."""
    place: str | None
    """Path in the request; None for plain text and for text that the template wrote."""
    line: LineNumber
    """Line of the newer prompt at which the change begins."""
    words: Text
    """What to do to undo the change, as an imperative."""
    reuse: Amount
    """Tokens of the common prefix if this change and all earlier ones are undone."""
    tokens: Amount
    """Tokens of the newer prompt if this change and all earlier ones are undone."""
    owner: Literal["client", "plugin", "template"]
    """Who writes the changed text. Example: a tool whose name begins with the name of an MCP server comes from a
    plugin."""
    advice: list[Advice]
    """Settings that undo the change, the most specific first."""
    client: KnownClient | None = None
    """Client that writes the differing text, if the prompts prove it."""


class LeastChange(msgspec.Struct):
    """Smallest set of changes that, when undone, restores reuse by common prefix; effects on answers are not
    considered."""

    common: Amount
    """Tokens of the common prefix before any change is undone."""
    tokens: Amount
    """Tokens of the newer prompt."""
    edits: list[LeastEdit]
    """Changes in the order of the prompt. If a change is undone, the text up to the next change can be reused."""
    rest: Amount
    """Number of further changes, which together restore less than 1 % of the prompt; text only appended at the end is
    not a change."""
    is_bounded: bool
    """True if there are more changes than were tried."""


class PromptDiff(msgspec.Struct):
    """The answer of ``cachedoctor diff``."""

    equal: bool
    a: Side
    b: Side
    tokenizer: str
    exact: bool
    """True if token counts come from the model's own tokenizer."""
    first: First | None
    explanation: str
    """What the first difference is, in words."""
    sure: bool
    common_prefix_tokens: int
    common_suffix_tokens: int
    reusable: dict[str, int]
    """Tokens the server can reuse, by kind of memory: attention, swa, hybrid."""
    edits: list[Edit] | None
    """Set only if the whole difference was requested."""
    summary: str | None
    """What the edits amount to, in words."""
    excerpt: Excerpt | None
    settings: list[RequestSetting] = msgspec.field(default_factory=list)
    """Other differences between the requests that affect what a cache can reuse."""
    sent_again: int | None = None
    """Bytes after the first difference in A that also occur after it in B, in pieces of about 35."""
    alone: list[Side] = msgspec.field(default_factory=list)
    """For the last of several: prompts that were not compared, because no other prompt precedes or follows them."""
    notes: list[str] = msgspec.field(default_factory=list)
    """For the last of several: what their recordings do not contain; no statement is made about it."""
    around: Around | None = None
    """Set if there is an excerpt."""
    least: LeastChange | None = None
    """Set if it was requested."""
