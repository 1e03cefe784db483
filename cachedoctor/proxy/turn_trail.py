"""A request's conversation as hashes, by which a later request of it is known. Knows bodies; knows no fix, no bytes.

Turns are hashed without their reasoning, which clients drop, and system messages stand in none: they are what moves.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from cachedoctor.prompts.recognisers.billing_header import HEADER
from cachedoctor.prompts.recognisers.stamps import stamps
from cachedoctor.prompts.recognisers.turns import Turn, from_body

_SYSTEM = ("system", "developer")


class TurnTrail(NamedTuple):
    """A conversation up to a request."""

    head: int
    """Hash of the model's name and of the system prompt, but for the dates and times in it."""
    prefixes: tuple[int, ...]
    """Hash of the first n + 1 turns, for each n."""
    places: tuple[int, ...]
    """Indexes of the turns in the list of messages."""
    turns: tuple[Turn, ...]

    def shared(self, other: Sequence[int]) -> int:
        """How many turns this conversation begins with that another one's ``prefixes`` have."""
        limit = min(len(self.prefixes), len(other))
        # Hashes of prefixes agree up to the first different turn and never after it, so that they can be bisected.
        return bisect_left(range(limit), True, key=lambda n: self.prefixes[n] != other[n])


def trail(body: dict[str, Any]) -> TurnTrail | None:
    """Give the trail of a body; None where it has no list of messages, or no turn in it.

    Texts that are to be embedded are no messages.
    """
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return None
    first = leading(messages)
    places = tuple(n for n in range(first, len(messages)) if role(messages[n]) not in _SYSTEM)
    turns = tuple((from_body({"messages": [_settled(messages[n]) for n in places]})) or ())
    if not turns:
        return None
    prefixes, state = [], 0
    for turn in turns:
        state = extended(state, turn)
        prefixes.append(state)
    texts = strings(body.get("system", body.get("instructions")))
    texts += [text for message in messages[:first] for text in strings(message.get("content"))]
    head = hash((str(body.get("model")), *map(_timeless, texts)))
    return TurnTrail(head, tuple(prefixes), places, turns)


def extended(prefix: int, turn: Turn) -> int:
    """Hash of a prefix with one more turn."""
    return hash((prefix, turn.bare))


def reply_turn(message: dict[str, Any]) -> Turn:
    """The turn that an answer is when a client sends it back."""
    found = from_body({"messages": [_settled(message)]})
    if found is None:
        raise TypeError("a list of messages has turns")
    return found[0]


def leading(messages: list[Any]) -> int:
    """How many messages are the system prompt."""
    return next((n for n, message in enumerate(messages) if role(message) not in _SYSTEM), len(messages))


def role(message: Any) -> str | None:
    """The role of a message; None where it says none."""
    found = message.get("role") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def strings(content: Any) -> list[str]:
    """The texts of a content, as a string or as a list of parts."""
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def _timeless(text: str) -> str:
    """A text of the system prompt without its dates and times, and without the header that changes by itself."""
    found, at = [], 0
    for stamp in stamps(text):
        found.append(text[at : stamp.start()])
        at = stamp.end()
    whole = "\0".join([*found, text[at:]])
    header = HEADER.match(whole)
    return whole if header is None else whole[header.end() :].lstrip("\n")


def _settled(message: Any) -> Any:
    """A message with the arguments of its calls as values: some clients write them anew."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    return message | {"tool_calls": [_settled_call(call) for call in calls]}


def _settled_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.dumps(json.loads(function["arguments"]), sort_keys=True)
    except (ValueError, RecursionError):
        return call
    return call | {"function": function | {"arguments": arguments}}
