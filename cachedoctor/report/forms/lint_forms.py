"""Lint as text, JSON (``cachedoctor.lint/1``, frozen), SARIF 2.1.0 and GitHub annotations."""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import sha256
from typing import IO, Any, Literal, TextIO, get_args

import msgspec

from cachedoctor.model import Advice, Lint, LintError, LintHint, TrialAnswer
from cachedoctor.redaction import sanitize
from cachedoctor.report.base import Appearance
from cachedoctor.report.text.diff_text import least_change, what_mends
from cachedoctor.report.text.page import NEW, OLD, WARNING, TextPage
from cachedoctor.report.text.text_safe import visible
from cachedoctor.report.wire import github, sarif
from cachedoctor.report.words.numbers import count, number, percent


def lint_verdict(shown: Lint) -> str:
    """Say in a sentence whether the requests, or the template, are append-only."""
    if shown.template:
        answers = [answer for answer in shown.template if answer.verdict == "no"]
        if not answers:
            return "append-only: the template keeps all test conversations append-only"
        return f"not append-only: {len(answers)} of {count(len(shown.template), 'question')} answered no"
    what = f"{count(shown.requests - shown.alone, 'request')} of {count(shown.conversations, 'conversation')}"
    if not shown.errors:
        as_far = " as far as the recordings show" if shown.notes else ""
        return f"append-only{as_far}: {what}, each of which extends the previous one"
    cost = number(sum(error.cost for error in shown.errors))
    about = "" if shown.exact else "about "
    errors = count(len(shown.errors), "error")
    return f"not append-only: {errors} in {what}, {about}{cost} tokens of previous prompts recomputed"


def error_place(error: LintError, exact: bool) -> str:
    """Say where in the request it differs."""
    about = "" if exact else "about "
    share = percent(error.token, error.tokens) if error.tokens else "0 %"
    where = f"{error.place}, " if error.place else ""
    return f"{where}token {about}{number(error.token)} of {number(error.tokens)} ({share} shared)"


def cost(error: LintError, exact: bool) -> str:
    """Say what it costs, and what the server said that it reused."""
    least = f"{number(error.least_cost)} to " if error.least_cost is not None else ""
    words = f"{'' if exact else 'about '}{least}{number(error.cost)} tokens of the previous prompt recomputed"
    if least:
        words += ": the chat template decides whether tools come before all messages or before the last user message"
    if error.answered_tokens is None or error.answered_reused is None:
        return words
    return f"{words}; the server reused {number(error.answered_reused)} of {number(error.answered_tokens)} tokens"


def title(error: LintError) -> str:
    """Name what differs: kind, and what varies in it."""
    return f"{error.kind} ({error.field})" if error.field else error.kind


def notes(shown: Lint) -> list[str]:
    """What limits the answer."""
    found = [*shown.notes]
    if shown.alone:
        were = "was" if shown.alone == 1 else "were"
        found.append(
            f"{count(shown.alone, 'request')} {were} not compared: no other request of its conversation was given"
        )
    if shown.template or shown.exact:
        return found
    if not shown.rendered:
        found.append("the bodies were compared without the model's chat template: --template or --server renders them")
    if shown.tokenizer == "pieces":
        found.append("token counts are approximate; --tokenizer MODEL.gguf (or tokenizer.json) makes them exact")
    return found


_LISTED = 6
"""Requests with the same error that are named."""
_VERDICT = {"yes": "yes", "no": "no", "refused": "refused", "unknown": "not shown"}


def render_text(shown: Lint, out: TextIO, width: int = 80, *, color: bool = False, ascii_only: bool = False) -> None:
    """Write the answer; errors of one kind at one place are one block."""
    page = TextPage(out, width, color, ascii_only)
    groups: dict[tuple[str, str | None, str | None], list[LintError]] = {}
    for error in shown.errors:
        groups.setdefault((error.kind, error.field, error.place), []).append(error)
    for errors in groups.values():
        _error_lint_text(page, errors, shown.exact)
        page.gap()
    if shown.least is not None:
        least_change(page, shown.least, f"{shown.least_path}: ", "" if shown.exact else "about ")
        page.gap()
    for hint in shown.hints:
        _hint_lint_text(page, hint)
        page.gap()
    for answer in shown.template:
        _answer(page, answer)
        page.gap()
    page.prose([], lint_verdict(shown), 2, "bold")
    for note in notes(shown):
        page.prose(["  = ", ("note: ", "bold")], note, 4)


def _error_lint_text(page: TextPage, errors: list[LintError], exact: bool) -> None:
    first = errors[0]
    page.prose([("error ", WARNING), (f"{title(first)}: ", "bold")], first.explanation, 2)
    line = f":{first.line}" if first.line is not None else ""
    page.row("  --> ", f"{first.path.rpartition('#')[0] or first.path}{line}" if line else first.path)
    page.row("  in  ", error_place(first, exact))
    if first.a or first.b:
        page.row("  ", ("a", OLD), " | ", _one_row(first.a))
        page.row("  ", ("b", NEW), " | ", _one_row(first.b))
    page.prose(["  = ", ("cost: ", "bold")], cost(first, exact), 4)
    if len(errors) > 1:
        named = ", ".join(error.path.rpartition("#")[2] or error.path for error in errors[1:][:_LISTED])
        more = f" and {len(errors) - 1 - _LISTED} more" if len(errors) - 1 > _LISTED else ""
        total = sum(error.cost for error in errors)
        words = f"in {count(len(errors) - 1, 'later request')} (number {named}{more}), {total:,} tokens in all"
        page.prose(["  = ", ("again: ", "bold")], words, 4)
    what_mends(page, first.client, first.advice)


