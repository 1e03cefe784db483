"""What a table of numbers is made of, for formats of any kind: headings and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Heading(NamedTuple):
    """What stands above a column."""

    name: str
    unit: str = ""


class Row(NamedTuple):
    """The name of a row, and its cells."""

    name: str
    cells: Sequence[str]
