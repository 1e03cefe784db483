"""The prompt of a request out of OpenInference attributes: a chat body with the same texts. Knows no export.

``llm.input_messages.0.message.role``, with a number for each item of a list; what an instrumentation sent stands in
``input.value`` as well, mostly as it was. Source: spec/semantic_conventions.md, spec/tool_calling.md and
spec/configuration.md of Arize-ai/openinference, 2026-08.
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.captures.captured import is_prompt, json_of, object_of

KIND = "openinference.span.kind"
PROMPT_TOKENS, CACHED_TOKENS = "llm.token_count.prompt", "llm.token_count.prompt_details.cache_read"
"""Prompt tokens hold those that were read from the cache; these are left out where there are none, or nobody knows."""
MODEL = "llm.model_name"

Attributes = dict[str, Any]
_HIDDEN = "__REDACTED__"
"""Stands for what OPENINFERENCE_HIDE_... hides."""
_MESSAGE = re.compile(r"llm\.input_messages\.(\d{1,5})\.message\.(role|content|tool_call_id|name)")
_PART = re.compile(
    r"llm\.input_messages\.(\d{1,5})\.message\.contents\.(\d{1,4})\.message_content\.(type|text|image\.image\.url)"
)
_CALL = re.compile(
    r"llm\.input_messages\.(\d{1,5})\.message\.tool_calls\.(\d{1,3})\.tool_call\.(id|function\.(?:name|arguments))"
)
_TOOL = re.compile(r"llm\.tools\.(\d{1,4})\.tool\.json_schema")


def asks_model(attributes: Attributes) -> bool:
    """Whether a span is a request to a model for a reply."""
    return attributes.get(KIND) == "LLM"


def body_of(attributes: Attributes, *, dropped: bool) -> tuple[Attributes | None, bool]:
    """Make a body of what a span says, None where it has none; and whether all its messages are there.

    ``dropped``: attributes were left out when there were too many, in some libraries the first, in others the last.
    """
    body, is_whole = _sent(attributes), True
    if body is None:
        found = _messages(attributes)
        if not found:
            return None, True
        body = {"messages": [found[at] for at in sorted(found)]}
        is_whole = not dropped and sorted(found) == list(range(len(found)))
    tools = {int(match[1]): json_of(value) for name, value in attributes.items() if (match := _TOOL.fullmatch(name))}
    if tools and "tools" not in body:
        body["tools"] = [tools[at] for at in sorted(tools)]
    for name, place in (("model", MODEL), ("conversation_id", "session.id"), ("user", "user.id")):
        if isinstance(attributes.get(place), str):
            body.setdefault(name, attributes[place])
    return body, is_whole


def _sent(attributes: Attributes) -> Attributes | None:
    """The body as it was sent, where ``input.value`` is one."""
    body = object_of(attributes.get("input.value"))
    return body if body is not None and is_prompt(body, "") else None


def _messages(attributes: Attributes) -> dict[int, Attributes]:
    """Messages by their numbers; none where texts are hidden."""
    found: dict[int, Attributes] = {}
    parts: dict[tuple[int, int], Attributes] = {}
    calls: dict[tuple[int, int], Attributes] = {}
    for name, value in attributes.items():
        if (match := _MESSAGE.fullmatch(name)) is not None:
            found.setdefault(int(match[1]), {"role": "user", "content": ""})[match[2]] = value
        elif (match := _PART.fullmatch(name)) is not None:
            parts.setdefault((int(match[1]), int(match[2])), {})[match[3]] = value
        elif (match := _CALL.fullmatch(name)) is not None:
            calls.setdefault((int(match[1]), int(match[2])), {})[match[3].rpartition(".")[2]] = value
        else:
            continue
        if value == _HIDDEN:
            return {}
    for (number, _), part in sorted(parts.items()):
        _add_part(found.setdefault(number, {"role": "user", "content": ""}), part)
    for (number, _), call in sorted(calls.items()):
        message = found.setdefault(number, {"role": "assistant", "content": ""})
        function = {name: call.get(name, "") for name in ("name", "arguments")}
        message.setdefault("tool_calls", []).append({"id": call.get("id"), "type": "function", "function": function})
    return found


def _add_part(message: Attributes, part: Attributes) -> None:
    """Put a part to a message: a chat body has parts, or one text."""
    if part.get("type") == "reasoning":
        message["reasoning_content"] = message.get("reasoning_content", "") + str(part.get("text", ""))
        return
    if part.get("type") == "tool_use":  # stands among the calls, too
        return
    url = part.get("image.image.url")
    if url is not None:
        one: Attributes = {"type": "image_url", "image_url": {"url": url}}
    else:
        one = {"type": "text", "text": part["text"]} if "text" in part else {"type": str(part.get("type"))}
    if not isinstance(message["content"], list):
        message["content"] = []
    message["content"].append(one)
