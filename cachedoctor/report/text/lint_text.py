"""Lint as text: an error with its place, cost and fix, hints in a row each. Knows Lint and Page only."""

from __future__ import annotations

from typing import TextIO

from cachedoctor.model import Lint, LintError, LintHint, TrialAnswer
from cachedoctor.report.text.diff_text import what_mends
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.palette import NEW, OLD, WARNING
from cachedoctor.report.words import lint_words
from cachedoctor.report.words.numbers import count

_LISTED = 6
"""Requests with the same error that are named."""
_VERDICT = {"yes": "yes", "no": "no", "refused": "refused", "unknown": "not shown"}


def render(shown: Lint, out: TextIO, width: int = 80, *, color: bool = False, ascii_only: bool = False) -> None:
    """Write the answer; errors of one kind at one place are one block."""
    page = Page(out, width, color, ascii_only)
    groups: dict[tuple[str, str | None, str | None], list[LintError]] = {}
    for error in shown.errors:
        groups.setdefault((error.kind, error.field, error.place), []).append(error)
    for errors in groups.values():
        _error(page, errors, shown.exact)
        page.gap()
    for hint in shown.hints:
        _hint(page, hint)
        page.gap()
    for answer in shown.template:
        _answer(page, answer)
        page.gap()
    page.prose([], lint_words.verdict(shown), 2, "bold")
    for note in lint_words.notes(shown):
        page.prose(["  = ", ("note: ", "bold")], note, 4)


def _error(page: Page, errors: list[LintError], exact: bool) -> None:
    first = errors[0]
    page.prose([("error ", WARNING), (f"{lint_words.title(first)}: ", "bold")], first.explanation, 2)
    line = f":{first.line}" if first.line is not None else ""
    page.row("  --> ", f"{first.path.rpartition('#')[0] or first.path}{line}" if line else first.path)
    page.row("  in  ", lint_words.place(first, exact))
    if first.a or first.b:
        page.row("  ", ("a", OLD), " | ", _one_row(first.a))
        page.row("  ", ("b", NEW), " | ", _one_row(first.b))
    page.prose(["  = ", ("cost: ", "bold")], lint_words.cost(first, exact), 4)
    if len(errors) > 1:
        named = ", ".join(error.path.rpartition("#")[2] or error.path for error in errors[1:][:_LISTED])
        more = f" and {len(errors) - 1 - _LISTED} more" if len(errors) - 1 > _LISTED else ""
        total = sum(error.cost for error in errors)
        words = f"in {count(len(errors) - 1, 'later request')} (number {named}{more}), {total:,} tokens in all"
        page.prose(["  = ", ("again: ", "bold")], words, 4)
    what_mends(page, first.client, first.advice)


def _hint(page: Page, hint: LintHint) -> None:
    page.prose([("hint ", "bold"), f"{hint.kind}: "], hint.words, 2)
    where = f"{hint.path} {hint.place}" if hint.place else hint.path
    page.row("  --> ", f"{where} ({count(hint.requests, 'request')})")
    if hint.shown:
        page.row("    | ", _one_row(hint.shown))
    for advice in hint.advice[:1]:
        page.prose(["  = ", ("fix: ", "bold")], advice.text, 4)


def _answer(page: Page, answer: TrialAnswer) -> None:
    style = WARNING if answer.verdict == "no" else ""
    page.prose([(f"{answer.question} ", "bold")], _VERDICT[answer.verdict], 2, style)
    page.prose(["  "], answer.words, 2)
    if answer.verdict == "no":
        page.row("  --> ", f"character {answer.char or 0:,}", f", {answer.place}" if answer.place else "")
        page.row("  ", ("a", OLD), " | ", _one_row(answer.a))
        if answer.b:
            page.row("  ", ("b", NEW), " | ", _one_row(answer.b))


def _one_row(text: str) -> str:
    """Line ends and tabs as words; the page makes the other control characters visible."""
    return text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
