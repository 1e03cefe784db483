"""Engines whose logs have no requests but measurements: how each is recognised, and what reads it.

Knows a cheap look at a block for each engine, and the shape of their trackers. Their modules are imported when such a
line comes. Knows no message.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from cachedoctor.engines.base import Catalogue, Event
from cachedoctor.engines.scanner import Plan
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
    """An engine that has a package of its own name here, whose module ``reader`` has ``READER``."""

    name: str
    looks: re.Pattern[bytes]
    """Found in any block that holds a line of it; led by a literal, so that other logs lose no time."""

    def reader(self) -> Reader:
        """Import what reads its lines."""
        return cast(Reader, importlib.import_module(f"cachedoctor.engines.{self.name}.reader").READER)


ENGINES = (
    Engine("vllm", re.compile(rb"\.py:\d{1,5}\] |Avg prompt throughput")),
    Engine("sglang", re.compile(rb"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,4})*\] ")),
)
