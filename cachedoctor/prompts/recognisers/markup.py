"""Differences without new words: key order and spacing of JSON, white space, template markers."""

from __future__ import annotations

import json
from typing import Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.recognisers.base import FirstDifference, Recognition, snippet
from cachedoctor.prompts.recognisers.edited_messages import Histories, of_bodies, of_texts
from cachedoctor.prompts.recognisers.turns import MARKER, THINKING, MessageTurn

_KEEPS = {"chat_template_kwargs.preserve_thinking": True, "chat_template_kwargs.clear_thinking": False}
"""Switches of templates, and the value with which they keep the reasoning of earlier replies."""
_REACH = 32_768
"""Code points before the offset searched for an enclosing object or array, and the longest object or array parsed."""
_LEVELS = 8
"""Enclosing values that are tried, the innermost first."""
_BRACKET = late(r"[{}\[\]]")
_DECODER = json.JSONDecoder()


def json_key_order(d: FirstDifference) -> Recognition | None:
    """Both sides hold the same JSON value around the difference, with its keys in another order."""
    found = _same_value(d)
    if found is None or _dump(found[0]) == _dump(found[1]):
        return None
    a, b = snippet(d)
    return Recognition("json-key-order", a, b, "the same JSON value with its keys in a different order")


def json_spacing(d: FirstDifference) -> Recognition | None:
    """Both sides hold the same JSON value around the difference, spaced or escaped in another way."""
    found = _same_value(d)
    if found is None or _dump(found[0]) != _dump(found[1]):
        return None
    a, b = snippet(d)
    blanks = d.rest("a", 1).isspace() or d.rest("b", 1).isspace()
    how, field = ("spaced", "spacing") if blanks else ("written", "escapes")
    return Recognition("json-spacing", a, b, f"the same JSON value {how} in another way", field)


def _same_value(d: FirstDifference) -> tuple[Any, Any] | None:
    start = max(0, d.offset - _REACH)
    for opening in _open_brackets(d.a.text[start : d.offset]):
        values = [parse(p.text[start + opening : d.offset + _REACH]) for p in (d.a, d.b)]
        if None in values:
            continue
        try:
            if _dump(values[0], True) == _dump(values[1], True):
                return values[0], values[1]
        except (RecursionError, ValueError):
            return None
    return None


def _open_brackets(text: str) -> list[int]:
    """Positions of the values that are still open at the end of the text, the innermost first."""
    stack: list[int] = []
    for match in _BRACKET.finditer(text):
        if match.group() in "{[":
            stack.append(match.start())
        elif stack:
            stack.pop()
    return stack[: -_LEVELS - 1 : -1]


def parse(text: str) -> Any:
    """The JSON value at the start of a text, or None."""
    try:
        value, _end = _DECODER.raw_decode(sound_json(text))
    except (ValueError, RecursionError):
        return None
    return value


def _dump(value: Any, sort: bool = False) -> str:
    return json.dumps(value, sort_keys=sort)


_WINDOW = 600
_ENOUGH = 48
"""Code points after the difference that must agree."""
_MEDIUM = late(r"<(image|audio|video|file|document) sha256:[0-9a-f]{1,64}>")
_BLANK = late(r"[\s\u200b\u200c\u200d\u2060\ufeff\x00-\x1f]+")
_BOUNDARY = late(
    r"<s>|</s>|<bos>|<eos>|<\|(?:begin|end)_?of_?(?:text|sentence)\|>|<\|endoftext\|>|<｜(?:begin|end)▁of▁sentence｜>"
)
_REASONING_REACH = 400_000


def image(d: FirstDifference) -> Recognition | None:
    """The bytes of an image, or of another medium, differ."""
    left = max(0, d.offset - 100)
    found = [
        next(
            (m for m in _MEDIUM.finditer(p.text[left : d.offset + 100]) if m.start() <= d.offset - left < m.end()), None
        )
        for p in (d.a, d.b)
    ]
    a, b = found
    if a and b and a.start() == b.start():
        return Recognition("image", a.group(), b.group(), f"the bytes of an {a.group(1)} differ", a.group(1))
    nothing_else = d.same_text or d.offset == min(len(d.a.text), len(d.b.text))
    pairs = zip(d.a.images, d.b.images, strict=False)
    number = next((i for i, (x, y) in enumerate(pairs) if x != y), None)
    if number is None or not nothing_else:
        return None
    old, new = (f"sha256:{p.images[number][:16]}" for p in (d.a, d.b))
    return Recognition("image", old, new, f"the texts are the same, but image {number + 1} differs", "image")


