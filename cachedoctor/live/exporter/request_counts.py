"""Sums over the requests of one log, by labels that are masked, truncated and bounded in number."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from cachedoctor.diagnosis.rules import names
from cachedoctor.doctor.analysis.listener import Listener
from cachedoctor.doctor.analysis.spool import OPEN
from cachedoctor.model import CacheSample, Finding, Judged, PrefillBatch, Session
from cachedoctor.redaction import sanitize
from cachedoctor.report.text.text_safe import visible

OTHER = "other"
"""Replaces all further values of a label that has reached its limit."""
MOST = 100
"""Default limit of values of one label: each one is a time series that the database must store."""
_LENGTH = 120
"""Code points of a value."""


class LabelValues:
    """The values that each label has so far."""

    def __init__(self, most: int = MOST, known: Mapping[str, Sequence[str]] | None = None) -> None:
        """``known``: values from an earlier run, by label."""
        self._most = most
        self._known = {label: dict.fromkeys(values[:most]) for label, values in (known or {}).items()}

    def bounded(self, label: str, word: str | None) -> str:
        """Return a word of a log as a value of ``label``; an unknown one is empty, which Prometheus treats as a missing
        label."""
        if not word:
            return ""
        shown = _shown(word)
        known = self._known.setdefault(label, {})
        if shown not in known:
            if len(known) >= self._most:
                return OTHER
            known[shown] = None
        return shown

    def forget(self, label: str, value: str) -> None:
        """Free the place of one value for another."""
        self._known.get(label, {}).pop(value, None)

    def known(self) -> dict[str, list[str]]:
        """Return the values by label, for the next run."""
        return {label: list(values) for label, values in self._known.items()}


@lru_cache(maxsize=4096)
def _shown(word: str) -> str:
    # What it may not show is hidden while it is whole.
    return visible(sanitize.value(word, _LENGTH))


SETTLED = 2.0
"""Seconds after which a request is counted: the line that names the client follows within milliseconds."""

Metric = Literal["tokens", "ns", "requests", "lines", "unread"]


class LabelledCount(NamedTuple):
    """A counter and the values of its labels; empty if one does not apply or the log does not show it."""

    metric: Metric
    server: str
    model: str = ""
    client_address: str = ""
    outcome: str = ""
    cause: str = ""


Counts = Counter[LabelledCount]


class RequestCounts(Listener):
    """Counts every request of a log."""

    patient = False

    def __init__(self, name: str, values: LabelValues, clock: Callable[[], float] = time.monotonic) -> None:
        """``name``: value of the label ``server`` for this log."""
        super().__init__()
        self._name = name
        self._values = values
        self._clock = clock
        self._causes = dict(names.names())
        self._final: Counts = Counter()
        self._recent: dict[int, tuple[float, Judged]] = {}
        """When it was first seen, and the request, by its number."""
        self.hit_rates: dict[tuple[str, str], float] = {}
        """The last one that vLLM logged, by server and engine."""

    def server(self, origin: str | None) -> str:
        """Return the label of a server that writes to the log."""
        return self._values.bounded("server", self._name if origin is None else f"{self._name} {origin}")

    def measured(self, row: CacheSample | PrefillBatch, session: Session) -> None:
        """Count tokens of a batch of SGLang or an interval of vLLM; keep the hit rate of vLLM."""
        server, model = self.server(session.origin), self._values.bounded("model", session.model)
        if isinstance(row, CacheSample) and row.hit_rate is not None:
            self.hit_rates[server, self._values.bounded("engine", row.engine)] = row.hit_rate
        for outcome, amount in _measured_tokens(row):
            if amount:
                self._final[LabelledCount("tokens", server, model, outcome=outcome)] += amount

    def examined(self, judged: list[tuple[Judged, Session]], findings: list[Finding]) -> None:
        """Take finished requests; one that is judged again replaces its earlier verdict."""
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
        """Whether some requests are too recent to be counted."""
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
        server, model, address = (
            self.server(r.facts.origin),
            bounded("model", r.facts.model),
            bounded("client_address", r.seen.asked.client),
        )
        counts[LabelledCount("requests", server, model, address)] += 1
        for metric, outcome, amount in _amounts(judged):
            if amount:
                costliest = judged.verdict.costliest if outcome == "avoidable" else None
                cause = "" if costliest is None else self._causes.get(costliest, costliest)
                counts[LabelledCount(metric, server, model, address, outcome, cause)] += amount


def _measured_tokens(row: CacheSample | PrefillBatch) -> Iterator[tuple[str, int | None]]:
    """Yield reused and computed tokens; ``unknown`` where a version of vLLM logs their sum only."""
    if isinstance(row, PrefillBatch):
        yield "reused", row.cached_tokens
        yield "computed", row.new_tokens
        return
    yield "unknown", row.prompt_tokens
    yield "computed", row.computed_tokens
    if row.looked_up_tokens is not None and row.computed_tokens is not None:
        yield "reused", max(0, row.looked_up_tokens - row.computed_tokens)


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
