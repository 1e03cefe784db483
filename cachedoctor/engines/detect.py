"""The engines whose logs have no requests but measurements, and which of them wrote a block of lines."""

from __future__ import annotations

import importlib
from collections.abc import Set
from typing import cast

from cachedoctor.engines import programs
from cachedoctor.engines.answering import Program
from cachedoctor.engines.catalogue.logger import LoggerCatalogue
from cachedoctor.engines.catalogue.scanner import ScanPlan
from cachedoctor.engines.engine_record import Engine, Reader
from cachedoctor.knowledge import engines as knowledge
from cachedoctor.knowledge.late_patterns import late


def _package(name: str) -> Engine:
    return cast(Engine, importlib.import_module(f"cachedoctor.engines.{name}").ENGINE)


def _program(program: Program) -> Engine:
    def reader() -> Reader:
        plan = ScanPlan(frozenset(row.id for row in program.rows))
        return Reader(LoggerCatalogue(program.rows, program.prefix), plan, program.tracker)

    return Engine(program.tracker.engine, program.looks, reader, program.fork)


ENGINES = (*map(_package, knowledge.ENGINES), *map(_program, programs.load()))
_STRANGE = late(rb"\n(?!\d++\.\d\d\.\d\d\d\.\d\d\d |slot (?!apply_checkp)|srv )[^\n]*")
"""A line that does not begin as those of llama-server do, with its uptime, ``slot`` or ``srv``."""


def strange_lines(data: bytes) -> bytes:
    """Return the lines of a block that do not begin as those of llama-server do."""
    lines = b"\n" + data
    return lines if _STRANGE.match(lines) else b"".join(_STRANGE.findall(lines))


def written_by(strange: bytes, known: Set[str]) -> set[str]:
    """Engines but those ``known`` of which the ``strange_lines`` of a block may hold some, by name; nearly always none.

    A line of llama-server is none of another engine, whatever stands in it. To look for all of them in the few other
    lines alone takes an eighth of the time; in a log of another engine all are other lines.
    """
    asked = [engine for engine in ENGINES if engine.name not in known] if strange else []
    return {engine.name for engine in asked if engine.looks.search(strange) is not None}
