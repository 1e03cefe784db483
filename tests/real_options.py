"""What servers take, build by build and version by version, from fixtures/options: names, values, variables.

Made of llama-server's own --help, and of the sources of vLLM and SGLang; shares nothing with ``knowledge.flags``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from conftest import FIXTURES

FILES = {"llama.cpp": "llama-server", "vllm": "vllm", "sglang": "sglang"}
CHOICE = re.compile(r"[\[{<](\w[\w.-]*(?:[|,][\w.-]+)+)[\]}>]")
"""A form of a value that lists all there are: ``[on|off|auto]``."""


class Real(NamedTuple):
    """The parser of one build or version."""

    takes: dict[str, str | None]
    """Name to the form of its value; None for a switch."""
    may_take: frozenset[str]
    """Names whose value may be left out."""
    pairs: dict[str, frozenset[str]]
    """Name to all names and variables of the same option."""
    env: frozenset[str]

    def refuses(self, name: str, value: str | None) -> str | None:
        """Why it does not take this option or variable; None where it does."""
        if not name.startswith("-"):
            return None if name in self.env else f"no variable {name}"
        if name not in self.takes:
            return f"no option {name}"
        form = self.takes[name]
        if name not in self.may_take and (form is None) != (value is None):
            return f"{name} {'takes no value' if form is None else 'needs a value'}"
        if value is not None and form is not None:
            listed = CHOICE.fullmatch(form)
            if listed is not None and value not in re.split(r"[|,]", listed[1]):
                return f"{name} {value}: is none of {listed[1]}"
            if form == "N" and re.fullmatch(r"-?\d+(?:\.\d+)?", value) is None:
                return f"{name} {value}: is no number"
        return None


@cache
def document(engine: str) -> dict[str, Any]:
    """A file of the fixtures."""
    found: dict[str, Any] = json.loads((FIXTURES / "options" / f"{FILES[engine]}.json").read_text("utf-8"))
    return found


def versions(engine: str) -> list[Any]:
    """Builds, or versions, oldest first."""
    found: list[Any] = document(engine)["builds" if engine == "llama.cpp" else "versions"]
    return found


@cache
def real(engine: str, version: Any) -> Real:
    """The parser of one that the fixtures have."""
    known = versions(engine)
    at = known.index(version)

    def has(row: dict[str, Any]) -> bool:
        spans = row["builds" if engine == "llama.cpp" else "versions"]
        return any(known.index(first) <= at <= known.index(last) for first, last in spans)

    rows = [row for row in document(engine)["options"] if has(row)]
    env = {row["env"] for row in document(engine)["variables"] if has(row)}
    takes: dict[str, str | None] = {}
    pairs: dict[str, frozenset[str]] = {}
    for row in rows:
        kind = row.get("kind")
        if kind == "refused":
            continue
        form = row.get("value") if kind is None else None if kind == "switch" else "value"
        env.update(row.get("env", ()))
        for name in (*row["names"], *row.get("env", ())):
            pairs[name] = pairs.get(name, frozenset()) | {*row["names"], *row.get("env", ())}
        takes.update(dict.fromkeys(row["names"], form))
    either = frozenset(name for row in rows if row.get("kind") == "either" for name in row["names"])
    return Real(takes, either, pairs, frozenset(env))


def number(version: Any) -> tuple[int, ...]:
    """A build or version as numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", str(version)))[:3]


def around(engine: str, low: Any, high: Any) -> list[Any]:
    """Those of the fixtures from ``low`` to ``high``, or the nearest below and above where none lies between.

    An end that is open (None) has all on its side.
    """
    known = versions(engine)
    inside = [
        v for v in known if (low is None or number(v) >= number(low)) and (high is None or number(v) <= number(high))
    ]
    if inside:
        return inside
    below = [v for v in known if number(v) < number(low)][-1:] if low is not None else []
    above = [v for v in known if number(v) > number(high)][:1] if high is not None else []
    return [*below, *above]


def refused(engine: str, options: Iterable[tuple[str, str | None]], low: Any, high: Any) -> list[str]:
    """What no build or version from ``low`` to ``high`` takes, with the reason of the last one asked."""
    asked = [real(engine, version) for version in around(engine, low, high)]
    assert asked, (engine, low, high)
    found = []
    for name, value in options:
        why = [one.refuses(name, value) for one in asked]
        if all(why):
            found.append(f"{why[-1]} ({engine} {low} to {high})")
    return found


def read(engine: str, words: Sequence[str]) -> list[tuple[str, str | None]]:
    """Options of a command line, with the word after each if it is not an option; llama-server takes no ``--a=b``."""
    found: list[tuple[str, str | None]] = []
    for word in words:
        if re.fullmatch(r"--?[A-Za-z].*", word, re.DOTALL):
            name, equals, value = word.partition("=") if engine != "llama.cpp" else (word, "", "")
            found.append((name, value if equals else None))
        elif found and found[-1][1] is None:
            found[-1] = (found[-1][0], word)
    return found
