"""A dump of /metrics as the servers in it: what each engine has counted, and when its server began.

Knows where the parts of a dump lie. What a series counts is known by ``vllm`` and ``sglang``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import isnan
from typing import NamedTuple

import msgspec

from cachedoctor.metrics.prometheus import Exposition, Sample
from cachedoctor.model.bounds import MOST

MAX_TIERS = 16
"""Kinds of memory; vLLM has five, SGLang three, with a name for each storage."""
_TIER = 64
"""Characters of the name of one."""
START = "process_start_time_seconds"
"""When the process began, seconds since 1970; not there where several processes answer /metrics together."""
MAX_BARS = 64
"""Bars of a histogram; vLLM's of tokens have up to 20."""
PLACES = ("instance", "pod")
"""Labels by which a collector tells servers apart that it wrote into one dump."""

_PARTS = re.compile(r"([a-z]+)[:_](.+)")


class EngineCounts(msgspec.Struct):
    """What one engine has counted since it began; names as in ``Counters``."""

    values: dict[str, int] = msgspec.field(default_factory=dict)
    """What the dump does not say is not in it."""
    buckets: dict[str, dict[float, int]] = msgspec.field(default_factory=dict)
    """Histograms by name: requests of at most so many tokens, those of smaller bars among them."""
    tiers: dict[str, int] = msgspec.field(default_factory=dict)
    """Reused tokens by the memory that they were found in."""
    config: dict[str, str] = msgspec.field(default_factory=dict)


class EngineKey(NamedTuple):
    """Which engine of a server."""

    engine: str | None
    model: str | None


Sums = dict[EngineKey, int | None]
"""Of samples, by engine."""


class Dump(msgspec.Struct):
    """What one server has counted."""

    path: str
    source: str
    """``vllm``, ``sglang``."""
    place: str | None
    """Which of several servers in one dump."""
    started: float | None
    """When its process began, seconds since 1970."""
    created: float | None
    """When its first counter began: another clock, to be compared with its like only."""
    time: float | None
    """When it was written, where its lines say it."""
    readings: dict[EngineKey, EngineCounts]
    late: frozenset[str] = frozenset()
    """Counters that are not in a dump before they count for the first time."""
    asked: str | None = None
    """The address that was asked for it, of one that is no file: of several the first and the last count."""

    @property
    def progress(self) -> int:
        """Grows with every dump of one life of a server."""
        return sum(sum(reading.values.values()) for reading in self.readings.values())


class Series:
    """Samples of one server, by the names that its engine gives to them: ``prompt_tokens_total``."""

    def __init__(self, source: str, samples: Iterable[Sample], exposition: Exposition) -> None:
        self._exposition = exposition
        self._names: dict[str, dict[str, list[Sample]]] = {}
        for sample in samples:
            parts = _PARTS.fullmatch(sample.name)
            if parts is not None and parts[1] == source:
                self._names.setdefault(parts[2], {}).setdefault(sample.name, []).append(sample)

    def of(self, name: str) -> list[Sample]:
        """Samples of a series; ``vllm_x``, as some collectors spell it, only where there is no ``vllm:x``."""
        spellings = self._names.get(name, {})
        return next((spellings[full] for full in sorted(spellings, key=lambda full: ":" not in full)), [])

    def counter(self, *names: str) -> list[Sample]:
        """Samples of the first of ``names`` that is there, with ``_total`` or without it; never of a gauge."""
        for name in names:
            for spelt in (f"{name}_total", name):
                found = self.of(spelt)
                if found and self._exposition.type_of(found[0].name) != "gauge":
                    return found
        return []

    def help(self, name: str) -> str:
        """Help text of a counter."""
        found = self.of(f"{name}_total") or self.of(name)
        return self._exposition.help_of(found[0].name) if found else ""

    def created(self) -> float | None:
        """When the first of all counters began."""
        times = [
            sample.value
            for name, spellings in self._names.items()
            if name.endswith("_created")
            for samples in spellings.values()
            for sample in samples
            if 0 < sample.value < MOST
        ]
        return min(times, default=None)


def whole(value: float) -> int | None:
    """Give a count as a number, None for one that is none."""
    return round(value) if 0 <= value <= MOST else None


def total(samples: Iterable[Sample], by: Callable[[Sample], EngineKey]) -> Sums:
    """Add up samples by engine; one that is no count leaves the sum unknown."""
    sums: Sums = {}
    for sample in samples:
        key, value = by(sample), whole(sample.value)
        before = sums.get(key, 0)
        sums[key] = None if before is None or value is None or before + value > MOST else before + value
    return sums


def histogram(samples: Iterable[Sample], by: Callable[[Sample], EngineKey]) -> dict[EngineKey, dict[float, int]]:
    """Add up the bars of a histogram (``le``) by engine; bars that are no counts are left out."""
    found: dict[EngineKey, dict[float, int]] = {}
    for sample in samples:
        try:
            most = float(sample.labels.get("le", ""))
        except ValueError:
            continue
        count = whole(sample.value)
        bars = found.setdefault(by(sample), {})
        if count is not None and not isnan(most) and most >= 0 and len(bars) < MAX_BARS:
            bars[most] = min(MOST, bars.get(most, 0) + count)
    return found


def put_tiers(
    readings: dict[EngineKey, EngineCounts], samples: Iterable[Sample], label: str, sums: Callable[[list[Sample]], Sums]
) -> None:
    """Enter reused tokens by tier, which ``label`` of each sample names; a sample without a name is left out."""
    by_tier: dict[str, list[Sample]] = {}
    for sample in samples:
        tier = sample.labels.get(label, "")[:_TIER]
        if tier and (tier in by_tier or len(by_tier) < MAX_TIERS):
            by_tier.setdefault(tier, []).append(sample)
    for tier, found in by_tier.items():
        for key, value in sums(found).items():
            if value is not None:
                readings.setdefault(key, EngineCounts()).tiers[tier] = value


def put(readings: dict[EngineKey, EngineCounts], name: str, sums: Sums) -> None:
    """Enter what is known of a value into the readings of its engines."""
    for key, value in sums.items():
        if value is not None:
            readings.setdefault(key, EngineCounts()).values[name] = value
