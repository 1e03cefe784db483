"""What the terminal can show, and how errors are worded."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from typing import Literal, TextIO

import msgspec

from cachedoctor.broken_pipes import pipes_may_break
from cachedoctor.report.base import Appearance

Color = Literal["auto", "always", "never"]

_BUG = "this is a bug: please report it with the output of CACHEDOCTOR_DEBUG=1"

_LONGEST = 8_000
"""Longest error in characters: a path has up to 4,096; some errors name two."""


def look(to_file: bool, color: Color = "auto", width: int | None = None) -> Appearance:
    """Say how text is shown on the standard output, or in a file (which is UTF-8)."""
    tty = not to_file and sys.stdout is not None and sys.stdout.isatty()
    wanted = color == "always" or (color == "auto" and _colorful(tty) and not to_file)
    encoding = "utf-8" if to_file or sys.stdout is None else sys.stdout.encoding or "ascii"
    ascii_only = codecs.lookup(encoding).name != "utf-8"
    links = color != "never" and not to_file and _linked(tty and wanted)
    columns = width or shutil.get_terminal_size((80, 24)).columns
    return Appearance(columns, wanted, ascii_only, encoding, _pages() if links else None)


def fitted(look: Appearance) -> Appearance:
    """Return the same for a terminal whose size may have changed."""
    return msgspec.structs.replace(look, width=shutil.get_terminal_size((80, 24)).columns)


def _colorful(tty: bool) -> bool:
    """NO_COLOR comes first, then FORCE_COLOR; TTY_COMPATIBLE says whether escape codes are understood."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    compatible = os.environ.get("TTY_COMPATIBLE")
    return compatible == "1" or (tty and compatible != "0" and not dumb())


def dumb() -> bool:
    """Whether the terminal says that it knows no escape codes."""
    return os.environ.get("TERM") == "dumb"


def _linked(terminal: bool) -> bool:
    forced = os.environ.get("FORCE_HYPERLINK")
    return not dumb() and (forced != "0" if forced else terminal)


def _pages() -> str | None:
    """Address of what the pages of the rules lie in; None where they are not files (in a zip)."""
    from pathlib import Path

    import cachedoctor

    folder = Path(os.path.abspath(cachedoctor.__file__)).parent
    return f"{folder.parent.as_uri()}/" if (folder / "diagnosis" / "rules").is_dir() else None


def build_number(text: str) -> int:
    """Read a build of llama.cpp, ``6900`` or ``b6900``, or one of its releases, ``v0.9.0``."""
    import typer

    from cachedoctor.knowledge import builds

    number = builds.number(text)
    if number is None and builds.is_release(text):
        raise typer.BadParameter(f"the build of {text} is unknown; give the number that llama-server --version prints")
    if number is None:
        raise typer.BadParameter(f"{text!r} is not a build of llama.cpp; give its number (6900 for b6900) or v0.9.0")
    return number


_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def size(text: str) -> int:
    """Read a number of bytes, ``500M`` or ``200G`` (powers of 1,024)."""
    import typer

    word = text.strip().upper().removesuffix("B").removesuffix("I")
    digits = word.rstrip("KMGT")
    unit = _UNITS.get(word[len(digits) :])
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9 or unit is None or not int(digits):
        raise typer.BadParameter(f"{text!r} is not a size; give bytes with a unit, e.g. 200G")
    return int(digits) * unit


_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> float:
    """Read a length of time, ``10s``, ``5m``, ``2h`` or ``1d``."""
    import typer

    word = text.strip().lower()
    unit, digits = _SECONDS.get(word[-1:]), word[:-1]
    if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > 6 or not int(digits):
        raise typer.BadParameter(f"{text!r} is not a duration; give it with a unit, e.g. 30s, 5m or 2h")
    return float(int(digits) * unit)


def piped() -> bool:
    """Whether something other than a person is at the standard input."""
    return sys.stdin is not None and not sys.stdin.isatty()


def typed() -> bool:
    """Whether a person is at the standard input, who may paste a log."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask_for_paste() -> None:
    """Say on the standard error what is waited for."""
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    tell(f"Paste the log, then {end} (20 lines are enough, two turns are better)")


def complain(message: str, hint: str = "", kind: str = "error") -> None:
    """Write one line on the standard error; what quotes a value without end loses its middle.

    On a terminal the hint has rows of its own, each of its parts one where it is long, broken at spaces.
    """
    from cachedoctor.report.text.text_safe import cut, rows, visible

    head = f"cachedoctor: {kind}: {message}"
    if sys.stderr is None or not sys.stderr.isatty():
        line = f"{head} (hint: {hint})" if hint else head
        tell(visible(line) if len(line) <= _LONGEST else cut(line, _LONGEST))
        return
    width = shutil.get_terminal_size((80, 24)).columns
    lead = "  hint: "
    parts = hint.split("; ") if len(lead + hint) > width else [hint]
    for words in (head, *(f"{' ' * len(lead) if at else lead}{part}" for at, part in enumerate(parts) if part)):
        shown = visible(words) if len(words) <= _LONGEST else cut(words, _LONGEST)
        indent = 4 if words is head else len(lead) + 2
        for at, row in enumerate(rows(shown, width, width - indent)):
            tell(f"{' ' * indent}{row}" if at else row)


def tell(line: str) -> None:
    """Write a line, in which nothing controls a terminal, on the standard error."""
    if sys.stderr is None:  # it is closed, and print would take the standard output instead
        return
    # A reader that went away must not end us here: the output may still wait for its last step.
    with pipes_may_break():
        try:
            print(line, file=sys.stderr, flush=True)
        except OSError:
            silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Send what is left in a buffer nowhere: Python would try to write it once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def failed(error: Exception) -> int:
    """Say what went wrong and give the exit status."""
    from cachedoctor.model import CacheDoctorError

    if os.environ.get("CACHEDOCTOR_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, CacheDoctorError):
        complain(error.message, error.hint)
        return error.exit_code
    if isinstance(error, OSError):  # the spool of requests, most likely: its folder is full or gone
        complain(str(error), "check the free space, also in the folder for temporary files (TMPDIR)")
        return 2
    if isinstance(error, MemoryError):
        complain("there is not enough memory", "allow more (ulimit -v, container limit), or analyze a smaller input")
        return 2
    complain(f"{type(error).__name__}: {error}", _BUG, "internal error")
    return 2
