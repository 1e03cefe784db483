"""Which setting holds: a flag, else the environment, else a file, else the default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import typer

from cachedoctor.report.base import FORMATS, FormatName, format_of

if TYPE_CHECKING:
    from cachedoctor.cli.common_options import Gate
    from cachedoctor.cli.setting_files import FailOn, FileValue
    from cachedoctor.cli.terminal import Color
    from cachedoctor.model import AnalysisOptions

_NAMED = 5
"""Rules that a message names."""
_COLOR_VARIABLES = ("NO_COLOR", "FORCE_COLOR")


class FoundSettings(msgspec.Struct, frozen=True):
    """Every key with what it is set to."""

    path: Path | None
    """The file that was read."""
    values: dict[str, FileValue]
    off: frozenset[str]
    """Codes of the rules that are switched off."""
    silenced: frozenset[str]
    """Those of them that a file switched off which nobody named."""


class CommandSettings(msgspec.Struct, frozen=True):
    """What a command goes by."""

    format: FormatName
    fail_on: FailOn
    color: Color
    options: AnalysisOptions
    file: str | None
    """The file that was read."""
    silenced: frozenset[str]
    """Codes of the rules that it switched off, where nobody named it."""

    def announce(self) -> None:
        """Name on the standard error the file that switched rules off, if that was found and not given."""
        if self.silenced:
            from cachedoctor.cli.terminal import complain

            codes = sorted(self.silenced)
            shown = ", ".join(codes[:_NAMED]) + (f" and {len(codes) - _NAMED} more" if len(codes) > _NAMED else "")
            what = f"{self.file}: rules that are not reported: {shown}"
            complain(what, "--no-config goes without this file, cachedoctor explain settings shows it", "note")


def resolve(ctx: typer.Context, gate: Gate, *, but: tuple[str, ...] = ()) -> CommandSettings:
    """Return the settings of a command; flags are those of ``ctx`` that have the name of a key, without ``but``.

    Raises:
        CacheDoctorError: a file or a variable sets what does not exist.
    """
    from cachedoctor.model import AnalysisOptions

    found = gather(ctx, gate.config, gate.no_config, but=but)
    values = {name: value.value for name, value in found.values.items()}
    color = found.values["color"]
    # The environment comes before a file, and these variables are part of it.
    asked = color.source == "file" and any(os.environ.get(name) for name in _COLOR_VARIABLES)
    return CommandSettings(
        cast(FormatName, values["format"]),
        values["fail-on"],
        "auto" if asked else color.value,
        AnalysisOptions(values["warn-tokens"], values["min-prompt-tokens"], found.off),
        None if found.path is None else str(found.path),
        found.silenced,
    )


def gather(ctx: typer.Context, config: str | None, no_config: bool, *, but: tuple[str, ...] = ()) -> FoundSettings:
    """Return every key with its value and where that comes from.

    Args:
        but: keys that the command has a flag of the same name for, which means something else.
    """
    from cachedoctor.cli.setting_files import KEYS, FileValue, read_environment, read_file
    from cachedoctor.diagnosis.rules.names import switched_off

    path = _file(config, no_config)
    values = {name: FileValue(key.default, "default") for name, key in KEYS.items()}
    values |= read_file(path) if path is not None else {}
    values |= read_environment(os.environ)
    values |= _flags(ctx, but)
    _check(values)
    by_file = [values[key].value if values[key].source == "file" else KEYS[key].default for key in ("select", "ignore")]
    silenced = frozenset() if _given(config) else switched_off(*by_file)
    return FoundSettings(path, values, switched_off(values["select"].value, values["ignore"].value), silenced)


def _file(config: str | None, no_config: bool) -> Path | None:
    from cachedoctor.cli.setting_files import find, here

    if config is not None and no_config:
        raise typer.BadParameter("it contradicts --no-config", param_hint="--config")
    if no_config or (config is None and os.environ.get("CACHEDOCTOR_NO_CONFIG")):
        return None
    given = _given(config)
    if given:
        return Path(given)
    folder = here()
    return None if folder is None else find(folder)


def _given(config: str | None) -> str | None:
    """The file that was named."""
    return config or os.environ.get("CACHEDOCTOR_CONFIG")


def _flags(ctx: typer.Context, but: tuple[str, ...]) -> dict[str, FileValue]:
    from cachedoctor.cli.setting_files import KEYS, FileValue, split

    found = {}
    for name in KEYS:
        parameter = name.replace("-", "_")
        source = ctx.get_parameter_source(parameter)
        if name not in but and source is not None and source.name == "COMMANDLINE":
            given = ctx.params[parameter]
            found[name] = FileValue(split(given) if isinstance(given, list) else given, "flag", f"--{name}")
    by_name = format_of(ctx.params.get("output"), FORMATS)
    if by_name is not None and "format" not in but:
        found.setdefault("format", FileValue(by_name, "flag", "--output"))
    return found


def _check(values: dict[str, FileValue]) -> None:
    """Refuse formats and rules that do not exist; the room that reads files knows neither."""
    from cachedoctor.diagnosis.rules import names
    from cachedoctor.model import CacheDoctorError

    format = values["format"]
    if format.value not in FORMATS:
        from difflib import get_close_matches

        close = get_close_matches(format.value, FORMATS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(FORMATS)}"
        raise CacheDoctorError(f"{_place(format, 'format')}: {format.value}: no such format", hint)
    if not values["select"].value:
        raise CacheDoctorError(f"{_place(values['select'], 'select')}: names no rule", "CD stands for all of them")
    _hide(values["hide"])
    for key in ("select", "ignore"):
        names.refuse_unknown(values[key].value, f"{_place(values[key], key)}: ")


def _hide(value: FileValue) -> None:
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.redaction import own

    try:
        own.use(value.value)
    except ValueError as error:
        hint = "a word in which # is a digit, ? any character, * the rest of a word"
        raise CacheDoctorError(f"{_place(value, 'hide')}: {error}", hint) from error


def _place(value: FileValue, key: str) -> str:
    return f"{value.place}: {key}" if value.source == "file" else value.place
