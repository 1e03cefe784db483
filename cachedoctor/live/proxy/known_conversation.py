"""A request's conversation as hashes, and what fixes remember of as many conversations as fit."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.proxy.connections import tells_sender
from cachedoctor.live.proxy.json_spans import decode, encode
from cachedoctor.prompts.recognisers.client_marks import HEADER
from cachedoctor.prompts.recognisers.generated_values import stamps
from cachedoctor.prompts.recognisers.turns import MessageTurn, from_body, split_reasoning

_SYSTEM = ("system", "developer")
_REASONING = frozenset({"reasoning_content", "reasoning", "thinking"})
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_TEXTS = (None, "text", "input_text", "output_text")
_MARKS = frozenset({"cache_control", "id", "tool_call_id", "tool_use_id", "call_id", "index", "signature"})
"""Keys of messages, parts and calls that clients rewrite without changing the meaning."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_TAG = r"<(?P<tag>(?:[a-z][\w-]{0,40}[_-])?(?:reminder|environment|context|details|state|status)(?:[_-][\w-]{0,20})?)>"
TRAVELLING = late(rf"\s{{0,8}}{_TAG}(?:(?!</?(?P=tag)>).)*</(?P=tag)>\s{{0,8}}", re.S)
"""What clients add to the newest message of a user, and leave out of the older ones."""


class TurnTrail(NamedTuple):
    """A conversation up to a request."""

    head: int
    """Hash of the model name, of the user, session and key that the body names, and of the system prompt without its
    dates and times."""
    prefixes: tuple[int, ...]
    """Hash of the first n + 1 turns, for each n."""
    places: tuple[int, ...]
    """Indexes of the turns in the list of messages."""
    turns: tuple[MessageTurn, ...]
    said: int = 0
    """Hash of what a client repeats when it sends a request again: its tools, and all messages that are not system
    prompt; where there is one turn only, the system prompt as well."""


def trail(body: dict[str, Any]) -> TurnTrail | None:
    """Give the trail of a body; None if it has no list of messages, or no turn in it.

    Texts that are to be embedded are not messages.

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


def reply_turn(message: dict[str, Any]) -> MessageTurn:
    """The turn that an answer is when a client sends it back."""
    found = from_body({"messages": [message]})
    if found is None:
        raise TypeError("a list of messages has turns")
    return found[0]


def leading(messages: list[Any]) -> int:
    """Number of messages that form the system prompt."""
    return next((n for n, message in enumerate(messages) if role(message) not in _SYSTEM), len(messages))


def role(message: Any) -> str | None:
    """The role of a message; None if it has none."""
    found = message.get("role") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def _named(body: dict[str, Any]) -> str:
    """The user, session or key that a body names."""
    metadata = body.get("metadata")
    parts = [("", body), ("metadata.", metadata if isinstance(metadata, dict) else {})]
    return encode({place + key: part[key] for place, part in parts for key in part if tells_sender(key)})


def _system(content: Any) -> list[str]:
    """Texts of a system prompt, without its dates and times."""
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
    """Content of a turn without reasoning, equal for all forms in which clients send the same turn back."""
    if role(message) is None and message.get("type") == "reasoning":
        return ("reasoning",)
    rest, calls = _said(message, "content"), message.get("tool_calls")
    if isinstance(calls, list):
        rest["tool_calls"] = [_call(call) for call in calls]
    rest = {key: value for key, value in rest.items() if value not in _EMPTY and (key, value) != ("type", "message")}
    return (encode(rest), *_texts(message.get("content"), role(message)))


def _texts(content: Any, who: str | None) -> list[str]:
    parts = content if isinstance(content, list) else [content]
    found = [_part(part, who) for part in parts]
    return [part for part in found if part]


def _part(part: Any, who: str | None) -> str:
    """One part of a content; empty if it is reasoning alone, or has no content."""
    if not isinstance(part, dict):
        text = _spoken(part, who) if isinstance(part, str) else part
        return "" if text in _EMPTY else encode(text)
    if part.get("type") in _THOUGHTS:
        return ""
    if part.get("type") in _TEXTS and isinstance(part.get("text"), str):
        more = {key: value for key, value in _said(part, "text", "type").items() if value not in _EMPTY}
        text = _spoken(part["text"], who)
        return (encode(text) if text else "") + (encode(more) if more else "")
    return encode(_said(part, "content")) + "".join(_texts(part.get("content"), None))


def _spoken(text: str, who: str | None) -> str:
    """Text as it is compared; clients trim answers, remove reasoning from them, and add reminders to the newest user
    message."""
    if who == "assistant":
        return split_reasoning(text)[0].strip()
    return _without_travelling(text) if who == "user" else text


def _without_travelling(text: str) -> str:
    """A user's text without what the client adds at its beginning or its end."""
    while (found := TRAVELLING.match(text)) is not None:
        text = text[found.end() :]
    ends = list(TRAVELLING.finditer(text))
    while ends and ends[-1].end() == len(text):
        text = text[: ends.pop().start()]
    return text


