"""Every compiled pattern of the package, and texts that make a careless one backtrack.

A pattern that is added anywhere is found here by itself. For each part that repeats, the attack is what leads there,
then the repeated part n times, then something that fits nowhere. Used by ``benchmarks/hostile.py`` and the tests.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import re._constants as op
import re._parser as parser
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import cachedoctor
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.engines.llamacpp.tracker import catalogue
from cachedoctor.knowledge.late_patterns import LatePattern
from cachedoctor.redaction import secrets
from cachedoctor.redaction.credentials import CONTEXTS, CREDENTIALS

_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_SAMPLES = [ord(c) for c in "a0 A_-.:=\t\"'<>[]{}()|/x9Z%,;\n\r"] + [0x1B, 0x80, 0xE9, 0x4E00, 0xF0001]
_TAILS = "\x01!", "\n", "", "z z"
_MOST_DEEP = 4


class Attack(NamedTuple):
    """A text of growing size against one pattern."""

    pattern: re.Pattern[Any]
    before: str
    unit: str
    after: str

    def text(self, n: int) -> str | bytes:
        """The text with the repeated part ``n`` times."""
        made = self.before + self.unit * n + self.after
        return made.encode("latin-1", "replace") if isinstance(self.pattern.pattern, bytes) else made


def compiled() -> dict[str, re.Pattern[Any]]:
    """All patterns by the name of where they are."""
    found: dict[str, re.Pattern[Any]] = {"the catalogue": catalogue().pattern.whole()}
    for module in pkgutil.walk_packages(cachedoctor.__path__, "cachedoctor."):
        if not module.name.endswith("__main__"):
            for name, value in vars(importlib.import_module(module.name)).items():
                _collect(f"{module.name.removeprefix('cachedoctor.')}.{name}", value, found, 0)
    for credential in CREDENTIALS:
        found[f"secrets by shape: {credential.name}"] = secrets.shape(credential)
    for context in CONTEXTS:
        found[f"secrets by place: {context.name}"] = secrets.place(context)
    for number, row in enumerate(ROWS):
        row.prepare()
        found[f"row {number} {row.id}"] = row.exact_match.__self__  # type: ignore[attr-defined]
    return {name: pattern for name, pattern in found.items() if _parsed(pattern) is not None}


def _collect(name: str, value: Any, found: dict[str, re.Pattern[Any]], depth: int) -> None:
    value = getattr(value, "__self__", value)
    if isinstance(value, LatePattern):
        value = re.compile(value.pattern, value.given_flags)
    if isinstance(value, re.Pattern):
        if all(value.pattern != known.pattern or value.flags != known.flags for known in found.values()):
            found[name] = value
    elif isinstance(value, dict) and depth < _MOST_DEEP:
        for key, inner in value.items():
            _collect(f"{name}[{key!r:.30}]", inner, found, depth + 1)
    elif isinstance(value, msgspec.Struct) and depth < _MOST_DEEP:
        for field in value.__struct_fields__:
            _collect(f"{name}.{field}", getattr(value, field), found, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset) and depth < _MOST_DEEP and len(value) < 10_000:
        for number, inner in enumerate(value):
            _collect(f"{name}[{number}]", inner, found, depth + 1)


def _parsed(pattern: re.Pattern[Any]) -> Any:
    try:
        return parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    except re.error:
        return None


def searched(name: str) -> bool:
    """Whether the pattern is searched for anywhere in a text, and not only at one place of it."""
    if name == "the catalogue" or name.startswith("secrets by"):
        return True
    module, _, last = name.split("[")[0].rpartition(".")
    return last in _looked_for(module)


@cache
def _looked_for(module: str) -> set[str]:
    """Names of patterns that a module, or one that imports from it, looks for anywhere in a text."""
    own = Path(cachedoctor.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    sources = [own.read_text("utf-8")] if own.exists() else []
    sources += [text for text in _sources() if f"from cachedoctor.{module} import" in text]
    called = re.compile(r"\b(\w+)(?=\.(?:search|finditer|findall|sub|split)\b)")
    return {name for text in sources for name in called.findall(text)}


@lru_cache(maxsize=1)
def _sources() -> list[str]:
    return [path.read_text("utf-8") for path in Path(cachedoctor.__file__).parent.rglob("*.py")]


def attacks(pattern: re.Pattern[Any]) -> list[Attack]:
    """Every repeated part of a pattern, pairs of neighbours among them, with the ends that let it fail."""
    units = dict.fromkeys((before, unit) for before, unit in _units(_parsed(pattern), "") if unit)
    return [Attack(pattern, before, unit, tail) for before, unit in units for tail in _TAILS]


def _units(nodes: Any, before: str) -> Iterator[tuple[str, str]]:
    for kind, value in nodes:
        if kind in _REPEATS:
            least, most, inner = value
            unit = _word(inner)
            if most > 20:
                yield before, unit
                # one unit that the parts around it may take as well: "  " for "a +b *"
                yield before + unit, unit[-1:] or unit
            yield from _units(inner, before)
            before += unit * min(least, 40)
        elif kind is op.SUBPATTERN:
            yield from _units(value[3], before)
            before += _word([(kind, value)])
        elif kind is op.BRANCH:
            for way in value[1]:
                yield from _units(way, before)
            before += _word([(kind, value)])
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            if value[0] > 0:
                yield from _units(value[1], before)
        elif kind is op.ATOMIC_GROUP:
            yield from _units(value, before)
            before += _word(value)
        else:
            before += _word([(kind, value)])


def _word(nodes: Any) -> str:
    """A short text that the nodes match; what stands to be asserted is passed over."""
    out = ""
    for kind, value in nodes:
        if kind is op.LITERAL:
            out += chr(value)
        elif kind is op.NOT_LITERAL:
            out += next(chr(c) for c in _SAMPLES if c != value)
        elif kind is op.ANY:
            out += "a"
        elif kind is op.IN:
            out += _member(value)
        elif kind in _REPEATS:
            out += _word(value[2]) * max(min(value[0], 40), 1 if value[0] else 0)
        elif kind is op.SUBPATTERN:
            out += _word(value[3])
        elif kind is op.BRANCH:
            out += _word(value[1][0])
        elif kind is op.ATOMIC_GROUP:
            out += _word(value)
    return out


def _member(items: Any) -> str:
    negated = items[0][0] is op.NEGATE
    for code in _SAMPLES:
        if any(_has(item, code) for item in items) != negated:
            return chr(code)
    kind, value = items[-1]
    return chr(value if kind is op.LITERAL else value[0]) if kind in (op.LITERAL, op.RANGE) else "a"


def _has(item: Any, code: int) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return bool(code == value)
    if kind is op.RANGE:
        return bool(value[0] <= code <= value[1])
    if kind is op.CATEGORY:
        char = chr(code)
        digit, space, word = char.isdigit(), char.isspace(), char.isalnum() or char == "_"
        return {
            op.CATEGORY_DIGIT: digit, op.CATEGORY_NOT_DIGIT: not digit, op.CATEGORY_SPACE: space,
            op.CATEGORY_NOT_SPACE: not space, op.CATEGORY_WORD: word, op.CATEGORY_NOT_WORD: not word,
        }[value]  # fmt: skip
    return False
