"""A prompt as the diff sees it: its text, where each piece came from, and a digest of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Literal

import msgspec


def digest(text: str) -> str:
    """Stand-in for a text: its length and a hash."""
    return f"{len(text)} chars, sha256 {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def short(text: str) -> str:
    """Stand-in for a word: a hash that says whether two are the same."""
    return f"#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


Kind = Literal[
    "text",
    "slots",
    "openai-chat",
    "openai-completion",
    "openai-responses",
    "anthropic-messages",
    "llama-infill",
    "prompt-dump",
]

CHAT = ("openai-chat", "anthropic-messages", "openai-responses")
"""Kinds whose text a chat template makes of a body."""


class PlacedSpan(msgspec.Struct):
    """A piece of the text that came from one place of the request."""

    start: int
    """Offset of its first code point in the text."""
    end: int
    """Offset after its last code point."""
    place: str
    """Path in the request: ``system[0].text``, ``tools[4].function.description``, ``messages[7].content[0].text``."""


class RecordedFields(msgspec.Struct, frozen=True):
    """What a recording says of a request beside its body."""

    answer: bytes = b""
    """What of the answer may say how long the prompt was."""
    is_whole: bool = True
    """False if parts of the prompt are not in the recording: its length is then not that of the request."""
    note: str = ""
    """What the recording does not hold; the same for all its requests, empty if nothing is known to be missing."""
    is_moved: bool = False
    """The number after the name is not that of a line of the file."""


class Prompt(msgspec.Struct):
    """One prompt, ready to be compared."""

    path: str
    """Where it was read from, with ``#N`` for one of many."""
    kind: Kind
    text: str
    """The rendered prompt; for a chat body without a template, its parts in the order of templates."""
    spans: list[PlacedSpan] = msgspec.field(default_factory=list)
    """In the order of the text; empty when the input is plain text."""
    body: dict[str, Any] | None = None
    """The request body, for rendering with a chat template."""
    images: list[str] = msgspec.field(default_factory=list)
    """SHA-256 of each image in the request, in order."""
    slot: int | None = None
    """Slot id, for a slot dump."""
    rendered: bool = False
    """The text is exactly what the model sees (a slot dump, a prompt dump, or rendered by a template)."""
    recorded: RecordedFields | None = None
    """None if it was not read from a recording that says more."""
    task: int | None = None
    """The task that the slot served last, where its dump shows so."""

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here, as far as that is known."""
        return self.recorded is None or self.recorded.is_whole

    @property
    def answer(self) -> bytes:
        """What a recording kept of the answer to it; empty if it kept nothing."""
        return b"" if self.recorded is None else self.recorded.answer

    def place_at(self, offset: int) -> str | None:
        """Place in the request that the code point at ``offset`` came from."""
        for span in self.spans:
            if span.start <= offset < span.end:
                return span.place
        return None


def notes_of(prompts: Iterable[Prompt | None]) -> list[str]:
    """What recordings of prompts do not hold, each once."""
    return list(dict.fromkeys(one.recorded.note for one in prompts if one and one.recorded and one.recorded.note))
