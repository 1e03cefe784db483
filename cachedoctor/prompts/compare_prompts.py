"""Compares two prompts: where they diverge, what differs there, what it costs, and the whole edit script when asked."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

import msgspec

from cachedoctor.knowledge import decision
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix, pieces
from cachedoctor.model import Around, Excerpt, First, PromptDiff, Side
from cachedoctor.prompts import difference_advice, request_bodies
from cachedoctor.prompts.align import align
from cachedoctor.prompts.prompt import Prompt, digest, short
from cachedoctor.prompts.recognisers.turns import USER
from cachedoctor.prompts.tokenizers import base
from cachedoctor.prompts.tokenizers.base import TokenArrays, Tokenizer

SHOWN = 6
"""Tokens of each side that the first difference quotes."""
_AROUND = 1 << 14
"""Code points on each side of the shown text that are also searched for secrets: longer than any key."""
DEFAULT_WINDOW = 1024
"""Tokens; only SWA models have a window, and each model sets its size."""

_QUOTED = late(r"`.*`", re.S)
_VALUES = late(r"(?<=changed) from .*", re.S)
_STEP = late(r"[^.\[\]]+")
_COMMON_STEPS = late(
    r"\d+|messages|system|tools|input|instructions|prompt|generated|content|text|role|name|function|description|"
    r"parameters|properties|required|items|type|enum|input_schema|arguments|tool_calls|reasoning_content|reasoning|"
    r"cache_salt|extra_key|lora|lora_path|thinking|tool_result|tool_use|tool_call_id|image_url|source|output|chat_template_kwargs|reasoning_effort|id|summary|"
    r"cache_salt|extra_key|lora|lora_path"
)
_COMMON_FIELDS = late(
    r"cch|cc_(?:version|prev_req|prompt_id|entrypoint|workload|is_subagent)|user|assistant|system|developer|tool|"
    r"tool_calls|reasoning|system-reminder|conversation|date|time|age|epoch|cwd|branch|commit|status|image|audio|spacing|"
    r"escapes|blanks|line ends|invisible characters|generation prompt|description|parameters|input_schema|name|role"
)


class DiffOptions(msgspec.Struct):
    """Options of a comparison."""

    full: bool = False
    context: int = 8
    """Tokens shown around the difference."""
    build: int = NEWEST
    window: int = DEFAULT_WINDOW


class _TokenisedPrompt(NamedTuple):
    """A prompt in tokens."""

    text: str
    tokens: TokenArrays


class _Parting(NamedTuple):
    """Where two prompts diverge."""

    token: int
    start: int
    """Code point at which that token begins."""
    offset: int
    """First code point that differs."""


def compare(a: Prompt, b: Prompt, tokenizer: Tokenizer, options: DiffOptions) -> PromptDiff:
    """Compare ``a``, what the server holds, with ``b``, the new prompt."""
    found = base.first_difference(tokenizer, a.text, b.text)
    settings = request_bodies.differences(a, b)
    same_images, decided = a.images == b.images, request_bodies.decides(settings)
    if found is None and a.text == b.text and same_images and not decided:
        return msgspec.structs.replace(_equal(a, b, tokenizer, options), settings=settings)
    tokens_a, tokens_b = tokenizer.encode(a.text), tokenizer.encode(b.text)
    token = found.token if found is not None else len(tokens_a)
    offset = found.char if found is not None else common_prefix(a.text, b.text)
    suffix = align.common_suffix(tokens_a.ids, tokens_b.ids, min(len(tokens_a), len(tokens_b)) - token)
    recognised = difference_advice.recognise(a, b, offset)
    edits = align.edit_script(tokens_a.ids, tokens_b.ids) if options.full else None
    lead = tokenizer.leading(b.text)
    start = found.start if found is not None else offset
    parting = _Parting(token, start, offset)
    excerpt, around = _excerpt(
        _TokenisedPrompt(a.text, tokens_a), _TokenisedPrompt(b.text, tokens_b), parting, options.context
    )
    return PromptDiff(
        equal=False,
        a=Side(a.path, a.kind, len(a.text), len(tokens_a) + lead),
        b=Side(b.path, b.kind, len(b.text), len(tokens_b) + lead),
        tokenizer=tokenizer.name,
        exact=_exact(a, b, tokenizer),
        first=_first(a, b, tokens_a, tokens_b, token, offset, recognised, lead),
        explanation=recognised.explanation,
        sure=recognised.sure,
        common_prefix_tokens=token + lead,
        common_suffix_tokens=suffix,
        reusable=_reusable(a, tokens_a, token, lead, options, len(tokens_b) + lead),
        edits=edits,
        summary=None if edits is None else describe(align.summary(edits)),
        excerpt=excerpt,
        around=around,
        settings=settings,
        sent_again=_sent_again(a.text[offset:], b.text[offset:]),
    )


def _sent_again(old: str, new: str) -> int:
    """Bytes after a difference that occur again; 0 for a last message that was replaced."""
    if not old or not new:
        return 0
    before, after = (pieces(text.encode("utf-8", "surrogatepass")) for text in (old, new))
    return sum(after[piece] for piece in before.keys() & after.keys())


def _equal(a: Prompt, b: Prompt, tokenizer: Tokenizer, options: DiffOptions) -> PromptDiff:
    tokens, lead = tokenizer.encode(a.text), tokenizer.leading(a.text)
    count = len(tokens) + lead
    sides = [Side(p.path, p.kind, len(p.text), count) for p in (a, b)]
    reusable = _reusable(a, tokens, len(tokens), lead, options, count)
    return PromptDiff(
        True, sides[0], sides[1], tokenizer.name, _exact(a, b, tokenizer), None, "the prompts are equal", True,
        count, 0, reusable, [] if options.full else None, None, None,
    )  # fmt: skip


def _exact(a: Prompt, b: Prompt, tokenizer: Tokenizer) -> bool:
    """Whether the counts are the model's own: its tokenizer, on what it really gets to see."""
    return tokenizer.exact and all(p.rendered or p.kind in ("text", "slots", "prompt-dump") for p in (a, b))


