"""A dump of /metrics: the counters of each engine, and the differences between two dumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import isinf, isnan
from typing import NamedTuple

import msgspec

from cachedoctor.inputs.metrics.prometheus import Exposition, Sample
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Bucket, Counters
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
"""Labels by which a collector distinguishes servers in one dump."""

_PARTS = late(r"([a-z]+)[:_](.+)")


class EngineCounts(msgspec.Struct):
    """Counters of one engine since it began; names as in ``Counters``."""

    values: dict[str, int] = msgspec.field(default_factory=dict)
    """Values that the dump lacks are missing here too."""
    buckets: dict[str, dict[float, int]] = msgspec.field(default_factory=dict)
    """Histograms by name: requests with at most this many tokens, cumulative."""
    tiers: dict[str, int] = msgspec.field(default_factory=dict)
    """Reused tokens by the memory that they were found in."""
    config: dict[str, str] = msgspec.field(default_factory=dict)


class EngineKey(NamedTuple):
    """Which engine of a server."""

    engine: str | None
    model: str | None


Sums = dict[EngineKey, int | None]
"""Sums of samples, by engine."""


class Dump(msgspec.Struct):
    """Counters of one server."""

    path: str
    source: str
    """``vllm``, ``sglang``."""
    place: str | None
    """Which of several servers in one dump."""
    started: float | None
    """When its process began, seconds since 1970."""
    created: float | None
    """When its first counter began: by another clock, so compare it only with the same field."""
    time: float | None
    """When it was written, if its lines show it."""
    readings: dict[EngineKey, EngineCounts]
    late: frozenset[str] = frozenset()
    """Counters that are not in a dump before they count for the first time."""
    asked: str | None = None
    """The URL it was fetched from, if it is not a file: of several dumps, the first and the last count."""

    @property
    def progress(self) -> int:
        """Grows with every dump of one life of a server."""
        return sum(sum(reading.values.values()) for reading in self.readings.values())


class MetricSamples:
    """Samples of one server, by the names that its engine gives to them: ``prompt_tokens_total``."""

    def __init__(self, source: str, samples: Iterable[Sample], exposition: Exposition) -> None:
        self._exposition = exposition
        self._names: dict[str, dict[str, list[Sample]]] = {}
        for sample in samples:
            parts = _PARTS.fullmatch(sample.name)
            if parts is not None and parts[1] == source:
                self._names.setdefault(parts[2], {}).setdefault(sample.name, []).append(sample)

    def of(self, name: str) -> list[Sample]:
        """Samples of a series; ``vllm_x``, the spelling of some collectors, only if there is no ``vllm:x``."""
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
    """Give a count as a number; None if it is not a count."""
    return round(value) if 0 <= value <= MOST else None


def total(samples: Iterable[Sample], by: Callable[[Sample], EngineKey]) -> Sums:
    """Add up samples by engine; one that is not a count leaves the sum unknown."""
    sums: Sums = {}
    for sample in samples:
        key, value = by(sample), whole(sample.value)
        before = sums.get(key, 0)
        sums[key] = None if before is None or value is None or before + value > MOST else before + value
    return sums


def histogram(samples: Iterable[Sample], by: Callable[[Sample], EngineKey]) -> dict[EngineKey, dict[float, int]]:
    """Add up the bars of a histogram (``le``) by engine; bars that are not counts are left out."""
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


_SAME = 2.0
"""Seconds by which the start time of one process may differ between dumps (it is computed from the host's uptime); no
language model server restarts so fast."""


def lives(dumps: Iterable[Dump]) -> list[list[list[Counters]]]:
    """Give the lives of each server, each with its counters in the order of time; the last life last.

    One dump counts since the start of the server. Of several of one life the first is what the others are counted
    from.
    """
    servers: dict[object, list[Dump]] = {}
    for dump in dumps:
        models = frozenset(key.model for key in dump.readings)
        servers.setdefault((dump.source, dump.place, dump.asked, models), []).append(dump)
    return [[_spans(_ends(life, at)) for at, life in enumerate(_lives(_ordered(found)))] for found in servers.values()]


def _ends(life: list[Dump], at: int) -> list[Dump]:
    """The first and the last of the dumps that were fetched repeatedly; after a restart only the last."""
    first = None if at else life[0]
    return [dump for dump in life if dump.asked is None or dump is first or dump is life[-1]]


def _ordered(dumps: list[Dump]) -> list[Dump]:
    """The dumps of one server in the order of time; ties stay as they were given."""
    starts = _starts(dumps)
    timed = all(dump.time is not None for dump in dumps)
    if starts is None:
        return sorted(dumps, key=lambda dump: dump.time or 0) if timed else dumps
    order = sorted(range(len(dumps)), key=lambda at: starts[at])
    life, begun = 0, {}
    for before, at in zip([order[0], *order], order, strict=False):
        life += starts[at] - starts[before] > _SAME
        begun[at] = life
    order.sort(key=lambda at: (begun[at], dumps[at].time or 0 if timed else 0, dumps[at].progress))
    return [dumps[at] for at in order]


def _starts(dumps: list[Dump]) -> list[float] | None:
    """When the server of each dump began, all by one clock; None if there is none for all."""
    for clock in ([dump.started for dump in dumps], [dump.created for dump in dumps]):
        known = [start for start in clock if start is not None]
        if len(known) == len(dumps):
            return known
    return None


def _lives(dumps: list[Dump]) -> list[list[Dump]]:
    found = [dumps[:1]]
    for before, dump in pairwise(dumps):
        if _restarted(before, dump):
            found.append([dump])
        else:
            found[-1].append(dump)
    return found


def _restarted(before: Dump, dump: Dump) -> bool:
    """Whether the server began again between two dumps: at another time, or a counter fell, or one is not there yet."""
    starts = _starts([before, dump])
    if starts is not None and abs(starts[1] - starts[0]) > _SAME:
        return True
    for key, reading in dump.readings.items():
        for name, value in before.readings.get(key, EngineCounts()).values.items():
            now = reading.values.get(name, 0 if name in dump.late else value)
            if now < value:
                return True
    return False


def _spans(life: list[Dump]) -> list[Counters]:
    """What was counted from dump to dump, or up to the only one."""
    if len(life) == 1:
        return [_counted(life[0], None, key, reading) for key, reading in life[0].readings.items()]
    return [
        _counted(dump, before, key, reading)
        for before, dump in pairwise(life)
        for key, reading in dump.readings.items()
    ]


def _counted(dump: Dump, before: Dump | None, key: EngineKey, reading: EngineCounts) -> Counters:
    """One engine between two dumps; since its start, if the earlier dump does not have it.

    What fell between two dumps, with others without it between them, is unknown: a restart that nothing else shows.
    """
    base = None if before is None else before.readings.get(key)
    counted = Counters(dump.path, None, dump.source, key.engine, key.model, config=reading.config)
    if before is not None and base is not None:
        counted.since = before.path
    for name, value in reading.values.items():
        if base is None:
            setattr(counted, name, value)
        elif (name in base.values or name in dump.late) and value >= base.values.get(name, 0):
            setattr(counted, name, value - base.values.get(name, 0))
    if base is None or base.tiers or "reused" in dump.late:  # else the earlier dump does not show them
        earlier_tiers = {} if base is None else base.tiers
        grown = {tier: value - earlier_tiers.get(tier, 0) for tier, value in reading.tiers.items()}
        counted.cached_by_tier = {tier: tokens for tier, tokens in grown.items() if tokens >= 0}
    for name, bars in reading.buckets.items():
        earlier = {} if base is None else base.buckets.get(name, {})
        if base is None or earlier.keys() == bars.keys():
            setattr(counted, name, _bars({most: count - earlier.get(most, 0) for most, count in bars.items()}))
    return counted


def _bars(counts: dict[float, int]) -> list[Bucket]:
    """Requests between one bar and the next, from those counted up to each; none if they do not grow."""
    found, before = [], 0
    for most, count in sorted(counts.items()):
        found.append(Bucket(None if isinf(most) else most, count - before))
        before = count
    return found if all(bar.requests >= 0 for bar in found) else []
