"""What servers counted between their dumps: puts dumps in the order of time and takes differences. Knows no file.

The order: by the start of the server, and within one life by what was counted, which only grows. Dumps that name no
start are taken by the times in them, or else in the order in which they were given.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import isinf

from cachedoctor.metrics.dump import Dump, EngineCounts, EngineKey
from cachedoctor.model import Bucket, Counters

_SAME = 2.0
"""Seconds by which the start of one process may differ from dump to dump (it is computed from the uptime of the host);
no server of a language model is up again so soon."""


def lives(dumps: Iterable[Dump]) -> list[list[list[Counters]]]:
    """Give, for each server, the lives of it, each with its counters in the order of time; the last life last.

    One dump counts since the start of the server. Of several of one life the first is what the others are counted
    from.
    """
    servers: dict[object, list[Dump]] = {}
    for dump in dumps:
        models = frozenset(key.model for key in dump.readings)
        servers.setdefault((dump.source, dump.place, dump.asked, models), []).append(dump)
    return [[_spans(_ends(life, at)) for at, life in enumerate(_lives(_ordered(found)))] for found in servers.values()]


def _ends(life: list[Dump], at: int) -> list[Dump]:
    """Of the dumps that were asked for again and again the first and the last; after a restart the last alone."""
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
    """When the server of each dump began, all by one clock; None where there is none for all."""
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
    """Whether the server began anew between two dumps: at another time, or a counter fell, or one is not there yet."""
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
    """One engine between two dumps; since its start, where the earlier one has nothing of it.

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
    if base is None or base.tiers or "reused" in dump.late:  # else the earlier dump does not tell them
        earlier_tiers = {} if base is None else base.tiers
        grown = {tier: value - earlier_tiers.get(tier, 0) for tier, value in reading.tiers.items()}
        counted.cached_by_tier = {tier: tokens for tier, tokens in grown.items() if tokens >= 0}
    for name, bars in reading.buckets.items():
        earlier = {} if base is None else base.buckets.get(name, {})
        if base is None or earlier.keys() == bars.keys():
            setattr(counted, name, _bars({most: count - earlier.get(most, 0) for most, count in bars.items()}))
    return counted


def _bars(counts: dict[float, int]) -> list[Bucket]:
    """Requests between one bar and the next, from those counted up to each; none where they do not grow."""
    found, before = [], 0
    for most, count in sorted(counts.items()):
        found.append(Bucket(None if isinf(most) else most, count - before))
        before = count
    return found if all(bar.requests >= 0 for bar in found) else []
