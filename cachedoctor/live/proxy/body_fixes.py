"""Edits of request bodies that keep their prefix the same, each as small as possible.

A body in which a fix does not recognise exactly what it is about stays as it is.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.proxy.conversation_fixes import (
    EditedBody,
    FollowedRequest,
    RequestText,
    freeze_clock,
    keep_reasoning,
    keep_reminders,
    keep_tools,
    pin_mid_system,
    reply_thought,
    tool_name,
)
from cachedoctor.live.proxy.json_spans import JsonSpan, TextEdit, applied, items, members, top
from cachedoctor.live.proxy.known_conversation import KnownConversation, KnownConversations, TurnTrail, extended, trail
from cachedoctor.prompts.recognisers.client_marks import NAME

_HEADER = late(re.escape(NAME) + r"(?:[ \t]*[A-Za-z_][\w-]*=[^;\s\\\"]*;)+")
"""The header inside JSON text: its last field also ends with a semicolon, so that no partial header is dropped."""
_REST = late(r"(?:\\n)*")
"""Line ends after it, as JSON writes them."""


class Fixed(NamedTuple):
    """A body with its edits."""

    body: bytes
    edits: tuple[str, ...] = ()
    """Description of each edit; empty if nothing was changed."""
    known: KnownConversation | None = None
    """Its conversation, where a fix remembers it."""
    prefix: int = 0
    """Hash of its turns."""


class BodyFixer:
    """Applies the requested fixes, and remembers what they need of each conversation."""

    def __init__(self, names: Sequence[str]) -> None:
        self._plain = [name for name in _PLAIN if name in names]
        self._following = [name for name in _FOLLOWING if name in names]
        self._conversations = KnownConversations()
        self._lock = threading.Lock()

    def replied(self, fixed: Fixed, message: dict[str, Any]) -> None:
        """Remember the answer to a request, as a client would send it back."""
        thought = None if fixed.known is None else reply_thought(message)
        if fixed.known is not None and thought is not None:
            self._conversations.note(fixed.known, extended(fixed.prefix, message), thought)

    def fix(self, body: bytes, path: str, sender: bytes) -> Fixed:
        """Apply them one after the other, in the order of ``NAMES``; may be called from several threads.

        Args:
            body: as the client sent it.
            path: of the request's address.
            sender: digest of who sent it: what one sender said is put into no request of another.
        """
        plain = [name for name in self._plain if _PLAIN[name][0] in body]
        if not plain and not (self._following and _MESSAGES.search(body)):
            return Fixed(body)
        try:
            request = _request(body.decode(), path)
        except (ValueError, RecursionError):  # not UTF-8, or not JSON as it must be
            return Fixed(body)
        words: list[str] = []
        fixes = [(name, _PLAIN[name][1]) for name in plain]
        if not self._following:
            request = _edited(request, fixes, words)
            return Fixed(request.text.encode() if words else body, tuple(words))
        with self._lock:
            return self._followed(body, request, fixes, words, sender)

    def _followed(
        self, body: bytes, request: RequestText, fixes: list[_Named], words: list[str], sender: bytes
    ) -> Fixed:
        """Apply the fixes with a memory too, if the conversation is known to have accepted them."""
        found = _trail(request)
        if found is None:
            request = _edited(request, fixes, words)
            return Fixed(request.text.encode() if words else body, tuple(words))
        followed = FollowedRequest(found, self._conversations.follow(found, sender))
        if not followed.known.is_off:
            fixes += [(name, _with(_FOLLOWING[name], followed)) for name in self._following]
            request = _edited(request, fixes, words)
        self._conversations.keep(followed.known)
        return Fixed(request.text.encode() if words else body, tuple(words), followed.known, found.prefixes[-1])


_Fix = Callable[[RequestText], EditedBody | None]
_Named = tuple[str, _Fix]
_MESSAGES = late(rb'"(?:messages|input)"')


def _trail(request: RequestText) -> TurnTrail | None:
    try:
        return trail({key: part.value for key, part in request.body.items()})
    except ValueError:  # nested too deeply
        return None


def _request(text: str, path: str) -> RequestText:
    return RequestText(text, top(text), path)


def _edited(request: RequestText, fixes: Sequence[_Named], words: list[str]) -> RequestText:
    for name, apply in fixes:
        try:
            found = apply(request)
            if found is not None:
                request = _request(applied(request.text, found.edits), request.path)
                words.append(f"{name}: {found.words}")
        except (ValueError, RecursionError):  # a list or an object that is none, or has a key twice
            continue
    return request


def _with(apply: Callable[[RequestText, FollowedRequest], EditedBody | None], followed: FollowedRequest) -> _Fix:
    return lambda request: apply(request, followed)


def _strip_billing_header(request: RequestText) -> EditedBody | None:
    """Drop the header: the block of a list, or the beginning of the system prompt."""
    text, body = request.text, request.body
    system = body.get("system") or _first_message(text, body)
    if system is None:
        return None
    edit = _shortened(text, system) if isinstance(system.value, str) else _without_block(text, system)
    if edit is None:
        return None
    size = len(text[edit.start : edit.end].encode()) - len(edit.text.encode())
    return EditedBody([edit], f"dropped {size} bytes of the system prompt")


def _first_message(text: str, body: dict[str, JsonSpan]) -> JsonSpan | None:
    """The content of a first message that is a system prompt, or of ``instructions``."""
    if "messages" not in body:
        return body.get("instructions")
    messages = items(text, body["messages"].start)
    if not messages or not isinstance(messages[0].value, dict):
        return None
    if messages[0].value.get("role") not in ("system", "developer"):
        return None
    return members(text, messages[0].start).get("content")


def _shortened(text: str, string: JsonSpan) -> TextEdit | None:
    """Remove the header from the start of a string, with the line ends after it; a string of nothing else stays."""
    header = _HEADER.match(text, string.start + 1)
    if header is None:
        return None
    end = header.end()
    rest = _REST.match(text, end)
    end = end if rest is None else rest.end()
    return None if end >= string.end - 1 else TextEdit(string.start + 1, end, "")


def _without_block(text: str, system: JsonSpan) -> TextEdit | None:
    """Drop the block that is the header alone, or the header from the beginning of the first block."""
    blocks = items(text, system.start) if isinstance(system.value, list) else []
    if not blocks or not _is_text(blocks[0].value) or not blocks[0].value["text"].startswith(NAME):
        return None
    first = blocks[0]
    part = members(text, first.start)["text"]
    header = _HEADER.match(text, part.start + 1)
    if header is None:
        return None
    rest = _REST.match(text, header.end())
    is_alone = rest is not None and rest.end() == part.end - 1
    if not is_alone:
        return _shortened(text, part)
    # A block with a cache_control is a place that the client chose; the only block is all the system prompt there is.
    return (
        TextEdit(first.start, blocks[1].start, "") if len(blocks) > 1 and set(first.value) == {"type", "text"} else None
    )


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _sort_tools(request: RequestText) -> EditedBody | None:
    """Sort the tools by name; what is between them stays."""
    text, body = request.text, request.body
    if "tools" not in body:
        return None
    tools = items(text, body["tools"].start)
    names = [tool_name(tool.value) for tool in tools]
    known = [name for name in names if name is not None]
    if len(set(known)) != len(tools):
        return None
    order = sorted(range(len(tools)), key=lambda index: known[index])
    moved = [(place, index) for place, index in enumerate(order) if place != index]
    if not moved:
        return None
    edits = [TextEdit(tools[p].start, tools[p].end, text[tools[i].start : tools[i].end]) for p, i in moved]
    return EditedBody(edits, f"moved {len(moved)} of {len(tools)} tools")


_PLAIN: dict[str, tuple[bytes, _Fix]] = {
    "strip-billing-header": (NAME.encode(), _strip_billing_header),
    "sort-tools": (b'"tools"', _sort_tools),
}
"""Fixes that need only one body, and the bytes that must occur in it for them to apply."""
# Reasoning first: a pinned message that becomes one of the user is none of the turns that were followed.
_FOLLOWING = {
    "freeze-clock": freeze_clock,
    "keep-tools": keep_tools,
    "keep-reasoning": keep_reasoning,
    "keep-reminders": keep_reminders,
    "pin-mid-system": pin_mid_system,
}
NAMES = (*_PLAIN, *_FOLLOWING)
