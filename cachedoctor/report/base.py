"""What a format is, and the table of all formats."""

from __future__ import annotations

import importlib
import os
from collections.abc import Container
from typing import IO, TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from cachedoctor.model import Report

FormatName = Literal["text", "concise", "html", "json", "jsonl", "sarif", "markdown", "github"]


class Appearance(msgspec.Struct, frozen=True):
    """How text is shown on one output."""

    width: int = 80
    """Width of a row in terminal columns."""
    color: bool = False
    """True if the output supports escape codes."""
    ascii_only: bool = False
    encoding: str = "utf-8"
    pages: str | None = None
    """Address before the ``url`` of a rule, for links; None if the output does not support links."""
    verbose: bool = False
    """True to show all proof, fixes, servers and unchecked rules."""

    def encode(self, text: str) -> bytes:
        """Return the bytes for the output; characters that cannot be encoded are escaped."""
        return text.encode(self.encoding, "backslashreplace")


class Format(msgspec.Struct, frozen=True):
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

ENDINGS: dict[str, str] = {
    ".html": "html", ".htm": "html", ".json": "json", ".jsonl": "jsonl", ".md": "markdown",
    ".markdown": "markdown", ".sarif": "sarif", ".txt": "text", ".csv": "csv",
}  # fmt: skip
"""Format of a report, or of another answer, by how the name of its file ends."""


def format_of(path: str | None, known: Container[str]) -> str | None:
    """Return the one of the ``known`` formats that the ending of a file's name stands for; None for any other name."""
    name = (path or "").lower()
    ending = ".sarif" if name.endswith(".sarif.json") else os.path.splitext(name)[1]
    found = ENDINGS.get(ending)
    return found if found in known else None


def write(name: FormatName, report: Report, out: IO[bytes], look: Appearance) -> None:
    """Write ``report`` in the format ``name``; a format that cannot be written raises before the first byte."""
    from cachedoctor.redaction import sanitize

    module = importlib.import_module(f"cachedoctor.report.{FORMATS[name].module}")
    module.write(sanitize.report(report), out, look)
