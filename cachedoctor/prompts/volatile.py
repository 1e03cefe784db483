"""What the first difference between two prompts is, and what to do about it.

Knows the order in which the recognisers are asked; each of them knows one kind. Must not know tokens, files, logs or
output. Looks at bounded windows around the offset, and once at the lists of messages and tools.
"""

from __future__ import annotations

import msgspec

from cachedoctor.model import Advice, KnownClient
from cachedoctor.prompts import client_habits
from cachedoctor.prompts.difference_advice import advise
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.recognisers import (
    billing_header,
    compaction_request,
    edited_messages,
    generated_values,
    hoisted,
    jsons,
    markup,
    request_fields,
    tools,
)
from cachedoctor.prompts.recognisers.base import Difference, Recogniser, Recognition, shown, snippet

__all__ = ["REGISTRY", "Recognised", "recognise"]


class Recognised(msgspec.Struct):
    """What differs first."""

    kind: str
    """Stable handle: ``billing-header``, ``timestamp``, ``tool-added``, ..."""
    field: str | None
    """What varies in it (``cch``), or its name (``Tokens used``)."""
    a: str
    """The smallest telling piece of the first prompt; empty when it has none."""
    b: str
    explanation: str
    """One clause that can stand behind a colon."""
    advice: list[Advice]
    sure: bool
    """The look-alikes are excluded."""
    client: KnownClient | None = None
    """Whose doing it is, where the prompts prove it."""


REGISTRY: tuple[Recogniser, ...] = (
    markup.image,
    request_fields.cache_salt,
    request_fields.adapter,
    markup.retokenised,
    markup.appended,
    billing_header.billing_header,
    compaction_request.compaction_request,
    # Both sides say the same, in other words.
    jsons.json_key_order,
    jsons.json_spacing,
    markup.whitespace,
    markup.special_token,
    markup.template,
    # Lists that are equal but for whole items: too telling to be taken for a value inside an item.
    markup.reasoning_dropped,
    markup.reasoning_added,
    hoisted.system_hoisted,
    tools.tool_added,
    tools.tool_removed,
    tools.tools_reordered,
    edited_messages.front_truncated,
    edited_messages.message_moved,
    edited_messages.message_inserted,
    edited_messages.message_removed,
    generated_values.value,
    # An item that changed, in ways that no value explains.
    tools.tool_edited,
    edited_messages.compacted,
    generated_values.value_and_more,
    edited_messages.message_edited,
    edited_messages.other_conversation,
    markup.template_alone,
)
"""The first that says yes wins."""


def recognise(a: Prompt, b: Prompt, offset: int, same_text: bool = False) -> Recognised:
    """Say what differs at ``offset``, the first differing code point of the two texts.

    ``offset`` may be the length of the shorter text. ``same_text``: the caller knows the texts to be equal and only
    their tokens to differ.
    """
    d = Difference(a, b, offset, same_text)
    found = next((found for recogniser in REGISTRY if (found := recogniser(d))), None) or _other(d)
    known = client_habits.known(found.kind, found.field, a, b, d.offset)
    return Recognised(
        kind=found.kind,
        field=found.field,
        a=shown(found.a),
        b=shown(found.b),
        explanation=found.explanation,
        advice=advise(found.kind, found.field, known, _opening(d)),
        sure=found.sure,
        client=client_habits.named(known),
    )


def _opening(d: Difference) -> bool:
    """Whether the system prompt or the first message behind it is what differs."""
    history = edited_messages.histories(d)
    return history is not None and history.at <= history.heads


def _other(d: Difference) -> Recognition:
    a, b = snippet(d)
    return Recognition("other", a, b, "the texts differ, in a way that has no name here", None, False)
