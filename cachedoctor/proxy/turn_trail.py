"""A request's conversation as hashes, by which a later request of it is known. Knows bodies; knows no fix, no bytes.

Turns are hashed without their reasoning, which clients drop, and system messages stand in none: they are what moves.
All else counts as JSON does (``exact_json``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cachedoctor.prompts.recognisers.billing_header import HEADER
from cachedoctor.prompts.recognisers.stamps import stamps
from cachedoctor.prompts.recognisers.turns import Turn, from_body, split_reasoning
from cachedoctor.proxy.exact_json import decode, encode
from cachedoctor.proxy.sender_digest import tells_sender

_SYSTEM = ("system", "developer")
_REASONING = frozenset({"reasoning_content", "reasoning", "thinking"})
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_TEXTS = (None, "text", "input_text", "output_text")
_MARKS = frozenset({"cache_control", "id", "tool_call_id", "tool_use_id", "call_id", "index", "signature"})
"""Keys of messages, parts and calls that clients write anew though they say the same."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})


class TurnTrail(NamedTuple):
    """A conversation up to a request."""

    head: int
    """Hash of the model's name, of whom the body names, and of the system prompt, but for the dates and times in it."""
    prefixes: tuple[int, ...]
    """Hash of the first n + 1 turns, for each n."""
    places: tuple[int, ...]
    """Indexes of the turns in the list of messages."""
    turns: tuple[Turn, ...]
    said: int = 0
    """Hash of what a client repeats when it sends a request again: its tools, and all messages that are no system
    prompt; where there is one turn only, the system prompt as well."""


def trail(body: dict[str, Any]) -> TurnTrail | None:
    """Give the trail of a body; None where it has no list of messages, or no turn in it.

    Texts that are to be embedded are no messages.

    Raises:
        ValueError: it is nested too deeply.
    """
    messages = body.get("messages", body.get("input"))
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return None
    first = leading(messages)
    places = tuple(n for n in range(first, len(messages)) if role(messages[n]) not in _SYSTEM)
    turns = tuple(from_body({"messages": [messages[n] for n in places]}) or ())
    if not turns:
        return None
    prefixes, state = [], 0
    for place in places:
        state = extended(state, messages[place])
        prefixes.append(state)
    prompts = [body.get("system"), body.get("instructions"), *(message.get("content") for message in messages[:first])]
    head = hash((encode(body.get("model")), _named(body), *(text for part in prompts for text in _system(part))))
    repeated = [body.get("tools"), messages[first:], *(prompts if len(turns) == 1 else ())]
    return TurnTrail(head, tuple(prefixes), places, turns, hash(encode(repeated)))


def extended(prefix: int, message: dict[str, Any]) -> int:
    """Hash of a prefix with one more turn."""
    return hash((prefix, _bare(message)))


def reply_turn(message: dict[str, Any]) -> Turn:
    """The turn that an answer is when a client sends it back."""
    found = from_body({"messages": [message]})
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


def _named(body: dict[str, Any]) -> str:
    """Whom a body names: a user, a session, a key."""
    metadata = body.get("metadata")
    parts = [("", body), ("metadata.", metadata if isinstance(metadata, dict) else {})]
    return encode({place + key: part[key] for place, part in parts for key in part if tells_sender(key)})


def _system(content: Any) -> list[str]:
    """What a system prompt says, but for its dates and times."""
    if isinstance(content, str):
        return [_timeless(content)]
    found = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            found += [encode(_said(part, "text")), _timeless(part["text"])]
        else:
            found.append(encode(part))
    return found


def _timeless(text: str) -> str:
    """A text of the system prompt without its dates and times, and without the header that changes by itself."""
    found, at = [], 0
    for stamp in stamps(text):
        found.append(text[at : stamp.start()])
        at = stamp.end()
    whole = "\0".join([*found, text[at:]])
    header = HEADER.match(whole)
    return whole if header is None else whole[header.end() :].lstrip("\n")


def _bare(message: dict[str, Any]) -> tuple[str, ...]:
    """What a turn says but for reasoning, equal for all forms in which clients send the same back."""
    if role(message) is None and message.get("type") == "reasoning":
        return ("reasoning",)
    rest, calls = _said(message, "content"), message.get("tool_calls")
    if isinstance(calls, list):
        rest["tool_calls"] = [_call(call) for call in calls]
    rest = {key: value for key, value in rest.items() if value not in _EMPTY and (key, value) != ("type", "message")}
    return (encode(rest), *_texts(message.get("content"), role(message) == "assistant"))


def _texts(content: Any, is_reply: bool) -> list[str]:
    parts = content if isinstance(content, list) else [content]
    found = [_part(part, is_reply) for part in parts]
    return [part for part in found if part]


def _part(part: Any, is_reply: bool) -> str:
    """One part of a content; empty where it is reasoning alone, or says nothing."""
    if not isinstance(part, dict):
        text = _spoken(part, is_reply) if isinstance(part, str) else part
        return "" if text in _EMPTY else encode(text)
    if part.get("type") in _THOUGHTS:
        return ""
    if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
        more = {key: value for key, value in _said(part, "text", "type").items() if value not in _EMPTY}
        text = _spoken(part["text"], is_reply)
        return (encode(text) if text else "") + (encode(more) if more else "")
    return encode(_said(part, "content")) + "".join(_texts(part.get("content"), False))


def _spoken(text: str, is_reply: bool) -> str:
    """A text as it is compared; clients trim answers, and cut reasoning out of them."""
    return split_reasoning(text)[0].strip() if is_reply else text


def _call(call: Any) -> Any:
    """A call with its arguments as values: some clients write them anew."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    said = {key: value for key, value in function.items() if value not in _EMPTY}
    if isinstance(function.get("arguments"), str):
        try:
            said["arguments"] = encode(decode(function["arguments"]))
        except ValueError:
            pass
    return _said(call, "type") | {"function": said}


def _said(part: dict[str, Any], *without: str) -> dict[str, Any]:
    return {key: part[key] for key in part if key not in _MARKS and key not in _REASONING and key not in without}
