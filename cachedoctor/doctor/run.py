"""Batch, pipe and tail: loops around one Analyzer. Knows sources and the analyzer; knows no format."""

from __future__ import annotations

import os
import re
from typing import IO, TYPE_CHECKING

from cachedoctor.doctor.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.sources.base import Source, SourceError
from cachedoctor.sources.order import in_time_order

if TYPE_CHECKING:
    from cachedoctor.doctor.redaction import Redactor

_ROTATION = re.compile(r"(?:[.-]\d[\dT_:-]*)?(?:\.(?:gz|xz|bz2|zst))?$")


def _source(path: str) -> Source:
    if path == "-":
        from cachedoctor.sources.stdin import StdinSource

        return StdinSource()
    from cachedoctor.sources.file import FileSource

    return FileSource(path)


def drive(analyzer: Analyzer, source: Source, *, continues: bool = False) -> SourceError | None:
    """Feed one source to its end; returns the error that stopped it, or None."""
    info = analyzer.open(source.path, continues=continues)
    try:
        for chunk in source.chunks():
            if chunk:
                analyzer.feed(chunk)
            else:
                analyzer.idle()
    except SourceError as error:
        info.error = error.message
        analyzer.close()
        return error
    analyzer.close()
    return None


def feed_all(analyzer: Analyzer, paths: list[str]) -> list[SourceError]:
    """Feed every path, rotations in time order; returns the errors of inputs that could not be read to their end."""
    errors, before = [], None
    seen: set[str] = set()
    for path in in_time_order(paths):
        same = path if path == "-" else os.path.realpath(path)
        if same in seen:
            continue  # a log given twice is one log
        seen.add(same)
        base = _ROTATION.sub("", path)
        error = drive(analyzer, _source(path), continues=path != "-" and base == before)
        before = base
        if error is not None:
            errors.append(error)
    return errors


def redact_to(path: str, redactor: Redactor, out: IO[bytes]) -> SourceError | None:
    """Write the redacted log, live as it arrives; returns the error that stopped the input, or None."""
    stopped = None
    try:
        for chunk in _source(path).chunks():
            out.write(redactor.feed(chunk))
            if not chunk:
                out.flush()
    except SourceError as error:
        stopped = error
    out.write(redactor.finish())
    return stopped


def analyze_paths(paths: list[str], build: int | None = None) -> Report:
    """Analyse files and give the report; an input that fails midway is named in it.

    Raises:
        SourceError: nothing could be read.
    """
    analyzer = Analyzer(build)
    errors = feed_all(analyzer, paths)
    report = analyzer.finish()
    if errors and not any(i.lines for i in report.inputs):
        raise errors[0]
    return report
