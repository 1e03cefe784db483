"""Engines whose logs have no requests but measurements: how each is recognised, and what reads it.

Modules of vLLM and SGLang are imported when such a line comes; programs with one file each are found in their folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Set
from typing import NamedTuple, Protocol, cast

from cachedoctor.engines import programs
from cachedoctor.engines.answering import Program
from cachedoctor.engines.catalogue.base import Catalogue, Event
from cachedoctor.engines.catalogue.logger import LoggerCatalogue
from cachedoctor.engines.catalogue.scanner import Plan
from cachedoctor.engines.looks import Either, Literals, Look
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheSample, PrefillBatch, Session

Row = CacheSample | PrefillBatch


class Tracker(Protocol):
    """Turns the events of one origin into sessions, their periods, and rows."""

    session: Session | None
    """The life of the server that goes on; None before any line that only this engine writes."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[Row], None],
    ) -> None:
        """Begin without a line.

        Args:
            path: of the input.
            origin: the server that a wrapper names.
            new_session: makes a session; the tracker sets its engine.
            keep: takes every sample or batch.
        """

    def feed(self, event: Event) -> None:
        """Take the next event."""

    def continue_in(self, path: str) -> None:
        """The log goes on in another file."""


class Reader(NamedTuple):
    """What reads an engine's lines."""

    catalogue: Catalogue
    plan: Plan
    tracker: type[Tracker]


class Engine(NamedTuple):
    """Who writes lines of its own."""

    name: str
    """As sessions call it."""
    looks: Look
    """Finds something in any block that holds a line of it; led by a literal, so that other logs lose no time. What
    comes before the line of the first one found is not read: it may have come in another block."""
    reader: Callable[[], Reader]
    """Gives what reads its lines, whose patterns are compiled then."""
    fork: bool = False
    """Of llama-server: from the first line on that is found, lines of this origin are the fork's. Those that look like
    llama-server's are read as such, too, but timings, which the reader counts as answers, open no request."""


def _package(name: str, looks: Look) -> Engine:
    """An engine with a package here, whose module ``reader`` has ``READER``; it is imported when a line of it comes."""

    def reader() -> Reader:
        return cast(Reader, importlib.import_module(f"cachedoctor.engines.{name}.reader").READER)

    return Engine(name, looks, reader)


def _program(program: Program) -> Engine:
    def reader() -> Reader:
        plan = Plan(frozenset(row.id for row in program.rows))
        return Reader(LoggerCatalogue(program.rows, program.prefix), plan, program.tracker)

    return Engine(program.tracker.engine, program.looks, reader, program.fork)


ENGINES = (
    _package(
        "vllm",
        Literals(
            b".py:",
            b"Avg prompt throughput",
            b"LMCache hit tokens: ",
            b" LLM engine (v",
            sure=late(
                rb"\.py:\d{1,5}\] |Avg prompt throughput|LMCache hit tokens: \d"
                rb"|Initializing an? (?:V[01] )?LLM engine \(v"
            ),
        ),
    ),
    _package(
        "sglang",
        Either(
            late(rb"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,4})*\] "),
            Literals(
                b"Prefill batch",
                b"new fill batch",
                sure=late(
                    rb"(?m:^[ \t]{0,16}(?:(?:\[gpu(?:_id)?=\d{1,3}\] )?Prefill batch[.,] #new-seq: \d"
                    rb"|new fill batch\. #seq: \d))"
                ),
            ),
        ),
    ),
    *map(_program, programs.load()),
)
_STRANGE = late(rb"\n(?!\d++\.\d\d\.\d\d\d\.\d\d\d |slot (?!apply_checkp)|srv )[^\n]*")
"""A line that does not begin as those of llama-server do, with its uptime, ``slot`` or ``srv``."""


def written_by(data: bytes, known: Set[str]) -> set[str]:
    """Engines but those ``known`` of which a block of lines may hold some, by name; nearly always none.

    A line of llama-server is none of another engine, whatever stands in it. To look for all of them in the few other
    lines alone takes an eighth of the time; in a log of another engine all are other lines.
    """
    lines = b"\n" + data
    strange = lines if _STRANGE.match(lines) else b"".join(_STRANGE.findall(lines))
    asked = [engine for engine in ENGINES if engine.name not in known] if strange else []
    return {engine.name for engine in asked if engine.looks.search(strange) is not None}
