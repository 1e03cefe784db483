"""Request bodies of five APIs as text in template order, and settings that decide about reuse."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cachedoctor.inputs.captures.captured import MAX_DEPTH
from cachedoctor.knowledge.texts import sound, sound_json
from cachedoctor.model import CacheDoctorError, RequestSetting
from cachedoctor.prompts.chat import marker, media
from cachedoctor.prompts.prompt import Kind, PlacedSpan, Prompt, digest

_SALT = "vLLM and SGLang share no block between requests with different values; llama-server ignores these values"
_ADAPTER = "tokens computed with one adapter cannot be used with another, so nothing is shared"
WORDS = {
    "cache_salt": _SALT,
    "extra_key": "SGLang shares nothing between requests with different values",
    "lora": _ADAPTER,
    "lora_path": _ADAPTER,
    "model": "the requests name different models; if the name selects an adapter, nothing is shared",
}
SECRET = ("cache_salt", "extra_key")
"""Values never shown: a person who knows a salt can find out what others sent."""
_MOST = 4096
"""Code points kept of a value: more than are shown, because secrets are searched for before truncation."""
_IMAGES = 4
"""Images that are listed."""


def differences(a: Prompt, b: Prompt) -> list[RequestSetting]:
    """Differences in the order of the table; none if one of the two is not a request body."""
    found = []
    if a.body is not None and b.body is not None:
        for name, words in WORDS.items():
            old, new = a.body.get(name), b.body.get(name)
            if old != new:
                found.append(RequestSetting(name, _shown(name, old), _shown(name, new), words))
    pairs = zip(a.images, b.images, strict=False)
    other = [i for i, (old, new) in enumerate(pairs) if old != new][:_IMAGES]
    found += [
        RequestSetting(
            f"images[{i}]", f"sha256:{a.images[i][:16]}", f"sha256:{b.images[i][:16]}",
            "different bytes: nothing after the image is shared",
        )
        for i in other
    ]  # fmt: skip
    return found


def decides(settings: list[RequestSetting]) -> bool:
    """Whether two requests with the same text differ for a cache; the name of a model alone does not show it."""
    return any(setting.place != "model" for setting in settings)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return digest(text) if name in SECRET else text[:_MOST]


ANTHROPIC_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document"}
ENDPOINTS: tuple[tuple[str, Kind], ...] = (
    ("/chat/completions", "openai-chat"),
    ("/messages", "anthropic-messages"),
    ("/responses", "openai-responses"),
    ("/completion", "openai-completion"),
)
NOT_PROMPTS = ("/embedding", "/rerank", "/slots", "/tokenize", "/detokenize")
_INFILL = ("input_prefix", "input_suffix")
"""Code before the cursor and after it: fields that only llama-server's /infill has."""


