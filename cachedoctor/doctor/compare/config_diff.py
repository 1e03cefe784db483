"""In what two reports differ beside their findings: the server, its settings, the traffic.

What was changed on purpose is not told from what changed by accident: both are named. Knows reports and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cachedoctor.doctor.compare.tally import Tally
from cachedoctor.knowledge import builds
from cachedoctor.model import Difference, Report, Session

_LENGTH = 1.25
"""From this factor on prompts are called longer or shorter, and conversations too."""
_SPEED = 1.2
_MOST = 12
"""Settings that are named."""
_UNKNOWN = "unknown"

_FACTS: dict[str, tuple[Callable[[Session], Any], str]] = {
    "build": (
        lambda s: builds.describe(s.build, s.build_min, s.build_max),
        "another build reuses, and logs, by other rules",
    ),
    "model": (lambda s: s.model, "another model: times and tokens are not of the same work"),
    "memory": (lambda s: s.memory, "another kind of memory can go back to other places"),
    "slots": (lambda s: s.n_slots, ""),
    "context of a slot": (lambda s: s.n_ctx_slot, ""),
}


def differences(before: Report, after: Report, old: Tally, new: Tally) -> list[Difference]:
    """Name what differs; the servers first, then the traffic."""
    return [*_servers(before, after), *_traffic(old, new)]


def _servers(before: Report, after: Report) -> Iterator[Difference]:
    sessions = [report.sessions for report in (before, after)]
    for name, (fact, caveat) in _FACTS.items():
        was, now = (_values([fact(s) for s in some]) for some in sessions)
        same = name == "build" and _same_builds(*sessions)
        if was != now and _UNKNOWN not in (was, now) and not same:
            yield Difference(name, was, now, caveat)
    names = dict.fromkeys(name for some in sessions for s in some for name in s.settings if name != "restarted")
    changed = []
    for name in names:
        was, now = (_values([_setting(s, name) for s in some]) for some in sessions)
        if was != now and _UNKNOWN not in (was, now):
            changed.append(Difference(name, was, now, ""))
    yield from changed[:_MOST]


def _setting(session: Session, name: str) -> object:
    found = session.settings.get(name)
    return None if found is None else found.value


def _same_builds(before: Sequence[Session], after: Sequence[Session]) -> bool:
    """Whether every server of either side may be of the same build as one of the other side."""
    old, new = ([_range(session) for session in some] for some in (before, after))
    return all(any(_overlap(a, b) for b in new) for a in old) and all(any(_overlap(a, b) for a in old) for b in new)


def _range(session: Session) -> tuple[float, float]:
    """Builds that the server may be of."""
    return session.build or session.build_min or 0, session.build or session.build_max or math.inf


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) <= min(one[1], other[1])


def _values(found: list[Any]) -> str:
    """Say all values that there are; what a log does not say is unknown, which is no difference."""
    known = dict.fromkeys(str(value) for value in found if value is not None)
    shown = list(known)[:3]
    return ", ".join(shown + [f"and {len(known) - 3} more"] * (len(known) > 3)) or _UNKNOWN


def _traffic(old: Tally, new: Tally) -> Iterator[Difference]:
    if _apart(old.median_length, new.median_length, _LENGTH):
        caveat = "the prompts are not alike: tokens and times per request can differ for this alone"
        yield Difference("median prompt", _tokens(old), _tokens(new), caveat)
    was, now = _turns(old), _turns(new)
    if _apart(was, now, _LENGTH):
        caveat = "a first request has less to reuse: look at the reuse of later ones"
        yield Difference("requests per conversation", f"{was:.1f}", f"{now:.1f}", caveat)
    was, now = _share(old), _share(new)
    if abs(was - now) > 1 - 1 / _LENGTH:
        caveat = "the requests that a log does not tell of may be others than those that it does"
        yield Difference("requests with unknown reuse", f"{was:.0%}", f"{now:.0%}", caveat)
    was, now = _speed(old), _speed(new)
    if _apart(was, now, _SPEED):
        caveat = "the machine computes at another speed: times can differ for this alone"
        yield Difference("computed prompt tokens per second", f"{was:,.0f}", f"{now:,.0f}", caveat)


def _apart(was: float | None, now: float | None, factor: float) -> bool:
    return bool(was and now) and max(was or 0, now or 0) > factor * min(was or 0, now or 0)


def _tokens(tally: Tally) -> str:
    return f"{tally.median_length or 0:,.0f} tokens"


def _turns(tally: Tally) -> float:
    return tally.all.requests / tally.conversations if tally.conversations else 0.0


def _share(tally: Tally) -> float:
    return tally.unknown / tally.requests if tally.requests else 0.0


def _speed(tally: Tally) -> float:
    return tally.all.ms_processed / tally.all.ms * 1000 if tally.all.ms else 0.0
