"""Engines whose logs have no requests but measurements: how each is recognised, and what reads it.

Knows a cheap look at a block for each engine, and the shape of their trackers. Their modules are imported when such a
line comes. Knows no message but the few literals of a look.
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


class Found(Protocol):
    """Where a look found something."""

    def start(self) -> int:
        """Offset in the block."""


class Look(Protocol):
    """A cheap look at a block: nearly every block of nearly every log is looked at, and has nothing."""

    def search(self, data: bytes, /) -> Found | None:
        """The first line of the engine; what is found stands within it."""


class _Place(NamedTuple):
    offset: int

    def start(self) -> int:
        return self.offset


class Literals:
    """Finds any of a few literals. One by one, as ``re`` tries alternatives at every byte: ten times the cost."""

    def __init__(self, *literals: bytes, sure: re.Pattern[bytes] | None = None) -> None:
        """``sure``: where a literal stands, this is looked for instead."""
        self._literals = literals
        self._sure = sure

    def search(self, data: bytes, /) -> Found | None:
        """The first of them."""
        places = [place for literal in self._literals if (place := data.find(literal)) >= 0]
        if not places:
            return None
        return _Place(min(places)) if self._sure is None else self._sure.search(data)


class Either:
    """Finds what any of a few looks finds."""

    def __init__(self, *looks: Look) -> None:
        self._looks = looks

    def search(self, data: bytes, /) -> Found | None:
        """The first of them in the block."""
        return min(filter(None, (look.search(data) for look in self._looks)), key=lambda at: at.start(), default=None)


class Engine(NamedTuple):
    """An engine that has a package here, whose module ``reader`` has ``READER``."""

    name: str
    looks: Look
    """Finds something in any block that holds a line of it; led by a literal, so that other logs lose no time. What
    comes before the line of the first one found is not read: it may have come in another block."""
    package: str = ""
    """Of ``cachedoctor.engines``, where it cannot be called like the engine."""
    fork: bool = False
    """Of llama-server: from the first line on that is found, no line of this origin is llama-server's, however much it
    looks like it."""

    def reader(self) -> Reader:
        """Import what reads its lines."""
        module = importlib.import_module(f"cachedoctor.engines.{self.package or self.name}.reader")
        return cast(Reader, module.READER)


_IK_LLAMA = re.compile(
    rb"========(?:(?<=\n========)|(?<=\A========)) (?:Prompt cache: cache size: |Cache: cache_size = )\d"
)

ENGINES = (
    Engine(
        "vllm",
        Literals(
            b".py:",
            b"Avg prompt throughput",
            b"LMCache hit tokens: ",
            b" LLM engine (v",
            sure=re.compile(
                rb"\.py:\d{1,5}\] |Avg prompt throughput|LMCache hit tokens: \d"
                rb"|Initializing an? (?:V[01] )?LLM engine \(v"
            ),
        ),
    ),
    Engine(
        "sglang",
        Either(
            re.compile(rb"\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z_]{2,8}\d{1,4})*\] "),
            Literals(b"Prefill batch", sure=re.compile(rb"(?m:^[ \t]{0,16}Prefill batch[.,] #new-seq: \d)")),
        ),
    ),
    Engine("ollama", Literals(b' msg="')),
    Engine("lmstudio-mlx", Literals(b"Prompt cache restore: cached_tokens="), "lmstudio"),
    Engine("koboldcpp", Literals(b"CtxLimit:", b"Processing Prompt", b"Welcome to KoboldCpp")),
    Engine("tabbyapi", Literals(b"Metrics (ID:")),
    Engine("ik_llama.cpp", _IK_LLAMA, "ik_llama", fork=True),
)