class Builder:
    """Text under construction, with a span for every piece."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.spans: list[PlacedSpan] = []
        self.images: list[str] = []
        self.length = 0

    def add(self, place: str, text: str) -> None:
        """Append a piece that came from ``place``."""
        if text:
            self.pieces.append(text)
            self.spans.append(PlacedSpan(self.length, self.length + len(text), place))
            self.length += len(text)

    def line(self, place: str, text: Any) -> None:
        """Append a scalar and a newline; the newline belongs to its span, so that a longer text differs inside it."""
        if text is None or text == "":
            return
        if isinstance(text, str):
            self.add(place, text + "\n")
        else:
            self.json(place, text)
            self.add(place, "\n")

    def json(self, place: str, value: Any, depth: int = 0) -> None:
        """Append JSON as json.dumps spaces it, in the given key order, with a span for each value."""
        if depth > MAX_DEPTH:
            raise CacheDoctorError(
                "JSON is nested too deeply", f"the prompt is nested more than {MAX_DEPTH} levels deep"
            )
        if isinstance(value, dict):
            self.add(place, "{")
            for index, (key, item) in enumerate(value.items()):
                inner = f"{place}.{key}"
                self.add(inner, (", " if index else "") + json.dumps(key, ensure_ascii=False) + ": ")
                self.json(inner, item, depth + 1)
            self.add(place, "}")
        elif isinstance(value, list):
            self.add(place, "[")
            for index, item in enumerate(value):
                self.add(place, ", " if index else "")
                self.json(f"{place}[{index}]", item, depth + 1)
            self.add(place, "]")
        else:
            self.add(place, json.dumps(value, ensure_ascii=False))

    def prompt(self, path: str, kind: Kind, body: dict[str, Any] | None, rendered: bool = False) -> Prompt:
        """Everything added so far."""
        text = sound("".join(self.pieces))
        return Prompt(path, kind, text, self.spans, body, self.images, None, rendered)


def kind_of(body: dict[str, Any], endpoint: str = "") -> Kind | None:
    """Which API a body belongs to, or None when it carries no prompt."""
    if any(part in endpoint for part in NOT_PROMPTS):
        return None
    named = next((kind for part, kind in ENDPOINTS if part in endpoint), None)
    if isinstance(body.get("messages"), list):
        if named in ("openai-chat", "anthropic-messages"):
            return named
        return "anthropic-messages" if _is_anthropic(body) else "openai-chat"
    if any(isinstance(body.get(name), str) for name in _INFILL):
        return "llama-infill"
    if "prompt" in body and isinstance(body["prompt"], str | list | dict):
        return "openai-completion"
    if isinstance(body.get("input"), str | list) or isinstance(body.get("instructions"), str):
        return "openai-responses"
    return None


def prompts_of(body: dict[str, Any], kind: Kind, path: str) -> list[Prompt]:
    """Prompts of a body: one, or one for each text of a completion request."""
    if kind == "openai-completion":
        return _completions(body, path)
    builder = Builder()
    if kind == "llama-infill":
        return [_infill(builder, body, path)]
    for name in ("chat_template_kwargs", "reasoning_effort"):
        builder.line(name, body.get(name))
    _tools(builder, body.get("tools"))
    if kind == "openai-responses":
        builder.line("instructions", body.get("instructions"))
        _items(builder, body.get("input"))
    else:
        if kind == "anthropic-messages":
            content(builder, "system", body.get("system"))
        for index, message in enumerate(body["messages"]):
            _message(builder, f"messages[{index}]", message)
    return [builder.prompt(path, kind, body)]


def content(builder: Builder, place: str, value: Any) -> None:
    """Append what a content field holds: a string, or parts of any of the APIs."""
    if not isinstance(value, list):
        builder.line(place, value)
        return
    for index, part in enumerate(value):
        _part(builder, f"{place}[{index}]", part)


def _part(builder: Builder, place: str, part: Any) -> None:
    if not isinstance(part, dict):
        builder.line(place, part)
        return
    found = media(part)
    if found:
        if found[0] == "image":
            builder.images.append(found[1])
        builder.line(place, marker(*found))
        return
    match part.get("type"):
        case "tool_use":
            builder.line(f"{place}.name", part.get("name"))
            builder.line(f"{place}.input", part.get("input"))
        case "tool_result":
            content(builder, f"{place}.content", part.get("content"))
        case "thinking":
            builder.line(f"{place}.thinking", part.get("thinking"))
        case "redacted_thinking":
            pass  # no server renders it, and it is never the same twice
        case _ if isinstance(part.get("text"), str):
            builder.line(f"{place}.text", part["text"])
        case _:
            builder.line(place, {key: item for key, item in part.items() if key != "cache_control"})


def _message(builder: Builder, place: str, message: Any) -> None:
    if not isinstance(message, dict):
        builder.line(place, message)
        return
    for name in ("role", "name"):
        builder.line(f"{place}.{name}", message.get(name))
    for name in ("reasoning_content", "reasoning", "thinking"):
        builder.line(f"{place}.{name}", message.get(name))
    content(builder, f"{place}.content", message.get("content"))
    calls = message.get("tool_calls")
    for index, call in enumerate(calls if isinstance(calls, list) else []):
        inner = f"{place}.tool_calls[{index}]"
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            builder.line(f"{inner}.function.name", function.get("name"))
            builder.line(f"{inner}.function.arguments", function.get("arguments"))
        else:
            builder.line(inner, call)


def _items(builder: Builder, items: Any) -> None:
    """Input of a Responses request."""
    if not isinstance(items, list):
        builder.line("input", items)
        return
    for index, item in enumerate(items):
        place = f"input[{index}]"
        if not isinstance(item, dict) or "role" in item:
            _message(builder, place, item)
            continue
        match item.get("type"):
            case "function_call":
                builder.line(f"{place}.name", item.get("name"))
                builder.line(f"{place}.arguments", item.get("arguments"))
            case "function_call_output":
                content(builder, f"{place}.output", item.get("output"))
            case "reasoning":
                content(builder, f"{place}.content", item.get("content"))
                content(builder, f"{place}.summary", item.get("summary"))
            case _:
                _part(builder, place, item)


def _tools(builder: Builder, tools: Any) -> None:
    for index, tool in enumerate(tools if isinstance(tools, list) else []):
        place = f"tools[{index}]"
        if not isinstance(tool, dict):
            builder.line(place, tool)
            continue
        function = tool.get("function")
        if isinstance(function, dict):
            tool, place = function, f"{place}.function"
        # Servers build each tool again from these fields; an id or a cache_control beside them is never rendered.
        known = [name for name in ("name", "description", "parameters", "input_schema") if name in tool]
        for name in known:
            builder.line(f"{place}.{name}", tool[name])
        if not known:
            builder.line(place, tool)


def _completions(body: dict[str, Any], path: str) -> list[Prompt]:
    value = body["prompt"]
    if not isinstance(value, list):
        return [_completion(body, "prompt", value, path)]
    # A flat list with numbers is one prompt of token ids and strings; any other list holds one prompt per item.
    if any(isinstance(item, int) for item in value):
        return [_completion(body, "prompt", value, path)]
    many = len(value) > 1
    return [
        _completion(body, f"prompt[{index}]", item, f"{path}#{index + 1}" if many else path)
        for index, item in enumerate(value)
    ]


def _completion(body: dict[str, Any], place: str, value: Any, path: str) -> Prompt:
    builder = Builder()
    if isinstance(value, dict):
        value = value.get("prompt_string", value.get("prompt", value))
        place += ".prompt_string"
    if isinstance(value, str):
        builder.add(place, value)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            builder.add(f"{place}[{index}]", item if isinstance(item, str) else f"{json.dumps(item)} ")
    else:
        builder.json(place, value)
    return builder.prompt(path, "openai-completion", body, rendered=isinstance(value, str))


def _infill(builder: Builder, body: dict[str, Any], path: str) -> Prompt:
    """Other files, then what is before the cursor, then what is after it: llama-server's order."""
    extra = body.get("input_extra")
    for index, file in enumerate(extra if isinstance(extra, list) else []):
        if isinstance(file, dict):
            for name in ("filename", "text"):
                builder.line(f"input_extra[{index}].{name}", file.get(name))
    for name in ("input_prefix", "prompt", "input_suffix"):
        value = body.get(name)
        if isinstance(value, str):
            builder.add(name, value)
    return builder.prompt(path, "llama-infill", body)


def _is_anthropic(body: dict[str, Any]) -> bool:
    if "system" in body or "anthropic_version" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return True
    for message in body["messages"]:
        parts = message.get("content") if isinstance(message, dict) else None
        for part in parts if isinstance(parts, list) else []:
            if isinstance(part, dict) and str(part.get("type")) in ANTHROPIC_BLOCKS:
                return True
    return False


class Body(msgspec.Struct):
    """A request body found in a file."""

    body: dict[str, Any]
    kind: Kind


def find(value: Any) -> Body | None:
    """The request body in a JSON value: itself, a bare list of messages, or wrapped by a proxy's log."""
    endpoint = ""
    for _ in range(4):
        if isinstance(value, list) and value and all(isinstance(m, dict) and "role" in m for m in value):
            value = {"messages": value}
        if not isinstance(value, dict):
            return None
        endpoint = next((v for k in ("endpoint", "path", "url", "uri") if isinstance(v := value.get(k), str)), endpoint)
        kind = kind_of(value, endpoint)
        if kind:
            return Body(value, kind)
        value = next((value[key] for key in ("body", "request", "request_body") if key in value), None)
        if isinstance(value, str):
            try:
                value = json.loads(sound_json(value))
            except (ValueError, RecursionError):
                return None
    return None
