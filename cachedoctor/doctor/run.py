"""Batch, pipe and tail: three loops around one Analyzer. Knows sources and the analyzer; knows no format."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from cachedoctor.doctor.analyzer import Analyzer
from cachedoctor.model import CacheDoctorError, Report
from cachedoctor.sources.base import Source, SourceError
from cachedoctor.sources.order import in_time_order

_ROTATION = re.compile(r"(?:[.-]\d[\dT_:-]*)?(?:\.(?:gz|xz|bz2|zst))?$")


def _source(path: str) -> Source:
    if path == "-":
        from cachedoctor.sources.stdin import StdinSource

        return StdinSource()
    from cachedoctor.sources.file import FileSource

    return FileSource(path)


def _base(path: str) -> str:
    return _ROTATION.sub("", path)


def drive(
    analyzer: Analyzer, source: Source, on_new: Callable[[list[str]], None] | None = None, *, continues: bool = False
) -> str | None:
    """Feed one source to its end; returns the error that stopped it, or None."""
    info = analyzer.open(source.path, continues=continues)
    try:
        for chunk in source.chunks():
            new = analyzer.feed(chunk) if chunk else analyzer.idle()
            if new and on_new is not None:
                on_new(new)
    except SourceError as error:
        info.error = error.message
        analyzer.close()
        return f"{error.message}" + (f"; {error.hint}" if error.hint else "")
    analyzer.close()
    return None


def feed_all(analyzer: Analyzer, paths: list[str], on_new: Callable[[list[str]], None] | None = None) -> list[str]:
    """Feed every path, rotations in time order; returns the errors of inputs that could not be read to their end."""
    errors, before = [], None
    for path in in_time_order(paths):
        base = _base(path)
        error = drive(analyzer, _source(path), on_new, continues=path != "-" and base == before)
        before = base
        if error is not None:
            errors.append(error)
    return errors


def analyze_paths(paths: list[str], build: int | None = None) -> Report:
    """Analyse files and give the report.

    Raises:
        CacheDoctorError: nothing could be read.
    """
    analyzer = Analyzer(build)
    errors = feed_all(analyzer, paths)
    report = analyzer.finish()
    if errors and not any(i.lines for i in report.inputs):
        raise CacheDoctorError(errors[0])
    return report


def interruptible(run: Callable[[], list[str]]) -> tuple[list[str], bool]:
    """Run until the end or Ctrl-C; returns the errors and whether it was interrupted."""
    with contextlib.suppress(KeyboardInterrupt):
        return run(), False
    return [], True
