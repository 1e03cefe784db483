"""Text in tables of markdown, as it is and never as markup. Knows markdown; knows no report."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cachedoctor.report.text_safe import visible

_SYNTAX = re.compile(r"([\\`*_\[\]<>#|~&@]|:(?=/)|(?<=www)\.)")
"""What begins markup, an entity, a mention or a link that needs no markup."""


def cell(text: str) -> str:
    """Escape everything that means something in markdown, or in HTML within."""
    return _SYNTAX.sub(r"\\\1", visible(text))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, prose: bool = False) -> str:
    """Write a table: names on the left, numbers on the right; ``prose``: it has no numbers."""
    lines = [_line(map(cell, heads)), _line(["---"] + ["---" if prose else "---:"] * (len(heads) - 1))]
    return "\n".join([*lines, *(_line(map(cell, row)) for row in rows)])


def _line(cells: Sequence[str] | map[str]) -> str:
    return f"| {' | '.join(cells)} |"
