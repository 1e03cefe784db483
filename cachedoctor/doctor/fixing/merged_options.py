"""One set of options from what several findings ask for, and command lines without their secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Finding, OptionChange, Remedy, Session
from cachedoctor.redaction.secrets import regions
from cachedoctor.report.launchers.command_words import Word, words

_OPTION = late(
    r"(?:-hft|--(?:[a-z0-9]+-)*(?:api-keys?|keys?|token|password|passwd|passphrase|secret|secret-key|access-key))\Z"
)
"""Options whose value opens something; those that name a file of keys end otherwise: ``--api-key-file``."""
_MANY = late(r"--(?:[a-z0-9]+-)*api-keys?\Z")
"""Options that may have several values."""
_VARIABLE = late(
    r"(?P<name>[A-Za-z_]\w*?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|PAT|CREDENTIALS?|AUTH)S?|TOKEN|PASSWORD)"
    r"=(?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_ASSIGNED = late(r"(?P<name>[A-Za-z_]\w*)=")
_STANDS_IN = late(r"\$\{?\w+\}?\Z")
"""Already a variable."""
_HARMLESS = ("<user>", "<mail>")
"""Regions without which the command would not be usable, and which open nothing: the folder of a user."""
_COUNT = late(r"\d{1,9}\Z")


class Masked(NamedTuple):
    """A command line that may be shown."""

    line: str
    names: list[str]
    """Variables that stand for its secrets."""


def masked(line: str) -> Masked:
    """Put a variable for each value that opens something: ``--api-key "$API_KEY"``, ``HF_TOKEN="$HF_TOKEN"``."""
    found, names = words(line), list[str]()
    new, end = list[str](), 0
    at_option: str | None = None
    for word in found:
        name, written = _of(word, at_option)
        if name is not None:
            number = sum(used == name or re.fullmatch(rf"{name}_\d+", used) is not None for used in names)
            name = f"{name}_{number + 1}" if number else name
            names.append(name)
            new += line[end : word.start], f'{written}"${name}"'
            end = word.end
        option = word.text.replace("_", "-").lower() if word.text.startswith("-") else None
        if option is not None:
            at_option = option if _OPTION.match(option) is not None else None
        elif at_option is not None and _MANY.match(at_option) is None:
            at_option = None
        if word.operator:
            at_option = None
    return Masked("".join([*new, line[end:]]), names)


def _of(word: Word, option: str | None) -> tuple[str | None, str]:
    """(variable for the secret in a word, what stands before it); no variable where there is none."""
    if word.operator or _STANDS_IN.match(word.text):
        return None, ""
    head, equals, value = word.text.partition("=")
    if option is not None and not word.text.startswith("-"):
        is_count = _COUNT.match(word.text) is not None and _MANY.match(option) is None
        return (None, "") if is_count else (_variable(option), "")
    given = head.replace("_", "-").lower()
    if equals and value and _OPTION.match(given) is not None:
        return (None, "") if _STANDS_IN.match(value) else (_variable(given), f"{head}=")
    assigned = _VARIABLE.fullmatch(word.text)
    if assigned is not None:
        is_kept = _STANDS_IN.match(assigned["value"]) or _COUNT.match(assigned["value"])
        return (None, "") if is_kept else (assigned["name"], f"{assigned['name']}=")
    if all(region.shown in _HARMLESS for region in regions(word.text)):
        return None, ""
    named = _ASSIGNED.match(word.text)
    return ("SECRET", "") if named is None else (named["name"], f"{named['name']}=")


def _variable(option: str) -> str:
    name = "HF_TOKEN" if option == "-hft" else option.lstrip("-").replace("-", "_").upper()
    return f"OPTION_{name}" if name[:1].isdigit() else name


_LARGER = frozenset({"cache_ram", "ctx_checkpoints", "sleep_idle_seconds"})
"""Options of which more serves everybody."""
_SMALLER = frozenset({"checkpoint_min_step"})


class Wish(msgspec.Struct, frozen=True):
    """What one finding asks for."""

    finding: Finding
    remedy: Remedy


class Merged(msgspec.Struct, frozen=True):
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