def _call(call: Any) -> Any:
    """A call with its arguments as values: some clients write them again."""
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


MOST = 256
"""Conversations that are remembered: more than any server has slots."""
EACH = 4 << 20
"""Bytes remembered of one conversation; a larger one is no longer edited."""
TOGETHER = 32 << 20
ENDS = 1 << 14
"""Number of positions at which requests ended that are kept, as hashes, for longer than their conversations."""
_SEVERAL = None
"""Marker for a position at which several conversations ended."""
_HASH = 40
"""Bytes of a hash in a list."""
_NOTED = 8 << 20
"""Bytes of answers that wait for the next request."""


class PinnedMessage(NamedTuple):
    """A system message in the middle of a conversation, at its first position."""

    turns: int
    """Turns before it."""
    prefix: int
    """Hash of these turns."""
    said: str
    """Its content, however it is written."""
    raw: str
    """Its bytes as forwarded."""


class Thought(NamedTuple):
    """The reasoning of a turn, as JSON."""

    fields: tuple[tuple[str, str], ...] = ()
    """Keys of the message and their values."""
    blocks: str = ""
    """Blocks before its content."""
    content: str = ""
    """The whole content, if it includes the reasoning as text."""

    @property
    def size(self) -> int:
        """Bytes of memory that it uses."""
        return len(self.blocks) + len(self.content) + sum(len(raw) for _, raw in self.fields) + _HASH


class KnownConversation:
    """What fixes remember of one conversation."""

    def __init__(self, trail: TurnTrail, sender: bytes) -> None:
        self.sender, self.head = sender, trail.head
        self.turns, self.end, self.said = len(trail.prefixes), trail.prefixes[-1], trail.said
        """Number of turns, hash of the turns, and hash of the repeated content of its last request."""
        self.clock: tuple[str, ...] | None = None
        """Dates and times of the first request's system prompt."""
        self.tools: dict[str, str] | None = None
        """Its tools by name, as JSON; tools added later are at the end."""
        self.pinned: list[PinnedMessage] = []
        self.reminded: dict[int, str] = {}
        """User messages with what the client had added, as JSON, by the hash of the turns up to them."""
        self.thoughts: dict[int, Thought] = {}
        """Reasoning by the hash of the turns up to its own."""
        self.doubtful: set[int] = set()
        """Hashes of turns that were answered twice with different reasoning: the same request was sent again."""
        self.is_off = False
        """It is not edited: the server refused an edit, or it is too long."""

    def is_before(self, trail: TurnTrail) -> bool:
        """Whether a request has all turns of its last one."""
        return self.turns <= len(trail.prefixes) and trail.prefixes[self.turns - 1] == self.end

    def go_on(self, trail: TurnTrail) -> None:
        """Record this request as its last one."""
        self.turns, self.end, self.said = len(trail.prefixes), trail.prefixes[-1], trail.said

    def hear(self, turn: int, thought: Thought) -> None:
        """Remember the reasoning of an answer; none of two that say the same after different reasoning."""
        if self.thoughts.get(turn, thought) != thought:
            del self.thoughts[turn]
            self.doubtful.add(turn)
        elif turn not in self.doubtful:
            self.thoughts[turn] = thought

    def forget(self) -> None:
        """Drop what was kept for edits."""
        self.clock, self.tools, self.pinned, self.thoughts, self.doubtful = None, None, [], {}, set()
        self.reminded = {}

    @property
    def size(self) -> int:
        """Bytes of what is remembered."""
        texts = [*(self.clock or ()), *(self.tools or {}).values()]
        texts += [one.raw + one.said for one in self.pinned]
        texts += self.reminded.values()
        return sum(map(len, texts)) + sum(one.size for one in self.thoughts.values()) + _HASH * len(self.doubtful)