def describe(s: align.Summary) -> str:
    """Words for what an edit script amounts to."""
    rest = f"{s.appended:,} new tokens follow" if s.appended else "nothing follows"
    words = {
        "equal": "the tokens are equal",
        "appended": f"only {s.appended:,} tokens were appended",
        "front-dropped": f"the first {s.block:,} tokens were dropped, and the rest is equal; {rest}",
        "tail-replaced": f"everything after token {s.at:,} was replaced ({s.block:,} tokens removed)",
        "inserted-block": f"{s.block:,} tokens were inserted at token {s.at:,}; {rest}",
        "removed-block": f"{s.block:,} tokens were removed at token {s.at:,}; {rest}",
        "unrelated": "the prompts have nothing in common",
    }
    plain = f"{s.places:,} places differ: {s.deleted:,} tokens removed, {s.inserted:,} inserted, {s.equal:,} equal"
    moved = f", {s.moved:,} moved" if s.moved else ""
    return words.get(s.pattern, plain + moved)


def _first(
    a: Prompt,
    b: Prompt,
    tokens_a: TokenArrays,
    tokens_b: TokenArrays,
    token: int,
    offset: int,
    recognised: difference_advice.RecognisedDifference,
    lead: int,
) -> First:
    line = b.text.count("\n", 0, offset) + 1
    column = offset - (b.text.rfind("\n", 0, offset) + 1) + 1
    place = b.place_at(offset) or a.place_at(offset)
    return First(
        token + lead, offset, line, column, place, recognised.kind, recognised.field,
        _slice(a.text, tokens_a, token, token + SHOWN), _slice(b.text, tokens_b, token, token + SHOWN),
        recognised.advice, recognised.client,
    )  # fmt: skip


def _slice(text: str, tokens: TokenArrays, start: int, end: int) -> str:
    return text[_begin(text, tokens, start) : _begin(text, tokens, end)]


def _begin(text: str, tokens: TokenArrays, token: int) -> int:
    return tokens.starts[token] if token < len(tokens) else len(text)


