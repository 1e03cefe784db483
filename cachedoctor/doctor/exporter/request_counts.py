"""Sums over the requests of one log, by the labels of the counters.

Whole numbers, times in nanoseconds. The last requests wait: what is said of them may change, and who asked may stand
in a line behind their end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.spool import OPEN
from cachedoctor.doctor.exporter.label_values import LabelValues
from cachedoctor.model import Finding, Judged, Session
from cachedoctor.rules import names

SETTLED = 2.0
"""Seconds after which a request is counted: the line that says who asked comes within milliseconds."""

Metric = Literal["tokens", "ns", "requests", "lines", "unread"]


class Series(NamedTuple):
    """What is counted, and the values of its labels; empty where one does not apply or the log does not say."""

    metric: Metric
    server: str
    model: str = ""
    client: str = ""
    outcome: str = ""
    cause: str = ""


Counts = Counter[Series]


class RequestCounts(Listener):
    """Hears of every request of a log."""

    patient = False

    def __init__(self, name: str, values: LabelValues, clock: Callable[[], float] = time.monotonic) -> None:
        """``name``: of the log, as the label ``server`` has it."""
        super().__init__()
        self._name = name
        self._values = values
        self._clock = clock
        self._causes = dict(names.names())
        self._final: Counts = Counter()
        self._recent: dict[int, tuple[float, Judged]] = {}
        """When it was heard of, and the request, by its number."""

    def server(self, origin: str | None) -> str:
        """Return the label of a server that writes to the log."""
        return self._values.bounded("server", self._name if origin is None else f"{self._name} {origin}")

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Take requests that ended, and in their place those that are judged anew."""
        now = self._clock()
        for one, _ in judged:
            number = one.request.index
            if one.request.parent is not None or (one.request.revision and number not in self._recent):
                continue
            self._recent[number] = (self._recent[number][0] if number in self._recent else now), one
            if len(self._recent) > OPEN:
                self._count(self._final, self._recent.pop(next(iter(self._recent)))[1])

    def everything(self) -> Counts:
        """Return the sums over all requests."""
        return self._sum(float("inf"))

    def settled(self) -> Counts:
        """Return the sums over those that have been known for a while."""
        return self._sum(self._clock() - SETTLED)

    @property
    def waits(self) -> bool:
        """Whether some are known, but not for long enough."""
        since = self._clock() - SETTLED
        return any(moment > since for moment, _ in self._recent.values())

    def _sum(self, until: float) -> Counts:
        counts = Counter(self._final)
        for moment, judged in self._recent.values():
            if moment <= until:
                self._count(counts, judged)
        return counts

    def _count(self, counts: Counts, judged: Judged) -> None:
        r, bounded = judged.request, self._values.bounded
        server, model, client = (
            self.server(r.facts.origin),
            bounded("model", r.facts.model),
            bounded("client", r.client),
        )
        counts[Series("requests", server, model, client)] += 1
        for metric, outcome, amount in _amounts(judged):
            if amount:
                costliest = judged.verdict.costliest if outcome == "avoidable" else None
                cause = "" if costliest is None else self._causes.get(costliest, costliest)
                counts[Series(metric, server, model, client, outcome, cause)] += amount


def _amounts(judged: Judged) -> Iterator[tuple[Metric, str, int]]:
    """Yield tokens and nanoseconds by outcome; the sums are those of the report's totals."""
    r, verdict = judged.request, judged.verdict
    yield "tokens", "avoidable", verdict.avoidable_tokens
    yield "ns", "avoidable", verdict.avoidable_ns
    prompt, cached, processed = r.prompt_tokens, r.cached_tokens, r.processed_tokens
    if prompt is None or cached is None:
        return
    yield "tokens", "reused", cached
    if processed is None:
        yield "tokens", "unknown", max(0, prompt - cached - verdict.avoidable_tokens)
    else:
        yield "tokens", "new", max(0, processed - verdict.avoidable_tokens)
    yield "ns", "new", max(0, round((r.prompt_ms or 0.0) * 1e6) - verdict.avoidable_ns)
