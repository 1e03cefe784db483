"""What a fix is given, and what it gives back. Knows no fix."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.proxy.json_spans import Edit, JsonSpan, items, members
from cachedoctor.proxy.known_conversation import KnownConversation
from cachedoctor.proxy.turn_trail import TurnTrail, leading


class EditedBody(NamedTuple):
    """Edits of a body that do not overlap."""

    edits: list[Edit]
    words: str
    """What they do; quotes nothing of the body."""


class RequestText(NamedTuple):
    """A body as text."""

    text: str
    body: dict[str, JsonSpan]
    path: str
    """Of the request's address."""

    def messages(self) -> list[JsonSpan]:
        """The list of messages; raises ValueError where there is none."""
        if "messages" not in self.body:
            raise ValueError("no messages")
        return items(self.text, self.body["messages"].start)


class FollowedRequest(NamedTuple):
    """A request and what is known of its conversation."""

    trail: TurnTrail
    known: KnownConversation


def system_strings(request: RequestText) -> list[JsonSpan]:
    """The strings of the system prompt, in their order, wherever the API has it."""
    text, body = request.text, request.body
    found = [part for key in ("system", "instructions") if key in body for part in _strings(text, body[key])]
    for key in ("messages", "input"):
        if key in body and isinstance(body[key].value, list):
            for message in items(text, body[key].start)[: leading(body[key].value)]:
                found += _strings(text, members(text, message.start).get("content"))
    return found


def _strings(text: str, content: JsonSpan | None) -> list[JsonSpan]:
    if content is None or isinstance(content.value, str):
        return [] if content is None else [content]
    parts = items(text, content.start) if isinstance(content.value, list) else []
    found = [members(text, part.start).get("text") for part in parts if isinstance(part.value, dict)]
    return [part for part in found if part is not None and isinstance(part.value, str)]
