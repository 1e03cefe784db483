"""The page of a rule on a terminal: wrapped, what fixes it directly behind what it means.

Knows the Markdown that pages are written in: headings, paragraphs, lists, blocks of code. Knows no rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cachedoctor.report.text.page import Page

_FIRST = ("What it means", "Fix")
"""Sections in their order here; the others follow as they stand in the file."""
_ITEM = re.compile(r"( *)([-*]|\d+\.) +")
_CODE = 4
"""Blanks before a line of code that is not fenced, beyond the indent of its item."""
_QUOTED = frozenset({"log", "requests", "slots"})
"""Blocks that show what a server or a client wrote; the others hold what somebody may paste."""


class _Block(NamedTuple):
    """Lines that belong together."""

    kind: str
    """``text``, ``code``, or the word behind the fence."""
    indent: int
    lines: list[str]


def render(text: str, page: Page) -> None:
    """Write a page; lines of a log are broken where the row ends, commands never."""
    title, *sections = _sections(text.rstrip("\n"))
    heading, _, preface = title.removeprefix("# ").partition("\n")
    page.row((heading, "bold"))
    for block in _blocks(preface):
        _show(page, block)
    for section in _ordered(sections):
        head, _, body = section.partition("\n")
        page.gap()
        page.row((head, "bold"))
        before = None
        for block in _blocks(body):
            if before is not None and not (before.kind == block.kind == "text" and _ITEM.match(block.lines[0])):
                page.gap()
            _show(page, block)
            before = block


def _sections(text: str) -> list[str]:
    """Cut a page at its headings, which lose their marks; a ``##`` in a block of code is none."""
    parts, code = [""], False
    for line in text.split("\n"):
        code ^= line.startswith("```")
        if line.startswith("## ") and not code:
            parts.append(line[3:] + "\n")
        else:
            parts[-1] += line + "\n"
    return parts


def _ordered(sections: list[str]) -> list[str]:
    first = [s for head in _FIRST for s in sections if s.partition("\n")[0].strip() == head]
    return first + [s for s in sections if s not in first]


def _blocks(text: str) -> Iterator[_Block]:
    """Cut a section at empty lines, items of lists and fences."""
    lines: list[str] = []
    fence, item = None, 0
    for line in [*text.split("\n"), ""]:
        bare = line.strip()
        if bare.startswith("```"):
            if fence is not None:
                yield _Block(fence or "fenced", item, lines)
            elif lines:
                yield _Block("text", item, lines)
            item = min(item, len(line) - len(line.lstrip()))
            fence, lines = (bare[3:].partition(" ")[0] if fence is None else None), []
            continue
        if fence is not None:
            lines.append(line)
            continue
        found = _ITEM.match(line)
        code = bool(bare) and not lines and len(line) - len(line.lstrip()) >= item + _CODE
        if lines and (not bare or found is not None):
            yield _Block("text", item, lines)
            lines = []
        if code:
            yield _Block("code", item, [bare])
        elif bare:
            if not lines:
                item = len(found[0]) if found is not None else min(item, len(line) - len(line.lstrip()))
            lines.append(line)


def _show(page: Page, block: _Block) -> None:
    if block.kind == "text":
        _prose(page, block)
    elif block.kind in _QUOTED:
        for line in block.lines:
            page.excerpt(["  "], ["  "], line, page.width - 2)
    else:
        for line in block.lines:
            page.row(" " * (block.indent + 2), (line, "green"))


def _prose(page: Page, block: _Block) -> None:
    if block.lines[0].lstrip().startswith("|"):  # a table has columns to keep
        for line in block.lines:
            page.row(line)
        return
    words = " ".join(line.strip() for line in block.lines)
    item = _ITEM.match(block.lines[0])
    if item is None:
        page.prose([" " * block.indent], words, block.indent)
    else:
        page.prose([item[0]], words[len(item[0].lstrip()) :].lstrip(), len(item[0]))
