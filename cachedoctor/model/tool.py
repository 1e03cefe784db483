"""What wrote a report."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Tool(Struct):
    """What wrote the report."""

    name: Literal["cachedoctor"]
    version: str
