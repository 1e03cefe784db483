"""The bundled cases, and the ways in which tests analyse a log."""

from __future__ import annotations

import io
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cachedoctor.doctor.analyzer import Analyzer
from cachedoctor.report import json_v1
from cachedoctor.sources.file import FileSource

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "fixtures"
CASES = sorted(path.parent for path in (FIXTURES / "cases").glob("*/case.toml"))


def case_of(folder: Path) -> dict[str, Any]:
    """What is known of a case."""
    return tomllib.loads((folder / "case.toml").read_text("utf-8"))


def log_of(folder: Path) -> Path:
    """The log of a case, plain or gzipped."""
    return next(folder.glob("server.log*"))


def content_of(folder: Path) -> bytes:
    """The log as UTF-8, unpacked."""
    return b"".join(FileSource(str(log_of(folder))).chunks())


def json_of(chunks: Iterable[bytes], path: str = "server.log") -> bytes:
    """The JSON report of a log that arrives in ``chunks``."""
    analyzer, out = Analyzer(), io.BytesIO()
    analyzer.open(path)
    for chunk in chunks:
        analyzer.feed(chunk)
    json_v1.render(analyzer.finish(), out)
    return out.getvalue()


def report_of(log: bytes | str) -> dict[str, Any]:
    """The report of a log that arrives as a whole."""
    report: dict[str, Any] = json.loads(json_of([log.encode() if isinstance(log, str) else log]))
    return report