def retokenised(d: FirstDifference) -> Recognition | None:
    """The texts are the same, so only their tokens can differ."""
    if not d.same_text:
        return None
    a, b = snippet(d)
    return Recognition("retokenised", a, b, "the same text as different tokens")


def appended(d: FirstDifference) -> Recognition | None:
    """One prompt is a prefix of the other: nothing is lost."""
    if d.offset < min(len(d.a.text), len(d.b.text)):
        return None
    a, b = snippet(d)
    longer = "second" if len(d.b.text) > len(d.a.text) else "first"
    return Recognition(
        "appended", a, b, f"the {longer} prompt continues where the other prompt ends; nothing before that changed"
    )


def whitespace(d: FirstDifference) -> Recognition | None:
    """Only spaces, line ends or invisible characters differ."""
    start = d.offset
    while start > max(0, d.offset - _WINDOW) and _BLANK.fullmatch(d.a.text[start - 1]):
        start -= 1
    texts = [p.text[start : start + _WINDOW] for p in (d.a, d.b)]
    a, b = ((m.group() if (m := _BLANK.match(text)) else "") for text in texts)
    if a == b or not _agree(*(_BLANK.sub("", text) for text in texts)):
        return None
    field = "line ends" if "\r" in a + b else "blanks" if (a + b).isspace() else "invisible characters"
    return Recognition("whitespace", a, b, f"only {field} differ", field)


def special_token(d: FirstDifference) -> Recognition | None:
    """A token such as <s> that begins or ends a text is on one side only, or differs."""
    return _markers(d, True)


def template(d: FirstDifference) -> Recognition | None:
    """The markers of the chat template differ around the same words, or the opening of the reply does."""
    tail = _generation_prompt(d)
    if tail:
        return tail
    found = _markers(d, False)
    if found:
        return found
    place = next((p for p in d.places if p.startswith(("chat_template", "reasoning_effort"))), None)
    if place:
        a, b = snippet(d, raw=True)
        what = _switched(d, place)
        if what is not None:
            words = (
                f"{place} of the request differs: the template writes the reasoning of earlier replies in one of them"
            )
            return Recognition(what, a, b, words, place)
        return Recognition("template", a, b, f"{place} of the request differs", place)
    return None


def template_alone(d: FirstDifference) -> Recognition | None:
    """The requests agree as far as both go, so the difference comes from the template."""
    bodies = of_bodies(d)
    if bodies is None or bodies.at < min(len(bodies.a), len(bodies.b)) or _same(d, "tools") is False:
        return None
    a, b = snippet(d, raw=True)
    return Recognition(
        "template", a, b, "the requests are the same here; the template renders them differently", None, False
    )


def reasoning_dropped(d: FirstDifference) -> Recognition | None:
    """Reasoning of an earlier turn is no longer in the prompt."""
    return _reasoning(d, d.a.text, d.b.text, "dropped")


def reasoning_added(d: FirstDifference) -> Recognition | None:
    """Reasoning of an earlier turn is in the prompt that was not there before."""
    return _reasoning(d, d.b.text, d.a.text, "added")


def _switched(d: FirstDifference, place: str) -> str | None:
    """The kind of change where a request tells the template to keep old reasoning, of which there is some, or not."""
    keeps, histories = _KEEPS.get(place), of_bodies(d)
    if keeps is None or histories is None or not any(turn.reasoning for turn in histories.a[: histories.at]):
        return None
    before, now = (None if value is None else value is keeps for value in (_switch(d.a, place), _switch(d.b, place)))
    if before is now:
        return None
    return "reasoning-dropped" if before or now is False else "reasoning-added"


def _switch(prompt: Prompt, place: str) -> bool | None:
    name, _, key = place.partition(".")
    found = (prompt.body or {}).get(name)
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, bool) else None


