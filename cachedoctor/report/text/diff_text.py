"""The difference of two prompts as text, in the manner of git-delta."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TextIO

from rich.cells import cell_len

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Advice, Edit, Excerpt, First, KnownClient, PromptDiff, RequestSetting, Side
from cachedoctor.model.diff import OWN_VERDICT, LeastChange
from cachedoctor.redaction import sanitize
from cachedoctor.report.text.page import COMMAND, NEW, OLD, WARNING, Part, TextPage
from cachedoctor.report.text.text_safe import take, visible
from cachedoctor.report.words.numbers import count, number, percent

_EDITS = 40
"""Edits listed; the JSON form has all."""
_EXCERPT = 400
"""Code points of a side that are shown."""
_GUTTER = 8
"""Cells before an excerpt: the name of its side and a bar."""
_MEMORY = {
    "attention": "attention memory (most models)",
    "swa": "sliding-window memory (Gemma 3, gpt-oss)",
    "hybrid": "hybrid or recurrent memory (Qwen3.5, Jamba, Mamba)",
}


def render(
    diff: PromptDiff,
    out: TextIO,
    width: int = 80,
    *,
    color: bool = False,
    ascii_only: bool = False,
    known: set[str] | None = None,
) -> None:
    """Write ``diff``: the first difference, what it is, what it costs, what to do.

    ``known``: what the differences above were about, which are not explained again; this one is added.
    """
    diff = sanitize.mask(diff)
    page = TextPage(out, width, color, ascii_only)
    about = "" if diff.exact else "about "
    page.row(("a  ", OLD), f"{diff.a.path} ({diff.a.kind}, {about}{number(diff.a.tokens)} tokens)")
    page.row(("b  ", NEW), f"{diff.b.path} ({diff.b.kind}, {about}{number(diff.b.tokens)} tokens)")
    page.gap()
    if diff.first is None:
        page.row(("equal: ", "bold"), f"{about}{number(diff.common_prefix_tokens)} tokens")
        _settings(page, diff.settings)
    else:
        _difference(page, diff, diff.first, about, set() if known is None else known)
    for note in diff.notes:
        page.prose(["  = ", ("note: ", "bold")], note, 4)
    _alone(page, diff.alone, about)


def what_mends(page: TextPage, client: KnownClient | None, advices: Sequence[Advice]) -> None:
    """Write which client is known to send such a difference, and what to do."""
    if client is not None:
        page.prose(["  = ", ("client: ", "bold")], f"{client.title} {client.writes}", 4)
    for advice in advices:
        page.prose(["  = ", ("fix: ", "bold")], advice.text, 4)
        for command in advice.commands:
            page.row("      ", (command, COMMAND))


def _difference(page: TextPage, diff: PromptDiff, first: First, about: str, known: set[str]) -> None:
    _first(page, diff, first, about)
    if diff.excerpt is not None:
        _excerpt(page, diff.excerpt)
    else:
        page.row("    ", ("a", OLD), " | ", first.a)
        page.row("    ", ("b", NEW), " | ", first.b)
    page.gap()
    _cost(page, diff, about)
    cause = f"{first.kind} {first.field}"
    if cause in known and first.advice:
        page.row("  = ", ("fix: ", "bold"), "as above")
    else:
        what_mends(page, first.client, first.advice)
    _settings(page, diff.settings)
    if diff.least is not None:
        page.gap()
        least_change(page, diff.least, "b: ", about)
    if diff.edits is not None:
        page.gap()
        _edits(page, diff.edits, diff.summary or "")
    if not diff.exact and cause not in known:
        page.gap()
        page.prose(["  = ", ("note: ", "bold")], _approximate(diff), 4)
    known.add(cause)


def least_change(page: TextPage, found: LeastChange, of: str, about: str) -> None:
    """Write the smallest set of changes that restores reuse, with the share of the prompt after each."""
    now, said = percent(found.common, found.tokens) if found.tokens else "0 %", set[str]()
    page.prose([("least change: ", "bold")], f"{of}{about}{now} of the prompt matches; share after each step:", 2)
    for edit in found.edits:
        share = percent(min(edit.reuse, edit.tokens), edit.tokens) if edit.tokens else "0 %"
        page.prose([f"  {share:>8}  "], edit.words, 12)
        owner = edit.owner if edit.client is None else f"{edit.owner}, {edit.client.title}"
        step = edit.advice[0] if edit.advice else Advice("no setting is known")
        if step.text in said:
            page.row("            ", (owner, "bold"), ": as above")
            continue
        said.add(step.text)
        page.prose(["            ", (f"{owner}: ", "bold")], step.text, 14)
        for command in step.commands:
            page.row("              ", (command, COMMAND))
    page.prose(["  "], _rest(found), 2)


def _rest(found: LeastChange) -> str:
    if not found.edits:
        return "No small set of changes restores reuse: the text after the first difference is not sent again."
    if found.is_bounded:
        return (
            f"More than {len(found.edits) + found.rest:,} changes; these come first. The effect on answers is unknown."
        )
    more = (
        "Nothing else matters"
        if not found.rest
        else f"{count(found.rest, 'more change')} would restore less than 1 % of the prompt"
    )
    return (
        f"{more}. Each row includes the rows above it. Counts are common prefix tokens; the effect on answers is "
        "unknown."
    )


def _settings(page: TextPage, settings: list[RequestSetting]) -> None:
    """Other differences between the requests."""
    for setting in settings:
        if setting.place == OWN_VERDICT:
            page.prose(["  = ", ("own verdict: ", "bold")], f"{setting.b}: {setting.words}", 4)
            continue
        sides = f"{setting.a or '(none)'} and {setting.b or '(none)'}"
        page.prose(["  = ", ("also: ", "bold")], f"{setting.place} differs ({sides}): {setting.words}", 4)


def _alone(page: TextPage, alone: list[Side], about: str) -> None:
    """The prompts that were not compared."""
    if not alone:
        return
    page.gap()
    verb = "prompts were" if len(alone) > 1 else "prompt was"
    page.prose(
        [(f"{number(len(alone))} {verb} not compared: no other request of its conversation was given", "bold")], "", 2
    )
    for side in alone:
        page.row("  ", f"{side.path} ({side.kind}, {about}{number(side.tokens)} tokens)")


def _approximate(diff: PromptDiff) -> str:
    if diff.tokenizer == "pieces":
        how = "--tokenizer MODEL.gguf (or tokenizer.json, http://host:port) makes them exact"
        return f"token counts are approximate; {how}"
    return "the request bodies were compared without the model's chat template; --template or a GGUF makes counts exact"


def _first(page: TextPage, diff: PromptDiff, first: First, about: str) -> None:
    share = percent(diff.common_prefix_tokens, diff.b.tokens) if diff.b.tokens else ""
    head: list[Part] = [(first.kind, WARNING), f" ({first.field}): " if first.field else ": "]
    page.prose(head, diff.explanation, 2, "bold")
    where = f"at token {about}{number(first.token)} ({share} of b), character {number(first.char)}"
    page.prose(["  --> "], f"{where}, line {number(first.line)}, column {number(first.column)}", 6)
    if first.place:
        page.row("  in  ", (first.place, "bold"))


def _excerpt(page: TextPage, excerpt: Excerpt) -> None:
    """The text of both sides, with differences in brackets and visible spaces and control characters."""
    before = _escaped(excerpt.before[-_EXCERPT:])
    page.row("      |")
    texts = (excerpt.a[:_EXCERPT] + excerpt.after_a[:_EXCERPT], excerpt.b[:_EXCERPT] + excerpt.after_b[:_EXCERPT])
    for side, style, parts in zip("ab", (OLD, NEW), _marked(*texts), strict=True):
        shown = [(f"[{_escaped(text)}]", style) if differs else (_escaped(text), "") for text, differs in parts]
        _folded(page, ["    ", (side, style), " | "], [(before, ""), *shown])
    page.row("      |")


_PIECE = late(r"[A-Za-z0-9_]+|[\s\S]")
"""A word of ASCII, or any other character."""
_REJOINED = 3
"""Consecutive equal words needed to treat two texts as equal again; shorter runs occur by chance."""
_Marked = list[tuple[str, bool]]
"""Pieces of a text, and whether they differ from the other text."""


def _marked(a: str, b: str) -> tuple[_Marked, _Marked]:
    """Divide two texts into what they share and what differs; where one is merely longer at its end, nothing does."""
    one, two = _PIECE.findall(a), _PIECE.findall(b)
    found: tuple[_Marked, _Marked] = [], []
    at = [0, 0]
    for start_a, start_b, size in SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks():
        block = one[start_a : start_a + size]
        ends = start_a + size == len(one) and start_b + size == len(two)
        begins = start_a == start_b == 0
        if sum(piece.isalnum() for piece in block) < _REJOINED and not begins and not ends:
            continue
        differs = (one[at[0] : start_a], two[at[1] : start_b])
        is_cut = not size and any(is_marked for _, is_marked in found[0]) and not all(differs)
        for parts, words in zip(found, differs, strict=True):
            if any(differs):
                parts.append(("".join(words), not is_cut))
            if block:
                parts.append(("".join(block), False))
        at = [start_a + size, start_b + size]
    return found


def _folded(page: TextPage, head: list[Part], parts: list[tuple[str, str]]) -> None:
    """Write parts of a text one after the other, in as many rows as they need."""
    row, left = head, page.width - _GUTTER
    for words, style in parts:
        rest = visible(words, page.ascii_only)
        while rest:
            piece = take(rest, left) or ("" if len(row) > len(head) else rest[0])
            if not piece:
                page.row(*row)
                row = head = ["      | "]
                left = page.width - _GUTTER
                continue
            row, left, rest = [*row, (piece, style)], left - cell_len(piece), rest[len(piece) :]
    page.row(*row)


def _escaped(text: str) -> str:
    """Line ends and tabs as words; the page makes the other control characters visible."""
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _cost(page: TextPage, diff: PromptDiff, about: str) -> None:
    prefix, suffix = number(diff.common_prefix_tokens), number(diff.common_suffix_tokens)
    page.prose(["  = ", ("common: ", "bold")], f"{about}{prefix} tokens at the start, {suffix} at the end", 4)
    for memory, words in _MEMORY.items():
        tokens = diff.reusable[memory]
        rest = max(0, diff.b.tokens - tokens)
        page.prose(
            ["  = ", ("reuse: ", "bold")], f"{about}{number(tokens)} tokens, {number(rest)} recomputed: {words}", 4
        )


def _edits(page: TextPage, edits: list[Edit], summary: str) -> None:
    page.prose([("whole difference: ", "bold")], summary, 2)
    for edit in edits[:_EDITS]:
        size_a, size_b = edit.a[1] - edit.a[0], edit.b[1] - edit.b[0]
        page.row(
            f"  {edit.op:8}a {number(edit.a[0])}..{number(edit.a[1])} ({number(size_a)})"
            f"  b {number(edit.b[0])}..{number(edit.b[1])} ({number(size_b)})"
        )
    if len(edits) > _EDITS:
        page.row(f"  ... {number(len(edits) - _EDITS)} more; --format json has all")
