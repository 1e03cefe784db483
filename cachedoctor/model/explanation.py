"""What one line of a log says."""

from __future__ import annotations

import msgspec

from cachedoctor.model.bounds import Positive


class Part(msgspec.Struct):
    """A piece of a line, and what it says."""

    text: str
    """As printed in the line."""
    meaning: str


class Reading(msgspec.Struct):
    """A field of the message."""

    name: str
    """Name in the catalogue."""
    label: str
    """Name as printed before the value; that of the catalogue when the line prints none."""
    text: str | None
    """Value as printed; None when the line was cut before its end."""
    unit: str
    meaning: str
    here: str = ""
    """What this very value says, when it is no plain number."""


class Level(msgspec.Struct):
    """Builds that print the message at one level."""

    first: int
    last: int
    level: str
    """In words."""
    shown: str
    """In words: by default, or with which option."""


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
    """What it tells about the cache."""
    text: str
    """The message itself, without its wrapper and prefix."""
    origin: str | None
    """Server that the wrapper names, if any."""
    parts: list[Part]
    """What stands before the message: clock, level, function, slot, task."""
    fields: list[Reading]
    first: int
    last: int
    """First and last build in which this wording was seen; of engines with versions ``minor * 100 + patch``."""
    builds: str
    """In words, with the builds that may have it as well."""
    levels: list[Level]
    analyzed: bool
    """Whether ``analyze`` reads this message."""
    sample: str
    """A line as a server printed it."""
    others: list[Wording]
    cut: bool = False
    """The line ends before the message does."""
    undecided: bool = False
    """Other wordings of the message fit what is left of the line as well."""
    more: str = ""
    """Text behind the message that no known build prints."""
    engine: str = "llama.cpp"
    """As sessions call it: ``llama.cpp``, ``vllm``, ``sglang``."""
    program: str = "llama.cpp"
    """What the builds or versions are those of: ``llama.cpp``, ``vLLM``, ``SGLang``, ``LMCache``."""

    @staticmethod
    def version(number: int) -> str:
        """Write ``minor * 100 + patch`` as it is known: 1002 is ``0.10.2``."""
        return f"0.{number // 100}.{number % 100}"

    def named(self, number: int) -> str:
        """Write a build or version of this program as it is known."""
        return f"b{number}" if self.program == "llama.cpp" else self.version(number)


class Line(msgspec.Struct):
    """One line and its readings: none when it is unknown, several when the wording alone does not decide."""

    number: int
    """1-based number in what was given."""
    text: str
    """The line without its wrapper."""
    explanations: list[Explanation]
    nearest: str = ""
    """When there is none: how the most similar known message begins."""
