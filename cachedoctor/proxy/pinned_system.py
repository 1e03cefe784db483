"""Fix ``pin-mid-system``: a system message in the middle of a conversation stays where it was first.

In /v1/messages it becomes one of the user at its place: vLLM, ollama and others move what stands there to the front, so
that each new one changes the head. In chat completions its role stays: servers render it where it stands.
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.proxy.edited_body import EditedBody, FollowedRequest, RequestText
from cachedoctor.proxy.exact_json import encode
from cachedoctor.proxy.json_spans import Edit, JsonSpan, members
from cachedoctor.proxy.known_conversation import PinnedMessage
from cachedoctor.proxy.turn_trail import leading, role

_SYSTEM = ("system", "developer")
_HOISTED = "/messages"
"""Part of the paths whose servers move system messages: also of those that only count."""
_PLAIN = frozenset({"role", "content"})
"""Keys of a message that says the same in the name of the user."""
MOST = 200
"""Messages that are pinned in one conversation."""


class _Standing(NamedTuple):
    """A system message in the middle of a request."""

    at: int
    """In the list of messages."""
    turns: int
    """Turns in front of it."""
    said: str


def pin_mid_system(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Put back what vanished, drop what moved from its new place, and say as the user what would be moved."""
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
    if spoken is None or len(stays) + len(gone) > MOST:
        followed.known.pinned = []
        return None
    _remember(followed, request.text, messages, stays, gone, spoken)
    edits = [*spoken, *_put_back(messages, followed.trail.places, gone)]
    edits += [Edit(messages[s.at - 1].end, messages[s.at].end, "") for s in moved]
    if not edits:
        return None
    words = [f"{len(gone)} put back where it was first" if gone else "", f"{len(moved)} moved" if moved else ""]
    words += [f"{len(spoken)} as the user" if spoken else ""]
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
    """Whether the turns in front of it are still there."""
    return one.turns <= len(prefixes) and prefixes[one.turns - 1] == one.prefix


def _moved(one: PinnedMessage, free: list[_Standing]) -> _Standing | None:
    """Where it stands now, further back; what is said twice moves once."""
    found = next((s for s in free if s.said == one.said and s.turns > one.turns), None)
    if found is not None:
        free.remove(found)
    return found


def _spoken(request: RequestText, messages: list[JsonSpan], stays: list[_Standing]) -> list[Edit] | None:
    """Edits that give messages to the user; None where one cannot be given."""
    if _HOISTED not in request.path:
        return []
    edits = []
    for standing in stays:
        message = messages[standing.at]
        # Between a call and its result nobody else may speak.
        if not set(message.value) <= _PLAIN or _calls(messages[standing.at - 1]):
            return None
        said = members(request.text, message.start)["role"]
        edits.append(Edit(said.start, said.end, '"user"'))
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
    spoken: list[Edit],
) -> None:
    """Pin what stands there now, as it is sent on."""
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


def _put_back(messages: list[JsonSpan], places: tuple[int, ...], gone: list[PinnedMessage]) -> list[Edit]:
    """One edit for each turn behind which something is missing."""
    edits = []
    for turns in sorted({one.turns for one in gone}):
        at = messages[places[turns - 1]].end
        edits.append(Edit(at, at, "".join(f",{one.raw}" for one in gone if one.turns == turns)))
    return edits
