"""Batch, pipe and tail: loops around one Analyzer. Knows sources and the analyzer; knows no format."""

from __future__ import annotations

import os
import re

from cachedoctor.doctor.analyzer import Analyzer
from cachedoctor.model import Report
from cachedoctor.sources.base import Source, SourceError
from cachedoctor.sources.order import in_time_order
from cachedoctor.sources.unpack import MAX_BYTES

_ROTATION = re.compile(r"(?:[.-]\d[\dT_:-]*)?(?:\.(?:gz|xz|bz2|zst))?$")


def _source(path: str, max_unpacked: int) -> Source:
    if path == "-":
        from cachedoctor.sources.stdin import StdinSource

        return StdinSource(max_bytes=max_unpacked)
    from cachedoctor.sources.file import FileSource

    return FileSource(path, max_unpacked)


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


def feed_all(analyzer: Analyzer, paths: list[str], max_unpacked: int = MAX_BYTES) -> list[SourceError]:
    """Feed every path, rotations in time order; returns the errors of inputs that could not be read to their end.

    ``max_unpacked``: bytes that each of them may unpack to.
    """
    errors, before = [], None
    seen: set[str] = set()
    for path in in_time_order(paths):
        same = path if path == "-" else os.path.realpath(path)
        if same in seen:
            continue  # a log given twice is one log
        seen.add(same)
        base = _ROTATION.sub("", path)
        error = drive(analyzer, _source(path, max_unpacked), continues=path != "-" and base == before)
        before = base
        if error is not None:
            errors.append(error)
    return errors


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
