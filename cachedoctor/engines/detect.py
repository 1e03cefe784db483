"""Finds the engines other than llama-server that wrote lines of a block."""

from __future__ import annotations

import importlib
from collections.abc import Set
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from cachedoctor.engines.catalogue.scanner import ScanPlan
from cachedoctor.engines.engine_record import Engine, Reader
from cachedoctor.inputs.envelope.shapes import OWN
from cachedoctor.knowledge import engines as knowledge
from cachedoctor.knowledge.late_patterns import late

if TYPE_CHECKING:
    from cachedoctor.engines.answering import Program


def _package(name: str) -> Engine:
    return cast(Engine, importlib.import_module(f"cachedoctor.engines.{name}").ENGINE)


def _program(program: Program) -> Engine:
    def reader() -> Reader:
        from cachedoctor.engines.catalogue.logger import LoggerCatalogue  # for logs of such a program alone

        plan = ScanPlan(frozenset(row.id for row in program.rows))
        return Reader(LoggerCatalogue(program.rows, program.prefix), plan, program.tracker)

    return Engine(program.tracker.engine, program.looks, reader, program.fork)


PACKAGES = tuple(map(_package, knowledge.ENGINES))
"""Engines that have a package here."""


@cache
def engines() -> tuple[Engine, ...]:
    """Return all engines; the programs are imported only if some line is not llama-server's."""
    return (*PACKAGES, *map(_program, programs()))


def programs() -> list[Program]:
    """Import the programs that log requests: a few rows each, whose patterns are compiled when such a line comes."""
    names = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("[!_]*.py"))
    return [cast("Program", importlib.import_module(f"cachedoctor.engines.programs.{name}").PROGRAM) for name in names]


_STRANGE = late(rb"\n(?!" + OWN + rb")[^\n]*")
"""A line that does not begin as those of llama-server do, with its uptime, ``slot`` or ``srv``."""


EVERYWHERE = (b"disk prompt cache: ", b": context shift - n_keep = ", b" : kv cache rm - [0, end)")
"""Literals of certain sentences in lines that begin as those of llama-server."""
ELSEWHERE = (
    b'msg="truncating input prompt"', b'msg="input exceeds context length"',
    b'msg="truncating input messages which exceed context length"', b"input truncated",
    b"exceed context window of ",
    b'msg="context limit hit - shifting"', b"slot context shift", b"failed to find free space in the KV cache",
    b"failed to decode the batch", b'msg="evicting ', b'msg="failed to restore cache, freeing all caches"',
    b'msg="llama-server model predicted to exceed available memory, evicting"',
    b"evicting all other models and retrying once", b"ut of memory: Kill", b"oom-kill:", b"killed by the OOM killer",
    b"'oom-kill'", b"exited with code 137",
)  # fmt: skip
"""Literals in other lines, from ``engines/sentences.py``, which is imported when one is found."""


ERROR_LINE = late(rb"(?m)^[^\n\"'{}]{0,120}?(?:\bE (?P<llama>slot|srv|que|res|cmn|spec) |\bLMCache ERROR\b)[^\n]*")
"""A line at the level of errors, of llama-server or of the cache beside an engine."""


def certain_literals(data: bytes, strange: bytes) -> list[bytes]:
    """Return the literals of certain sentences that are in a block with these ``strange_lines``; nearly always none."""
    found = [literal for literal in EVERYWHERE if literal in data]
    return found + [literal for literal in ELSEWHERE if literal in strange] if strange else found


def strange_lines(data: bytes, known: Set[str]) -> bytes:
    """Return the lines of a block that do not begin like lines of llama-server.

    Routine lines of engines that are ``known`` to write here are left out.
    """
    lines = b"\n" + data
    if not _STRANGE.match(lines):
        return b"".join(_STRANGE.findall(lines))
    for engine in PACKAGES:
        if engine.name in known and engine.routine is not None:
            lines = engine.routine.sub(b"", lines)
    return lines


def written_by(strange: bytes, known: Set[str]) -> set[str]:
    """Names of engines, except those ``known``, that may have written ``strange_lines`` of a block; nearly always none.

    A line of llama-server never belongs to another engine, whatever its text. To search only the few other lines takes
    an eighth of the time; in a log of another engine all lines are other lines.
    """
    asked = [engine for engine in engines() if engine.name not in known] if strange else []
    return {engine.name for engine in asked if engine.looks.search(strange) is not None}
