"""Lint as text, JSON (``cachedoctor.lint/1``, frozen), SARIF and annotations. Knows Lint and the forms, no request."""

from __future__ import annotations

import io
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import Lint, LintError, LintHint, TrialAnswer
from cachedoctor.model.bounds import Amount, Text
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look
from cachedoctor.report.contract import Tool

Form = Literal["text", "json", "sarif", "github"]
FORMATS: tuple[Form, ...] = get_args(Form)


class LintDocument(msgspec.Struct):
    """Whether requests only extend each other. Unknown values are None. Within version 1 keys are only added."""

    schema: Literal["cachedoctor.lint/1"]
    tool: Tool
    append_only: bool
    """There are no errors, and no answer about the template is no."""
    requests: Amount
    conversations: Amount
    """Conversations of at least two requests."""
    alone: Amount
    """Requests that no other of their conversation goes before or follows: nothing can be said of them."""
    tokenizer: Text
    """What counted the tokens; pieces: words and signs stand for tokens."""
    exact: bool
    """The counts are the model's own."""
    rendered: bool
    """The bodies were rendered with a chat template; else their parts stand in the order of templates."""
    errors: list[LintError]
    hints: list[LintHint]
    template: list[TrialAnswer]
    """Only without bodies: what the template does with scripted conversations."""
    notes: list[Text]
    """What the recordings that the bodies were read from do not hold: nothing is said of that."""


def write(form: Form, shown: Lint, out: IO[bytes], look: Look, version: str) -> None:
    """Write the answer, without what looks like a secret."""
    shown = sanitize.lint(shown)
    if form == "json":
        document = LintDocument(
            "cachedoctor.lint/1", Tool("cachedoctor", version),
            **{name: getattr(shown, name) for name in Lint.__struct_fields__},
        )  # fmt: skip
        out.write(msgspec.json.encode(document) + b"\n")
        return
    if form == "sarif":
        from cachedoctor.report.wire.lint_wire import write_sarif

        write_sarif(shown, out, version)
        return
    text = io.StringIO()
    if form == "github":
        from cachedoctor.report.wire.lint_wire import workflow_commands

        text.write("".join(f"{row}\n" for row in workflow_commands(shown)))
    else:
        from cachedoctor.report.text.lint_text import render

        render(shown, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))