def _excerpt(a: _TokenisedPrompt, b: _TokenisedPrompt, place: _Parting, context: int) -> tuple[Excerpt, Around]:
    """The text shown of the first difference, and the text around it."""
    low = a.tokens.starts[max(0, place.token - context)] if place.token and len(a.tokens) else 0
    low = min(low, place.start)
    width = max(1, min(SHOWN, context))
    begin = max(0, low - _AROUND)
    sides = []
    for text, tokens in (a, b):
        first, mark, after, shown = (
            _begin(text, tokens, place.token + more) for more in (0, width, width + context, SHOWN)
        )
        spans = [(low, place.start), (first, mark), (mark, after), (first, shown)]
        end = max(after, shown) + _AROUND
        sides.append((text[begin:end], [(start - begin, stop - begin) for start, stop in spans]))
    (around_a, spans_a), (around_b, spans_b) = sides
    found = Around(around_a, around_b, place.offset - begin, spans_a, spans_b)
    before, mark_a, after_a, _ = (around_a[start:stop] for start, stop in spans_a)
    _, mark_b, after_b, _ = (around_b[start:stop] for start, stop in spans_b)
    return Excerpt(before, mark_a, mark_b, after_a, after_b), found


def _reusable(
    a: Prompt, tokens: TokenArrays, token: int, lead: int, options: DiffOptions, length: int
) -> dict[str, int]:
    starts = _user_starts(a, tokens, lead)
    held, common = len(tokens) + lead, token + lead
    replied = held + 1 if common == held == length else held  # a repeated prompt meets the reply that it got
    out = {}
    for memory in ("attention", "swa", "hybrid"):
        covered = decision.checkpoints(held, starts, options.build, memory)
        out[memory] = decision.reusable(memory, common, replied, covered, options.build, options.window, length)
    return out


def _user_starts(prompt: Prompt, tokens: TokenArrays, lead: int) -> list[int]:
    """Token indexes at which user messages begin: at the template's marker, or at the places from the request."""
    starts = [found.start() for found in USER.finditer(prompt.text)] or _user_places(prompt)
    return [bisect_right(tokens.starts, start) - 1 + lead for start in starts]


def _user_places(prompt: Prompt) -> list[int]:
    """Positions of user messages in a body that no template rendered."""
    body = prompt.body or {}
    name = "messages" if isinstance(body.get("messages"), list) else "input"
    items = body.get(name)
    if not isinstance(items, list):
        return []
    users = {i for i, item in enumerate(items) if isinstance(item, dict) and item.get("role") == "user"}
    starts: dict[int, int] = {}
    for span in prompt.spans:
        number = span.place.removeprefix(f"{name}[").split("]", 1)[0] if span.place.startswith(f"{name}[") else ""
        if number.isdigit() and int(number) in users:
            starts.setdefault(int(number), span.start)
    return list(starts.values())


def hashed(diff: PromptDiff) -> PromptDiff:
    """The same without any prompt text: hashes and lengths are in its place.

    Names that requests of every client have (``messages``, ``cch``) stay; a label, a tool's name, a key do not.
    """
    settings = [msgspec.structs.replace(s, a=digest(s.a), b=digest(s.b)) for s in diff.settings]
    if diff.first is None:
        return msgspec.structs.replace(diff, settings=settings)
    field, place = diff.first.field, diff.first.place
    explanation = _QUOTED.sub(lambda quoted: f"[{digest(quoted.group()[1:-1])}]", diff.explanation)
    explanation = _VALUES.sub("", explanation)
    if field is not None and not is_common(field):
        explanation = re.sub(rf"(?<!\w){re.escape(field)}(?!\w)", "a field", explanation)
        field = digest(field)
    if place is not None:
        place = hashed_place(place)
    first = msgspec.structs.replace(
        diff.first, a=digest(diff.first.a), b=digest(diff.first.b), field=field, place=place
    )
    return msgspec.structs.replace(
        diff, first=first, explanation=explanation, excerpt=None, around=None, settings=settings
    )


def is_common(field: str) -> bool:
    """Whether requests of every client have this field."""
    return _COMMON_FIELDS.fullmatch(field) is not None


def hashed_place(place: str) -> str:
    """Give a place without the keys that only this request has."""
    return _STEP.sub(lambda step: _short(step.group()), place)


def _short(step: str) -> str:
    """A step of a place; a key that only this request has becomes a hash."""
    return step if _COMMON_STEPS.fullmatch(step) else short(step)
