"""The texts of C++ sources: what log macros are given, with what the macros put before it, and all other literals.

``SLT_INF(slot, "n_past was set to %d\\n", n)`` behind
``#define SLT_INF(slot, fmt, ...) LOG_INF("slot %12.*s: ..." fmt, ...)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from scripts.drift.texts import Text, filled, lines

_LITERAL = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"({_LITERAL}|'(?:[^'\\\n]|\\.)+')|//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(rf"#\s*define\s+(\w+)\([^)]*\bfmt\b[^)]*\)[\s\\]*\w+\(\s*({_LITERAL})\s*fmt\b")
_CALL = re.compile(r"\b((?:[A-Z]{2,}_)*(?:INF|INFO|WRN|WARN|ERR|ERROR|DBG|DEBUG|TRC|TRACE|CNT|CONT)|LOG)\s*\(")
_WORDS = re.compile(rf"{_LITERAL}(?:\s*(?:{_LITERAL}|PRI[a-zA-Z]\w*))*")
_PART = re.compile(rf"{_LITERAL}|PRI([a-zA-Z])\w*")
_LEVELS = {"INF": "I", "WRN": "W", "WAR": "W", "ERR": "E", "DBG": "D", "DEB": "D", "TRC": "T", "TRA": "T"}
_ESCAPE = re.compile(r"\\(.)")
_CALL_MAX = 4000
"""Characters of a call that are read."""


def texts(sources: Iterable[tuple[str, str]]) -> Iterator[Text]:
    """Give the texts of files, which are pairs of name and content."""
    plain = [(name, _COMMENT.sub(_without, content)) for name, content in sources]
    prefixes = {name: _joined(prefix) for _, content in plain for name, prefix in _DEFINE.findall(content)}
    for name, content in plain:
        logged = set()
        for call in _CALL.finditer(content):
            found = _first_words(content, call.end())
            if found is None or content.rfind("#", content.rfind("\n", 0, call.start()) + 1, call.start()) >= 0:
                continue
            logged.add(found.start())
            text = filled(prefixes.get(call[1], "") + _joined(found[0]))
            where = f"{name}:{content.count(chr(10), 0, call.start()) + 1}"
            yield from lines(text, logged=True, level=_level(call[1]), where=where)
        for found in _WORDS.finditer(content):
            if found.start() not in logged:
                yield from lines(filled(_joined(found[0])), logged=False)


def _without(found: re.Match[str]) -> str:
    """Keep literals, and of comments the line ends."""
    return found[1] or "\n" * found[0].count("\n")


def _first_words(content: str, start: int) -> re.Match[str] | None:
    """Find the format of a call; where that is ``"%s"`` alone, what is put into it."""
    end = min(len(content), start + _CALL_MAX, content.find(";", start) % (len(content) + 1))
    for found in _WORDS.finditer(content, start):
        if found.start() >= end:
            return None
        if _joined(found[0]).strip() not in ("%s", ""):
            return found
    return None


def _joined(words: str) -> str:
    parts = [f"{part[1]}" if part[1] else _ESCAPE.sub(_escaped, part[0][1:-1]) for part in _PART.finditer(words)]
    return "".join(parts)


def _escaped(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t", "r": ""}.get(found[1], found[1])


def _level(macro: str) -> str:
    """Letter of a level as rows have it; what the library calls INFO is a level of its own."""
    letter = _LEVELS.get(macro.rsplit("_", 1)[-1][:3], "")
    return "L" if letter == "I" and macro.startswith("LLAMA_") else letter
