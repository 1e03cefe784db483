"""Reads what Python prints of its values: settings in ``server_args=``, requests in ``Receive:`` and ``Finish:``.

``server_args=ServerArgs(model_path='m', page_size=1, ...)``, whole or torn.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound
from cachedoctor.model.bounds import AMOUNT, NumberRange

Value = str | int | float | bool | None

# A prompt is long: what is not a quote and no backslash is taken in one go.
_QUOTED = r"'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\""
# A list of numbers is a piece of its own: the token ids of a long prompt are many.
_PIECE = late(
    _QUOTED + r"|\[[-\d, ]*+\]"
    r"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>,)|(?P<torn>['\"])"
)
_NAME = late(r"\s*(?:([A-Za-z_]\w*)=|'([A-Za-z_]\w*)': ?)")
_STRING = late(_QUOTED)
_WHOLE = late(r"[+-]?\d{1,15}", re.ASCII)
_BROKEN = late(r"[+-]?(?:\d{1,15}\.\d{0,20}|\d{1,15}(?:\.\d{1,20})?e[+-]?\d{1,3})", re.ASCII)
_FINITE = NumberRange(-AMOUNT.most, AMOUNT.most)
_WORDS: dict[str, Value] = {"None": None, "True": True, "False": False}


def entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a call or dictionary as (name, printed value); ``text`` begins after its opening bracket.

    An entry without a name has an empty one. The last entry yielded is (``")"``, ``""``) where the closing bracket was
    found; without it the line is torn, and the entry that it tears is left out.
    """
    depth, begin = 0, 0
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind == "torn":
            return
        if kind == "open":
            depth += 1
        elif kind is not None and depth == 0:
            yield from _entry(text[begin : piece.start()])
            if kind == "close":
                yield ")", ""
                return
            begin = piece.end()
        elif kind == "close":
            depth -= 1


def _entry(text: str) -> Iterator[tuple[str, str]]:
    named = _NAME.match(text)
    if named is not None:
        yield named[1] or named[2], text[named.end() :].strip()
    elif text.strip():
        yield "", text.strip()


def inside(text: str) -> str:
    """Return what comes after the first opening bracket of ``text``, which begins with a name or with the bracket."""
    found = re.match(r"\s*\w*[({]", text)
    return text[found.end() :] if found is not None else ""


def value(text: str) -> Value:
    """Read a string, number, truth value or None; None for anything else."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if _BROKEN.fullmatch(text):
        return _FINITE.of(float(text))
    return string(text)


def string(text: str) -> str | None:
    """Read the string that ``text`` begins with: of one that was cut, ``'ab' ... 'yz'``, the first part."""
    found = _STRING.match(text)
    if found is None:
        return None
    try:
        read = ast.literal_eval(found[0])
    except (ValueError, SyntaxError, MemoryError):
        return None
    return sound(read) if isinstance(read, str) else None
