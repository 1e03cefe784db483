"""Settings: their keys, the files and variables that set them, and which holds: a flag, the environment, a file.

Every fault is one line that names the file and the key.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import msgspec
import typer

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import THRESHOLDS, CacheDoctorError
from cachedoctor.report.base import FORMATS, FormatName, format_of

if TYPE_CHECKING:
    from cachedoctor.cli.common_options import Gate
    from cachedoctor.model import AnalysisOptions


FILE, PROJECT = "cachedoctor.toml", "pyproject.toml"
PREFIX = "CACHEDOCTOR_"
_TABLE = late(r"\s*\[\s*tool\s*\.\s*[\"']?cachedoctor[\"']?\s*\]")
_HINT = "cachedoctor explain settings lists all keys"
_MOST = 1 << 20
"""Bytes of a file of settings."""
_DOTS = 100
"""Dots in one key."""

FailOn = Literal["never", "note", "warning", "error"]
Color = Literal["auto", "always", "never"]


class SettingKey(msgspec.Struct, frozen=True):
    """What can be set, and how."""

    name: str
    type: Any
    wanted: str
    """What its value must be, in words."""
    default: Any
    unit: str
    """Empty for what is not a number."""
    reason: str
    """What it does, or why the default is what it is."""

    @property
    def variable(self) -> str:
        """Name of its variable of the environment."""
        return PREFIX + self.name.replace("-", "_").upper()


_RULES = 'a list of codes, code prefixes and names, e.g. ["CD1", "log-too-terse"]'


def _keys() -> Iterable[SettingKey]:
    yield SettingKey("select", list[str], _RULES, ["CD"], "", "rules to report; CD means all rules")
    yield SettingKey("ignore", list[str], _RULES, [], "", "rules to ignore in reports and in avoidable tokens")
    yield SettingKey("format", str, "the name of a format", "text", "", "format of a report")
    levels = "one of never, note, warning, error"
    yield SettingKey("fail-on", FailOn, levels, "never", "", "exit with 1 if a finding has at least this severity")
    yield SettingKey("color", Color, "one of auto, always, never", "auto", "", "colours of a text report")
    wanted = (
        'a list of words, in which # is a digit, ? any character, * the rest of a word, e.g. ["Falcon", "EMP-####"]'
    )
    yield SettingKey("hide", list[str], wanted, [], "", "words to hide in reports, in addition to detected secrets")
    for threshold in THRESHOLDS:
        whole = Annotated[int, msgspec.Meta(ge=0)]
        wanted = f"a whole number of {threshold.unit}, 0 or more"
        yield SettingKey(threshold.name, whole, wanted, threshold.default, threshold.unit, threshold.reason)


KEYS = {key.name: key for key in _keys()}


class FileValue(NamedTuple):
    """What a key is set to, and by what."""

    value: Any
    source: Literal["flag", "environment", "file", "default"]
    place: str = ""
    """Name of the flag or variable, or path and line of the file."""


def find(folder: Path) -> Path | None:
    """Return the nearest file of settings, from ``folder`` upwards to the root of the file system.

    A ``cachedoctor.toml`` comes before a ``pyproject.toml`` beside it; one of those counts only if it has a table
    ``[tool.cachedoctor]``.
    """
    for at in (folder, *folder.parents):
        if os.path.isfile(at / FILE):
            return at / FILE
        if os.path.isfile(at / PROJECT) and _table(at / PROJECT, _text(at / PROJECT)) is not None:
            return at / PROJECT
    return None


def read_file(path: Path) -> dict[str, FileValue]:
    """Return what the file sets.

    Raises:
        CacheDoctorError: it cannot be read, is not TOML, or sets a name that does not exist or a value of another type.
    """
    text = _text(path)
    table = _table(path, text)
    if table is None:
        raise CacheDoctorError(f"{path}: has no table [tool.cachedoctor]", f"add the table, or give a {FILE}")
    lines = text.split("\n")
    found = {}
    for name, value in table.items():
        where = f"{path}:{_line(lines, name, path.name == PROJECT)}"
        if name not in KEYS:
            raise CacheDoctorError(f"{where}: {name}: unknown key", _nearest(name))
        found[name] = FileValue(_converted(KEYS[name], value, where, strict=True), "file", where)
    return found


def read_environment(variables: Mapping[str, str]) -> dict[str, FileValue]:
    """Return what the variables of the environment set; an empty one sets nothing.

    Raises:
        CacheDoctorError: a value has another type.
    """
    found = {}
    for key in KEYS.values():
        text = variables.get(key.variable, "").strip()
        if text:
            value = split([text]) if key.type == list[str] else text
            converted = _converted(key, value, key.variable, strict=False, named=False)
            found[key.name] = FileValue(converted, "environment", key.variable)
    return found


def split(texts: Iterable[str]) -> list[str]:
    """Return the parts of comma-separated lists."""
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _text(path: Path) -> str:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for
            raise OSError(0, "it is not a file")
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        hint = "use --no-config to ignore settings files"
        raise CacheDoctorError(f"{path}: cannot be read: {error.strerror or error}", hint) from error
    if len(data) > _MOST:
        raise CacheDoctorError(f"{path}: is larger than 1 MiB", "give a settings file")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell's > writes
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _table(path: Path, text: str) -> dict[str, Any] | None:
    """Everything in a ``cachedoctor.toml``, or the table of a ``pyproject.toml``; None where it has none."""
    if path.name == PROJECT and "cachedoctor" not in text:
        return None  # not ours, whatever is wrong with it
    import tomllib

    if any(line.partition("=")[0].count(".") > _DOTS for line in text.split("\n")):  # takes its square to read
        raise CacheDoctorError(f"{path}: a key has more than {_DOTS} dots", "fix the file, or use --no-config")
    try:
        content: Any = tomllib.loads(text.encode("utf-8", "surrogateescape").decode("utf-8"))
    except (ValueError, RecursionError) as error:  # tomllib's own, bytes that are not text, numbers without end
        raise CacheDoctorError(f"{path}: is not valid TOML: {error}", "fix the file, or use --no-config") from error
    if path.name != PROJECT:
        return dict(content)
    tools = content.get("tool")
    table = tools.get("cachedoctor") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise CacheDoctorError(f"{path}: tool.cachedoctor is not a table", "write [tool.cachedoctor] and keys below it")
    return table


def _converted(key: SettingKey, value: object, where: str, *, strict: bool, named: bool = True) -> object:
    try:
        return msgspec.convert(value, key.type, strict=strict)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        place = f"{where}: {key.name}" if named else where
        raise CacheDoctorError(f"{place}: {str(error).replace('`', '')}", f"give {key.wanted}") from error


def _line(lines: list[str], name: str, in_project: bool) -> int:
    """Number of the line that sets a key; the first one where it cannot be told."""
    start = next((at for at, line in enumerate(lines) if _TABLE.match(line)), 0) if in_project else 0
    setting = re.compile(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]|\s*\[+\s*{re.escape(name)}\b")
    return 1 + next((at for at, line in enumerate(lines) if at >= start and setting.match(line)), start)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.replace("_", "-").lower(), KEYS, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else _HINT


def here() -> Path | None:
    """Return the working directory, or None if it is gone."""
    try:
        return Path(os.getcwd())
    except FileNotFoundError:
        return None


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
    """Those of them that a settings file switched off, unless the user named that file."""


class CommandSettings(msgspec.Struct, frozen=True):
    """What a command goes by."""

    format: FormatName
    fail_on: FailOn
    color: Color
    options: AnalysisOptions
    file: str | None
    """The file that was read."""
    silenced: frozenset[str]
    """Codes of the rules that the settings file switched off, unless the user named that file."""

    def announce(self) -> None:
        """Name on the standard error the file that switched rules off, if that was found and not given."""
        if self.silenced:
            from cachedoctor.cli.terminal import complain

            codes = sorted(self.silenced)
            shown = ", ".join(codes[:_NAMED]) + (f" and {len(codes) - _NAMED} more" if len(codes) > _NAMED else "")
            what = f"{self.file}: these rules are not reported: {shown}"
            complain(what, "--no-config ignores this file; cachedoctor explain settings shows its content", "note")


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
    from cachedoctor.diagnosis.rules.names import switched_off

    path = _file(config, no_config)
    values = {name: FileValue(key.default, "default") for name, key in KEYS.items()}
    values |= read_file(path) if path is not None else {}
    values |= read_environment(os.environ)
    values |= _flags(ctx, but)
    _check(values)
    if not ctx.params.get("quiet"):
        _name_successors(values)
    by_file = [values[key].value if values[key].source == "file" else KEYS[key].default for key in ("select", "ignore")]
    silenced = frozenset() if _given(config) else switched_off(*by_file)
    return FoundSettings(path, values, switched_off(values["select"].value, values["ignore"].value), silenced)


def _file(config: str | None, no_config: bool) -> Path | None:

    if config is not None and no_config:
        raise typer.BadParameter("--config contradicts --no-config", param_hint="--config")
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

    found = {}
    for name in KEYS:
        parameter = name.replace("-", "_")
        source = ctx.get_parameter_source(parameter)
        if name not in but and source is not None and source.name == "COMMANDLINE":
            given = ctx.params[parameter]
            found[name] = FileValue(split(given) if isinstance(given, list | tuple) else given, "flag", f"--{name}")
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
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(FORMATS)}"
        raise CacheDoctorError(f"{_place(format, 'format')}: {format.value}: no such format", hint)
    if not values["select"].value:
        raise CacheDoctorError(f"{_place(values['select'], 'select')}: names no rule", "CD means all rules")
    _hide(values["hide"])
    for key in ("select", "ignore"):
        names.refuse_unknown(values[key].value, f"{_place(values[key], key)}: ")


def _name_successors(values: dict[str, FileValue]) -> None:
    """Say of each code that was made part of others what it does now."""
    from cachedoctor.cli import terminal
    from cachedoctor.diagnosis.rules import names

    for key in ("select", "ignore"):
        place = _place(values[key], key)
        for word in dict.fromkeys(values[key].value):
            for gone in names.former(word):
                hint = f"the rule code has no effect here; to ignore the whole rule, use {' and '.join(gone.now)}"
                terminal.complain(f"{place}: {gone}", hint if key == "ignore" else "", kind="note")


def _hide(value: FileValue) -> None:
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.redaction import secrets

    try:
        secrets.hide_also(value.value)
    except ValueError as error:
        hint = "a word in which # is a digit, ? is any character, and * is the rest of a word"
        raise CacheDoctorError(f"{_place(value, 'hide')}: {error}", hint) from error


def _place(value: FileValue, key: str) -> str:
    return f"{value.place}: {key}" if value.source == "file" else value.place
