"""The fixes that need a conversation's memory: clock, tools, reasoning, system messages."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from cachedoctor.live.proxy.json_spans import JsonSpan, TextEdit, decode, encode, inside, items, members
from cachedoctor.live.proxy.known_conversation import (
    TRAVELLING,
    KnownConversation,
    PinnedMessage,
    Thought,
    TurnTrail,
    leading,
    reply_turn,
    role,
)
from cachedoctor.prompts.recognisers.generated_values import stamps


class EditedBody(NamedTuple):
    """Edits of a body that do not overlap."""

    edits: list[TextEdit]
    words: str
    """Description of the edits; quotes nothing of the body."""


class RequestText(NamedTuple):
    """A body as text."""

    text: str
    body: dict[str, JsonSpan]
    path: str
    """Path of the request's address."""

    def messages(self) -> list[JsonSpan]:
        """The list of messages; raises ValueError if there is none."""
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


def freeze_clock(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Restore the dates and times of the first request; the conversation proves that the texts around them are
    equal."""
    found = [(string, stamp) for string in system_strings(request) for stamp in stamps(string.value)]
    known = followed.known
    if known.clock is None:
        known.clock = tuple(stamp.group() for _, stamp in found)
        return None
    if len(found) != len(known.clock):
        return None
    edits = []
    for (string, stamp), old in zip(found, known.clock, strict=True):
        if stamp.group() != old:
            start, end = inside(request.text, string, [*stamp.span()])
            edits.append(TextEdit(start, end, json.dumps(old)[1:-1]))
    if not edits:
        return None
    what = "1 date or time" if len(edits) == 1 else f"{len(edits)} dates or times"
    return EditedBody(edits, f"{what} of the system prompt restored from the first request")


MOST_TOOLS = 256
"""Tools of a list that is kept."""
_FREE = (None, "auto", {"type": "auto"})
"""Values of ``tool_choice`` that let the model choose a tool or none."""


def keep_tools(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Restore removed tools in their order; new ones come after them, and changed ones stay changed."""
    found = _tools(request)
    choice = request.body.get("tool_choice")
    if not found or (choice is not None and choice.value not in _FREE):
        return None
    present = {name: request.text[tool.start : tool.end] for name, tool in found.items()}
    known = followed.known.tools
    if known is None:
        followed.known.tools = present
        return None
    wanted = {name: _settled(raw, found.get(name), present.get(name, "")) for name, raw in known.items()} | {
        name: raw for name, raw in present.items() if name not in known
    }
    if len(wanted) > MOST_TOOLS:
        return None
    followed.known.tools = wanted
    if list(wanted.values()) == list(present.values()):
        return None
    spans = list(found.values())
    between = request.text[spans[0].end : spans[1].start] if len(spans) > 1 else ","
    edit = TextEdit(spans[0].start, spans[-1].end, between.join(wanted.values()))
    back, new = sum(name not in present for name in wanted), sum(name not in known for name in wanted)
    words = [f"{back} restored" * bool(back), f"{new} new at the end" * bool(new)]
    return EditedBody([edit], f"{len(wanted)} tools as before" + "".join(f", {word}" for word in words if word))


def tool_name(tool: object) -> str | None:
    """The name of a tool of any API; None if it has none."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def _tools(request: RequestText) -> dict[str, JsonSpan]:
    """The tools by name; none if not all have different ones."""
    tools = items(request.text, request.body["tools"].start) if "tools" in request.body else []
    found = {name: tool for tool in tools if (name := tool_name(tool.value)) is not None}
    return found if len(found) == len(tools) else {}


def _settled(old: str, tool: JsonSpan | None, new: str) -> str:
    """The old text of a tool whose meaning is the same; the current text of any other tool."""
    return old if tool is None or old == new or decode(old) == tool.value else new


_FIELDS = ("reasoning_content", "reasoning", "thinking")
_BLOCKS = ("thinking", "redacted_thinking")


def keep_reasoning(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Restore the reasoning that an answer or an earlier request had before the same turn of the same conversation."""
    messages, trail, known = request.messages(), followed.trail, followed.known
    edits: list[TextEdit] = []
    turns = 0
    for turn, place, prefix in zip(trail.turns, trail.places, trail.prefixes, strict=True):
        if turn.role != "assistant":
            continue
        thought = _thought(request.text, messages[place])
        if thought is not None:
            known.thoughts[prefix] = thought
        elif prefix in known.thoughts and not turn.reasoning:
            found = _with(request.text, messages[place], known.thoughts[prefix])
            edits += found
            turns += bool(found)
    if not edits:
        return None
    return EditedBody(edits, f"restored the reasoning of {turns} {'reply' if turns == 1 else 'replies'}")


def reply_thought(message: dict[str, Any]) -> Thought | None:
    """The reasoning of an answer; None if it has none, or none that can be sent as JSON."""
    try:
        text = encode(message)
        return _thought(text, JsonSpan(0, len(text), decode(text)))
    except ValueError:
        return None


def _thought(text: str, message: JsonSpan) -> Thought | None:
    """The reasoning of a message; None if it has none, or if its form is unknown."""
    parts = members(text, message.start)
    fields = [(key, parts[key]) for key in _FIELDS if key in parts]
    named = tuple((key, text[at.start : at.end]) for key, at in fields if isinstance(at.value, str) and at.value)
    if named:
        return Thought(fields=named)
    content = parts.get("content")
    if content is None:
        return None
    if isinstance(content.value, str):
        is_inline = bool(reply_turn({"role": "assistant", "content": content.value}).reasoning)
        return Thought(content=text[content.start : content.end]) if is_inline else None
    blocks = items(text, content.start) if isinstance(content.value, list) else []
    count = next((n for n, block in enumerate(blocks) if not _is_thought(block.value)), len(blocks))
    if not count or any(_is_thought(block.value) for block in blocks[count:]):
        return None
    return Thought(blocks=text[blocks[0].start : blocks[count - 1].end])


def _with(text: str, message: JsonSpan, thought: Thought) -> list[TextEdit]:
    """Edits that give a message its reasoning; none if it is written in another form than it was."""
    parts = members(text, message.start)
    content = parts.get("content")
    if thought.fields:
        end = max(part.end for part in parts.values())
        new = "".join(f',"{key}":{raw}' for key, raw in thought.fields if key not in parts)
        edits = [TextEdit(parts[key].start, parts[key].end, raw) for key, raw in thought.fields if key in parts]
        return [*edits, TextEdit(end, end, new)] if new else edits
    if content is None:
        return []
    if thought.content:
        is_text = isinstance(content.value, str)
        return [TextEdit(content.start, content.end, thought.content)] if is_text else []
    if isinstance(content.value, str):
        block = f'{{"type":"text","text":{text[content.start : content.end]}}}'
        return [TextEdit(content.start, content.end, f"[{thought.blocks},{block}]")] if content.value else []
    blocks = items(text, content.start) if isinstance(content.value, list) else []
    if not blocks or any(_is_thought(block.value) for block in blocks):
        return []
    return [TextEdit(blocks[0].start, blocks[0].start, f"{thought.blocks},")]


def _is_thought(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _BLOCKS


_MARKED = "cache_control"
"""Key of a part whose number is limited: it is not sent twice."""


def keep_reminders(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Restore what the client had added to earlier messages of a user and adds to the newest one now."""
    messages, trail, known = request.messages(), followed.trail, followed.known.reminded
    users = [n for n, place in enumerate(trail.places) if role(messages[place].value) == "user"]
    if not users:
        return None
    newest = messages[trail.places[users[-1]]].value.get("content")
    tags = _tags(newest)
    edits = []
    for number in users[:-1]:
        content = members(request.text, messages[trail.places[number]].start).get("content")
        raw = known.get(trail.prefixes[number])
        if content is None or raw is None or _tags(content.value) or not tags & _tags(decode(raw)):
            continue
        edits.append(TextEdit(content.start, content.end, raw))
    if tags and len(known) < MOST_MESSAGES:
        known[trail.prefixes[users[-1]]] = encode(_unmarked(newest))
    if not edits:
        return None
    what = "1 message" if len(edits) == 1 else f"{len(edits)} messages"
    return EditedBody(edits, f"restored additions to {what} of the user")


def _tags(content: Any) -> set[str]:
    """Names of what a client added to a message of a user."""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return {found["tag"] for text in texts if isinstance(text, str) for found in TRAVELLING.finditer(text)}


def _unmarked(content: Any) -> Any:
    """A content without marks of which a request may have few."""
    if not isinstance(content, list):
        return content
    return [
        {key: value for key, value in part.items() if key != _MARKED} if isinstance(part, dict) else part
        for part in content
    ]


_SYSTEM = ("system", "developer")
_HOISTED = "/messages"
"""Part of the paths whose servers move system messages: also of those that only count."""
_PLAIN = frozenset({"role", "content"})
"""Keys of a message that can be sent with the role user instead: it has no others."""
MOST_MESSAGES = 200
"""Messages that are pinned in one conversation."""


class _Standing(NamedTuple):
    """A system message in the middle of a request."""

    at: int
    """Index in the list of messages."""
    turns: int
    """Turns before it."""
    said: str


def pin_mid_system(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Restore messages that vanished, drop moved ones from their new place, and send as the user what would be
    moved."""
    messages = request.messages()
    here = _standing(messages, followed.trail.places)
    pinned = [one for one in followed.known.pinned if _holds(one, followed.trail.prefixes)]
    free, stays, gone = list(here), [], []
    for one in pinned:
        same = next((s for s in free if (s.turns, s.said) == (one.turns, one.said)), None)
        if same is not None:
            free.remove(same)
            stays.append(same)
        elif one.turns < len(followed.trail.turns):
            gone.append(one)
    moved = [s for s in (_moved(one, free) for one in gone) if s is not None]
    stays += [s for s in free if s not in moved]
    spoken = _spoken(request, messages, stays)
    if spoken is None or len(stays) + len(gone) > MOST_MESSAGES:
        followed.known.pinned = []
        return None
    _remember(followed, request.text, messages, stays, gone, spoken)
    edits = [*spoken, *_put_back(messages, followed.trail.places, gone)]
    edits += [TextEdit(messages[s.at - 1].end, messages[s.at].end, "") for s in moved]
    if not edits:
        return None
    words = [f"{len(gone)} moved back to the original position" if gone else "", f"{len(moved)} moved" if moved else ""]
    words += [f"{len(spoken)} sent as user messages" if spoken else ""]
    return EditedBody(edits, "system messages in the middle: " + ", ".join(filter(None, words)))


def _standing(messages: list[JsonSpan], places: tuple[int, ...]) -> list[_Standing]:
    first = leading([message.value for message in messages])
    found = []
    for index, message in enumerate(messages):
        if index >= first and role(message.value) in _SYSTEM:
            said = encode(message.value.get("content"))
            found.append(_Standing(index, sum(place < index for place in places), said))
    return found


def _holds(one: PinnedMessage, prefixes: tuple[int, ...]) -> bool:
    """Whether the turns before it are still there."""
    return one.turns <= len(prefixes) and prefixes[one.turns - 1] == one.prefix


def _moved(one: PinnedMessage, free: list[_Standing]) -> _Standing | None:
    """Its current position, further back; a message that occurs twice moves once."""
    found = next((s for s in free if s.said == one.said and s.turns > one.turns), None)
    if found is not None:
        free.remove(found)
    return found


def _spoken(request: RequestText, messages: list[JsonSpan], stays: list[_Standing]) -> list[TextEdit] | None:
    """Edits that give messages the role user; None if one of them cannot have it."""
    if _HOISTED not in request.path:
        return []
    edits = []
    for standing in stays:
        message = messages[standing.at]
        # Between a call and its result nobody else may speak.
        if not set(message.value) <= _PLAIN or _calls(messages[standing.at - 1]):
            return None
        said = members(request.text, message.start)["role"]
        edits.append(TextEdit(said.start, said.end, '"user"'))
    return edits


def _calls(message: JsonSpan) -> bool:
    content = message.value.get("content") if isinstance(message.value, dict) else None
    parts = content if isinstance(content, list) else []
    return any(isinstance(part, dict) and part.get("type") == "tool_use" for part in parts)


def _remember(
    followed: FollowedRequest,
    text: str,
    messages: list[JsonSpan],
    stays: list[_Standing],
    gone: list[PinnedMessage],
    spoken: list[TextEdit],
) -> None:
    """Pin the current system messages, as they are forwarded."""
    found = list(gone)
    for standing in stays:
        message = messages[standing.at]
        raw = text[message.start : message.end]
        for edit in spoken:
            if message.start <= edit.start < message.end:
                raw = text[message.start : edit.start] + edit.text + text[edit.end : message.end]
        prefix = followed.trail.prefixes[standing.turns - 1]
        found.append(PinnedMessage(standing.turns, prefix, standing.said, raw))
    followed.known.pinned = sorted(found, key=lambda one: one.turns)


def _put_back(messages: list[JsonSpan], places: tuple[int, ...], gone: list[PinnedMessage]) -> list[TextEdit]:
    """One edit for each turn after which something is missing."""
    edits = []
    for turns in sorted({one.turns for one in gone}):
        at = messages[places[turns - 1]].end
        edits.append(TextEdit(at, at, "".join(f",{one.raw}" for one in gone if one.turns == turns)))
    return edits
