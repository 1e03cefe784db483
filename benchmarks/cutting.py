"""Cut the lines of one request out of a log of llama-server, as people paste them. Judges nothing.

A cut is a range of the lines of one request (``CUTS``), or all of them in another form (``FORMS``); empty where the
request lacks the lines that begin or end it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

PREFIX = re.compile(r"^(?:\[\d+\] )?(?:\d+\.\d\d\.\d{3}\.\d{3} [A-Z] )?")
SLOT = re.compile(PREFIX.pattern + r"slot +[^:]+: id +(?P<slot>\d+) \| task (?P<task>-?\d+) \| ?")
SERVER = re.compile(PREFIX.pattern + r"srv +[^:]+: ?")
TIMING = re.compile(r"^ *(?:prompt eval|eval|total) time = ")
SELECTED = re.compile(r"selected slot (?:by|with)")
LAUNCHED = re.compile(r"processing task")
BATCH = re.compile(r"memory_seq_rm \[|kv cache rm \[")
SEARCH = re.compile(r"\bn_past = \d+, (?:slot\.prompt\.tokens|cache_tokens)\.size|[Cc]hecking checkpoint with")
CHECK = re.compile(r"[Cc]hecking checkpoint with")
FORCED = re.compile(r"forcing full prompt re-processing")
MEMORY = re.compile(
    r"[Cc]hecking checkpoint with|forcing full prompt|erased invalidated context checkpoint|SWA checkpoint erase"
)
BEFORE = 80
"""Lines before a launch among which the choice of its slot is searched for."""


class Asked(NamedTuple):
    """A request of a log: where its lines are."""

    slot: int
    task: int
    first_line: int
    last_line: int


def _whose(line: str) -> tuple[int, int] | None:
    """Slot and task that a line names."""
    found = SLOT.match(line)
    return (int(found["slot"]), int(found["task"])) if found else None


def _start(lines: list[str], asked: Asked) -> int:
    """Index of the line that chose the slot, or of the first line of the request."""
    first = asked.first_line - 1
    while first > 0 and _whose(lines[first - 1]) == (asked.slot, asked.task):
        first -= 1
    for at in range(first, max(-1, first - BEFORE), -1):
        whose = _whose(lines[at])
        if whose and whose[0] == asked.slot and whose[1] not in (-1, asked.task):
            break
        if whose == (asked.slot, -1) and SELECTED.search(lines[at]):
            return at
    return first


def own_lines(lines: list[str], asked: Asked) -> list[str]:
    """All lines of a request: the choice of its slot, the RAM cache's block after it, then its own."""
    out, launched, timing = [], False, False
    for line in lines[_start(lines, asked) : asked.last_line]:
        whose = _whose(line)
        mine = whose in ((asked.slot, asked.task), *([] if launched else [(asked.slot, -1)]))
        if mine or (timing and TIMING.match(line)) or (not launched and SERVER.match(line)):
            out.append(line)
        launched = launched or whose == (asked.slot, asked.task)
        timing = (mine and "print_timing" in line) or (timing and bool(TIMING.match(line)))
    return out


def _first(lines: list[str], wanted: re.Pattern[str]) -> int | None:
    return next((at for at, line in enumerate(lines) if wanted.search(line)), None)


def _between(first: re.Pattern[str], last: re.Pattern[str]) -> Callable[[list[str]], list[str]]:
    """A cut from the first line of one kind to the first of another after it; empty where one is missing."""

    def cut(lines: list[str]) -> list[str]:
        begin = _first(lines, first)
        end = None if begin is None else _first(lines[begin:], last)
        return [] if begin is None or end is None else lines[begin : begin + end + 1]

    return cut


def _memory(lines: list[str]) -> list[str]:
    """Check, FORCED and erased lines alone; where nothing was checked, they say no more than FORCED alone."""
    whole = _first(lines, FORCED) is not None and _first(lines, CHECK) is not None
    return [line for line in lines if MEMORY.search(line)] if whole else []


def _choice(lines: list[str]) -> list[str]:
    """The choice of the slot and the RAM cache's block, up to the launch."""
    begin, end = _first(lines, SELECTED), _first(lines, LAUNCHED)
    return [] if begin is None or (end is not None and end < begin) else lines[begin:end]


def bare(lines: list[str]) -> list[str]:
    """Messages alone, without stamp, function, slot and task."""
    return [SERVER.sub("", SLOT.sub("", line)) for line in lines]


CUTS: dict[str, Callable[[list[str]], list[str]]] = {
    "A choice..batch": _between(SELECTED, BATCH),
    "B choice..FORCED": _between(SELECTED, FORCED),
    "C search..batch": _between(SEARCH, BATCH),
    "D memory lines": _memory,
    "E FORCED alone": lambda lines: [line for line in lines if FORCED.search(line)][:1],
    "F C without prefix": lambda lines: bare(_between(SEARCH, BATCH)(lines)),
    "G choice and RAM": _choice,
    "single request": lambda lines: lines,
}
"""Ranges of the lines of one request."""


def wrapped(columns: int, indent: str = "") -> Callable[[list[str]], list[str]]:
    """Lines as a window of so many columns copies them; what is continued may be indented."""

    def wrap(line: str) -> list[str]:
        step = columns - len(indent)
        return [line[:columns], *(indent + line[at : at + step] for at in range(columns, len(line), step))]

    return lambda lines: [part for line in lines for part in wrap(line)]


def _json(key: str, **more: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [json.dumps({key: line + "\n", **more}) for line in lines]


FORMS: dict[str, Callable[[list[str]], list[str]]] = {
    **{f"wrapped at {columns}": wrapped(columns) for columns in (80, 100, 120, 140)},
    "wrapped and indented": wrapped(100, "    "),
    "bare": bare,
    "quoted": lambda lines: [f"> {line}" for line in lines],
    "JSON log": _json("log", stream="stderr"),
    "JSON message": _json("message", host="gpu1"),
    "JSON textPayload": _json("textPayload", severity="INFO"),
}
"""Forms of all lines of one request."""


def two_requests(lines: list[str], before: Asked, asked: Asked) -> list[str]:
    """Everything from the choice of the slot of one request to the end of the next."""
    return lines[min(_start(lines, before), _start(lines, asked)) : max(before.last_line, asked.last_line)]


def era_of(lines: list[str]) -> str:
    """The builds whose words a log is in."""
    text = "\n".join(lines)
    if re.search(r"initializing, n_slots|f_sim_best|f_sim =|slot +operator\(\)", text):
        return "b9873+"
    if re.search(r"\| +prompt eval time|cached n_tokens =", text):
        return "b9294-b9713"
    return "b6628-" if "kv cache rm [" in text else "b6751-b9093"
