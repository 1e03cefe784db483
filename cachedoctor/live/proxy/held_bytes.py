"""Bounded copies of forwarded bytes, and an answer as the message that a client sends back."""

from __future__ import annotations

from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.live.proxy.json_spans import decode

EACH = 32 << 20
"""Maximum bytes of one held body: a longer one is forwarded unchecked."""
TOGETHER = 64 << 20
"""Maximum bytes of all bodies and answers held at the same time."""
ANSWER = 4 << 20
"""Maximum bytes of one answer, or of one line of a stream: longer ones contain nothing useful here."""

_TELLS = late(
    rb'"usage"\s*:\s*\{|"timings"|"meta_info"|\[DONE\]|"message_st|"response\.(?:created|completed|incomplete)"'
)
"""Strings that mark the stream lines read by ``metrics/responses.py``."""


class HeldBytes:
    """The memory budget that all copies share."""

    def __init__(self, together: int = TOGETHER) -> None:
        self._left = together

    def take(self, size: int) -> bool:
        """Reserve so many bytes; False if they are not available."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Release reserved bytes."""
        self._left += size


class BodyCopy:
    """Copy of one request's body, dropped as soon as it is too long."""

    def __init__(self, held: HeldBytes) -> None:
        self._held = held
        self._parts: list[bytes] = []
        self.size = 0
        """Bytes of memory that it uses."""
        self.untold = ""
        """Why there is no copy, in words; empty if there is one."""

    def add(self, part: bytes) -> None:
        """Take the next part."""
        if self.untold:
            return
        if self.size + len(part) > EACH:
            self.untold = f"the body is longer than {EACH >> 20} MiB"
        elif not self._held.take(len(part)):
            self.untold = "other long bodies used the space"
        else:
            self.size += len(part)
            self._parts.append(part)
            return
        self.drop()

    def whole(self) -> bytes | None:
        """The body; None if it was dropped.

        Its parts become one: nothing is held twice for long.
        """
        if self.untold:
            return None
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    def drop(self) -> None:
        """Release its memory."""
        self._held.give_back(self.size)
        self._parts, self.size = [], 0


class AnswerCopy:
    """Parts of an answer that may show the length of its prompt: all of a short one, the relevant lines of a stream."""

    def __init__(self, held: HeldBytes, is_stream: bool) -> None:
        self._held, self._is_stream = held, is_stream
        self._kept = bytearray()
        self._line = bytearray()
        self._skips = False
        """The line or the answer is too long, or the shared memory budget is used up."""

    @property
    def size(self) -> int:
        """Bytes of memory that it uses."""
        return len(self._kept) + len(self._line)

    def add(self, part: bytes) -> None:
        """Take the next part of the answer's body."""
        if not self._is_stream:
            self._grow(self._kept, part)
            return
        *whole, rest = part.split(b"\n")
        for end in whole:
            self._grow(self._line, end)
            self._end_line()
        self._grow(self._line, rest)

    def told(self) -> bytes:
        """The parts that were kept; empty for an answer that was too long."""
        if self._is_stream:
            self._end_line()
        elif self._skips:
            self._drop(self._kept)
        return bytes(self._kept)

    def _grow(self, copy: bytearray, part: bytes) -> None:
        self._skips = self._skips or len(copy) + len(part) > ANSWER or not self._held.take(len(part))
        if not self._skips:
            copy += part

    def _end_line(self) -> None:
        tells = not self._skips and self._line and _TELLS.search(self._line)
        if tells and len(self._kept) + len(self._line) < 2 * ANSWER and self._held.take(1):
            self._kept += self._line + b"\n"
            self._line.clear()
        self._drop(self._line)
        self._skips = False

    def _drop(self, copy: bytearray) -> None:
        self._held.give_back(len(copy))
        copy.clear()


MOST = 256 << 10
"""Maximum bytes of a held answer: a longer one is not assembled."""
_FIELDS = ("content", "reasoning_content", "reasoning", "thinking")
_BLOCK_FIELDS = {
    "text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "input",
}  # fmt: skip
"""The field that each kind of /v1/messages delta extends."""


class ReplyCopy:
    """Assembles an answer while it is forwarded."""

    def __init__(self, held: HeldBytes, is_stream: bool) -> None:
        self._held, self._is_stream = held, is_stream
        self.size = 0
        """Bytes of memory that it uses."""
        self._line = bytearray()
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        """Pieces of the message, by block and field."""
        self._is_odd = False
        """It is too long, the shared memory budget is used up, it has several choices, or its format is unknown."""
        self.is_over = False
        """The last event of the stream has passed; other answers are complete only at their end."""

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
        """The message; None if it cannot be assembled."""
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
