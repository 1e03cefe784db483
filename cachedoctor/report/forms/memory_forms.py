"""The memory bill of ``tune`` in words: what each kind of memory held, what that saved, and what would be enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachedoctor.model.whatif import (
    AgentsFit,
    CacheSessions,
    Candidate,
    MemoryBill,
    MemoryHeld,
    MemoryKind,
    ReplaySetting,
)
from cachedoctor.report.words.numbers import count, duration, memory, number

_NAMES: dict[MemoryKind, str] = {"slots": "slots", "ram": "RAM cache", "checkpoints": "checkpoints"}


def bill(found: MemoryBill) -> list[str]:
    """Say what memory held and saved, row by row; then the peak, and what would be enough."""
    return [*(_held(row) for row in found.held), *_peak(found), *_enough(found)]


def _held(row: MemoryHeld) -> str:
    entries = {
        "slots": count(row.entries, "slot"),
        "ram": f"{number(row.entries)} of {count(row.made or 0, 'saved prompt')} at once",
        "checkpoints": f"{number(row.entries)} at once",
    }[row.what]
    held = "" if row.held_mib is None else f", at most {memory(row.held_mib)}"
    limit = "" if row.limit_mib is None else f" of {memory(row.limit_mib)}"
    time = "" if row.ms is None or not row.tokens else f", which saved {duration(row.ms)}"
    if not row.tokens:
        return f"{_NAMES[row.what]} ({entries}{held}{limit}): nothing was reused{_smaller(row)}"
    saved = f"{count(row.requests, 'request')} reused {count(row.tokens, 'token')}{time}"
    return f"{_NAMES[row.what]} ({entries}{held}{limit}): {saved}{_smaller(row)}"


def _smaller(row: MemoryHeld) -> str:
    if row.options is None:
        return ""
    size = "" if row.enough_mib is None else f" ({memory(row.enough_mib)})"
    return f"; {row.options} is enough for that{size}"


def _peak(found: MemoryBill) -> list[str]:
    if not found.saving_mib and not found.logged_saving_mib:
        return []
    logged = f" (the log shows {memory(found.logged_saving_mib)})" if found.logged_saving_mib else ""
    most = max(found.saving_mib or 0.0, found.logged_saving_mib or 0.0)
    return [
        f"peak while saving: at least {memory(most)} in addition to model and slots{logged}; memory of "
        "the whole process (RSS): unknown"
    ]


def _enough(found: MemoryBill) -> list[str]:
    killed = [
        "the system killed a server of this log because memory ran out, so no change that needs more memory is advised"
    ]
    lines = killed if found.killed else []
    if found.least is None or found.least.memory_mib is None or found.least.memory_mib >= 0:
        return lines
    freed = memory(-found.least.memory_mib)
    return [
        *lines,
        f"{found.least.options} would have kept 99 % of the reused tokens, with a limit that is {freed} lower",
    ]


def agents(found: AgentsFit, settings: Sequence[ReplaySetting]) -> str:
    """Say how many conversations alternate, how many are kept, and what keeps all of them."""
    held, keep = _held_by({row.name: row.recorded for row in settings})
    words = f"{_sessions(found.sessions)}{count(found.alternating, 'conversation')} alternate; {held} {keep}"
    if not found.keep_all and found.kept == found.conversations:
        return f"{words} all {found.conversations:,}"
    words += f" {found.kept:,} of {count(found.conversations, 'conversation')}"
    if not found.keep_all:
        return f"{words}; none of the larger settings tried keeps all conversations"
    ways = " or ".join(f"{one.options} ({_more(one)})" for one in found.keep_all)
    return f"{words}. {ways} would have kept all conversations{_saves(found)}"


def _sessions(found: CacheSessions | None) -> str:
    """Say what the sessions take that the bodies name, and what there is."""
    if found is None:
        return ""
    need = f"{count(found.sessions, 'session')} (session_id) need {count(found.tokens, 'token')} in the cache"
    return f"{need}; the KV cache has {found.pool_tokens:,} tokens. "


def _held_by(values: Mapping[str, int | float | bool | str]) -> tuple[str, str]:
    """What holds conversations under the recorded settings, and the verb that goes with it."""
    slots, ram = values.get("parallel"), values.get("cache-ram", 0)
    if slots is None:
        return "the KV cache", "keeps"
    held = count(int(slots), "slot")
    if isinstance(ram, int) and ram:
        held += " and a RAM cache" + (" without limit" if ram < 0 else f" of {memory(float(ram))}")
    return held, "keep" if ram or slots != 1 else "keeps"


def _more(one: Candidate) -> str:
    if one.memory_mib is None:
        return "memory unknown"
    return f"{'+' if one.memory_mib >= 0 else '-'}{memory(abs(one.memory_mib))}"


def _saves(found: AgentsFit) -> str:
    best = found.keep_all[0]
    first = "this change" if len(found.keep_all) == 1 else "the first change"
    if found.saved_ms_per_day is not None:
        return f"; {first} saves {duration(found.saved_ms_per_day)} in a day of such traffic"
    time = "" if best.saved_ms is None else f", {duration(best.saved_ms)}"
    return f"; {first} saves {count(best.saved_tokens, 'token')}{time} in this log"
