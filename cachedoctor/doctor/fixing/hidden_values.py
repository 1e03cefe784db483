"""A command line without its secrets: variables of the shell stand in their place, so that it can still be pasted."""

from __future__ import annotations

import re
from typing import NamedTuple

from cachedoctor.knowledge.late_patterns import late
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
