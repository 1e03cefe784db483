"""Lint as text, JSON (``cachedoctor.lint/1``, frozen), SARIF and annotations. Knows Lint and the forms, no request."""

from __future__ import annotations

import io
from typing import IO, Literal, get_args

import msgspec

from cachedoctor.model import Lint
from cachedoctor.report import sanitize
from cachedoctor.report.base import Look

Form = Literal["text", "json", "sarif", "github"]
FORMATS: tuple[Form, ...] = get_args(Form)


def write(form: Form, shown: Lint, out: IO[bytes], look: Look) -> None:
    """Write the answer, without what looks like a secret."""
    shown = sanitize.lint(shown)
    if form == "json":
        out.write(msgspec.json.encode(shown) + b"\n")
        return
    if form == "sarif":
        from cachedoctor.report.wire.lint_wire import write_sarif

        write_sarif(shown, out)
        return
    text = io.StringIO()
    if form == "github":
        from cachedoctor.report.wire.lint_wire import workflow_commands

        text.write("".join(f"{row}\n" for row in workflow_commands(shown)))
    else:
        from cachedoctor.report.text.lint_text import render

        render(shown, text, look.width, color=look.color, ascii_only=look.ascii_only)
    out.write(look.encode(text.getvalue()))