def _hint_lint_text(page: TextPage, hint: LintHint) -> None:
    page.prose([("hint ", "bold"), f"{hint.kind}: "], hint.words, 2)
    where = f"{hint.path} {hint.place}" if hint.place else hint.path
    page.row("  --> ", f"{where} ({count(hint.requests, 'request')})")
    if hint.shown:
        page.row("    | ", _one_row(hint.shown))
    for advice in hint.advice[:1]:
        page.prose(["  = ", ("fix: ", "bold")], advice.text, 4)


def _answer(page: TextPage, answer: TrialAnswer) -> None:
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


def write_sarif(shown: Lint, out: IO[bytes]) -> None:
    """Write one run with a result for each error and hint, and for each answer about a template that is no."""
    results = [_error_lint_wire(error, shown.exact) for error in shown.errors] + [
        _hint_lint_wire(hint) for hint in shown.hints
    ]
    results += [
        _result(answer.name, "warning", f"{answer.question} No: {answer.words}", "template", None)
        for answer in shown.template
        if answer.verdict == "no"
    ]
    kinds = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = kinds.index(result["ruleId"])
    driver = {
        "name": "cachedoctor lint",
        "version": visible(shown.tool.version),
        "rules": [_rule(kind) for kind in kinds],
    }
    run = {"tool": {"driver": driver}, "results": results}
    log = {"$schema": sarif.SCHEMA, "version": "2.1.0", "runs": [run]}
    out.write(msgspec.json.format(msgspec.json.encode(log), indent=2) + b"\n")


def _rule(kind: str) -> dict[str, Any]:
    text = {"text": f"A request does not, or may not, extend the previous request: {kind}."}
    return {"id": kind, "name": kind, "shortDescription": text, "help": {"text": "cachedoctor lint --help"}}


def _error_lint_wire(error: LintError, exact: bool) -> dict[str, Any]:
    rows = [f"{error.explanation} ({error_place(error, exact)}).", f"Cost: {cost(error, exact)}."]
    text = "\n".join([*rows, *_fixes(error.advice)])
    return _result(error.kind, "error", text, error.path, error.line)


def _hint_lint_wire(hint: LintHint) -> dict[str, Any]:
    return _result(hint.kind, "note", "\n".join([f"{hint.words}.", *_fixes(hint.advice)]), hint.path, None)


def _fixes(advice: list[Advice]) -> list[str]:
    return ["\n".join([f"Fix: {one.text}", *(f"    {command}" for command in one.commands)]) for one in advice]


def _result(kind: str, level: str, text: str, path: str, line: int | None) -> dict[str, Any]:
    file, _, request = path.rpartition("#")
    shown = "\n".join(visible(row) for row in text.split("\n"))
    address = "stdin" if path.startswith("<") else sarif.uri(file or path)
    place = {"artifactLocation": {"uri": address}, "region": {"startLine": line or 1}}
    mark = sha256(f"{kind} {file} {request}".encode("utf-8", "replace")).hexdigest()[:32]
    return {
        "ruleId": kind,
        "level": level,
        "message": {"text": sarif.message_text(shown)},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {sarif.GITHUB_FINGERPRINT: mark},
    }


def workflow_commands(shown: Lint) -> Iterator[str]:
    """Give a workflow command for each error and hint, and a line that sums up."""
    for error in shown.errors:
        rows = [error.explanation, error_place(error, shown.exact), f"cost: {cost(error, shown.exact)}"]
        rows += [f"fix: {advice.text}" for advice in error.advice]
        yield _annotation("error", error.kind, error.path, error.line, rows)
    for hint in shown.hints:
        yield _annotation("notice", hint.kind, hint.path, None, [hint.words, *(a.text for a in hint.advice[:1])])
    for answer in shown.template:
        if answer.verdict == "no":
            yield f"::warning title={github.property_value(answer.name)}::{github.data(answer.words)}"
    yield f"cachedoctor: {lint_verdict(shown)}"


def _annotation(level: str, kind: str, path: str, line: int | None, rows: list[str]) -> str:
    file = path.rpartition("#")[0] or path
    place = {} if path.startswith("<") else {"file": file, "line": str(line or 1)}
    named = ",".join(f"{k}={github.property_value(v)}" for k, v in {**place, "title": kind}.items())
    return f"::{level} {named}::{'%0A'.join(map(github.data, rows))}"


Form = Literal["text", "json", "sarif", "github"]
FORMATS: tuple[Form, ...] = get_args(Form)


def write(form: Form, shown: Lint, out: IO[bytes], look: Appearance) -> None:
    """Write the answer, without what looks like a secret."""
    shown = sanitize.mask(shown)
    if form == "json":
        out.write(msgspec.json.encode(shown) + b"\n")
        return
    if form == "sarif":
        write_sarif(shown, out)
        return
    text = io.StringIO()
    if form == "github":
        text.write("".join(f"{row}\n" for row in workflow_commands(shown)))
    else:
        render_text(shown, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))
