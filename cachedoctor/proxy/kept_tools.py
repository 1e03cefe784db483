"""Fix ``keep-tools``: the list of tools begins as in the conversation's first request."""

from __future__ import annotations

from cachedoctor.proxy.edited_body import EditedBody, FollowedRequest, RequestText
from cachedoctor.proxy.exact_json import decode
from cachedoctor.proxy.json_spans import Edit, JsonSpan, items

MOST = 256
"""Tools of a list that is kept."""
_FREE = (None, "auto", {"type": "auto"})
"""Values of ``tool_choice`` that let the model choose, also to call none."""


def keep_tools(request: RequestText, followed: FollowedRequest) -> EditedBody | None:
    """Put back tools that went, in their order; new ones stand behind them, and changed ones pass changed."""
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
    if len(wanted) > MOST:
        return None
    followed.known.tools = wanted
    if list(wanted.values()) == list(present.values()):
        return None
    spans = list(found.values())
    between = request.text[spans[0].end : spans[1].start] if len(spans) > 1 else ","
    edit = Edit(spans[0].start, spans[-1].end, between.join(wanted.values()))
    back, new = sum(name not in present for name in wanted), sum(name not in known for name in wanted)
    words = [f"{back} put back" * bool(back), f"{new} new at the end" * bool(new)]
    return EditedBody([edit], f"{len(wanted)} tools as before" + "".join(f", {word}" for word in words if word))


def tool_name(tool: object) -> str | None:
    """The name of a tool of any API; None where it has none."""
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


def _tools(request: RequestText) -> dict[str, JsonSpan]:
    """The tools by name; none where not all have different ones."""
    tools = items(request.text, request.body["tools"].start) if "tools" in request.body else []
    found = {name: tool for tool in tools if (name := tool_name(tool.value)) is not None}
    return found if len(found) == len(tools) else {}


def _settled(old: str, tool: JsonSpan | None, new: str) -> str:
    """The old writing of a tool that says the same; a tool that says something else as it is now."""
    return old if tool is None or old == new or decode(old) == tool.value else new
