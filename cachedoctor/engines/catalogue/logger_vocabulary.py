"""What explains single lines of an engine with a Python logger: its rows, words for them, their fields and prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.field_text import Field

Prefix = tuple[dict[str, bytes], int, bytes]
"""Parts before a message by name in their order, the offset at which the message begins, and what stands before the
parts and is none."""


class Vocabulary(NamedTuple):
    """One engine; its package has it in a module ``vocabulary`` as ``VOCABULARY``."""

    engine: str
    """As sessions call it: ``vllm``."""
    rows: list[Message]
    meanings: Mapping[str, str]
    """A sentence or two by id of a message."""
    field: Callable[[str, str], Field | None]
    """Words for a field, by id of the message and name."""
    pair: Callable[[str, str], Field | None]
    """Words for a pair that a line prints by itself, by id of the message and printed name."""
    prefix: Callable[[bytes], Prefix]
    parts: Callable[[str, bytes], str]
    """Words for a part of a prefix, by its name and what is printed."""
    time: Callable[[Mapping[str, bytes]], str | None]
    """The time among the parts of a prefix: ISO 8601, ``--MM-DDTHH:MM:SS`` where no year is printed."""
    process: Callable[[Mapping[str, bytes]], str]
    """Process or ranks among the parts of a prefix; empty where it names none."""
    programs: Mapping[str, str]
    """The program whose versions a row counts, by the row's component."""
    shown: Callable[[Message, str], str]
    """What makes the server print a row, in words, by the row and the letter of its level."""
