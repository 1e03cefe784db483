"""Lines of a log: on their way, kept as evidence, and explained in words."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cachedoctor.model.bounds import Positive


class LogFile(NamedTuple):
    """One of the rotations of a log."""

    path: str
    before: int = 0
    """Lines in earlier files of the same log: line numbers continue from file to file."""


class Segment(msgspec.Struct):
    """Consecutive lines of one origin, their wrappers removed."""

    origin: str | None
    """Router port or compose service; None if the log shows neither."""
    data: bytes
    """The bodies, each ended by a newline."""
    first: int
    """1-based number of the first line in its input."""
    numbers: list[int] | None = None
    """Line number of each body; None when they are consecutive from ``first``."""
    stored: dict[int, bytes] = msgspec.field(default_factory=dict)
    """Stored lines with their wrapper, by number, for lines that had one; only the ends of a line that waited for its
    next part."""
    is_plain: bool = False
    """True if each line begins like those of llama-server, so that no other engine wrote it."""

    def number(self, index: int) -> int:
        """Line number in the input of the body with the 0-based ``index``."""
        return self.first + index if self.numbers is None else self.numbers[index]

    def behind(self, lines: int) -> Segment:
        """Return the same segment, but for stored lines, with so many lines before its input."""
        numbers = None if self.numbers is None else [number + lines for number in self.numbers]
        return Segment(self.origin, self.data, self.first + lines, numbers, is_plain=self.is_plain)


class Mark(msgspec.Struct, gc=False):
    """A log line kept as evidence."""

    line: int
    """1-based line number in the input."""
    text: bytes
    """The line without its wrapper."""


class Part(msgspec.Struct):
    """A piece of a line, and its meaning."""

    text: str
    """Text as printed in the line."""
    meaning: str


class Reading(msgspec.Struct):
    """A field of the message, and its value in this line."""

    name: str
    """Name in the catalogue."""
    label: str
    """Name as printed before the value; that of the catalogue when the line prints none."""
    text: str | None
    """Value as printed; None if the line is truncated before its end."""
    unit: str
    meaning: str
    here: str = ""
    """Meaning of this particular value, if the value is not a plain number."""


class Level(msgspec.Struct):
    """Builds that print the message at one level."""

    first: int
    last: int
    level: str
    """In words."""
    shown: str
    """How to show it, in words: by default, or with which option."""


class Wording(msgspec.Struct):
    """Another wording of the same message, and the builds in which it was seen."""

    first: Positive
    last: Positive
    text: str


class Explanation(msgspec.Struct):
    """One reading of one line."""

    message: str
    """Id of the message."""
    meaning: str
    """What it shows about the cache."""
    text: str
    """The message itself, without its wrapper and prefix."""
    origin: str | None
    """Server that the wrapper names, if any."""
    parts: list[Part]
    """What comes before the message: clock, level, function, slot, task."""
    fields: list[Reading]
    first: int
    last: int
    """First and last build in which this wording was seen; for engines with version numbers, ``minor * 100 +
    patch``."""
    builds: str
    """The builds in words, with those that may have it too."""
    levels: list[Level]
    analyzed: bool
    """Whether ``analyze`` reads this message."""
    sample: str
    """Example of the line, as a server printed it."""
    others: list[Wording]
    cut: bool = False
    """True if the line ends before the end of the message."""
    undecided: bool = False
    """True if other wordings of the message fit the truncated line as well."""
    more: str = ""
    """Text after the message that no known build prints."""
    engine: str = "llama.cpp"
    """Engine, named as in sessions: ``llama.cpp``, ``vllm``, ``sglang``."""
    program: str = "llama.cpp"
    """Program that the builds or versions belong to: ``llama.cpp``, ``vLLM``, ``SGLang``, ``LMCache``."""

    @staticmethod
    def version(number: int) -> str:
        """Format ``minor * 100 + patch`` as a version: 1002 is ``0.10.2``."""
        return f"0.{number // 100}.{number % 100}"

    @property
    def has_versions(self) -> bool:
        """True if it is known which builds or versions print it."""
        return self.last > 1

    def named(self, number: int) -> str:
        """Format a build or version of this program."""
        return f"b{number}" if self.program == "llama.cpp" else self.version(number)


class Line(msgspec.Struct):
    """One line and its readings: none if it is unknown, several if the wording alone does not decide."""

    number: int
    """1-based line number in the input."""
    text: str
    """The line without its wrapper."""
    explanations: list[Explanation]
    nearest: str = ""
    """If no message is recognised: the start of the most similar one."""
