"""Whose doing a difference is. Knows where in a prompt a client names itself, and what holds the first difference.

The clients and their texts are a table in ``knowledge``.
"""

from __future__ import annotations

from bisect import bisect_right

from cachedoctor.knowledge import clients
from cachedoctor.model import KnownClient
from cachedoctor.prompts.prompt import CHAT, Prompt
from cachedoctor.prompts.recognisers.turns import MARKER, USER

_LOOK = 20_000
"""Code points of a system prompt in which a client names itself."""
_REACH = 8_000
"""Code points around the first difference, on each side of it, within one message."""
_HEAD = ("system", "instructions")


def known(kind: str, field: str | None, a: Prompt, b: Prompt, offset: int | None) -> list[clients.Known]:
    """The habits of clients that explain a difference at ``offset``, those that name their client first."""
    pieces = [] if offset is None else [piece(prompt, offset) for prompt in (a, b)]
    return clients.recognise(kind, field, [system_prompt(prompt) for prompt in (a, b)], pieces)


def named(found: list[clients.Known]) -> KnownClient | None:
    """The client whose doing it is, for the answer; None where what was found are hints alone."""
    first = next((k for k in found if not k.habit.hint), None)
    if first is None:
        return None
    habit = first.habit
    return KnownClient(first.client.title, first.handle, habit.writes, habit.fixed, habit.sources)


def system_prompt(prompt: Prompt) -> str:
    """The system prompt of a body, or of a rendered text what stands before its first user message."""
    if prompt.kind not in CHAT or prompt.body is None:
        user = USER.search(prompt.text, 0, _LOOK)
        return prompt.text[: _LOOK if user is None else user.start()]
    places = _system_places(prompt)
    spans = [span for span in prompt.spans if span.place.startswith(places)]
    return "\n".join(prompt.text[span.start : span.end] for span in spans)[:_LOOK]


def head_places(prompt: Prompt) -> tuple[str, ...]:
    """Beginnings of the places in a body that stand in front of the conversation: tools and system prompt."""
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


def piece(prompt: Prompt, offset: int) -> clients.Piece:
    """The text around ``offset`` that came from one place of the request, or stands between two markers."""
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
    return clients.Piece(prompt.text[left:right], offset - left)
