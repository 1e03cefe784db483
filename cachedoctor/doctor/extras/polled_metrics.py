"""Counters that are asked for instead of read from files: /metrics of a running server, ranges of Prometheus."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from cachedoctor.inputs import http_requests
from cachedoctor.inputs.metrics import dumps
from cachedoctor.inputs.metrics import dumps as prometheus_range
from cachedoctor.inputs.metrics.dump import Dump
from cachedoctor.knowledge.engines import EITHER
from cachedoctor.model import CacheDoctorError

EVERY_SECONDS, RANGE_SECONDS = 10.0, 3600.0
_METRICS = "/metrics"


class Asked(NamedTuple):
    """What is to be asked."""

    metrics: Sequence[str] = ()
    """Addresses of servers."""
    every: float = EVERY_SECONDS
    """Seconds between two times."""
    length: float | None = None
    """Seconds from the first time to the last; None: once."""
    prometheus: str | None = None
    since: float = RANGE_SECONDS
    """Seconds of its past."""
    match: str | None = None
    """Labels of the series that are wanted."""


class Heard(NamedTuple):
    """What came of it."""

    dumps: list[Dump]
    faults: list[CacheDoctorError]
    """Each kind once for each address."""
    silent: bool
    """An address gave nothing."""


def ask(asked: Asked, wait: Callable[[float], None] = time.sleep) -> Heard:
    """Ask all addresses, and those of servers again and again; an interrupt ends that early."""
    found: list[Dump] = []
    faults: dict[tuple[str, str], CacheDoctorError] = {}
    if asked.prometheus is not None:
        _take(found, faults, asked.prometheus, lambda url: _range(url, asked))
    begun = time.monotonic()
    try:
        while asked.metrics:
            for url in asked.metrics:
                _take(found, faults, url, _page)
            left = (asked.length or 0.0) - (time.monotonic() - begun)
            if left <= 0:
                break
            wait(min(asked.every, left))
    except KeyboardInterrupt:
        pass
    answered = {dump.asked for dump in found}
    wanted = [*asked.metrics, *filter(None, [asked.prometheus])]
    return Heard(found, list(faults.values()), any(http_requests.shown(url) not in answered for url in wanted))


def _take(
    found: list[Dump], faults: dict[tuple[str, str], CacheDoctorError], url: str, read: Callable[[str], list[Dump]]
) -> None:
    try:
        for dump in read(url):
            dump.asked = http_requests.shown(url)
            found.append(dump)
    except CacheDoctorError as fault:
        faults.setdefault((url, fault.message), fault)


def _page(url: str) -> list[Dump]:
    address = url if _path(url) else url.rstrip("/") + _METRICS
    return dumps.servers([http_requests.get(address)], _named(url, time.time()))


def _path(url: str) -> str:
    return url.partition("://")[2].partition("/")[2]


def _range(url: str, asked: Asked) -> list[Dump]:
    body = http_requests.get(prometheus_range.address(url, time.time(), asked.since, asked.match))
    moments = prometheus_range.moments(body, http_requests.shown(url))
    found = [dump for moment, exposition in moments for dump in dumps.of(exposition, _named(url, moment))]
    if not found:
        raise CacheDoctorError(
            f"{http_requests.shown(url)}: has no counters of {EITHER} in this range", "see --since and --match"
        )
    return found


def _named(url: str, moment: float) -> str:
    return f"{http_requests.shown(url)} at {datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"
