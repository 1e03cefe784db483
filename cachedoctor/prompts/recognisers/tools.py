"""The tool lists of two prompts compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.recognisers.base import FirstDifference, Recognition, snippet

_BLOCKS = (("<tools>", "</tools>"), ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"), ("<functions>", "</functions>"))
_NEAR = 4000
"""Code points around the offset within which a tool list present in only one prompt must begin."""
_BETWEEN = late(r"[\s,\[]*")
_DECODER = json.JSONDecoder()


class RequestTool(msgspec.Struct):
    """A tool of a request."""

    name: str
    parts: dict[str, str]
    """Its fields as JSON."""


class ToolListChange(msgspec.Struct):
    """Two tool lists and where they diverge."""

    a: list[RequestTool]
    b: list[RequestTool]
    at: int
    """Index of the first tool that is not the same in both."""
    names_a: set[str]
    names_b: set[str]

    def pair(self) -> tuple[RequestTool | None, RequestTool | None]:
        """The tools at the first difference."""
        return _get(self.a, self.at), _get(self.b, self.at)

    @property
    def renamed(self) -> bool:
        """The first difference is a tool that is the same under another name."""
        old, new = self.pair()
        return old is not None and new is not None and {**old.parts, "name": ""} == {**new.parts, "name": ""}


def tool_added(d: FirstDifference) -> Recognition | None:
    """A tool that the first prompt does not have."""
    change = _change(d)
    if change is None:
        return None
    old, new = change.pair()
    if new is None or new.name in change.names_a or (old is not None and old.name not in change.names_b):
        return None
    added = [tool.name for tool in change.b if tool.name not in change.names_a]
    return Recognition("tool-added", "", new.name, _words("added", added, change.at, change.b), new.name)


def tool_removed(d: FirstDifference) -> Recognition | None:
    """A tool that the second prompt no longer has."""
    change = _change(d)
    if change is None:
        return None
    old, new = change.pair()
    if old is None or old.name in change.names_b or change.renamed:
        return None
    removed = [tool.name for tool in change.a if tool.name not in change.names_b]
    text = _words("removed", removed, change.at, change.a)
    if new is not None and new.name not in change.names_a:
        text += f"; {_quoted(new.name)} is in its place"
        return Recognition("tool-removed", old.name, new.name, text, old.name)
    return Recognition("tool-removed", old.name, "", text, old.name)


def tools_reordered(d: FirstDifference) -> Recognition | None:
    """The same tools in another order."""
    change = _change(d)
    if change is None:
        return None
    old, new = change.pair()
    if old is None or new is None or old.name == new.name:
        return None
    if new.name not in change.names_a or old.name not in change.names_b:
        return None
    same = Counter(tool.name for tool in change.a) == Counter(tool.name for tool in change.b)
    also = "" if same else ", and the lists do not contain the same tools"
    text = f"tool {change.at + 1} of {len(change.a)} differs: the tools are in a different order{also}"
    return Recognition("tools-reordered", old.name, new.name, text)


def tool_edited(d: FirstDifference) -> Recognition | None:
    """A tool whose name, description or parameters changed."""
    change = _change(d)
    if change is None:
        return None
    old, new = change.pair()
    if old is None or new is None:
        return None
    names = dict.fromkeys([*old.parts, *new.parts])
    field = next((name for name in names if old.parts.get(name) != new.parts.get(name)), None)
    a, b = snippet(d)
    return Recognition("tool-edited", a, b, f"the {field or 'definition'} of tool {_quoted(new.name)} changed", field)


def _change(d: FirstDifference) -> ToolListChange | None:
    if "tools" not in d.memo:
        d.memo["tools"] = _compare(d)
    change = d.memo["tools"]
    return change if isinstance(change, ToolListChange) else None


def _compare(d: FirstDifference) -> ToolListChange | None:
    if d.a.body is not None and d.b.body is not None:
        if not _at_tools(d):
            return None
        lists = [_tools(body.get("tools")) for body in (d.a.body, d.b.body)]
    else:
        found = [_in_text(d, text) for text in (d.a.text, d.b.text)]
        if all(tools is None for tools in found):
            return None
        lists = [tools or [] for tools in found]
    a, b = lists
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if at == len(a) == len(b):
        return None
    return ToolListChange(a, b, at, {tool.name for tool in a}, {tool.name for tool in b})


def _at_tools(d: FirstDifference) -> bool:
    """Whether the texts diverge in the tools; templates that give no places nearly all render tools first."""
    return not d.places or any(place.startswith("tools") for place in d.places)


def _tools(value: Any) -> list[RequestTool]:
    return [_tool(item) for item in value] if isinstance(value, list) else []


def tool_name(item: Any) -> str:
    """Name of a tool of a request body, of whatever API."""
    return _tool(item).name


def _tool(item: Any) -> RequestTool:
    inner = item.get("function", item) if isinstance(item, dict) else item
    if not isinstance(inner, dict):
        return RequestTool(str(inner), {"definition": _dump(inner)})
    kept = {key: _dump(value) for key, value in inner.items() if key not in ("cache_control", "id", "strict", "type")}
    return RequestTool(str(inner.get("name", inner.get("type", ""))), kept)


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError, TypeError):
        return ""


def _in_text(d: FirstDifference, text: str) -> list[RequestTool] | None:
    """The tools that a template wrote around the offset."""
    for opening, closing in _BLOCKS:
        starts = [text.rfind(opening, 0, d.offset + len(opening))]
        # Qwen's templates name the tags in a sentence before the list.
        for _ in range(2):
            starts.append(text.find(opening, max(d.offset, starts[-1] + 1), d.offset + _NEAR))
        for start in starts:
            end = text.find(closing, start)
            tools = _read(text, start + len(opening), end) if start >= 0 and end + len(closing) >= d.offset else []
            if tools:
                return tools
    return None


def _read(text: str, at: int, end: int) -> list[RequestTool]:
    tools: list[RequestTool] = []
    while at < end:
        gap = _BETWEEN.match(text, at, end)
        at = gap.end() if gap else at
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict):
            break
        tools.append(_tool(value))
    return tools


def _get(tools: Sequence[RequestTool], at: int) -> RequestTool | None:
    return tools[at] if at < len(tools) else None


def _words(what: str, names: list[str], at: int, tools: list[RequestTool]) -> str:
    listed = ", ".join(_quoted(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    noun = "tool was" if len(names) == 1 else "tools were"
    return f"{len(names)} {noun} {what} ({listed}), the first as number {at + 1} of {len(tools)}"


def _quoted(name: str) -> str:
    return f"`{name[:200]}`"
