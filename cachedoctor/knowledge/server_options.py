"""What an option of llama-server is: its names, the builds that have them, its defaults. Pure functions over that.

Knows no single option (those are in ``flags``), no log and no finding. Builds are numbers of llama.cpp; a range of
builds is (low, high), where None is an open end: a log tells a build exactly, or within a range, or not at all.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.knowledge import builds

Value = bool | int | float | str | None


class Name(msgspec.Struct, frozen=True):
    """A name and the sampled builds between which it was seen; None is open-ended."""

    text: str
    first: int | None = None
    last: int | None = None

    def exists(self, low: int | None, high: int | None) -> bool | None:
        """Whether the builds from ``low`` to ``high`` have it: all, none, or None where that is open.

        Between the last sample without a name and the first one with it nothing is known.
        """
        if self.first is not None and high is not None and high < (builds.oldest(self.first) or 0):
            return False
        gone = None if self.last is None else builds.newest(self.last)
        if gone is not None and low is not None and low > gone:
            return False
        begun = self.first is None or (low is not None and low >= self.first)
        kept = self.last is None or (high is not None and high <= self.last)
        return True if begun and kept else None

    @property
    def when(self) -> str:
        """Words for the builds that have it."""
        if self.first is None:
            return "every build" if self.last is None else f"b{self.last} and older"
        if self.last is None:
            return f"b{self.first} and newer"
        return f"b{self.first}" if self.first == self.last else f"b{self.first} to b{self.last}"


class Option(msgspec.Struct, frozen=True):
    """An option with all its names."""

    key: str
    names: tuple[Name, ...]
    """Of the command line, the best to advise first; those that switch off are in ``off``."""
    kind: Literal["switch", "number", "text"] = "switch"
    off: tuple[Name, ...] = ()
    env: tuple[Name, ...] = ()
    defaults: tuple[tuple[int | None, Value], ...] = ()
    """(first build, value) in the order of builds; a value of None is one that is not known or decided elsewhere."""

    def default_at(self, low: int | None, high: int | None) -> Value:
        """Return the default of all builds from ``low`` to ``high``; None when they differ or it is not known."""
        found: set[Value] = set()
        for at, (first, value) in enumerate(self.defaults):
            then = self.defaults[at + 1][0] if at + 1 < len(self.defaults) else None
            begins = None if first is None else builds.oldest(first)
            if high is not None and begins is not None and high < begins:
                continue
            if low is not None and then is not None and low >= then:
                continue
            found.add(value)
            if first is not None and (low is None or low < first) and at == 0:
                found.add(None)  # the range begins before the option does
        return found.pop() if len(found) == 1 else None


def name_for(option: Option, low: int | None, high: int | None, *, off: bool = False) -> str | None:
    """Return the name that all builds from ``low`` to ``high`` have, or None; ``off``: of the switch-off."""
    return next((n.text for n in (option.off if off else option.names) if n.exists(low, high)), None)


def lacking(option: Option, low: int | None, high: int | None, *, off: bool = False) -> bool:
    """Whether no build from ``low`` to ``high`` has the option (``off``: its switch-off) under any name."""
    return all(name.exists(low, high) is False for name in (option.off if off else option.names))


def by_build(option: Option, *, off: bool = False) -> str:
    """Words that say which name belongs to which builds; one-dash aliases are left out."""
    names = option.off if off else option.names
    long = [name for name in names if name.text.startswith("--")] or names
    return ", ".join(f"{name.text} ({name.when})" for name in long)
