"""Which client sent a request, and which part of a difference that client causes."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from typing import Any

from cachedoctor.knowledge import clients
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import ClientName, KnownClient
from cachedoctor.prompts.prompt import CHAT, Prompt
from cachedoctor.prompts.recognisers.turns import MARKER, USER

_LOOK = 20_000
"""Code points of a system prompt in which a client names itself."""
_REACH = 8_000
"""Code points around the first difference, on each side of it, within one message."""
_HEAD = ("system", "instructions")


def known(kind: str, field: str | None, a: Prompt, b: Prompt, offset: int | None) -> list[clients.KnownHabit]:
    """Habits of clients that explain a difference at ``offset``, those that name their client first."""
    pieces = [] if offset is None else [piece(prompt, offset) for prompt in (a, b)]
    return clients.recognise(kind, field, [system_prompt(prompt) for prompt in (a, b)], pieces)


def named(found: list[clients.KnownHabit]) -> KnownClient | None:
    """The client that caused it, for the answer; None if only hints were found."""
    first = next((k for k in found if not k.habit.hint), None)
    if first is None:
        return None
    habit = first.habit
    return KnownClient(first.client.title, first.handle, habit.writes, habit.fixed, habit.sources)


def system_prompt(prompt: Prompt) -> str:
    """The system prompt of a body, or of a rendered text what comes before its first user message."""
    if prompt.kind not in CHAT or prompt.body is None:
        user = USER.search(prompt.text, 0, _LOOK)
        return prompt.text[: _LOOK if user is None else user.start()]
    places = _system_places(prompt)
    spans = [span for span in prompt.spans if span.place.startswith(places)]
    return "\n".join(prompt.text[span.start : span.end] for span in spans)[:_LOOK]


def head_places(prompt: Prompt) -> tuple[str, ...]:
    """Beginnings of the places in a body that come before the conversation: tools and system prompt."""
    return ("tools", *_system_places(prompt))


def _system_places(prompt: Prompt) -> tuple[str, ...]:
    return _HEAD + tuple(f"{name}[{number}]" for name, number in _system_messages(prompt))


def _system_messages(prompt: Prompt) -> list[tuple[str, int]]:
    name = "messages" if "messages" in (prompt.body or {}) else "input"
    items = (prompt.body or {}).get(name)
    found = []
    for number, item in enumerate(items if isinstance(items, list) else []):
        if not isinstance(item, dict) or item.get("role") not in ("system", "developer"):
            break
        found.append((name, number))
    return found


def piece(prompt: Prompt, offset: int) -> clients.MessagePiece:
    """The text around ``offset`` that came from one place of the request, or is between two markers."""
    left, right = max(0, offset - _REACH), min(len(prompt.text), offset + _REACH)
    at = bisect_right(prompt.spans, offset, key=lambda span: span.start) - 1
    if prompt.kind in CHAT and at >= 0 and prompt.spans[at].start <= offset < prompt.spans[at].end:
        left, right = max(left, prompt.spans[at].start), min(right, prompt.spans[at].end)
    else:
        for marker in MARKER.finditer(prompt.text, left, right):
            if marker.start() >= offset:
                right = marker.start()
                break
            left = max(left, marker.end())
    left = min(left, offset)
    return clients.MessagePiece(prompt.text[left:right], offset - left)


_SESSION = (
    "session_id", "conversation_id", "metadata.session_id", "metadata.conversation_id", "session_params.id",
    "prompt_cache_key",
)  # fmt: skip
_USER = ("user", "user_id", "metadata.user_id", "safety_identifier")
_SALT = ("cache_salt", "extra_key")
_LONGEST = 64
"""Characters of a name; a longer one ends in a hash."""
_BEGINNING = 160
"""Letters at the start of a system prompt that decide its family."""
_READ = 4096
"""Characters of a system prompt that are checked."""
_ENOUGH = 12
"""Letters that a system prompt needs to identify a family."""
_HEADER = late(r"^x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)
_WORD = late(r"\w+")
_PRINTABLE = late(r"[\w.@:/+=|-]+")


def asker(prompt: Prompt, *, hashed: bool = False) -> ClientName | None:
    """Name the client; None if the body shows nothing, and if there is no body.

    Salts and system prompts are always hashed, sessions and users if ``hashed`` is set.
    """
    body = prompt.body
    if not isinstance(body, dict):
        return None
    user = _first(body, ("metadata.user_id",))
    if user is not None and "session_" in user:
        return ClientName("session", _name(user, hashed))
    for by, places in (("session", _SESSION), ("user", _USER)):
        if (found := _first(body, places)) is not None:
            return ClientName(by, _name(found, hashed))  # type: ignore[arg-type]
    if (salt := _first(body, _SALT)) is not None:
        return ClientName("salt", _hash(salt))
    family = _family(body)
    return None if family is None else ClientName("system_prompt", family)


def _first(body: dict[str, Any], places: tuple[str, ...]) -> str | None:
    for place in places:
        value: Any = body
        for key in place.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18:
            return str(value)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


def _name(text: str, hashed: bool) -> str:
    """Return a name that may be shown; one that is long, or has other than letters, digits and few signs, as its
    hash."""
    return text if not hashed and len(text) <= _LONGEST and _PRINTABLE.fullmatch(text) else _hash(text)


def _hash(text: str) -> str:
    return f"#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _family(body: dict[str, Any]) -> str | None:
    """Hash the beginning of the system prompt without what changes; None if there is none, or it is too short."""
    words = _WORD.findall(_HEADER.sub("", _system(body)[:_READ]))
    # numbers, dates and ids differ between requests of one client
    letters = " ".join(word for word in words if not any(map(str.isdigit, word)))[:_BEGINNING]
    return _hash(letters) if len(letters) >= _ENOUGH else None


def _system(body: dict[str, Any]) -> str:
    """Return the system prompt of a chat body of any kind."""
    messages = body.get("messages", body.get("input"))
    first = messages[0] if isinstance(messages, list) and messages and isinstance(messages[0], dict) else {}
    own = first.get("content") if first.get("role") in ("system", "developer") else None
    return _text(body.get("system") or body.get("instructions") or own)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(
        text for text in texts if isinstance(text, str) and not text.startswith("x-anthropic-billing-header")
    )
