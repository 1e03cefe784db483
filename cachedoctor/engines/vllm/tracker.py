"""Turns events of a vLLM log into sessions, samples and periods."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from cachedoctor.diagnosis.account.asking import count_caller
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.catalogue.logger import ACCESSES, LoggerCatalogue, hosts
from cachedoctor.engines.catalogue.scanner import ScanPlan
from cachedoctor.engines.engine_record import Reader, Row
from cachedoctor.engines.vllm import facts, log_stats
from cachedoctor.engines.vllm.log_stats import Intervals
from cachedoctor.engines.vllm.logged_requests import LoggedPrompts, Lookups
from cachedoctor.engines.vllm.messages import PREFIX, ROWS
from cachedoctor.engines.vllm.periods import Periods
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheSample, Mark, Session, Setting

_STARTS = frozenset({"version", "args", "args_given", "engine_start", "api_servers"})
"""Start-up messages; after traffic they mean that the server was restarted."""
_SILENT = frozenset({"access", "request_added", "lookup_pending", "storing", "stored", "retrieved", "retrieve_short"})
"""Messages that other programs write, too: they begin no session."""
_READY = frozenset({"ready", "engine_ready"})
_STATS = frozenset({"stats", "stats_v0"})
_ASKS = late(r"/(?:v1/(?:chat/completions|completions|messages|responses)|generate|inference/v1/generate)(?:\?|$)")
"""Endpoints that make the server compute a prompt."""
_SURE_S = 1.0
"""Seconds by which the first interval is uncertain: times have whole seconds."""


class Tracker:
    """Processes the events of one origin."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[Row], None],
    ) -> None:
        self._path = path
        self._origin = origin
        self._new_session = new_session
        self._keep = keep
        self.session: Session | None = None
        self._runs = False
        self._asked: int | None = None
        """Requests for text that were answered since the last statistics line."""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        session = self.session
        if session is None or (self._runs and event.message in _STARTS):
            if event.message in _SILENT:
                return
            session = self._begin(event)
        message = event.message
        session.seen.add(message)
        if message == "access":
            self._access(event)
            return
        if message in _STATS:
            self._sample(session, event)
            return
        if message == "hit_rate_v0":
            self._rate(session, event)
        elif event.message == "reset":
            self._periods.reset(_mark(event))
        elif event.message in ("request", "request_details"):
            self._prompts.take(session, event)
        elif event.message == "lookup":
            self._lookups.take(session, event)
        elif event.message == "retrieve_short":
            self._lookups.failed()
        elif event.message in _READY:
            self._intervals.ready(log_stats.read(event.text).time)
        facts.note(session, event)

    def continue_in(self, path: str) -> None:
        """The log continues in another file."""
        self._path = path

    def _begin(self, event: Event) -> Session:
        if self.session is not None and self.session.path == self._path:
            self.session.last_line = max(self.session.last_line, event.line - 1)
        session = self.session = self._new_session(self._path, self._origin)
        session.engine = "vllm"
        session.first_line = event.line
        self._runs, self._asked = False, None
        self._periods = Periods(session, "start" if event.message in _STARTS else "log")
        self._intervals = Intervals()
        self._prompts = LoggedPrompts(self._path)
        self._lookups = Lookups(self._path)
        return session

    def _access(self, event: Event) -> None:
        fields, session = event.fields, self.session
        path = fields["path"]
        if fields["method"] == "POST" and _asks(path):
            self._runs = True
            if fields["status"] == 200 and session is not None:
                self._asked = (self._asked or 0) + (len(event.lines) or 1)
                for host, times in hosts(event).items():
                    count_caller(session, path, host, times)
                if path.startswith("/v1/messages") and "messages_endpoint" not in session.settings:
                    session.settings["messages_endpoint"] = Setting(True, event.line, event.text)

    def _sample(self, session: Session, event: Event) -> None:
        text = event.text
        before = log_stats.read(text)
        facts.narrow(session, before.source, before.file)
        sample = log_stats.sample(session.index, self._path, event.line, event.fields)
        if log_stats.torn(text, event.fields):
            session.seen.add("stats_torn")
        writer = (before.process, sample.engine)
        first = self._intervals.fresh(writer)
        busy, early = bool(sample.prompt_rate or sample.generation_rate), _early(session, event)
        sample.time = before.iso
        sample.interval_s = self._intervals.of(writer, before.time, busy, early)
        sample.answered = self._asked
        _convert(session, sample)
        self._asked = None if self._asked is None else 0
        self._runs = self._runs or bool(sample.prompt_rate)
        if not first:
            self._periods.learned(sample.engine, self._intervals.learned(early))
        late = first and not session.seen.isdisjoint(_READY)
        self._periods.add(sample, Mark(event.line, text[: facts.LONGEST]), _SURE_S if late else 0.0)
        self._keep(sample)

    def _rate(self, session: Session, event: Event) -> None:
        """Take the second line of the V0 engine's statistics: a rate over all requests since the start.

        A server without a GPU has its blocks in the memory that others swap to: the other rate is its own.
        """
        sample = CacheSample(session.index, self._path, event.line, time=log_stats.read(event.text).iso)
        sample.hit_rate = log_stats.share(event.fields["gpu_rate"] or event.fields["cpu_rate"])
        self._periods.add(sample, _mark(event))
        self._keep(sample)


@lru_cache(maxsize=16)  # a server has few paths
def _asks(path: str) -> bool:
    """Whether a request to this path makes the server compute a prompt."""
    return _ASKS.search(path) is not None


def _convert(session: Session, sample: CacheSample) -> None:
    """Convert the rate to tokens, if the version is known to count all of them, or only the computed ones."""
    if sample.prompt_rate is None or sample.interval_s is None:
        return
    tokens = round(sample.prompt_rate * sample.interval_s)
    if session.since("0.16") is True:
        sample.computed_tokens = tokens
    elif session.since("0.15") is False:
        sample.prompt_tokens = tokens


def _early(session: Session, event: Event) -> bool:
    """Whether statistics come every 5 seconds: in 0.7, and from the V0 engine of newer versions."""
    return event.message == "stats_v0" or session.since("0.8") is False


def _mark(event: Event) -> Mark:
    return Mark(event.line, event.text[: facts.LONGEST])


READER = Reader(
    LoggerCatalogue(ROWS, PREFIX), ScanPlan(frozenset(row.id for row in ROWS), runs={"access": ACCESSES}), Tracker
)
