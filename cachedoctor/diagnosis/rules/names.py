"""Codes and names of the rules, from the names of their files, and the spellings that users may use.

Imports nothing but the standard library: shell completion waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cachedoctor.knowledge.late_patterns import late

PAGES = "cachedoctor/diagnosis/rules"
"""Folder of the pages, relative to the root of the repository."""
FAMILIES = {
    "1": "client",
    "2": "memory",
    "3": "slots",
    "4": "lifetime",
    "5": "vllm",
    "6": "sglang",
    "7": "programs",
    "9": "input",
}
"""Folder of the rules by the first digit of their codes."""
_FOLDER = Path(__file__).parent
BLIND = _FOLDER / "blind.md"
"""Page about rules that could not be checked."""
_PREFIX = late(r"CD\d{0,2}")


class Former(NamedTuple):
    """A rule that was merged into others: its code and its name keep their meaning for users."""

    code: str
    name: str
    now: tuple[str, ...]
    """Codes that report its cause; they have other causes as well."""
    since: str

    def __str__(self) -> str:
        return f"{self.code} is part of {' and '.join(self.now)} since {self.since}"


FORMER = (
    Former("CD511", "billing-header-kept", ("CD101",), "1.0.0"),
    Former("CD609", "billing-header-kept", ("CD101",), "1.0.0"),
    Former("CD704", "prompt-parted", ("CD105", "CD108"), "1.0.0"),
)


@lru_cache(maxsize=1)
def modules() -> tuple[str, ...]:
    """Names of the rule modules in the order of their codes, ``cd101_billing_header``; the folders are read once."""
    return tuple(sorted(p.stem for p in _FOLDER.glob("*/cd[0-9][0-9][0-9]_*.py")))


def path(module: str) -> str:
    """Path of a rule module below the folder of the rules, without its ending: ``client/cd101_billing_header``."""
    return f"{FAMILIES[module[2]]}/{module}"


def identify(module: str) -> tuple[str, str]:
    """Code and name of a rule by the name of its module, qualified or not: ``("CD101", "billing-header")``."""
    stem = module.rpartition(".")[2]
    return stem[:5].upper(), stem[6:].replace("_", "-")


def family_engine(module: str) -> str:
    """Engine of the sessions that rules in the folder of ``module`` check: ``vllm``, ``sglang``, else ``llama.cpp``."""
    from cachedoctor.knowledge.engines import ENGINES

    folder = FAMILIES[identify(module)[0][2]]
    return folder if folder in ENGINES else "llama.cpp"


def names() -> list[tuple[str, str]]:
    """(code, name) of every rule, without importing one."""
    return [identify(module) for module in modules()]


def urls() -> list[tuple[str, str]]:
    """(code, address of its page) of every rule, relative to the root of the repository."""
    return [(m[:5].upper(), f"{PAGES}/{path(m)}.md") for m in modules()]


def find(wanted: str) -> Path | None:
    """Page of the rule with this code or name, the first where engines share a name; imports nothing."""
    return next(iter(pages(wanted)), None)


def pages(wanted: str) -> list[Path]:
    """Pages of the rules with this code or name: engines have causes of the same name.

    Imports nothing.
    """
    key = wanted.lower().replace("-", "_")
    return [_FOLDER / f"{path(module)}.md" for module in modules() if key in (module, module[:5], module[6:])]


def matching(word: str) -> frozenset[str]:
    """Codes that ``word`` selects: a code, a name, or the beginning of codes (``CD1``); none if unknown."""
    key = word.upper()
    if _PREFIX.fullmatch(key):
        return frozenset(code for code, _ in names() if code.startswith(key))
    key = key.replace("_", "-")
    return frozenset(code for code, name in names() if key in (code, name.upper()))


def former(word: str) -> list[Former]:
    """Rules of this code or name that were merged into others."""
    key = word.upper().replace("_", "-")
    return [gone for gone in FORMER if key in (gone.code, gone.name.upper())]


def nearest(word: str, others: Iterable[str] = ()) -> str:
    """Name the rule, or the one of ``others``, with the most similar spelling to ``word``."""
    from difflib import get_close_matches

    known = {spelling.lower(): f"{code} {name}" for code, name in names() for spelling in (code, name)}
    known |= {other.lower(): other for other in others if other.lower() not in known}
    close = get_close_matches(word.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {known[close[0]]}?" if close else "cachedoctor explain lists all rules"


def refuse_unknown(words: Iterable[str], where: str = "") -> None:
    """Raise ``CacheDoctorError`` for the first word that selects no rule; ``where``: where it was written."""
    from cachedoctor.model import CacheDoctorError

    for word in dict.fromkeys(words):
        if not (matching(word) or former(word)):
            raise CacheDoctorError(f"{where}{word}: no such rule", nearest(word))


def switched_off(select: Sequence[str] | None, ignore: Sequence[str]) -> frozenset[str]:
    """Codes that are not selected (None: all are), or ignored.

    The longer beginning of a code decides.

    ``select`` CD101 with ``ignore`` CD1 leaves CD101 on; of two with equal lengths, ``ignore`` wins. A former code
    selects its successors. It does not ignore them, because they also report other causes, which nobody asked to hide.
    """
    chosen = {code: 0 for code, _ in names()} if select is None else _precision(_with_successors(select))
    left_out = _precision(ignore)
    return frozenset(code for code, _ in names() if code not in chosen or left_out.get(code, -1) >= chosen[code])


def _with_successors(words: Iterable[str]) -> list[str]:
    given = dict.fromkeys(words)
    return [*given, *(code for word in given for gone in former(word) for code in gone.now)]


def _precision(words: Iterable[str]) -> dict[str, int]:
    """How many characters of each code are meant by the most precise of ``words``."""
    found: dict[str, int] = {}
    for word in dict.fromkeys(words):
        length = len(word) if _PREFIX.fullmatch(word.upper()) else len("CD101")
        for code in matching(word):
            found[code] = max(length, found.get(code, 0))
    return found
