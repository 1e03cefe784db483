"""Makes text that came from a log safe to print and short enough to read."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late

# Printable by category, yet nothing is drawn: fillers, joiners, blanks, variation selectors.
_BLANK = late("[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]")
# What our own words use beyond ASCII.
_PLAIN = {"·": "-", "×": "x", "…": "...", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "µ": "u"}
_BAR = r"(?: \|(?= |$))?"
_PIECES = late(rf"\S+{_BAR}\s*|\s+")
"""Words of a log line with the blanks after them; a bar stays with the word before it."""
_WHOLE = late(rf"(?:[\d.,]*\d (?=(?:[a-z]{{1,8}}|%|x)(?!\w))|CD\d{{3}} (?=[a-z]))?\S+(?: %(?!\w)|{_BAR})\s*|\s+")
"""Words of a sentence: a number and its unit or noun are one, as are the code and the name of a rule."""
_CHARS_PER_CELL = 4
"""Characters read per output cell: combining marks use no cell, and a line may hold a million of them."""


def visible(text: str, ascii_only: bool = False) -> str:
    r"""Write what would control the terminal or not be seen as an escape like ``\x1b``.

    That is everything Python calls unprintable: C0 and C1, bidirectional controls, zero-width and private characters,
    lone surrogates, blanks other than the space. With ``ascii_only`` every other character becomes ASCII, too.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c, ascii_only) for c in text)


def _escaped(char: str, ascii_only: bool) -> str:
    if char.isprintable() and not _BLANK.match(char):
        if char.isascii() or not ascii_only:
            return char
        if char in _PLAIN:
            return _PLAIN[char]
    code = ord(char)
    if char == "\t":
        return "\\t"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, cells: int, ascii_only: bool = False) -> str:
    """Make ``text`` visible; what is longer than ``cells`` loses its middle, as lines show most at both ends."""
    keep = cells * _CHARS_PER_CELL
    short = text if len(text) <= 2 * keep else text[:keep] + text[-keep:]
    shown = visible(short, ascii_only)
    if short is text and cell_len(shown) <= cells:
        return shown
    head = take(visible(text[:keep], ascii_only), cells * 2 // 3)
    tail = take(reversed(visible(text[-keep:], ascii_only)), cells // 4)[::-1]
    return f"{head} [... {max(len(text) - len(head) - len(tail), 1):,} characters ...] {tail}"


def clipped(text: str, cells: int, ascii_only: bool = False) -> str:
    """Make ``text`` visible; of what is longer than ``cells`` the end is left out.

    A list loses whole facts, and no mark where it ends with one of them; other text is cut at a space, with ``...``.
    """
    shown = visible(text[: max(cells, 4) * _CHARS_PER_CELL], ascii_only)
    if cell_len(shown) <= cells:
        return shown
    facts = _before(take(shown, cells + 3), " · ", " - " if ascii_only else " · ")
    if facts:
        return facts
    kept = take(shown, max(cells - 4, 1))
    item = _before(kept, "; ", ", ", keeps=1)
    while item.count("(") > item.count(")"):
        item = item[: item.rfind("(")].rstrip()
    if len(item) > len(kept) // 2:
        return f"{item} ..."
    space = kept.rfind(" ")
    return f"{kept[:space] if space > len(kept) * 2 // 3 else kept} ..."


def _before(text: str, *separators: str, keeps: int = 0) -> str:
    """Return the text before the last of ``separators``, with those of its first characters that it ``keeps``; nothing
    if that is less than half of ``text``."""
    end = max(map(text.rfind, separators))
    return text[: end + keeps] if end > len(text) // 2 else ""


def take(chars: Iterable[str], cells: int) -> str:
    """Return the characters from the start that fit in ``cells``."""
    taken, used = [], 0
    for char in chars:
        used += cell_len(char)
        if used > cells:
            break
        taken.append(char)
    return "".join(taken)


def rows(text: str, first: int, room: int, fold: bool = False) -> list[str]:
    """Break ``text`` at spaces into rows: ``first`` cells for the first, ``room`` for the others.

    Runs of spaces are kept. A word longer than a row overflows (addresses and paths stay whole) unless ``fold``, which
    is for lines of a log.
    """
    out, row, used, limit = [], "", 0, first
    for piece in _folded(text, max(room, 1)) if fold else _words(text, room):
        need = cell_len(piece.rstrip())
        if used + need > limit and (row or limit < room):
            out.append(row.rstrip())
            row, used, limit = "", 0, room
        row += piece
        used += cell_len(piece)
    return [*out, row.rstrip()]


def _words(text: str, room: int) -> Iterable[str]:
    for piece in _WHOLE.findall(text):
        yield from [piece] if cell_len(piece.rstrip()) <= room else _PIECES.findall(piece)


def _folded(text: str, longest: int) -> Iterable[str]:
    for piece in _PIECES.findall(text):
        while cell_len(piece.rstrip()) > longest:
            part = take(piece, longest) or piece[0]
            yield part
            piece = piece[len(part) :]
        yield piece
