"""The memory bill of ``tune`` in words: what each kind of memory held, what that saved, and what would be enough."""

from __future__ import annotations

from cachedoctor.model.whatif import MemoryBill, MemoryHeld, MemoryKind
from cachedoctor.report.words.numbers import count, duration, memory, number

_NAMES: dict[MemoryKind, str] = {"slots": "slots", "ram": "RAM cache", "checkpoints": "checkpoints"}


def bill(found: MemoryBill) -> list[str]:
    """Say what memory held and saved, row by row; then the peak, and what would be enough."""
    return [*(_held(row) for row in found.held), *_peak(found), *_enough(found)]


def _held(row: MemoryHeld) -> str:
    entries = {
        "slots": count(row.entries, "slot"),
        "ram": f"{count(row.entries, 'prompt')} of {number(row.made or 0)} saved",
        "checkpoints": f"{number(row.entries)} at once",
    }[row.what]
    held = "" if row.held_mib is None else f", at most {memory(row.held_mib)}"
    limit = "" if row.limit_mib is None else f" of {memory(row.limit_mib)}"
    time = "" if row.ms is None or not row.tokens else f", {duration(row.ms)}"
    if not row.tokens:
        return f"{_NAMES[row.what]} ({entries}{held}{limit}): nothing was used again{_smaller(row)}"
    saved = f"{count(row.requests, 'request')} used {count(row.tokens, 'token')} again{time}"
    return f"{_NAMES[row.what]} ({entries}{held}{limit}): {saved}{_smaller(row)}"


def _smaller(row: MemoryHeld) -> str:
    if row.options is None:
        return ""
    size = "" if row.enough_mib is None else f" ({memory(row.enough_mib)})"
    return f"; enough for that: {row.options}{size}"


def _peak(found: MemoryBill) -> list[str]:
    if not found.saving_mib and not found.logged_saving_mib:
        return []
    logged = f", of which the log shows {memory(found.logged_saving_mib)}" if found.logged_saving_mib else ""
    most = max(found.saving_mib or 0.0, found.logged_saving_mib or 0.0)
    return [f"peak while saving: at least {memory(most)} beside model and slots{logged}; RSS of the process: unknown"]


def _enough(found: MemoryBill) -> list[str]:
    killed = ["the system ended a server of this log for want of memory: nothing that takes more is advised"]
    lines = killed if found.killed else []
    if found.least is None or found.least.memory_mib is None or found.least.memory_mib >= 0:
        return lines
    freed = memory(-found.least.memory_mib)
    return [*lines, f"{found.least.options} would have kept 99 % of what was reused, with {freed} less allowed"]
