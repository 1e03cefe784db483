"""Rows of a table as csv: lists are joined by blanks, spans are ``pos_min-pos_max``.

No cell controls a terminal or is run by a spreadsheet.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from cachedoctor.frames.columns import Column, Table

_FORMULA_BEHIND_SEMICOLON = re.compile(r"(;\s*)([=+@-])")
"""Where a list is separated by semicolons, a spreadsheet begins another cell behind one."""
_JOINERS = re.compile("[\u034f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Not drawn, though Unicode counts them as printable."""


def lines(table: Table, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the header and a line per row, each a JSON object that has all columns."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    yield ",".join(column.name for column in table.columns).encode() + b"\n"
    for row in rows:
        values = decode(row)
        yield ",".join([_cell(column, values[column.name]) for column in table.columns]).encode() + b"\n"


def _cell(column: Column, value: Any) -> str:
    """Write a value; what is unknown is empty, and an empty text is two quotes."""
    if value is None:
        return ""
    match column.kind:
        case "text":
            return _quoted(_harmless(value, column.name == "path"))
        case "names":
            return _quoted(_harmless(" ".join(value), False))
        case "spans":
            return _quoted(" ".join(f"{span['pos_min']}-{span['pos_max']}" for span in value))
        case "number":
            return msgspec.json.encode(float(value)).decode()
        case _:
            return msgspec.json.encode(value).decode()


def _quoted(text: str) -> str:
    return text if text and not {",", '"'} & set(text) else '"' + text.replace('"', '""') + '"'


def _harmless(text: str, is_path: bool) -> str:
    if not (text.isascii() and text.isprintable()):
        text = _JOINERS.sub("\ufffd", "".join(char if _drawn(char) else "\ufffd" for char in text))
    text = _FORMULA_BEHIND_SEMICOLON.sub(r"\1'\2", text)
    # What begins like a formula would be run by a spreadsheet; with ./ before it, a path is still the same file.
    if is_path:
        return "./" + text if text[:1] in ("=", "+", "@") or (text[:1] == "-" and len(text) > 1) else text
    return "'" + text if text.startswith(("=", "+", "@", "-")) else text


def _drawn(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"
