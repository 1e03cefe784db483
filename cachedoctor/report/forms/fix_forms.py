"""The fix of a report as text that can be pasted: all that is not a change is a comment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cachedoctor.model import Fix
from cachedoctor.report.text.text_safe import rows as broken
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words.powershell import in_powershell

_FORMS = {"sh": "", "options": "", "yaml": "", "ini": "", "words": "# "}
_WIDTH = 80
"""Cells of a comment."""


def text(fixes: Sequence[Fix]) -> str:
    """Write every fix, one below the other."""
    return "\n".join("".join(f"{visible(row)}\n" for row in _rows(one, len(fixes) > 1)) for one in fixes)


def _rows(fix: Fix, several: bool) -> list[str]:
    causes = ", ".join(f"{code} {name}" for code, name in zip(fix.codes, fix.names, strict=True))
    where = "".join(f", {part}" for part in (fix.path if several else None, fix.origin) if part)
    rows = _comment(f"{fix.server}{where}: {causes}")
    for number, step in enumerate(fix.steps, 1):
        rows += _comment(f"{number}. {step.text}" + (":" if step.commands else ""))
        rows += [_FORMS[step.form] + row for row in step.commands]
        if step.form == "sh":
            rows += [f"# in PowerShell: {row}" for row in in_powershell(step.commands)]
    notes = list(fix.costs)
    notes += [] if fix.replay is None else [fix.replay.words]
    notes += [f"note: {note}" for note in fix.notes]
    return rows + [row for note in notes for row in _comment(note)]


def _comment(words: str) -> list[str]:
    """Write a comment in rows that a terminal does not break."""
    first, *others = broken(visible(words), _WIDTH - 2, _WIDTH - 4)
    return [f"# {first}", *(f"#   {row}" for row in others)]


def json(fixes: Sequence[Fix]) -> bytes:
    """Write them as the report has them."""
    return msgspec.json.encode(list(fixes)) + b"\n"
