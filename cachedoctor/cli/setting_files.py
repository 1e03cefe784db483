"""Settings from a file or the environment: the keys, where files are looked for, how they are read.

Every fault is one line that names the file and the key.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import THRESHOLDS, CacheDoctorError

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
    """Empty for what is no number."""
    reason: str
    """What it does, or why the default is what it is."""

    @property
    def variable(self) -> str:
        """Name of its variable of the environment."""
        return PREFIX + self.name.replace("-", "_").upper()


_RULES = 'a list of codes, beginnings of codes and names, e.g. ["CD1", "log-too-terse"]'


def _keys() -> Iterable[SettingKey]:
    yield SettingKey("select", list[str], _RULES, ["CD"], "", "rules that are reported; CD is all of them")
    yield SettingKey("ignore", list[str], _RULES, [], "", "rules that are not reported, nor counted as avoidable")
    yield SettingKey("format", str, "the name of a format", "text", "", "format of a report")
    levels = "one of never, note, warning, error"
    yield SettingKey("fail-on", FailOn, levels, "never", "", "exit with 1 when a finding is that severe")
    yield SettingKey("color", Color, "one of auto, always, never", "auto", "", "colours of a text report")
    wanted = (
        'a list of words, in which # is a digit, ? any character, * the rest of a word, e.g. ["Falcon", "EMP-####"]'
    )
    yield SettingKey("hide", list[str], wanted, [], "", "words that reports hide besides what looks like a secret")
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
        CacheDoctorError: it cannot be read, is no TOML, or sets what does not exist or has another type.
    """
    text = _text(path)
    table = _table(path, text)
    if table is None:
        raise CacheDoctorError(f"{path}: there is no table [tool.cachedoctor] in it", f"add one, or give a {FILE}")
    lines = text.split("\n")
    found = {}
    for name, value in table.items():
        where = f"{path}:{_line(lines, name, path.name == PROJECT)}"
        if name not in KEYS:
            raise CacheDoctorError(f"{where}: {name}: there is no such key", _nearest(name))
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
            raise OSError(0, "it is no file")
        with path.open("rb") as file:
            data = file.read(_MOST + 1)
    except OSError as error:
        hint = "--no-config goes without settings from a file"
        raise CacheDoctorError(f"{path}: cannot be read: {error.strerror or error}", hint) from error
    if len(data) > _MOST:
        raise CacheDoctorError(f"{path}: is larger than a MiB", "give a file of settings")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell's > writes
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")


def _table(path: Path, text: str) -> dict[str, Any] | None:
    """Everything in a ``cachedoctor.toml``, or the table of a ``pyproject.toml``; None where it has none."""
    if path.name == PROJECT and "cachedoctor" not in text:
        return None  # not ours, whatever is wrong with it
    import tomllib

    if any(line.partition("=")[0].count(".") > _DOTS for line in text.split("\n")):  # takes its square to read
        raise CacheDoctorError(f"{path}: a key has more than {_DOTS} dots", "mend it, or use --no-config")
    try:
        content: Any = tomllib.loads(text.encode("utf-8", "surrogateescape").decode("utf-8"))
    except (ValueError, RecursionError) as error:  # tomllib's own, bytes that are no text, numbers without end
        raise CacheDoctorError(f"{path}: is no TOML: {error}", "mend it, or use --no-config") from error
    if path.name != PROJECT:
        return dict(content)
    tools = content.get("tool")
    table = tools.get("cachedoctor") if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise CacheDoctorError(f"{path}: tool.cachedoctor is no table", "write [tool.cachedoctor] and keys below it")
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
