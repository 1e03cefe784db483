"""What ``cachedoctor lint`` says of request bodies, and of a chat template."""

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
    """A request that does not continue where the one before it in its conversation ends."""

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
    """Index of the first token that differs, from 0: so many are shared."""
    char: Long
    """Offset of the first code point that differs in the rendered prompt, from 0."""
    cost: Amount
    """Tokens that are recomputed and would not be, had the request only been extended."""
    tokens: Amount
    """Tokens of the request."""
    a: str
    """The few differing tokens of the earlier request as text."""
    b: str
    """Those of this request."""
    advice: list[Advice]
    """What to do about it, the most specific first."""
    client: KnownClient | None = None
    """Whose doing it is, where the prompts prove it."""
    answered_tokens: Amount | None = None
    """Prompt tokens as the server counted them, by its answer; None where the recording has none."""
    answered_reused: Amount | None = None
    """Those of them that it reused."""
    least_cost: Amount | None = None
    """The least that is recomputed, where the template decides where the tools are and is not known;
    ``cost`` is the most. Added after the first release of v1: may be missing."""


class LintHint(msgspec.Struct):
    """A place that is likely to break a conversation, or a change that is expected now and then. Never an error."""

    kind: HintKind
    path: Text
    """The request in which it stands first."""
    place: str | None
    """Path in the request."""
    words: Text
    shown: str
    """The text that is there; empty where none does."""
    advice: list[Advice]
    requests: Amount = 1
    """Requests in which it stands."""


class TrialAnswer(msgspec.Struct):
    """What a chat template does with one scripted conversation."""

    name: Text
    """Stable handle: ``plain``, ``tools``, ``reasoning-kept``, ..."""
    question: Text
    verdict: TrialVerdict
    """yes: each request extends the one before; no: it does not; refused: the template raises an error; unknown: the
    template does not show what was asked about."""
    words: Text
    """The answer as a sentence."""
    place: str | None = None
    """Path in the request at which the rendering changes; None where nothing does, or the template wrote it."""
    char: Long | None = None
    """Offset of the first code point that differs, from 0."""
    cost: Amount = 0
    """Tokens of the earlier request that are of no use for the later one; of a few words each, as the script has."""
    a: str = ""
    """What the earlier rendering has there."""
    b: str = ""
    """What the later one has there."""


class Lint(msgspec.Struct, tag_field="schema", tag="cachedoctor.lint/1"):
    """Whether requests only extend each other. Unknown values are None. Within version 1 keys are only added."""

    tool: Tool
    append_only: bool
    """There are no errors, and no answer about the template is no."""
    requests: Amount
    conversations: Amount
    """Conversations of at least two requests."""
    alone: Amount
    """Requests that no other of their conversation goes before or follows: nothing can be said of them."""
    tokenizer: Text
    """What counted the tokens; pieces: words and signs stand for tokens."""
    exact: bool
    """The counts are the model's own."""
    rendered: bool
    """The bodies were rendered with a chat template; else their parts are in the order of templates."""
    errors: list[LintError] = msgspec.field(default_factory=list)
    hints: list[LintHint] = msgspec.field(default_factory=list)
    template: list[TrialAnswer] = msgspec.field(default_factory=list)
    """Only without bodies: what the template does with scripted conversations."""
    notes: list[Text] = msgspec.field(default_factory=list)
    """What the recordings that they were read from do not hold: nothing is said of that."""
    least: LeastChange | None = None
    """The smallest set of changes that gives reuse back to the request that costs most; None where it is one change.
    Added after the first release of v1: may be missing."""
    least_path: Text | None = None
    """That request. Added after the first release of v1: may be missing."""
