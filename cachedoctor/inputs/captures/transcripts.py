"""Transcripts of Claude Code, ``~/.claude/projects/*/*.jsonl``: the messages of a session, and what replies counted.

Shape: many programs read it, none of whose notes is official (DRMacIver/claude-reliability notes/transcript-format.md,
alicoding/claude-parser docs/JSONL-STRUCTURE.md). A line is a message, or a part of a reply: its parts share the reply's
``message.id`` and usage. ``parentUuid`` names the line before; a compaction begins again. What was sent beside these
messages (system prompt, tools, reminders) is not in it, nor what was cleared from them in sending.
"""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.inputs.captures.captured import Capture, Captured, encoded, seconds
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(rb'\A\s*\{(?=.{0,65536}?"parentUuid"\s*:)(?=.{0,65536}?"sessionId"\s*:)(?=.{0,65536}?"message"\s*:)', re.S)
_NOTE = (
    "a transcript has only messages: no system prompt, no tools, and no text that Claude Code adds or removes "
    "when sending; no template is applied"
)
_MOST_BYTES = 128 << 20
"""Maximum bytes of all prompts together: each contains the earlier ones, so the size grows with the square of the
session length."""
_LEAST = 64
"""Bytes that a line takes at least, with or without a message."""
_SYNTHETIC = "<synthetic>"
"""Model of replies that no server gave."""

Line = dict[str, Any]


def read(values: list[Any]) -> Capture | None:
    """Read the lines of a transcript; None for anything else."""
    lines = [value for value in values if isinstance(value, dict)]
    talk = [line for line in lines if _is_message(line)]
    if not talk or len(lines) < len(values):
        return None
    found = Capture("Claude Code transcript", [], [_NOTE], "cachedoctor proxy --record saves the sent requests")
    session = _Session(lines)
    size = 0
    for reply in session.replies.values():
        chain = session.before(reply)
        size += sum(session.sizes[str(line["uuid"])] for line in chain)
        if size > _MOST_BYTES:
            found.notes.append(f"its first {len(found.requests):,} of {len(session.replies):,} requests were read")
            break
        found.requests.append(session.request(reply, chain))
    return found


def _is_message(line: Line) -> bool:
    if line.get("type") not in ("user", "assistant") or not isinstance(line.get("uuid"), str):
        return False
    return "parentUuid" in line and isinstance(line.get("message"), dict) and "sessionId" in line


class _Session:
    """Lines by name, in the order of the file."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = {str(line["uuid"]): line for line in lines if isinstance(line.get("uuid"), str)}
        self._order = {uuid: number for number, uuid in enumerate(self._lines)}
        self.sizes = {uuid: _LEAST + len(encoded(line.get("message"))) for uuid, line in self._lines.items()}
        self._results: dict[str, list[Line]] = {}
        """Tool results by the line that they follow: results of tools run in parallel follow different lines."""
        self.replies: dict[str, list[Line]] = {}
        """Lines of each reply, by its id."""
        for line in self._lines.values():
            if not _is_message(line):
                continue
            message = line["message"]
            if line["type"] == "user" and _has_result(message):
                self._results.setdefault(str(line["parentUuid"]), []).append(line)
            elif line["type"] == "assistant" and message.get("model") != _SYNTHETIC:
                self.replies.setdefault(str(message.get("id") or line["uuid"]), []).append(line)

    def before(self, reply: list[Line]) -> list[Line]:
        """Lines that lead to a reply, in their order."""
        first = self._order[str(reply[0]["uuid"])]
        found: dict[str, Line] = {}
        walked: set[str] = set()
        uuid = reply[0].get("parentUuid")
        while isinstance(uuid, str) and uuid in self._lines and uuid not in walked:
            walked.add(uuid)
            line = self._lines[uuid]
            self._take(line, first, found)
            uuid = line.get("parentUuid")
        return sorted(found.values(), key=lambda line: self._order[str(line["uuid"])])

    def _take(self, line: Line, first: int, found: dict[str, Line]) -> None:
        """Take a line; of a reply all its parts, and the results of the tools that it called."""
        found[str(line["uuid"])] = line
        if line.get("type") != "assistant" or not _is_message(line):
            return
        for part in self.replies.get(str(line["message"].get("id") or line["uuid"]), []):
            for other in (part, *self._results.get(str(part["uuid"]), [])):
                if self._order[str(other["uuid"])] < first:
                    found[str(other["uuid"])] = other

    def request(self, reply: list[Line], lines: list[Line]) -> Captured:
        """The request of a reply."""
        last = reply[-1]["message"]
        body: Line = {"model": last.get("model"), "messages": _merged(lines)}
        session = reply[0].get("sessionId")
        body |= {"session_id": session} if isinstance(session, str) else {}
        answer = {"type": "message", "model": last.get("model"), "usage": last.get("usage"), **_diagnostics(reply)}
        usage = encoded(answer) if isinstance(last.get("usage"), dict) else b""
        return Captured(body, "/v1/messages", usage, seconds(reply[0].get("timestamp")), is_whole=False)


def _diagnostics(reply: list[Line]) -> Line:
    """Why less was reused, according to the transcript (``message.diagnostics``, Claude Code since 2026)."""
    found = (line["message"].get("diagnostics") for line in reply)
    said = next((one for one in found if isinstance(one, dict)), None)
    return {} if said is None else {"diagnostics": said | {"by": "Claude Code"}}


def _has_result(message: Line) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in content
    )


def _merged(lines: list[Line]) -> list[Line]:
    """Messages with alternating roles: parts of one reply, and results of tools that ran at once, are merged."""
    found: list[Line] = []
    for line in lines:
        if not _is_message(line) or line["message"].get("model") == _SYNTHETIC:
            continue
        role, content = line["message"].get("role", line["type"]), line["message"].get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if found and found[-1]["role"] == role:
            found[-1]["content"] += parts
        else:
            found.append({"role": role, "content": list(parts)})
    return found
