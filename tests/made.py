"""Requests made by hand, as the engine would build them: field names of Request, Observed and Choice in one call."""

from __future__ import annotations

from typing import Any

from cachedoctor.engines.llamacpp.conversations.join import Conversations, Thread, lengths_of
from cachedoctor.model import Facts, Request
from cachedoctor.model.observed import Asker, Choice, Observed

_RENAMED = {"t_last": "t_last", "selected_by": "selected_by", "ram_looked": "looked", "lcp": "lcp"}
_IN_BOTH = ("similarity", "f_keep", "candidates", "found_keep", "found_sim")
_START: dict[str, Any] = {"index": 0, "slot": 0, "task": 0, "first_line": 1, "last_line": 2}
_HELD: dict[str, Any] = {
    "held_tokens": None, "held_thread": None, "held_checkpoints": None, "held_positions": [], "positions_known": False,
    "fresh": False, "evictions": 0, "shows_ram": True,
}  # fmt: skip


def observed(**fields: Any) -> Observed:
    """What the log printed of a request; fields that follow from it are left out."""
    choice = {_RENAMED.get(name, name): value for name, value in fields.items() if name in (*_RENAMED, *_IN_BOTH)}
    if fields.get("ram_saved"):
        choice["saved"] = 1
    if fields.get("ram_best_lcp") is not None:
        choice["candidates"] = [(fields["ram_best_lcp"], fields["ram_best_lcp"])]
    known = {name: value for name, value in fields.items() if name in Observed.__struct_fields__}
    made = Observed(**{**_START, **_HELD, "marks": {}, "asked": _asked(fields), "choice": Choice(0, **choice), **known})
    made.marks.update(fields.get("marks", {}))
    return made


def _asked(fields: dict[str, Any]) -> Asker:
    return Asker(False, fields.get("time"), fields.get("client"), fields.get("endpoint"))


def request(**fields: Any) -> Request:
    """A finished request with these fields."""
    seen = observed(**fields)
    start = {"session": 0, "path": "x", "facts": Facts(0, "x"), "marks": seen.marks, "seen": seen, **_START}
    known = {name: value for name, value in fields.items() if name in Request.__struct_fields__}
    odd = set(fields) - set(known) - set(Observed.__struct_fields__) - {*_RENAMED, *_IN_BOTH}
    assert not odd - {"ram_saved", "ram_best_lcp", "time", "client", "endpoint"}, odd
    return Request(**{**start, **known})


def joined(talk: Conversations, made: Request, *elsewhere: int) -> Thread | None:
    """The conversation that a request continues; texts of others lie in other slots."""
    return talk.join(lengths_of(made), elsewhere)[0]


def recorded(talk: Conversations, made: Request, thread: Thread | None, total: int) -> Thread:
    """Note its end; the thread that it belongs to."""
    thread = talk.open(made.slot) if thread is None else thread
    talk.record(made, thread, total)
    return thread
