"""Request bodies as the chat messages that llama-server gives to a template."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec

from cachedoctor.knowledge.texts import sound_json

Mark = Callable[[str, str], str]
"""Called with each text and its place; what it returns goes into the message."""

_BILLING = "x-anthropic-billing-header:"


class Chat(msgspec.Struct):
    """What a chat template gets."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    origins: dict[int, str]
    """Place of each JSON object and array inside the tools, by id()."""


class Style(msgspec.Struct, frozen=True):
    """What a template can render; llama-server probes the same."""

    typed: bool = False
    """Content as a list of parts."""
    strings: bool = True
    """Content as a string."""
    objects: bool = False
    """Arguments of a tool call must be an object, not JSON in a string."""


def media(part: dict[str, Any]) -> tuple[str, str] | None:
    """What a content part shows (image, audio, ...) and the SHA-256 of its bytes, or of its address."""
    kind = str(part.get("type", ""))
    name = kind.removeprefix("input_").removesuffix("_url")
    if name not in ("image", "audio", "video", "file", "document"):
        return None
    found = next((part[key] for key in ("source", kind, name, f"{name}_url") if key in part), part)
    if isinstance(found, dict):
        found = next((found[key] for key in ("url", "data", "file_data", "file_id") if key in found), found)
    data = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    if data.startswith("data:"):
        data = data.partition(",")[2]
    try:
        raw = b64decode(data, validate=True)
    except ValueError:  # an address, or broken base64
        raw = data.encode("utf-8", "replace")
    return name, hashlib.sha256(raw).hexdigest()


def marker(name: str, sha: str) -> str:
    """Text that stands for an image or another medium."""
    return f"<{name} sha256:{sha[:16]}>"


def convert(body: dict[str, Any], kind: str, mark: Mark, style: Style, mask_cch: bool = False) -> Chat:
    """The messages and tools of a body; ``mask_cch`` as builds from b8929 do it for /v1/messages."""
    origins: dict[int, str] = {}
    shape = _MessageStyle(mark, style)
    if kind == "anthropic-messages":
        messages = _system(body.get("system"), mark, mask_cch) + shape.anthropic(body["messages"])
    elif kind == "openai-responses":
        messages = shape.responses(body)
    else:
        messages = [shape.message(m, f"messages[{i}]") for i, m in enumerate(body["messages"]) if isinstance(m, dict)]
    found = body.get("tools")
    tools = [
        _tool(tool, f"tools[{index}]", mark, origins)
        for index, tool in enumerate(found if isinstance(found, list) else [])
        if isinstance(tool, dict)
    ]
    return Chat(messages, tools or None, origins)


def mask(text: str) -> str:
    """The billing header as builds from b8929 rewrite it: five characters after the first ``cch=``, before a ``;``."""
    at = text.find("cch=", len(_BILLING))
    if text.startswith(_BILLING) and at >= 0 and text[at + 9 : at + 10] == ";":
        return f"{text[: at + 4]}fffff{text[at + 9 :]}"
    return text


def _system(system: Any, mark: Mark, mask_cch: bool) -> list[dict[str, Any]]:
    if isinstance(system, str):
        texts = [("system", system)]
    elif isinstance(system, list):
        blocks = (
            (i, block) for i, block in enumerate(system) if isinstance(block, dict) and block.get("type") == "text"
        )
        texts = [(f"system[{i}].text", str(block.get("text") or "")) for i, block in blocks]
    else:
        return []
    return [{"role": "system", "content": "".join(mark(mask(t) if mask_cch else t, place) for place, t in texts)}]


def _tool(tool: dict[str, Any], place: str, mark: Mark, origins: dict[int, str]) -> dict[str, Any]:
    """A tool rebuilt from the three fields that the server keeps, in its order."""
    function = tool.get("function")
    if isinstance(function, dict):
        tool, place = function, f"{place}.function"
    built: dict[str, Any] = {"name": tool.get("name") or ""}
    built["name"] = mark(str(built["name"]), f"{place}.name")
    built["description"] = mark(str(tool.get("description") or ""), f"{place}.description")
    key = "input_schema" if "input_schema" in tool else "parameters"
    built["parameters"] = tool.get(key) if tool.get(key) is not None else {}
    outer = {"type": "function", "function": built}
    origins[id(outer)] = origins[id(built)] = place
    _trace(built["parameters"], f"{place}.{key}", origins)
    return outer


def _trace(value: Any, place: str, origins: dict[int, str]) -> None:
    """Note the place of every container."""
    if isinstance(value, dict):
        origins[id(value)] = place
        for key, item in value.items():
            _trace(item, f"{place}.{key}", origins)
    elif isinstance(value, list):
        origins[id(value)] = place
        for index, item in enumerate(value):
            _trace(item, f"{place}[{index}]", origins)


