"""Fix ``keep-reasoning``: reasoning that a client leaves out of earlier turns is put back as it was."""

from __future__ import annotations

from typing import Any

from cachedoctor.proxy.edited_body import EditedBody, FollowedRequest, RequestText
from cachedoctor.proxy.exact_json import decode, encode
from cachedoctor.proxy.json_spans import Edit, JsonSpan, items, members
from cachedoctor.proxy.known_conversation import Thought
from cachedoctor.proxy.turn_trail import reply_turn

_FIELDS = ("reasoning_content", "reasoning", "thinking")
_BLOCKS = ("thinking", "redacted_thinking")


def keep_reasoning(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Put back what an answer or an earlier request had in front of the same turn of the same conversation."""
    messages, trail, known = request.messages(), followed.trail, followed.known
    edits: list[Edit] = []
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
    return EditedBody(edits, f"put the reasoning of {turns} {'reply' if turns == 1 else 'replies'} back")


def reply_thought(message: dict[str, Any]) -> Thought | None:
    """The reasoning of an answer; None where it has none, or none that can be sent as JSON."""
    try:
        text = encode(message)
        return _thought(text, JsonSpan(0, len(text), decode(text)))
    except ValueError:
        return None


def _thought(text: str, message: JsonSpan) -> Thought | None:
    """The reasoning of a message; None where it has none, or in a form that is not known here."""
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


def _with(text: str, message: JsonSpan, thought: Thought) -> list[Edit]:
    """Edits that give a message its reasoning; none where it is written in another form than it was."""
    parts = members(text, message.start)
    content = parts.get("content")
    if thought.fields:
        end = max(part.end for part in parts.values())
        new = "".join(f',"{key}":{raw}' for key, raw in thought.fields if key not in parts)
        edits = [Edit(parts[key].start, parts[key].end, raw) for key, raw in thought.fields if key in parts]
        return [*edits, Edit(end, end, new)] if new else edits
    if content is None:
        return []
    if thought.content:
        is_text = isinstance(content.value, str)
        return [Edit(content.start, content.end, thought.content)] if is_text else []
    if isinstance(content.value, str):
        block = f'{{"type":"text","text":{text[content.start : content.end]}}}'
        return [Edit(content.start, content.end, f"[{thought.blocks},{block}]")] if content.value else []
    blocks = items(text, content.start) if isinstance(content.value, list) else []
    if not blocks or any(_is_thought(block.value) for block in blocks):
        return []
    return [Edit(blocks[0].start, blocks[0].start, f"{thought.blocks},")]


def _is_thought(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in _BLOCKS
