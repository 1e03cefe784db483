"""Edits of request bodies that keep their beginning the same, each as small as can be. Knows JSON bodies, no network.

A body in which a fix does not recognise exactly what it is about stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cachedoctor.prompts.recognisers.billing_header import NAME
from cachedoctor.proxy.json_spans import Edit, JsonSpan, applied, items, members, top

_HEADER = re.compile(re.escape(NAME) + r"(?:[ \t]*[A-Za-z_][\w-]*=[^;\s\\\"]*;)+")
"""The header in the text of JSON: its last field ends with a semicolon, too, so that no half of one is dropped."""
_REST = re.compile(r"(?:\\n)*")
"""Line ends behind it, as JSON writes them."""


class Fixed(NamedTuple):
    """A body with its edits."""

    body: bytes
    edits: tuple[str, ...]
    """Each in words; empty where nothing was changed."""


class _Told(NamedTuple):
    edits: list[Edit]
    words: str


_Fix = Callable[[str, dict[str, JsonSpan]], _Told | None]


def fix(body: bytes, names: Sequence[str]) -> Fixed:
    """Apply fixes, one after the other, in the order of the names."""
    told: list[str] = []
    for name in names:
        found = _edited(body, name)
        if found is not None:
            body, words = found
            told.append(f"{name}: {words}")
    return Fixed(body, tuple(told))


def _edited(body: bytes, name: str) -> tuple[bytes, str] | None:
    hint, apply = _FIXES[name]
    if hint not in body:
        return None
    try:
        text = body.decode()
        found = apply(text, top(text))
    except ValueError:  # not UTF-8, or not JSON as it must be
        return None
    return None if found is None else (applied(text, found.edits).encode(), found.words)


def _strip_billing_header(text: str, body: dict[str, JsonSpan]) -> _Told | None:
    """Drop the header: the block of a list, or the beginning of the system prompt."""
    system = body.get("system") or _first_message(text, body)
    if system is None:
        return None
    edit = _shortened(text, system) if isinstance(system.value, str) else _without_block(text, system)
    if edit is None:
        return None
    size = len(text[edit.start : edit.end].encode()) - len(edit.text.encode())
    return _Told([edit], f"dropped {size} bytes of the system prompt")


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


def _shortened(text: str, string: JsonSpan) -> Edit | None:
    """Cut the header off the beginning of a string, with the line ends behind it; a string of nothing else stays."""
    header = _HEADER.match(text, string.start + 1)
    if header is None:
        return None
    end = header.end()
    rest = _REST.match(text, end)
    end = end if rest is None else rest.end()
    return None if end >= string.end - 1 else Edit(string.start + 1, end, "")


def _without_block(text: str, system: JsonSpan) -> Edit | None:
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
    return Edit(first.start, blocks[1].start, "") if len(blocks) > 1 and set(first.value) == {"type", "text"} else None


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _sort_tools(text: str, body: dict[str, JsonSpan]) -> _Told | None:
    """Put the tools in the order of their names; what stands between them stays."""
    if "tools" not in body:
        return None
    tools = items(text, body["tools"].start)
    names = [_tool_name(tool.value) for tool in tools]
    known = [name for name in names if name is not None]
    if len(set(known)) != len(tools):
        return None
    order = sorted(range(len(tools)), key=lambda index: known[index])
    moved = [(place, index) for place, index in enumerate(order) if place != index]
    if not moved:
        return None
    edits = [Edit(tools[p].start, tools[p].end, text[tools[i].start : tools[i].end]) for p, i in moved]
    return _Told(edits, f"moved {len(moved)} of {len(tools)} tools")


def _tool_name(tool: Any) -> str | None:
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


_FIXES: dict[str, tuple[bytes, _Fix]] = {
    "strip-billing-header": (NAME.encode(), _strip_billing_header),
    "sort-tools": (b'"tools"', _sort_tools),
}
NAMES = tuple(_FIXES)