class _MessageStyle:
    """Builds messages in the style of a template."""

    def __init__(self, mark: Mark, style: Style) -> None:
        self.mark = mark
        self.style = style

    def message(self, message: dict[str, Any], place: str) -> dict[str, Any]:
        """A message of chat/completions."""
        built = {key: value for key, value in message.items() if key not in ("content", "tool_calls")}
        if built.get("reasoning_content") is None and isinstance(built.get("reasoning"), str):
            built["reasoning_content"] = built["reasoning"]
        if isinstance(built.get("reasoning_content"), str):
            built["reasoning_content"] = self.mark(built["reasoning_content"], f"{place}.reasoning_content")
        built["role"] = str(message.get("role") or "user")
        built["content"] = self.content(message.get("content"), f"{place}.content")
        calls = message.get("tool_calls")
        if isinstance(calls, list) and calls:
            built["tool_calls"] = [self._call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(calls)]
        return built

    def content(self, value: Any, place: str) -> Any:
        """Content as a string or as parts, whichever the template renders."""
        if not isinstance(value, list):
            text = self.mark(value if isinstance(value, str) else "" if value is None else json.dumps(value), place)
            return text if self.style.strings or not text else [{"type": "text", "text": text}]
        parts: list[tuple[bool, str]] = []
        for index, part in enumerate(value):
            found = media(part) if isinstance(part, dict) else None
            if found:
                parts.append((True, self.mark(marker(*found), f"{place}[{index}]")))
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                parts.append((False, self.mark(part["text"], f"{place}[{index}].text")))
            elif isinstance(part, str):
                parts.append((False, self.mark(part, f"{place}[{index}]")))
        if self.style.typed and not any(shown for shown, _ in parts):
            return [{"type": "text", "text": text} for _, text in parts]
        joined = join(parts)
        return joined if self.style.strings else [{"type": "text", "text": joined}]

    def anthropic(self, messages: list[Any]) -> list[dict[str, Any]]:
        """Messages of /v1/messages: results of tools become messages after the rest of theirs."""
        built: list[dict[str, Any]] = []
        for index, message in enumerate(messages):
            if not isinstance(message, dict):
                continue
            place = f"messages[{index}]"
            blocks = message.get("content")
            if isinstance(blocks, list):
                built += self._blocks(str(message.get("role") or "user"), blocks, f"{place}.content")
            else:
                built.append(self.message({"role": message.get("role"), "content": blocks}, place))
        return built

    def _blocks(self, role: str, blocks: list[Any], place: str) -> list[dict[str, Any]]:
        shown: list[Any] = []
        calls: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        reasoning: list[str] = []
        for index, block in enumerate(blocks):
            inner = f"{place}[{index}]"
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_use":
                function = {"name": block.get("name"), "arguments": block.get("input", {})}
                calls.append(self._call({"id": block.get("id"), "function": function}, inner, flat=True))
            elif kind == "tool_result":
                results.append(self._result(block, inner))
            elif kind == "thinking":
                reasoning.append(self.mark(str(block.get("thinking") or ""), f"{inner}.thinking"))
            elif kind != "redacted_thinking":
                shown.append((index, block))
        built: list[dict[str, Any]] = []
        if shown or calls or reasoning:
            # Blocks that went elsewhere leave an empty part, so that the places of the others stay.
            kept: list[Any] = [{} for _ in blocks]
            for index, block in shown:
                kept[index] = block
            built.append({"role": role, "content": self.content(kept, place) if shown else ""})
            if calls:
                built[0]["tool_calls"] = calls
            if reasoning:
                built[0]["reasoning_content"] = "".join(reasoning)
        return built + results

    def _result(self, block: dict[str, Any], place: str) -> dict[str, Any]:
        value = block.get("content")
        if isinstance(value, list):
            texts = (
                (i, p["text"]) for i, p in enumerate(value) if isinstance(p, dict) and isinstance(p.get("text"), str)
            )
            value = "".join(self.mark(text, f"{place}.content[{i}].text") for i, text in texts)
        else:
            value = self.mark("" if value is None else str(value), f"{place}.content")
        return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": value}

    def _call(self, call: Any, place: str, flat: bool = False) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            return call
        inner, name = (place, "input") if flat else (f"{place}.function", "arguments")
        arguments = function.get("arguments")
        if not isinstance(arguments, str):
            # The server keeps arguments as the text of compact JSON.
            arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False, separators=(",", ":"))
        built: Any = self._object(arguments, f"{inner}.{name}") if self.style.objects else None
        if built is None:
            built = self.mark(arguments, f"{inner}.{name}")
        told = {"name": self.mark(str(function.get("name") or ""), f"{inner}.name"), "arguments": built}
        return {"type": "function", "function": told, "id": call.get("id")}

    def _object(self, arguments: str, place: str) -> Any:
        try:
            found = json.loads(sound_json(arguments) or "{}")
        except (ValueError, RecursionError):
            return None
        if isinstance(found, dict):
            return {k: self.mark(v, f"{place}.{k}") if isinstance(v, str) else v for k, v in found.items()}
        return found

    def responses(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Input items of /v1/responses: calls and reasoning join the assistant's message."""
        built: list[dict[str, Any]] = []
        if isinstance(body.get("instructions"), str):
            built.append({"role": "system", "content": self.mark(body["instructions"], "instructions")})
        items = body.get("input")
        if not isinstance(items, list):
            return [*built, {"role": "user", "content": self.mark(str(items or ""), "input")}]
        for index, item in enumerate(items):
            if isinstance(item, dict):
                self._item(item, f"input[{index}]", built)
        return built

    def _item(self, item: dict[str, Any], place: str, built: list[dict[str, Any]]) -> None:
        kind = item.get("type")
        if kind == "function_call_output":
            output = self.content(item.get("output"), f"{place}.output")
            built.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
            return
        turn = self.message(item, place) if "role" in item else {"role": "assistant", "content": ""}
        if turn["role"] == "assistant" and built and built[-1]["role"] == "assistant" and not built[-1].get("content"):
            built[-1]["content"] = turn["content"]
        elif turn["role"] != "assistant" or not built or built[-1]["role"] != "assistant" or "role" in item:
            built.append(turn)
        if kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = self._call({"id": item.get("call_id"), "function": function}, place, flat=True)
            built[-1].setdefault("tool_calls", []).append(call)
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary")
            built[-1]["reasoning_content"] = self.content(parts, f"{place}.content")


def join(parts: list[tuple[bool, str]]) -> str:
    """Parts as one text, as llama-server does it: a newline between two texts, none beside a medium."""
    text = ""
    after_medium = False
    for shown, part in parts:
        if text and not shown and not after_medium:
            text += "\n"
        text += part
        after_medium = shown
    return text
