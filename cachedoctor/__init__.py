"""Why was my prompt recomputed? Reads llama-server logs and answers with evidence.

The whole public API: ``analyze(path) -> Report``. Importing this package imports nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from cachedoctor.model import Report

__version__ = "0.1.0"
__all__ = ["__version__", "analyze"]


def analyze(*paths: str | PathLike[str], build: int | None = None) -> Report:
    """Analyse the log files ``paths`` (``-`` is standard input) and return the Report.

    Args:
        build: the llama.cpp build number, when the log does not say it.

    Raises:
        CacheDoctorError: an input cannot be read at all.
    """
    from cachedoctor.doctor.run import analyze_paths

    return analyze_paths([str(p) for p in paths], build=build)
