"""The form of systemd: a drop-in for a unit."""

from __future__ import annotations

from cachedoctor.launchers.asked_options import Asked, divided
from cachedoctor.launchers.command_words import changed
from cachedoctor.model import FixStep, option_rows


def systemd(asked: Asked) -> list[FixStep]:
    """Write a drop-in with variables; with the whole command where that is known and an option has no variable."""
    parts = divided(asked)
    gone = [*parts.left_out, *(change.name for change in parts.options if change.remove)]
    own = [change for change in parts.options if not change.remove]
    rows = [f"Environment={setting(f'{name}={value}')}" for name, value in parts.variables.items()]
    steps, unit = [], asked.place or asked.server
    if (own or gone) and asked.line is not None and "\n" not in asked.line.strip() and asked.line.lstrip()[:1] == "/":
        rows += ["ExecStart=", f"ExecStart={changed(asked.line.strip(), asked.changes)}"]
        own, gone = [], []
    if rows:
        named = f"systemctl edit {unit}" + (" (its name in the log)" if asked.place else "")
        steps.append(FixStep("server", f"{named}: write into the file that it opens", ["[Service]", *rows], "ini"))
    if own:
        steps.append(FixStep("server", f"{asked.adding} ExecStart of the unit", option_rows(own), "options"))
    if gone:
        steps.append(FixStep("server", f"leave out of the unit: {', '.join(gone)}"))
    return [*steps, FixStep("server", "then", [f"systemctl restart {unit}"])] if steps else []


def setting(assignment: str) -> str:
    """Quote ``NAME=value`` as Environment= reads it: ``%`` is a specifier, quotes and backslashes are escaped."""
    text = assignment.replace("%", "%%")
    if not set(text) & set(" \t\"'\\"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
