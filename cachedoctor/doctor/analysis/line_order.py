"""Events of several servers in one log, taken in the order of their lines, wherever the input was cut into chunks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from cachedoctor.engines.catalogue.base import Event


class Step(NamedTuple):
    """An event, and who takes it."""

    line: int
    take: Callable[[Event], None]
    event: Event


def take_all(readings: list[Iterator[Step]]) -> None:
    """Have the events of several readers taken line by line; of one line in the order of the readers.

    A reader is asked for its next event when the one before was taken.
    """
    for step in heapq.merge(*readings, key=attrgetter("line")):
        step.take(step.event)
