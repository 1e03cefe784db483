"""Programs that log a few numbers of each request, one file each: its messages, what proves it, and its tracker.

A file here is found by being here: it has ``PROGRAM``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from cachedoctor.engines.answering import Program


def load() -> list[Program]:
    """Import all of them: a few rows each, whose patterns are compiled when a log has such a line."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return [cast("Program", importlib.import_module(f"{__name__}.{name}").PROGRAM) for name in names]
