"""Runs with known truth, ``DIR/**/<run>/{server.log,truth.json}``, and their analysis. Judges nothing."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import cachedoctor
from cachedoctor.model import Report

T = TypeVar("T")
R = TypeVar("R")

WORKERS = 2


def find(folder: Path) -> list[Path]:
    """Folders below ``folder`` that hold a log and its truth."""
    return sorted(p.parent for p in folder.rglob("truth.json") if (p.parent / "server.log").is_file())


def truth(run: Path) -> dict[str, Any]:
    """What is known of a run."""
    loaded: dict[str, Any] = json.loads((run / "truth.json").read_text(encoding="utf-8"))
    return loaded


def analyse(log: Path) -> Report | str:
    """Report on a log, or the exception that ended the analysis."""
    try:
        return cachedoctor.analyze(log)
    except Exception as error:  # a crash is one of the results
        return f"{type(error).__name__}: {error}"


def requests(report: Report) -> list[dict[str, Any]]:
    """Requests of a report as they are in its JSON form, in the order in which they started."""
    return [json.loads(line) for line in report.requests.lines()]


def over(work: Callable[[T], R], items: Iterable[T], workers: int = WORKERS) -> Iterator[R]:
    """Do ``work`` on every item, in order, on ``workers`` processes."""
    todo = list(items)
    if workers < 2:
        yield from map(work, todo)
        return
    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap(work, todo, chunksize=8)
