"""The words of lint that its formats share. Knows Lint; knows no format."""

from __future__ import annotations

from cachedoctor.model import Lint, LintError
from cachedoctor.report.words.numbers import count, number, percent


def verdict(shown: Lint) -> str:
    """Say in a sentence whether the requests, or the template, are append-only."""
    if shown.template:
        answers = [answer for answer in shown.template if answer.verdict == "no"]
        if not answers:
            return "append-only: the template keeps every scripted conversation that it renders"
        return f"not append-only: {len(answers)} of {count(len(shown.template), 'question')} answered with no"
    what = f"{count(shown.requests - shown.alone, 'request')} of {count(shown.conversations, 'conversation')}"
    if not shown.errors:
        as_far = " as far as they are recorded" if shown.notes else ""
        return f"append-only{as_far}: {what}, each of which extends the one before it"
    cost = number(sum(error.cost for error in shown.errors))
    about = "" if shown.exact else "about "
    return f"not append-only: {count(len(shown.errors), 'error')} in {what}, {about}{cost} tokens computed again"


def place(error: LintError, exact: bool) -> str:
    """Say where in the request it differs."""
    about = "" if exact else "about "
    share = percent(error.token, error.tokens) if error.tokens else "0 %"
    where = f"{error.place}, " if error.place else ""
    return f"{where}token {about}{number(error.token)} of {number(error.tokens)} ({share} shared)"


def cost(error: LintError, exact: bool) -> str:
    """Say what it costs, and what the server said that it reused."""
    words = f"{'' if exact else 'about '}{number(error.cost)} tokens computed again"
    if error.answered_tokens is None or error.answered_reused is None:
        return words
    return f"{words}; the server reused {number(error.answered_reused)} of {number(error.answered_tokens)}"


def title(error: LintError) -> str:
    """Name what differs: kind, and what varies in it."""
    return f"{error.kind} ({error.field})" if error.field else error.kind


def notes(shown: Lint) -> list[str]:
    """What limits the answer."""
    found = [*shown.notes]
    if shown.alone:
        were = "was" if shown.alone == 1 else "were"
        found.append(f"{count(shown.alone, 'request')} {were} compared with none: no other of the conversation is here")
    if shown.template or shown.exact:
        return found
    if not shown.rendered:
        found.append("the bodies were compared without the model's chat template: --template or --server renders them")
    if shown.tokenizer == "pieces":
        found.append("token counts are approximate; --tokenizer MODEL.gguf (or tokenizer.json) makes them exact")
    return found
