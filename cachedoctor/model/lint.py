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
    """A request that does not extend the previous request of its conversation."""

    path: Text
    """The request: file and number, ``bodies.jsonl#4``."""
    before: Text
    """The earlier request that should have been extended."""
    line: LineNumber | None
    """Line of the request in its file, if every request has its own line."""
    kind: LintKind
    """Kind of the difference (docs/diff.md). cache-prompt-off: the request itself forbids reuse."""
    field: str | None
    """Name of the part that varies, such as ``cch``."""
    place: str | None
    """Path in the request, ``system[0].text``; None for text that the template wrote."""
    explanation: Text
    token: Long
    """Index of the first differing token, from 0; equals the number of shared tokens."""
    char: Long
    """Offset of the first code point that differs in the rendered prompt, from 0."""
    cost: Amount
    """Recomputed tokens that the server would have reused if the request had only extended the previous one."""
    tokens: Amount
    """Tokens of the request."""
    a: str
    """The few differing tokens of the earlier request as text."""
    b: str
    """The few differing tokens of this request as text."""
    advice: list[Advice]
    """What to do about the difference, the most specific advice first."""
    client: KnownClient | None = None
    """Client that writes the differing text, if the prompts prove it."""
    answered_tokens: Amount | None = None
    """Prompt tokens as the server's response counts them; None if the recording has no count."""
    answered_reused: Amount | None = None
    """Number of the ``answered_tokens`` that the server reused."""
    least_cost: Amount | None = None
    """Minimum number of recomputed tokens, if an unknown template decides the position of the tools. In this case
    ``cost`` is the maximum. Added after the first release of v1: may be missing."""


class LintHint(msgspec.Struct):
    """Text that is likely to change within a conversation, or a change that is expected occasionally. Never an
    error."""

    kind: HintKind
    path: Text
    """The first request that contains the text."""
    place: str | None
    """Path in the request."""
    words: Text
    shown: str
    """The text at this position; empty if there is no text."""
    advice: list[Advice]
    requests: Amount = 1
    """Number of requests that contain the text."""


class TrialAnswer(msgspec.Struct):
    """The result of one test conversation rendered with a chat template."""

    name: Text
    """Stable name of the question: ``plain``, ``tools``, ``reasoning-kept``, ..."""
    question: Text
    verdict: TrialVerdict
    """yes: each request extends the previous one; no: a request changes earlier text; refused: the template raises an
    error; unknown: the template does not render the text in question."""
    words: Text
    """The answer as a sentence."""
    place: str | None = None
    """Path in the request at which the rendering changes; None if nothing changes, or if the template wrote the text
    there."""
    char: Long | None = None
    """Offset of the first code point that differs, from 0."""
    cost: Amount = 0
    """Tokens of the earlier request that the later one cannot reuse; each test message has only a few words."""
    a: str = ""
    """Text of the earlier rendering at this point."""
    b: str = ""
    """Text of the later rendering at this point."""


class Lint(msgspec.Struct, tag_field="schema", tag="cachedoctor.lint/1"):
    """Whether requests only extend each other. Unknown values are None. Within version 1 keys are only added."""

    tool: Tool
    append_only: bool
    """True if there are no errors, and no template check has the verdict ``no``."""
    requests: Amount
    conversations: Amount
    """Conversations of at least two requests."""
    alone: Amount
    """Requests that cannot be checked, because the input has no other request of their conversation."""
    tokenizer: Text
    """Tokenizer that counted the tokens. pieces: words and punctuation count as tokens."""
    exact: bool
    """True if the counts come from the model's own tokenizer."""
    rendered: bool
    """True if the bodies were rendered with a chat template. If not, the parts of a body are in the order that
    templates usually have."""
    errors: list[LintError] = msgspec.field(default_factory=list)
    hints: list[LintHint] = msgspec.field(default_factory=list)
    template: list[TrialAnswer] = msgspec.field(default_factory=list)
    """Only without bodies: the results of test conversations rendered with the template."""
    notes: list[Text] = msgspec.field(default_factory=list)
    """Parts of the requests that the recordings do not contain, and that were not checked."""
    least: LeastChange | None = None
    """Smallest set of changes that restores reuse for the costliest request; None if it is a single change. Added after
    the first release of v1: may be missing."""
    least_path: Text | None = None
    """The costliest request. Added after the first release of v1: may be missing."""
