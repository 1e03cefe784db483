"""A prompt as a list of turns, from its body or from the markers of its chat template."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.prompts.prompt import Prompt

THINKING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
)
"""Markers that open and close reasoning in the chat templates in use."""
MARKER = late(
    r"<\|[A-Za-z0-9_]{1,40}\|>|<｜[^｜\n]{1,40}｜>|</?start_of_turn>|<end_of_turn>|<\|?turn\|?>|\[/?INST\]"
    r"|\[/?SYSTEM_PROMPT\]|\[/?THINK\]|</?(?:think|thinking|thought|seed:think)>|</?s>|<bos>|<eos>|<\|?channel\|?>"
)
"""A special token of a chat template."""
_ROLE = late(
    r"(?:<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|turn>|<\|start\|>|<\|role_start\|>)"
    r"(?P<named>[a-z_]{1,20})(?P<channel>(?:<\|channel\|>[a-z]{1,20})?)(?:<\|end_header_id\|>|<\|message\|>|<\|role_end\|>)?"
    r"|<\|(?P<token>system|user|assistant|tool|observation)\|>|<｜(?P<wide>User|Assistant)｜>"
    r"|\[(?P<slash>/?)(?P<bracket>INST|SYSTEM_PROMPT)\]"
)
USER = late(
    r"<\|(?:im_start\|>|start_header_id\|>|start\|>|turn>)user\b|<start_of_turn>user\b|\[INST\]|<｜User｜>|<\|user\|>"
)
"""Markers that open a user message in the chat templates in use; llama-server searches for their tokens."""
_DEPTH = 200
_UNRENDERED = {"cache_control", "id", "tool_call_id", "tool_use_id", "call_id", "type", "role", "index", "signature"}
_TEXTS = (None, "text", "input_text", "output_text", "reasoning_text", "summary_text")
_REASONING = ("reasoning_content", "reasoning", "thinking")


class MessageTurn(msgspec.Struct):
    """One message, or one block of the system prompt."""

    role: str
    text: str
    reasoning: str = ""
    extra: str = ""
    """Tool calls and names."""
    start: int | None = None
    """Where it begins in the text, if it was read from there."""
    end: int | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Equal for equal turns."""
        return (self.role, self.text, self.reasoning, self.extra)

    @property
    def bare(self) -> tuple[str, str, str]:
        """Equal for turns that differ in their reasoning only."""
        return (self.role, self.text, self.extra)

    @property
    def only_reasoning(self) -> bool:
        """Nothing but reasoning, as templates with channels render it."""
        return bool(self.reasoning) and not self.text and not self.extra


def from_body(body: dict[str, Any]) -> list[MessageTurn] | None:
    """The turns of a request body of any API, system blocks first; None when it has no messages."""
    items = body.get("messages", body.get("input"))
    if not isinstance(items, list):
        return None
    system = body.get("system", body.get("instructions"))
    blocks = system if isinstance(system, list) else [system] if system else []
    return [MessageTurn("system", _flat(block)) for block in blocks] + [_message(item) for item in items]


def from_text(prompt: Prompt) -> list[MessageTurn] | None:
    """The turns of a rendered prompt; None when no marker of a template is in it."""
    text = prompt.text
    found = list(_ROLE.finditer(text))
    if not found:
        return None
    turns: list[MessageTurn] = []
    head = text[: found[0].start()]
    if MARKER.sub("", head).strip():
        turns.append(MessageTurn("system", head.strip(), start=0, end=found[0].start()))
    ends = [*(later.start() for _, later in pairwise(found)), len(text)]
    for match, end in zip(found, ends, strict=True):
        inside, reasoning = split_reasoning(text[match.end() : end])
        turn = MessageTurn(_role(match), MARKER.sub("", inside).strip(), reasoning, start=match.start(), end=end)
        if "analysis" in (match["channel"] or ""):
            turn.text, turn.reasoning = "", turn.text
        turns.append(turn)
    # The generation prompt opens a turn that is not there yet.
    if turns and not turns[-1].text and not turns[-1].reasoning:
        turns.pop()
    return turns


def split_reasoning(text: str) -> tuple[str, str]:
    """A text without its reasoning, and the reasoning; blocks that are never closed stay."""
    for opening, closing in THINKING:
        at = text.find(opening)
        if at < 0:
            continue
        kept, thoughts, done = [], [], 0
        while at >= 0:
            end = text.find(closing, at)
            if end < 0:
                break
            kept.append(text[done:at])
            thoughts.append(text[at + len(opening) : end].strip())
            done = end + len(closing)
            at = text.find(opening, done)
        return "".join([*kept, text[done:]]), "\n".join(thoughts).strip()
    return text, ""


def head(turns: list[MessageTurn]) -> int:
    """Number of turns before the conversation: the system prompt."""
    return next((i for i, turn in enumerate(turns) if turn.role not in ("system", "developer")), len(turns))


def _role(match: re.Match[str]) -> str:
    if match["bracket"] == "SYSTEM_PROMPT":
        return "system" if not match["slash"] else "user"
    if match["bracket"]:
        return "assistant" if match["slash"] else "user"
    return str(match["named"] or match["token"] or match["wide"]).lower()


def _message(item: Any) -> MessageTurn:
    if not isinstance(item, dict):
        return MessageTurn("", _flat(item))
    kind = item.get("type")
    if "role" not in item and isinstance(kind, str):
        if kind == "reasoning":
            return MessageTurn(kind, "", _flat([item.get("summary"), item.get("content")]).strip())
        return MessageTurn(kind, _flat(item))
    content = item.get("content")
    thoughts = [_flat(item.get(name)) for name in _REASONING]
    if isinstance(content, list):
        thoughts += [_flat(part.get("thinking", part.get("text"))) for part in content if _is_thought(part)]
        content = [part for part in content if not _is_thought(part)]
    text, inline = split_reasoning(_flat(content))
    rest = {k: v for k, v in item.items() if k != "content" and k not in _REASONING}
    reasoning = "\n".join(thought.strip() for thought in [*thoughts, inline] if thought.strip())
    return MessageTurn(str(item.get("role")), text.strip(), reasoning, _flat(rest))


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking", "reasoning")


def _flat(value: Any, depth: int = 0) -> str:
    """A value as text, without what moves from request to request although no server renders it."""
    if depth > _DEPTH or value is None or value == "":
        return ""
    if isinstance(value, dict):
        if value.get("type") == "redacted_thinking":
            return ""
        if isinstance(value.get("text"), str) and value.get("type") in _TEXTS:
            return str(value["text"])
        inner = ((key, _flat(item, depth + 1)) for key, item in value.items() if key not in _UNRENDERED)
        return "".join(f"{key}={text}; " for key, text in inner if text)
    if isinstance(value, list):
        return "\n".join(_flat(item, depth + 1) for item in value)
    return str(value) if isinstance(value, str | int | float) else repr(value)
