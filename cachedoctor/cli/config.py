"""``cachedoctor config``: what is set, and where. Knows keys and how they are shown."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cachedoctor.cli import settings
from cachedoctor.cli.common_options import Config, FailOn, Ignore, NoConfig, Select

if TYPE_CHECKING:
    from cachedoctor.cli.setting_files import Value


def config(
    ctx: typer.Context,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "never",
    config: Config = None,
    no_config: NoConfig = False,
    format: Annotated[Literal["text", "json"], typer.Option("--format", "-f", help="Format of this list.")] = "text",
) -> None:
    """Show every setting, its value, and where that comes from.

    A flag comes before the environment, the environment before a file, a file before the default.

    Exit status: 0; 2 wrong usage, or a file that cannot be used.
    """
    from cachedoctor.cli.sink import Sink

    found = settings.gather(ctx, config, no_config, but=("format",))
    with Sink(None) as sink, sink.writing() as out:
        out.write(_json(found) if format == "json" else _text(found))


def _json(found: settings.FoundSettings) -> bytes:
    import msgspec

    from cachedoctor.cli.setting_files import KEYS

    rows = [
        {
            "name": key.name,
            "value": found.values[key.name].value,
            "unit": key.unit or None,
            "default": key.default,
            "source": found.values[key.name].source,
            "place": found.values[key.name].place or None,
            "variable": key.variable,
            "reason": key.reason,
        }
        for key in KEYS.values()
    ]
    whole = {"file": _path(found), "settings": rows, "ignored": sorted(found.off)}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _text(found: settings.FoundSettings) -> bytes:
    from cachedoctor.cli import terminal
    from cachedoctor.cli.setting_files import KEYS
    from cachedoctor.report.text.page import Page

    look = terminal.look(to_file=False)
    text = io.StringIO()
    page = Page(text, look.width, look.color, look.ascii_only)
    page.prose([("file  ", "bold")], _path(found) or "none", 6)
    page.gap()
    wide = max(map(len, KEYS)) + 2
    for key in KEYS.values():
        value = found.values[key.name]
        page.prose([(f"{key.name:<{wide}}", "bold")], f"{_value_text(value.value, key.unit)}  ({_origin(value)})", wide)
        page.prose([" " * wide], key.reason, wide)
    if found.off:
        page.gap()
        page.prose([("switched off  ", "bold")], ", ".join(sorted(found.off)), 14)
    return look.encode(text.getvalue())


def _path(found: settings.FoundSettings) -> str | None:
    return None if found.path is None else str(found.path).encode("utf-8", "backslashreplace").decode()


def _value_text(value: Any, unit: str) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:,} {unit}" if unit else str(value)


def _origin(value: Value) -> str:
    return value.source if not value.place else f"{value.source}: {value.place}"
