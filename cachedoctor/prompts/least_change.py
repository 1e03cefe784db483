"""The smallest set of changes between two prompts that restores reuse, found by undoing one after the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model.diff import LeastChange, LeastEdit
from cachedoctor.prompts import difference_advice
from cachedoctor.prompts.align import align
from cachedoctor.prompts.compare_prompts import hashed_place, is_common
from cachedoctor.prompts.difference_advice import RecognisedDifference
from cachedoctor.prompts.prompt import Prompt, digest
from cachedoctor.prompts.tokenizers import base
from cachedoctor.prompts.tokenizers.base import Tokenizer
from cachedoctor.prompts.undoing import undone

MOST = 16
"""Maximum changes that are undone, one after the other."""
_LEAST_SHARE = 0.01
"""Share of the newer prompt: changes that restore less are ignored."""
_LEAST_TOKENS = 16
"""Minimum common tokens after a change: more than the reply opening that templates write."""
_REASONING = "reasoning-"
"""Prefix of the kinds of changes that are undone in all messages at once."""
_OF_TEMPLATE = frozenset({"template", "special-token", "retokenised"})
_MCP = late(r"mcp__(\w+?)__\w+")


class _TakenBack(msgspec.Struct):
    """A change that was undone."""

    edit: LeastEdit
    put_back: int
    """Tokens up to the end of the restored text."""
    text: str
    """The newer prompt with the change undone."""

    @property
    def gained(self) -> int:
        """Common tokens after the restored text."""
        return max(0, self.edit.reuse - self.put_back)


def least_change(a: Prompt, b: Prompt, tokenizer: Tokenizer, render: Callable[[Prompt], Prompt]) -> LeastChange:
    """Find it by undoing the first change, measuring the common prefix, and so on.

    Args:
        a: what the server holds, as it was read.
        b: the newer prompt, as it was read.
        tokenizer: counts; its tokens decide what is common.
        render: makes of a prompt what the model sees.
    """
    held, now = render(a), render(b)
    tokens, lead = tokenizer.encode(held.text), tokenizer.leading(now.text)
    length = len(tokenizer.encode(now.text)) + lead
    steps, common, is_bounded = list[_TakenBack](), None, False
    while True:
        found = base.first_difference(tokenizer, held.text, now.text)
        reuse = lead + (len(tokens) if found is None else found.token)
        if common is None:
            common = reuse
        elif steps:
            steps[-1].edit.reuse = reuse
        if found is None or found.char >= len(held.text.rstrip()):
            break
        known = difference_advice.recognise(held, now, found.char)
        places = [place for side in (now, held) if (place := side.place_at(found.char)) is not None]
        after = None if known.kind == "appended" else undone(a, b, places)
        if after is None:
            break
        if len(steps) == MOST:
            is_bounded = True
            break
        line = now.text.count("\n", 0, found.char) + 1
        b, before, now = after, now, render(after)
        if now.text == before.text:  # what was taken back is not rendered
            break
        end = len(now.text) - align.common_suffix(before.text, now.text, len(now.text) - found.char)
        if known.kind.startswith(_REASONING):  # of every message: what lies between was there before
            end = min(end, found.char + max(0, len(now.text) - len(before.text)))
        edit = _edit(known, _place(known.kind, places), line)
        steps.append(_TakenBack(edit, bisect_left(tokens.starts, end) + lead, now.text))
    kept = _enough(steps, length)
    for step in steps[:kept]:
        step.edit.tokens = len(tokenizer.encode(step.text)) + lead
    return LeastChange(common or 0, length, [step.edit for step in steps[:kept]], len(steps) - kept, is_bounded)


def _place(kind: str, places: list[str]) -> str | None:
    """Where the change is: for a list that is shorter now, where the older request continues."""
    at_tools = [place for place in places if place.startswith("tools")]
    return next(iter([*(at_tools if kind.startswith("tool") else []), *places]), None)


def _enough(steps: list[_TakenBack], length: int) -> int:
    """How many of the first changes restore all but what does not matter."""
    least = max(_LEAST_TOKENS, _LEAST_SHARE * length)
    left, kept = 0, len(steps)
    while kept:
        left += steps[kept - 1].gained
        if left >= least:
            break
        kept -= 1
    return kept


def _edit(known: RecognisedDifference, place: str | None, line: int) -> LeastEdit:
    words = _words(known.kind, known.field, place, line)
    return LeastEdit(known.kind, known.field, place, line, words, 0, 0, _owner(known), known.advice, known.client)


def hashed(found: LeastChange) -> LeastChange:
    """The same without names that come from the prompts."""
    return msgspec.structs.replace(found, edits=[_hashed(edit) for edit in found.edits])


def _hashed(edit: LeastEdit) -> LeastEdit:
    field = edit.field if edit.field is None or is_common(edit.field) else digest(edit.field)
    place = None if edit.place is None else hashed_place(edit.place)
    words = _words(edit.kind, field, place, edit.line)
    return msgspec.structs.replace(edit, field=field, place=place, words=words)


def _owner(known: RecognisedDifference) -> Literal["client", "plugin", "template"]:
    if known.kind in _OF_TEMPLATE:
        return "template"
    return "plugin" if known.kind.startswith("tool") and _MCP.search(f"{known.a} {known.b}") else "client"


_DO = {
    "tool-added": "leave {field} out of the tool list",
    "tool-removed": "keep {field} in the tool list",
    "tools-reordered": "keep the order of the tools",
    "tool-edited": "keep the {field} of the tool the same",
    "billing-header": "turn off the billing header ({field})",
    "reasoning-dropped": "send the reasoning of earlier turns back",
    "reasoning-added": "leave the reasoning of earlier turns as it was",
    "message-removed": "keep the message",
    "message-inserted": "leave out the message that was inserted",
    "message-moved": "keep the order of the messages",
    "message-edited": "keep the message the same",
    "front-truncated": "do not drop the oldest messages",
    "compacted": "do not compact the history",
    "image": "send the same bytes of the image",
    "template": "keep the options of the chat template the same",
    "special-token": "leave the special token out",
    "json-key-order": "keep the order of keys in the JSON",
    "json-spacing": "keep the spacing of the JSON",
    "whitespace": "keep spaces and line ends",
    "system-hoisted": "do not add to the system prompt",
}  # fmt: skip
_VALUES = frozenset({"timestamp", "uuid", "random-id", "counter", "path", "git-state"})


def _words(kind: str, field: str | None, place: str | None, line: int) -> str:
    """What to do, and where."""
    where = f" (line {line:,})" if place is None else f" ({place}, line {line:,})"
    if kind in _VALUES:
        name = kind if field in (None, kind) else f"{kind}: {field}"
        return f"drop or freeze the value ({name}){where}"
    named = f"`{field}`" if kind in ("tool-added", "tool-removed") and field else field
    return _DO.get(kind, "keep the text the same").format(field=named or "definition") + where