class KnownConversations:
    """The conversations of all senders that continued last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[KnownConversation, int]] = OrderedDict()
        """Conversations by their identity, each with the size that it had."""
        self._size = 0
        self._ends: OrderedDict[int, int | None] = OrderedDict()
        """By the hash of a position: the hash of the content of the request that ended there."""
        self._noted: list[tuple[KnownConversation, int, Thought]] = []
        """Reasoning of answers, with the hash of the turns up to it."""
        self._noted_size = 0
        self._noting = threading.Lock()

    def follow(self, trail: TurnTrail, sender: bytes) -> KnownConversation:
        """Give the conversation that a request continues; a new one if there is none, or if it is not certain."""
        self._take_noted()
        places = [hash((sender, trail.head, prefix)) for prefix in trail.prefixes]
        found = self._found(trail, sender, places)
        if found is None:
            found = KnownConversation(trail, sender)
            is_other = self._ends.get(places[-1], trail.said) != trail.said
            self._ends[places[-1]] = _SEVERAL if is_other else trail.said
        else:
            found.go_on(trail)
            if self._ends.get(places[-1], 0) is not _SEVERAL:
                self._ends[places[-1]] = trail.said
        for place in places:
            if place in self._ends:
                self._ends.move_to_end(place)
        while len(self._ends) > ENDS:
            self._ends.popitem(last=False)
        return found

    def _found(self, trail: TurnTrail, sender: bytes, places: list[int]) -> KnownConversation | None:
        """The one conversation that a request can continue."""
        begun = [one for one, _ in self._kept.values() if (one.sender, one.head) == (sender, trail.head)]
        before = [one for one in begun if one.is_before(trail)]
        # Whoever ended last before the request is meant, be it one that was forgotten.
        last = max((n for n, place in enumerate(places, 1) if place in self._ends), default=0)
        found = [one for one in before if one.turns == last]
        if len(found) != 1 or self._ends[places[last - 1]] is _SEVERAL:
            return None
        if last < len(places):
            return found[0]
        # The same request again: any that is shorter may have come to the same words.
        is_shared = len(before) > 1 or any(self._ends.get(place, 0) is _SEVERAL for place in places)
        return found[0] if found[0].said == trail.said and not is_shared else None

    def keep(self, conversation: KnownConversation) -> None:
        """Remember a conversation as the last one."""
        conversation.is_off = conversation.is_off or conversation.size > EACH
        if conversation.is_off:
            conversation.forget()
        self._drop(id(conversation))
        self._kept[id(conversation)] = conversation, conversation.size
        self._size += conversation.size
        while len(self._kept) > MOST or (self._size > TOGETHER and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def note(self, conversation: KnownConversation, turn: int, thought: Thought) -> None:
        """Queue the reasoning of an answer; the next request stores it."""
        with self._noting:
            if self._noted_size + thought.size <= _NOTED:
                self._noted.append((conversation, turn, thought))
                self._noted_size += thought.size

    def _take_noted(self) -> None:
        with self._noting:
            noted, self._noted, self._noted_size = self._noted, [], 0
        for conversation, turn, thought in noted:
            if id(conversation) in self._kept and not conversation.is_off:
                conversation.hear(turn, thought)
                self._kept[id(conversation)] = conversation, conversation.size
        self._size = sum(size for _, size in self._kept.values()) if noted else self._size

    def _drop(self, key: int) -> None:
        if key in self._kept:
            self._size -= self._kept.pop(key)[1]
