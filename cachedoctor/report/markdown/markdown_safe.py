"""Text that GitHub renders as it is written: no markup, no mention, no link comes out of it.

Escapes do not help against mentions, issue numbers and bare addresses, which GitHub looks for in the rendered text. So
whatever is not a plain word becomes code.
"""

from __future__ import annotations

import re

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.report.text.text_safe import cut, visible

_LONGEST, _SENTENCES = 400, 4000
"""Cells of a quoted text, and of what a rule says."""
_TOKEN = late(r"\[\d+, (?:\d+|end)[\])]|\S+")
"""A range of positions is one word."""
_OPEN, _CLOSE = "(\"'", ")\"',.;:!?"
"""Punctuation around a word that means nothing there."""
_PLAIN = late(
    r"[A-Za-z]+(?:['/-][A-Za-z]+)*"  # words of ours
    r"|[a-z]\d{3,6}"  # builds
    r"|[+-]?\d[\d,]*(?:\.\d+)?(?:-[a-z]+|%)?"
    r"|e\.g|i\.e|llama\.cpp|[=+%/-]"
)
_BULLET = late(r"[-+=]|\d+[.)]")
"""What begins a list or underlines a heading, where it comes first."""
_BARS = late(r"(?<!\\)(\\*+)\|")
"""A bar ends a cell, even within code, unless an odd number of backslashes comes before it."""
_AUTOLINK = late(r"[a-z]+-\d|gh-|[0-9a-f]{7,}\Z", re.I)
"""Numbers of issues, and of commits."""


def prose(text: str) -> str:
    """Return a sentence in which every word that is not plain is code."""
    words = _TOKEN.findall(cut(text, _SENTENCES))
    if words and _BULLET.fullmatch(words[0]):
        return " ".join([code(words[0]), *map(_word, words[1:])])
    return " ".join(map(_word, words))


def _word(word: str) -> str:
    if word.startswith("["):
        return code(word)
    rest = word.lstrip(_OPEN)
    core = rest.rstrip(_CLOSE)
    if not core or (_PLAIN.fullmatch(core) and (core.isdigit() or not _AUTOLINK.match(core))):
        return word
    return word[: len(word) - len(rest)] + code(core) + rest[len(core) :]


def code(text: str) -> str:
    """Return ``text`` as a code span; not for tables, where a bar ends a cell even within code."""
    shown = cut(text, _LONGEST)
    if not shown.strip(" "):
        return "` `" if shown else "(empty)"
    fence = "`" * (_longest_run(shown) + 1)
    pad = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def cell(text: str) -> str:
    """Return a sentence as a cell of a table."""
    return _BARS.sub(r"\1\1\\|", prose(text))


def table(head: list[str], rows: list[list[str]], left: int = 0) -> str:
    """Return a table; the cells hold words and numbers of ours, or come from ``cell``; ``left``: columns of words."""
    lines = [head, ["---"] * left + ["---:"] * (len(head) - left), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fenced(lines: list[str], kind: str = "text", indent: str = "") -> str:
    """Return lines as a block of code, fenced by more backticks than are in any of them."""
    shown = [visible(line) for line in lines]
    fence = "`" * max(3, *(_longest_run(line) + 1 for line in shown))
    return "\n".join(indent + line for line in (fence + kind, *shown, fence))


def details(summary: str, *parts: str) -> str:
    """Return a part that is folded at first; ``summary`` is ours."""
    return "\n\n".join([f"<details>\n<summary>{summary}</summary>", *parts, "</details>"])


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
