"""An answer as the message that a client sends back in its next request. Knows the answers of chat APIs, no HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from cachedoctor.proxy.exact_json import decode
from cachedoctor.proxy.held_bytes import Held

MOST = 256 << 10
"""Bytes of an answer that are held: a longer one is not told."""
_FIELDS = ("content", "reasoning_content", "reasoning", "thinking")
_BLOCK_FIELDS = {
    "text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "input",
}  # fmt: skip
"""What each kind of delta of /v1/messages makes longer."""


class ReplyCopy:
    """Puts an answer together while it passes."""

    def __init__(self, held: Held, is_stream: bool) -> None:
        self._held, self._is_stream = held, is_stream
        self.size = 0
        """Bytes of room that it takes."""
        self._line = bytearray()
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """By block and field."""
        self._is_odd = False
        """It is too long, others took the room, or it has several choices, or is none that is known here."""
        self.is_over = False
        """The last event of the stream has passed; of other answers only their end tells."""

    def add(self, part: bytes) -> None:
        """Take the next part of the answer's body."""
        *whole, rest = part.split(b"\n") if self._is_stream else [part]
        for end in whole:
            self._grow(end)
            self._hear(bytes(self._line))
            self._give_back(len(self._line))
            self._line.clear()
        self._grow(rest)

    def message(self) -> dict[str, Any] | None:
        """The message; None where it cannot be told."""
        if self._is_odd:
            return None
        if not self._is_stream:
            return _of_whole(bytes(self._line))
        if self._blocks:
            return self._of_blocks()
        found: dict[str, Any] = {"role": "assistant"} | {key: "".join(parts) for key, parts in self._texts.items()}
        calls = [
            {"id": call["id"], "type": "function", "function": {k: "".join(call[k]) for k in ("name", "arguments")}}
            for _, call in sorted(self._calls.items())
        ]
        return found | ({"tool_calls": calls} if calls else {}) if self._texts or calls else None

    def _of_blocks(self) -> dict[str, Any] | None:
        """A message of /v1/messages."""
        found = {index: dict(block) for index, block in sorted(self._blocks.items())}
        for (index, field), pieces in self._pieces.items():
            said = "".join(pieces)
            try:
                found[index][field] = decode(said) if field == "input" else found[index].get(field, "") + said
            except (KeyError, TypeError, ValueError):
                return None
        return {"role": "assistant", "content": list(found.values())}

    def _grow(self, part: bytes) -> None:
        self._take_room(len(part))
        if not self._is_odd:
            self._line += part

    def _take_room(self, size: int) -> None:
        if self._is_odd or self.size + size > MOST or not self._held.take(size):
            self._is_odd = True
        else:
            self.size += size

    def _give_back(self, size: int) -> None:
        self._held.give_back(size)
        self.size -= size

    def _hear(self, line: bytes) -> None:
        """Take an event of a stream."""
        if self._is_odd or not line.startswith(b"data:"):
            return
        if line[5:].strip() == b"[DONE]":
            self.is_over = True
            return
        try:
            event = msgspec.json.decode(line[5:])
            if "content_block" in event:  # the only event that has values of a call
                event["content_block"] = decode(line[5:].decode())["content_block"]
            self._take(event)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            self._is_odd = True

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                field = _BLOCK_FIELDS.get(event["delta"]["type"])
                if field is not None:
                    more = event["delta"]["partial_json" if field == "input" else field]
                    self._take_room(len(more))
                    self._pieces.setdefault((event["index"], field), []).append(more)
            case "message_stop":
                self.is_over = True
        for choice in event.get("choices") or ():
            self._is_odd = self._is_odd or choice.get("index", 0) != 0
            self._take_delta(choice.get("delta") or {})

    def _take_delta(self, delta: dict[str, Any]) -> None:
        for key in _FIELDS:
            if isinstance(delta.get(key), str) and delta[key]:
                self._texts.setdefault(key, []).append(delta[key])
                self._take_room(len(delta[key]))
        for call in delta.get("tool_calls") or ():
            known = self._calls.setdefault(call.get("index", 0), {"id": None, "name": [], "arguments": []})
            known["id"] = known["id"] or call.get("id")
            for key in ("name", "arguments"):
                more = (call.get("function") or {}).get(key) or ""
                known[key].append(more)
                self._take_room(len(more))


def _of_whole(data: bytes) -> dict[str, Any] | None:
    """The message of an answer that is one JSON object."""
    try:
        answer = decode(data.decode())
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    choices = answer.get("choices")
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        message = choices[0].get("message")
        kept = (*_FIELDS, "role", "tool_calls")
        return {key: message[key] for key in kept if key in message} if isinstance(message, dict) else None
    if answer.get("role") == "assistant" and isinstance(answer.get("content"), list):
        return {"role": "assistant", "content": answer["content"]}
    return None
