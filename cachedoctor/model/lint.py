"""The result of ``cachedoctor lint`` for request bodies, and for a chat template."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from cachedoctor.model.bounds import Amount, LineNumber, Long, Text
from cachedoctor.model.diff import DIFFERENCES, Advice, KnownClient, LeastChange
from cachedoctor.model.report import Tool

LintKind = Annotated[str, msgspec.Meta(extra_json_schema={"contract": {"enum": [*DIFFERENCES, "cache-prompt-off"]}})]
HintKind = Literal[
    "billing-header", "clock", "uuid", "random-id", "unsorted-tools", "reply-opening", "last-message-rewritten",
    "compacted",
]  # fmt: skip
TrialVerdict = Literal["yes", "no", "refused", "unknown"]


class LintError(msgspec.Struct):
    """A request that does not continue the previous one of its conversation."""

    path: Text
    """The request: file and number, ``bodies.jsonl#4``."""
    before: Text
    """The request that it had to extend."""
    line: LineNumber | None
    """Line of the request in its file, where each is on a line of its own."""
    kind: LintKind
    """What differs (docs/diff.md); cache-prompt-off: the request itself forbids reuse."""
    field: str | None
    """What varies in it, such as ``cch``."""
    place: str | None
    """Path in the request, ``system[0].text``; None for what the template wrote."""
    explanation: Text
    token: Long
    """Index of the first differing token, from 0; equals the number of shared tokens."""
    char: Long
    """Offset of the first code point that differs in the rendered prompt, from 0."""
    cost: Amount
    """Tokens recomputed that would have been reused if the request had only been extended."""
    tokens: Amount
    """Tokens of the request."""
    a: str
    """The few differing tokens of the earlier request as text."""
    b: str
    """Those of this request."""
    advice: list[Advice]
    """What to do about it, the most specific first."""
    client: KnownClient | None = None
    """Client that writes it, if the prompts prove it."""
    answered_tokens: Amount | None = None
    """Prompt tokens as the server counted them, by its answer; None if the recording has none."""
    answered_reused: Amount | None = None
    """Those of them that the server reused."""
    least_cost: Amount | None = None
    """Minimum of recomputed tokens, if an unknown template decides where the tools are; ``cost`` is the maximum. Added
    after the first release of v1: may be missing."""


class LintHint(msgspec.Struct):
    """A place that is likely to break a conversation, or a change that is expected occasionally. Never an error."""

    kind: HintKind
    path: Text
    """The first request that contains it."""
    place: str | None
    """Path in the request."""
    words: Text
    shown: str
    """The text at this position; empty if there is none."""
    advice: list[Advice]
    requests: Amount = 1
    """Requests that contain it."""


class TrialAnswer(msgspec.Struct):
    """What a chat template does with one scripted conversation."""

    name: Text
    """Stable handle: ``plain``, ``tools``, ``reasoning-kept``, ..."""
    question: Text
    verdict: TrialVerdict
    """yes: each request extends the one before; no: it does not; refused: the template raises an error; unknown: the
    template does not show it."""
    words: Text
    """The answer as a sentence."""
    place: str | None = None
    """Path in the request at which the rendering changes; None if nothing changes, or if the template wrote the text
    there."""
    char: Long | None = None
    """Offset of the first code point that differs, from 0."""
    cost: Amount = 0
    """Tokens of the earlier request that the later one cannot reuse; the scripted messages have a few words each."""
    a: str = ""
    """What the earlier rendering has there."""
    b: str = ""
    """What the later one has there."""


class Lint(msgspec.Struct, tag_field="schema", tag="cachedoctor.lint/1"):
    """Whether requests only extend each other. Unknown values are None. Within version 1 keys are only added."""

    tool: Tool
    append_only: bool
    """True if there are no errors, and no template check has the verdict no."""
    requests: Amount
    conversations: Amount
    """Conversations of at least two requests."""
    alone: Amount
    """Requests with no other request of their conversation before or after them: they cannot be judged."""
    tokenizer: Text
    """What counted the tokens; pieces: words and punctuation counted as tokens."""
    exact: bool
    """The counts are the model's own."""
    rendered: bool
    """The bodies were rendered with a chat template; else their parts are in the order of templates."""
    errors: list[LintError] = msgspec.field(default_factory=list)
    hints: list[LintHint] = msgspec.field(default_factory=list)
    template: list[TrialAnswer] = msgspec.field(default_factory=list)
    """Only without bodies: what the template does with scripted conversations."""
    notes: list[Text] = msgspec.field(default_factory=list)
    """What their recordings do not contain: no statement is made about it."""
    least: LeastChange | None = None
    """Smallest set of changes that restores reuse for the costliest request; None if it is a single change. Added after
    the first release of v1: may be missing."""
    least_path: Text | None = None
    """The costliest request. Added after the first release of v1: may be missing."""
