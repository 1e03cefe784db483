"""The prompt of a request from gen_ai or OpenInference attributes and events: a chat body with the same texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from cachedoctor.inputs.captures.captured import is_prompt, json_of, object_of
from cachedoctor.knowledge.late_patterns import late

Attributes = dict[str, Any]
_DETAILS = "gen_ai.client.inference.operation.details"
_MESSAGES = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}
_FLAT = late(r"gen_ai\.prompt\.(\d{1,5})\.(role|content|tool_call_id|tool_calls\.(\d{1,3})\.(?:id|name|arguments))")
_FUNCTION = late(r"llm\.request\.functions\.(\d{1,4})\.(name|description|parameters)")


class SpanEvent(NamedTuple):
    """An event of a span, or a log record that belongs to it."""

    name: str
    attributes: Attributes
    body: Attributes
    time: float | None = None
    """Seconds since 1970."""


def body_of(attributes: Attributes, events: list[SpanEvent]) -> dict[str, Any] | None:
    """Build a body from a span and its events; None if they have no messages."""
    said = dict(attributes)
    for event in events:
        if event.name == _DETAILS:
            said |= {name: value for name, value in event.attributes.items() if value is not None}
    messages = _listed(said.get("gen_ai.input.messages"))
    if messages is not None:
        found = [*_instructions(said.get("gen_ai.system_instructions")), *_converted(messages)]
    else:
        found = _older(said, events)
    if not found:
        return None
    body: dict[str, Any] = {"messages": found}
    tools = _listed(said.get("gen_ai.tool.definitions")) or _functions(said)
    body |= {"tools": [_tool(tool) for tool in tools]} if tools else {}
    for name, place in (
        ("model", "gen_ai.request.model"), ("conversation_id", "gen_ai.conversation.id"), ("user", "enduser.id"),
    ):  # fmt: skip
        body |= {name: said[place]} if isinstance(said.get(place), str) else {}
    return body


def uses_tools(body: dict[str, Any]) -> bool:
    """Whether its messages show that it had tools."""
    return any("tool_calls" in message or message.get("role") == "tool" for message in body["messages"])


def _listed(value: Any) -> list[Any] | None:
    found = json_of(value)
    return found if isinstance(found, list) else None


def _instructions(value: Any) -> list[Attributes]:
    parts = _listed(value)
    if parts is None:
        return [{"role": "system", "content": value}] if isinstance(value, str) and value else []
    content = _content([part for part in parts if isinstance(part, dict)])
    return [{"role": "system", "content": content}] if content else []


def _converted(messages: list[Any]) -> Iterator[Attributes]:
    for message in messages:
        if not isinstance(message, dict):
            continue
        parts = message.get("parts")
        if not isinstance(parts, list):
            yield message  # as the API has it
            continue
        yield from _of_parts(str(message.get("role", "user")), [part for part in parts if isinstance(part, dict)])


def _of_parts(role: str, parts: list[Attributes]) -> Iterator[Attributes]:
    """A message; results of tools are one each."""
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    for part in results:
        result = part.get("response", part.get("result"))
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        yield {"role": "tool", "tool_call_id": part.get("id"), "content": text}
    calls = [part for part in parts if part.get("type") == "tool_call"]
    thoughts = [str(part.get("content", "")) for part in parts if part.get("type") in ("reasoning", "thinking")]
    others = ("tool_call_response", "tool_call", "reasoning", "thinking")
    content = _content([part for part in parts if part.get("type") not in others])
    if not (calls or thoughts or content):
        return
    message: Attributes = {"role": role, "content": content}
    message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
    yield message | ({"tool_calls": [_call(part) for part in calls]} if calls else {})


def _content(parts: list[Attributes]) -> Any:
    """Text, or parts of a chat body where there is more than one; empty if there is none."""
    found = [_part(part) for part in parts]
    return found[0]["text"] if len(found) == 1 and found[0].get("type") == "text" else found or ""


def _part(part: Attributes) -> Attributes:
    match part.get("type"):
        case "text":
            return {"type": "text", "text": str(part.get("content", part.get("text", "")))}
        case "uri":
            return {"type": "image_url", "image_url": {"url": part.get("uri")}}
        case "blob":
            url = f"data:{part.get('mime_type', '')};base64,{part.get('content', part.get('data', ''))}"
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return part


def _call(part: Attributes) -> Attributes:
    arguments = part.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": part.get("id"), "type": "function", "function": {"name": part.get("name"), "arguments": text}}


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or "function" in tool or tool.get("type", "function") != "function":
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _older(said: Attributes, events: list[SpanEvent]) -> list[Attributes]:
    """Messages of the forms before gen_ai.input.messages."""
    for event in events:
        if event.name == "gen_ai.content.prompt":
            return list(_converted(_listed(event.attributes.get("gen_ai.prompt")) or []))
    found = [_of_event(event) for event in events if event.name in _MESSAGES]
    return found or _flat(said)


def _of_event(event: SpanEvent) -> Attributes:
    """A message from a separate event, whose body may be among its attributes."""
    body = event.body or json_of(event.attributes.get("gen_ai.event.content"))
    body = body if isinstance(body, dict) else {k: v for k, v in event.attributes.items() if "." not in k}
    content = json_of(body["content"]) if isinstance(body.get("content"), str) and body["content"][:2] == "[{" else None
    message = {"role": body.get("role", _MESSAGES[event.name]), "content": content or body.get("content", "")}
    calls = _listed(body.get("tool_calls"))
    message |= {"tool_calls": calls} if calls else {}
    return message | ({"tool_call_id": body["id"]} if "id" in body else {})


def _flat(said: Attributes) -> list[Attributes]:
    """Messages whose number is in the names of attributes."""
    found: dict[int, Attributes] = {}
    calls: dict[tuple[int, int], Attributes] = {}
    for name, value in said.items():
        match = _FLAT.fullmatch(name)
        if match is None:
            continue
        message = found.setdefault(int(match[1]), {"role": "user", "content": ""})
        if match[3] is None:
            parts = json_of(value) if match[2] == "content" and str(value)[:2] == "[{" else None
            message[match[2]] = parts if isinstance(parts, list) else value
        else:
            calls.setdefault((int(match[1]), int(match[3])), {})[match[2].rpartition(".")[2]] = value
    for (number, _), call in sorted(calls.items()):
        found[number].setdefault("tool_calls", []).append(_call(call))
    return [found[number] for number in sorted(found)]


def _functions(said: Attributes) -> list[Attributes]:
    found: dict[int, Attributes] = {}
    for name, value in said.items():
        match = _FUNCTION.fullmatch(name)
        if match is not None:
            known = json_of(value) if match[2] == "parameters" else value
            found.setdefault(int(match[1]), {})[match[2]] = known
    return [found[number] for number in sorted(found)]


KIND = "openinference.span.kind"
PROMPT_TOKENS, CACHED_TOKENS = "llm.token_count.prompt", "llm.token_count.prompt_details.cache_read"
"""Prompt tokens include those read from the cache; that number is omitted if it is 0 or unknown."""
MODEL = "llm.model_name"

SpanAttributes = dict[str, Any]
_HIDDEN = "__REDACTED__"
"""Replaces what OPENINFERENCE_HIDE_... hides."""
_MESSAGE = late(r"llm\.input_messages\.(\d{1,5})\.message\.(role|content|tool_call_id|name)")
_PART = late(
    r"llm\.input_messages\.(\d{1,5})\.message\.contents\.(\d{1,4})\.message_content\.(type|text|image\.image\.url)"
)
_CALL = late(
    r"llm\.input_messages\.(\d{1,5})\.message\.tool_calls\.(\d{1,3})\.tool_call\.(id|function\.(?:name|arguments))"
)
_TOOL = late(r"llm\.tools\.(\d{1,4})\.tool\.json_schema")


def asks_model(attributes: SpanAttributes) -> bool:
    """Whether a span is a request to a model for a reply."""
    return attributes.get(KIND) == "LLM"


def openinference_body(attributes: SpanAttributes, *, dropped: bool) -> tuple[SpanAttributes | None, bool]:
    """Build a body from a span, None if it has none; and whether all its messages are there.

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


def _sent(attributes: SpanAttributes) -> SpanAttributes | None:
    """The body as it was sent, if ``input.value`` is one."""
    body = object_of(attributes.get("input.value"))
    return body if body is not None and is_prompt(body, "") else None


def _messages(attributes: SpanAttributes) -> dict[int, SpanAttributes]:
    """Messages by their numbers; none if texts are hidden."""
    found: dict[int, SpanAttributes] = {}
    parts: dict[tuple[int, int], SpanAttributes] = {}
    calls: dict[tuple[int, int], SpanAttributes] = {}
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


def _add_part(message: SpanAttributes, part: SpanAttributes) -> None:
    """Add a part to a message: a chat body has parts, or one text."""
    if part.get("type") == "reasoning":
        message["reasoning_content"] = message.get("reasoning_content", "") + str(part.get("text", ""))
        return
    if part.get("type") == "tool_use":  # stands among the calls, too
        return
    url = part.get("image.image.url")
    if url is not None:
        one: SpanAttributes = {"type": "image_url", "image_url": {"url": url}}
    else:
        one = {"type": "text", "text": part["text"]} if "text" in part else {"type": str(part.get("type"))}
    if not isinstance(message["content"], list):
        message["content"] = []
    message["content"].append(one)
