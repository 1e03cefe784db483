"""What a format is, and the table of all formats. Knows their names; what each writes is known by its module."""

from __future__ import annotations

import importlib
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from cachedoctor.model import Report

FormatName = Literal["text", "concise", "html", "json", "jsonl", "sarif", "markdown", "github"]


class Look(NamedTuple):
    """How text is to be shown on one output."""

    width: int = 80
    """Cells of a row."""
    color: bool = False
    """The output understands escape codes."""
    ascii_only: bool = False
    encoding: str = "utf-8"
    pages: str | None = None
    """What stands before the ``url`` of a rule to make it a link; None where the output knows no links."""
    verbose: bool = False
    """Everything is shown that is known."""

    def encode(self, text: str) -> bytes:
        """Give the bytes for the output; no character is ever a reason to fail."""
        return text.encode(self.encoding, "backslashreplace")


class Format(NamedTuple):
    """One way to write a report. Its module has ``write(report, out, look)``, and gets what may be shown."""

    name: FormatName
    module: str
    lists_requests: bool
    """It lists every request, so that all of them must be kept."""
    always: bool = False
    """Programs read it: it is written even when no input could be read, and says so."""


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("text", "text.text_report", False),
        Format("concise", "text.concise", False),
        Format("json", "wire.report_v1", True, True),
        Format("jsonl", "wire.stream_v1", True, True),
        Format("sarif", "wire.sarif", False, True),
        Format("markdown", "markdown.markdown_report", True),
        Format("github", "wire.github", False),
        Format("html", "html.html_report", True),
    )
}


def write(name: FormatName, report: Report, out: IO[bytes], look: Look) -> None:
    """Write ``report`` in the format ``name``; a format that cannot be written raises before the first byte."""
    from cachedoctor.report import sanitize

    module = importlib.import_module(f"cachedoctor.report.{FORMATS[name].module}")
    module.write(sanitize.report(report), out, look)
