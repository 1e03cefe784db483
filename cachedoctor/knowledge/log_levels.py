"""Log levels of llama-server by build, and how to make a build log what a diagnosis needs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Literal

import msgspec

from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.builds import LOGS_REDUCED, SAMPLED
from cachedoctor.model import OptionChange

SCALE = 7376
"""From here on ``-lv`` counts 0 to 4 and the default is 3; before it counts 0 and 1, and the default is 0."""

WORDS = {
    "I": "INFO",
    "W": "WARN",
    "E": "ERROR",
    "D": "DEBUG",
    "T": "TRACE (printed with the letter I)",
    "L": "INFO of the library",
    "O": "output",
    "P": "error text",
}
"""Letters as in the levels of a message."""


class Period(msgspec.Struct):
    """Builds that print a message at one level."""

    first: int
    last: int
    """Builds that were checked, both ends included."""
    level: str
    needs: int | None
    """Smallest ``-lv`` that shows it; None when the default does."""


def needs(letter: str, build: int) -> int | None:
    """Smallest ``-lv`` that shows lines of this level; None when the default does.

    Library lines follow the level of the server: they count as trace since it exists.
    """
    if letter == "D":
        return 1 if build < SCALE else 4 if build < LOGS_REDUCED else 5
    if letter == "T" or (letter == "L" and build >= LOGS_REDUCED):
        return 4
    return None


def periods(level_at: Callable[[int], str], first: int, last: int) -> list[Period]:
    """Split the builds of a message by level and by what shows it.

    Args:
        level_at: gives the letter of the message's level at a build.
        first: first build with the message, one of those that were checked.
        last: last build with it.
    """
    seen = [build for build in SAMPLED if first <= build <= last]
    out = []
    for (letter, level), group in groupby(seen, key=lambda build: (level_at(build), needs(level_at(build), build))):
        builds = list(group)
        out.append(Period(builds[0], builds[-1], letter, level))
    return out


Want = Literal["accounting", "text", "prompts"]
"""Prompt length, reuse and checkpoints; the text where two prompts diverge; whole prompts."""

_LAST_OPEN = 9093
"""Newest sampled build whose default level shows the accounting. A newer one that hides it has the trace level."""
_TEXT = 6900
"""First build that prints old: / new: lines when LLAMA_SERVER_SLOTS_DEBUG=1 is set."""

_WARN = "The log will then contain prompt text."


class LevelRestart(msgspec.Struct):
    """One restart of the server after which the log shows more."""

    options: list[OptionChange]
    """None when no option of these builds helps."""
    shows: list[Want]
    text: str
    """Warns that prompts will be in the log, and lists what these builds cannot show and which build can."""


_TRACE = OptionChange("--verbosity", "4")
_FILES = OptionChange("--log-prompts-dir", "prompts")
_FOLDER = "Create the folder ./prompts first, and pass it to the next analysis with --prompts ./prompts."


def show_accounting(low: int | None, high: int | None) -> tuple[str, list[OptionChange]]:
    """Return (words, options) that make builds log prompt length, reuse and checkpoints; there may be none."""
    if low is not None and low > _LAST_OPEN:
        return "restart llama-server at trace level", [_TRACE]
    if high is not None and high <= _LAST_OPEN:
        return "this build shows these lines at its default level, so do not use --log-disable or a lower -lv", []
    return "from b9294 on, restart llama-server at trace level; older builds show these lines at their default level", [
        _TRACE
    ]


def show_text(low: int | None, high: int | None) -> tuple[str, list[OptionChange]]:
    """Return (words, options) that make builds show the text around the divergence.

    Whole prompts in files show more than the few tokens that the log prints, and they cover slots that were empty, too.
    """
    if _has_prompts_dir(low, high):
        return f"write whole prompts to files and restart llama-server. {_FOLDER}", [_FILES]
    variables = _variables(high)
    if not variables:
        return (
            "use b6900 or newer, or the client's request bodies; this build cannot show the text",
            [],
        )
    if low is not None and low >= _TEXT and len(variables) == 1:
        return f"set the variable and restart llama-server. {_WARN}", variables
    words = "set the variables and restart llama-server (b6900 or newer; the second variable needs b10809)"
    return f"{words}. {_WARN}", variables


def _variables(high: int | None) -> list[OptionChange]:
    """Variables that show the text; builds that do not know one ignore it."""
    if high is not None and high < _TEXT:
        return []
    both = server_options.SLOTS_N_DIFF.env[0].exists(None, high) is not False
    debug, around = OptionChange("LLAMA_SERVER_SLOTS_DEBUG", "1"), OptionChange("LLAMA_SERVER_SLOTS_N_DIFF", "32")
    return [debug, around] if both else [debug]


def _has_prompts_dir(low: int | None, high: int | None) -> bool:
    return server_options.LOG_PROMPTS_DIR.names[0].exists(low, high) is True


def restart(wants: set[Want], low: int | None, high: int | None) -> LevelRestart:
    """Return the one command that shows most of ``wants`` on every build from ``low`` to ``high``."""
    variables: list[OptionChange] = []
    options: list[OptionChange] = []
    shows: list[Want] = []
    said: list[str] = []
    if "accounting" in wants:
        if low is not None and low > _LAST_OPEN:
            options.append(_TRACE)
            shows.append("accounting")
        else:
            said.append(f"Reuse and checkpoints: {show_accounting(low, high)[0]}.")
    has_files = _has_prompts_dir(low, high)
    if "text" in wants and has_files:
        shows.append("text")
    elif "text" in wants:
        variables = _variables(high)
        if variables:
            shows.append("text")
        if not variables or low is None or low < _TEXT:
            said.append(f"Builds from b{_TEXT} on can show the text that changed.")
    if has_files and wants & {"text", "prompts"}:
        options.append(_FILES)
        said += ["The folder will then contain prompt text.", _FOLDER]
    elif variables:
        said.insert(0, "The log will then contain prompt text.")
    if "prompts" in wants and has_files:
        shows.append("prompts")
    elif "prompts" in wants:
        said.append(
            "For whole prompts, use --log-prompts-dir DIR (b9713 and newer); with older builds, save the "
            "client's request bodies."
        )
    return LevelRestart([*variables, *options] if shows else [], shows, " ".join(said))