def _reasoning(d: FirstDifference, has: str, lacks: str, what: str) -> Recognition | None:
    words = f"reasoning of an earlier reply was {what}"
    for histories in (of_bodies(d), of_texts(d)):
        turn = None if histories is None else _thinker(histories, what == "dropped")
        if turn is not None:
            break
    else:
        thought = _thought_at(d, has, lacks)
        if thought is None:
            return None
        turn = MessageTurn("assistant", "", thought)
    text = turn.reasoning[:200]
    a, b = (text, "") if what == "dropped" else ("", text)
    return Recognition(f"reasoning-{what}", a, b, f"{words} ({len(turn.reasoning):,} characters)", turn.role or None)


def _thinker(h: Histories, in_a: bool) -> MessageTurn | None:
    """The first differing turn, if its reasoning is all that the other side lacks."""
    has, lacks = (h.a, h.b) if in_a else (h.b, h.a)
    if h.at >= len(has):
        return None
    turn = has[h.at]
    other = lacks[h.at] if h.at < len(lacks) else None
    if turn.only_reasoning:
        following = next((later for later in has[h.at + 1 :] if not later.only_reasoning), None)
        return turn if other is not None and following is not None and following.bare == other.bare else None
    if other is None or not turn.reasoning or other.reasoning or turn.bare != other.bare:
        return None
    return turn


def _thought_at(d: FirstDifference, has: str, lacks: str) -> str | None:
    """The reasoning block at the offset in one text, while the other continues with the text after it."""
    for opening, closing in THINKING:
        start = has.rfind(opening, max(0, d.offset - len(opening) - 8), d.offset + len(opening) + 8)
        end = has.find(closing, start, start + _REASONING_REACH) if start >= 0 else -1
        if end < 0:
            continue
        thought = has[start + len(opening) : end].strip()
        rest = has[end + len(closing) : end + _WINDOW]
        other = lacks[start : start + _WINDOW].removeprefix(opening)
        if thought and _agree(_BLANK.sub("", rest), _BLANK.sub("", other.lstrip().removeprefix(closing))):
            return thought
    return None


def _generation_prompt(d: FirstDifference) -> Recognition | None:
    """One text ends here with the markers that open a reply; the other one has a reply, opened in another way."""
    # The difference may lie inside a marker: <think> and <tool_call> share two characters.
    opened = d.before.rfind("<")
    start = d.offset if opened < 0 or ">" in d.before[opened:] else d.line_start + opened
    for prompt in (d.a, d.b):
        rest = prompt.text[start : start + _WINDOW]
        if len(rest) < _WINDOW and MARKER.search(rest) and not MARKER.sub("", rest).strip():
            a, b = snippet(d, raw=True)
            return Recognition("template", a, b, "the reply starts differently", "generation prompt")
    return None


def _markers(d: FirstDifference, boundary: bool) -> Recognition | None:
    start = max(0, d.offset - 40)
    texts = [p.text[start : start + _WINDOW] for p in (d.a, d.b)]
    plain = [_BLANK.sub("", MARKER.sub("", text)) for text in texts]
    if not _agree(*plain):
        return None
    tokens = [[m.group() for m in MARKER.finditer(text)] for text in texts]
    if tokens[0] == tokens[1]:
        return None
    changed = next(((x, y) for x, y in zip(*tokens, strict=False) if x != y), None)
    if changed is None:
        longer = max(tokens, key=len)
        changed = (longer[min(map(len, tokens))],) * 2
    if boundary != any(_BOUNDARY.fullmatch(token) for token in changed):
        return None
    a, b = snippet(d, raw=True)
    if boundary:
        return Recognition("special-token", a, b, "a special token that begins or ends the text differs", changed[0])
    return Recognition("template", a, b, "the markers of the chat template differ around the same text", changed[0])


def _agree(a: str, b: str) -> bool:
    """Whether two texts share a prefix too long for chance."""
    length = min(len(a), len(b), _ENOUGH)
    return a[:length] == b[:length] and (length >= 8 or len(a) == len(b))


def _same(d: FirstDifference, key: str) -> bool:
    return (d.a.body or {}).get(key) == (d.b.body or {}).get(key)
