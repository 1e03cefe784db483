"""The page that Prometheus reads, made with its own client library. Knows names of metrics; knows no log.

Imported when an exporter starts: the library is an extra.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import cachedoctor
from cachedoctor.live.exporter.many_logs import Numbers
from cachedoctor.live.exporter.request_counts import Counts, Series

_NS = 1e9
_WHO = ("server", "model", "client")


class _CounterForm(NamedTuple):
    name: str
    """Of the metric; the library writes ``_total`` behind it."""
    help: str
    labels: tuple[str, ...]
    scale: float = 1


_COUNTERS = {
    "tokens": _CounterForm(
        "cachedoctor_prompt_tokens",
        "Prompt tokens: reused, new (had to be computed), avoidable (computed, and a fix would have saved them), or "
        "unknown (not reused, and the log does not say how many were computed).",
        ("outcome", "cause", *_WHO),
    ),
    "ns": _CounterForm(
        "cachedoctor_prompt_seconds",
        "Seconds in which prompts were computed: avoidable, or new.",
        ("outcome", "cause", *_WHO),
        _NS,
    ),
    "requests": _CounterForm("cachedoctor_requests", "Requests that ended.", _WHO),
    "lines": _CounterForm("cachedoctor_lines", "Lines of the log.", ("server",)),
    "unread": _CounterForm("cachedoctor_lines_unread", "Lines that are no known message of a server.", ("server",)),
}


class Page(Collector):
    """Gives what is shown at the moment when it is asked."""

    def __init__(self, shown: Callable[[], Numbers | None]) -> None:
        """``shown``: is called from another thread, and gives what nobody changes any more."""
        self._shown = shown
        self._given: set[Series] | None = None
        """Counters that a reader has had."""

    def describe(self) -> list[Metric]:
        """Say nothing before it is asked."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; as long as logs are read for the first time, only the version."""
        build = GaugeMetricFamily("cachedoctor_build_info", "Version of cachedoctor.", labels=["version"])
        build.add_metric([cachedoctor.__version__], 1)
        yield build
        numbers = self._shown()
        if numbers is None:
            return
        yield from _counters(self._from_zero(numbers.counts))
        findings = GaugeMetricFamily(
            "cachedoctor_findings", "Findings that stand now.", labels=["cause", "severity", "server"]
        )
        for labels, count in sorted(numbers.findings.items()):
            findings.add_metric(labels, count)
        yield findings
        readable = GaugeMetricFamily("cachedoctor_log_readable", "Whether a log is there and read.", labels=["server"])
        for server, is_readable in sorted(numbers.readable.items()):
            readable.add_metric([server], is_readable)
        yield readable

    def _from_zero(self, counts: Counts) -> Counts:
        """Return the counters, one that is new as 0 at first: Prometheus takes no first value for an increase.

        Those that are there at first keep theirs, which is of the past.
        """
        given, self._given = self._given, set(counts)
        if given is None:
            return counts
        return Counter({series: amount if series in given else 0 for series, amount in counts.items()})


def _counters(counts: Counts) -> Iterator[Metric]:
    families = {
        metric: CounterMetricFamily(counter.name, counter.help, labels=counter.labels)
        for metric, counter in _COUNTERS.items()
    }
    for series, amount in sorted(counts.items()):
        counter = _COUNTERS[series.metric]
        values = [getattr(series, label) for label in counter.labels]
        families[series.metric].add_metric(values, amount / counter.scale if counter.scale != 1 else amount)
    yield from families.values()
