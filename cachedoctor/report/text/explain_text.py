"""What explain prints: a line of a log in words, or the page of a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TextIO

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Explanation, Level, Line, Part, Reading, Wording
from cachedoctor.redaction import sanitize
from cachedoctor.report.text.page import TextPage
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words.numbers import first_sentence

_VALUE_MAX = 400
"""Maximum cells: a value may be a prompt or a body; the middle of longer values is omitted."""
_NAME_MAX = 28
"""Cells of the first column; a longer name or value is on a row of its own."""


def render_line(line: Line, out: TextIO, width: int = 80, *, color: bool = False, ascii_only: bool = False) -> None:
    """Write every reading of ``line``; a line without one gives nothing."""
    page = TextPage(out, width, color, ascii_only)
    for number, explanation in enumerate(sanitize.mask(line).explanations):
        if number:
            page.gap()
            page.prose([], "The line is ambiguous; it may also be:", 0)
        _show_line_text(page, explanation)


def _show_line_text(page: TextPage, e: Explanation) -> None:
    title = first_sentence(e.meaning)
    page.prose([], title, 0, "bold")
    rest = e.meaning.removeprefix(title).strip()
    if rest:
        page.prose([], rest, 0)
    page.gap()
    page.excerpt(["  | "], ["  | "], e.text, max(page.width - 4, 20))
    if e.origin is not None:
        page.prose(["  "], f"from the server that the wrapper calls {e.origin}", 2)
    if e.cut:
        also = "; other wordings of the message also fit" if e.undecided else ""
        page.prose(["  "], f"the line is truncated{also}", 2)
    if e.more:
        page.prose(["  "], f"no known build prints the text after the message: {cut(e.more, _VALUE_MAX)}", 2)
    if e.parts:
        _heading(page, "Before the message")
        wide = _wide([p.text for p in e.parts])
        for part in e.parts:
            _part(page, part, wide)
    if e.fields:
        _heading(page, "Fields")
        for field in e.fields:
            _field(page, field)
    _builds(page, e)
    _heading(page, "Example")
    page.row("  ", e.sample)


def _heading(page: TextPage, words: str) -> None:
    page.gap()
    page.row((words, "bold"))


def _wide(names: list[str]) -> int:
    return min(max(len(name) for name in names), _NAME_MAX)


def _part(page: TextPage, part: Part, wide: int) -> None:
    page.prose(["  ", (f"{part.text:<{wide}}", "cyan"), "  "], part.meaning, wide + 4)


def _field(page: TextPage, field: Reading) -> None:
    value = "(truncated)" if field.text is None else cut(field.text, _VALUE_MAX) or "(empty)"
    unit = f"  [{field.unit}]" if field.unit else ""
    page.row("  ", (f"{field.label} = {value}", "cyan"), unit)
    if field.here:
        page.prose(["      here: "], field.here, 6, "bold")
    page.prose(["      "], field.meaning, 6)


def _builds(page: TextPage, e: Explanation) -> None:
    _heading(page, "Builds of llama.cpp" if e.program == "llama.cpp" else f"Versions of {e.program}")
    page.prose(["  "], e.builds, 2)
    for level in e.levels if e.has_versions else ():
        page.prose(["  "], f"{_span(e, level)}: {level.level}, {level.shown}", 4)
    if e.others:
        page.prose(["  "], "other wordings:", 2)
        for other in e.others:
            page.prose([f"    {_span(e, other)}: "], other.text, 6)
    page.prose(
        ["  "],
        f"cachedoctor analyze {'uses' if e.analyzed else 'does not use'} this message; its id is {e.message}",
        2,
    )


def _span(e: Explanation, seen: Level | Wording) -> str:
    first, last = e.named(seen.first), e.named(seen.last)
    return first if first == last else f"{first} to {last}"


_FIRST = ("Fix", "What it means")
"""Sections in their order here; the others follow as they are in the file."""
_ITEM = late(r"( *)([-*]|\d+\.) +")
_CODE = 4
"""Blanks before a line of code that is not fenced, beyond the indent of its item."""
_QUOTED = frozenset({"log", "requests", "slots"})
"""Code blocks with server or client output; the others hold commands for the user to paste."""


class _LineBlock(NamedTuple):
    """Lines that belong together."""

    kind: str
    """``text``, ``code``, or the word after the fence."""
    indent: int
    lines: list[str]


def render_page(text: str, page: TextPage, *, example: bool = True) -> bool:
    """Write a page, and return whether sample lines were left out.

    Lines of a log are broken where the row ends, commands never. ``example``: with the lines that a server or a client
    wrote.
    """
    title, *sections = _sections(text.rstrip("\n"))
    is_shorter = False
    heading, _, preface = title.removeprefix("# ").partition("\n")
    page.row((heading, "bold"))
    for block in _blocks(preface):
        _show_rule_page(page, block)
    for section in _ordered(sections):
        head, _, body = section.partition("\n")
        page.gap()
        page.row((head, "bold"))
        before = None
        for block in _blocks(body):
            if not example and block.kind in _QUOTED:
                is_shorter = True
                continue
            if before is not None and not (before.kind == block.kind == "text" and _ITEM.match(block.lines[0])):
                page.gap()
            _show_rule_page(page, block)
            before = block
    return is_shorter


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


def _blocks(text: str) -> Iterator[_LineBlock]:
    """Cut a section at empty lines, items of lists and fences."""
    lines: list[str] = []
    fence, item = None, 0
    for line in [*text.split("\n"), ""]:
        bare = line.strip()
        if bare.startswith("```"):
            if fence is not None:
                yield _LineBlock(fence or "fenced", item, lines)
            elif lines:
                yield _LineBlock("text", item, lines)
            item = min(item, len(line) - len(line.lstrip()))
            fence, lines = (bare[3:].partition(" ")[0] if fence is None else None), []
            continue
        if fence is not None:
            lines.append(line)
            continue
        found = _ITEM.match(line)
        code = bool(bare) and not lines and len(line) - len(line.lstrip()) >= item + _CODE
        if lines and (not bare or found is not None):
            yield _LineBlock("text", item, lines)
            lines = []
        if code:
            yield _LineBlock("code", item, [bare])
        elif bare:
            if not lines:
                item = len(found[0]) if found is not None else min(item, len(line) - len(line.lstrip()))
            lines.append(line)


def _show_rule_page(page: TextPage, block: _LineBlock) -> None:
    if block.kind == "text":
        _prose(page, block)
    elif block.kind in _QUOTED:
        for line in block.lines:
            page.excerpt(["  "], ["  "], line, page.width - 2)
    else:
        for line in block.lines:
            page.row(" " * (block.indent + 2), (line, "green"))


def _prose(page: TextPage, block: _LineBlock) -> None:
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
