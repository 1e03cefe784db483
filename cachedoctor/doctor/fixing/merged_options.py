"""One set of options out of what several findings ask for. Knows which values are safe to take; knows no launcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cachedoctor.knowledge import server_options
from cachedoctor.model import Finding, OptionChange, Remedy, Session

_LARGER = frozenset({"cache_ram", "ctx_checkpoints", "sleep_idle_seconds"})
"""Options of which more serves everybody."""
_SMALLER = frozenset({"checkpoint_min_step"})


class Wish(NamedTuple):
    """What one finding asks for."""

    finding: Finding
    remedy: Remedy


class Merged(NamedTuple):
    """One set of options."""

    options: list[OptionChange]
    notes: list[str]
    """Where findings ask for different values."""
    served: list[Wish]
    """Those whose options are all among them, or only larger."""


def chosen(findings: Sequence[Finding]) -> list[Wish]:
    """Give of every finding that is not a mere suspicion the first remedy that mends it and says what to change."""
    found = []
    for finding in findings:
        if finding.confidence == "low":
            continue
        fixes = (r for r in finding.remedies if r.purpose == "fix" and (r.options or r.settings))
        remedy = next(fixes, None)
        if remedy is not None:
            found.append(Wish(finding, remedy))
    return found


def key_of(change: OptionChange) -> str:
    """What two spellings of one option have in common."""
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    return change.name if entry is None or change.variable or change.remove else entry[0].key


def merged(wishes: Sequence[Wish], session: Session | None) -> Merged:
    """Merge options, those of the costliest finding first; where two exclude each other the first one counts."""
    taken: dict[str, tuple[OptionChange, Finding]] = {}
    notes: list[str] = []
    served = []
    for wish in wishes:
        refused = [note for change in wish.remedy.options if (note := _take(taken, change, wish.finding, session))]
        notes += refused
        if not refused:
            served.append(wish)
    options = {key: change for key, (change, _) in taken.items()}
    _fit_context(options, served, session)
    return Merged([c for c in options.values() if not _contradicts(c, options)], list(dict.fromkeys(notes)), served)


def _contradicts(change: OptionChange, options: dict[str, OptionChange]) -> bool:
    """Whether an option that is to be left out is set by another finding: what is set replaces it."""
    if not change.remove:
        return False
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    return entry is not None and not change.variable and entry[0].key in options


def _take(
    taken: dict[str, tuple[OptionChange, Finding]], change: OptionChange, by: Finding, session: Session | None
) -> str | None:
    """Take a change, or say why another one stays."""
    key = key_of(change)
    before = taken.get(key)
    if before is None or before[0] == change:
        taken.setdefault(key, (change, by))
        return None
    old, owner = before
    numbers = _numbers(old, change)
    if key == "ctx_size":
        taken[key] = (change, by) if numbers is not None and numbers[1] > numbers[0] else before
        return None
    rises = key == "parallel" and numbers is not None and min(numbers) >= ((session and session.n_slots) or 1)
    if numbers is not None and (key in _LARGER or key in _SMALLER or rises):
        wins = (numbers[1] > numbers[0]) != (key in _SMALLER)
        taken[key] = (change, by) if wins else before
        return None
    return (
        f"{by.code} {by.name} asks for {_said(change)}, {owner.code} {owner.name} for {_said(old)}, which is taken: "
        "it costs more"
    )


def _said(change: OptionChange) -> str:
    return " ".join(change.words) or f"no {change.name}"


def _numbers(*changes: OptionChange) -> tuple[float, ...] | None:
    """Values as numbers, no limit (-1) as more than any; None where one is none."""
    try:
        values = [float(change.value or "x") for change in changes]
    except ValueError:
        return None
    return tuple(float("inf") if value == -1 else value for value in values)


def _fit_context(options: dict[str, OptionChange], served: Sequence[Wish], session: Session | None) -> None:
    """Give the slots together what each finding wanted for one, where the context is divided among them."""
    slots = _int(options.get("parallel"))
    if session is None or "ctx_size" not in options or slots is None or _unified(options, session):
        return
    each = [share for wish in served if (share := _share(wish.remedy, session))]
    if each:
        old = options["ctx_size"]
        options["ctx_size"] = OptionChange(old.name, str(max(each) * slots))


def _share(remedy: Remedy, session: Session) -> int | None:
    """Tokens of one slot that a remedy asks for."""
    wanted = {key_of(change): change for change in remedy.options}
    context, slots = _int(wanted.get("ctx_size")), _int(wanted.get("parallel")) or session.n_slots
    return None if context is None or not slots else -(-context // slots)


def _unified(options: dict[str, OptionChange], session: Session) -> bool:
    asked = options.get("kv_unified")
    if asked is not None:
        return "--no" not in asked.name
    return session.setting("kv_unified") is True


def _int(change: OptionChange | None) -> int | None:
    return int(change.value) if change is not None and change.value is not None and change.value.isdigit() else None
