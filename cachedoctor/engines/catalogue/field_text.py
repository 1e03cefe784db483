"""What is said to people of a field of a message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a message."""

    unit: str
    """``tokens``, ``MiB``, ``ms`` ...; empty for text."""
    meaning: str
    special: Mapping[float, str] = MappingProxyType({})
    """Values that are no plain number, and what they say."""
