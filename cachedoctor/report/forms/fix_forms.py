"""The fix of a report as text that can be pasted: all that is not a change is a comment."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cachedoctor.model import Fix
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.words.powershell import in_powershell

_FORMS = {"sh": "", "options": "", "yaml": "", "ini": "", "words": "# "}


def text(fixes: Sequence[Fix]) -> str:
    """Write every fix, one below the other."""
    return "\n".join("".join(f"{visible(row)}\n" for row in _rows(one, len(fixes) > 1)) for one in fixes)


def _rows(fix: Fix, several: bool) -> list[str]:
    causes = ", ".join(f"{code} {name}" for code, name in zip(fix.codes, fix.names, strict=True))
    where = "".join(f", {part}" for part in (fix.path if several else None, fix.origin) if part)
    rows = [f"# {fix.server}{where}: {causes}"]
    for number, step in enumerate(fix.steps, 1):
        rows.append(f"# {number}. {step.text}" + (":" if step.commands else ""))
        rows += [_FORMS[step.form] + row for row in step.commands]
        if step.form == "sh":
            rows += [f"# in PowerShell: {row}" for row in in_powershell(step.commands)]
    rows += [f"# takes {cost}" for cost in fix.costs]
    if fix.replay is not None:
        rows.append(f"# {fix.replay.words}")
    rows += [f"# note: {note}" for note in fix.notes]
    return rows


def json(fixes: Sequence[Fix]) -> bytes:
    """Write them as the report has them."""
    return msgspec.json.encode(list(fixes)) + b"\n"
