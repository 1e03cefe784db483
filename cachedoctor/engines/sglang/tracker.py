"""Turns events of an SGLang log into sessions, periods, batches and answers."""

from __future__ import annotations

from collections.abc import Callable

from cachedoctor.engines.catalogue.base import Event, Message
from cachedoctor.engines.catalogue.logger import ACCESSES, LoggerCatalogue
from cachedoctor.engines.catalogue.scanner import ScanPlan
from cachedoctor.engines.engine_record import Reader
from cachedoctor.engines.sglang import facts, streams
from cachedoctor.engines.sglang.facts import Writer, writer_of
from cachedoctor.engines.sglang.messages import PREFIX, ROWS
from cachedoctor.engines.sglang.request_log import RequestLog
from cachedoctor.engines.sglang.streams import Chunks, RankStream
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheSample, Mark, PrefillBatch, Session, Setting

_ANYONES = frozenset({"access", "sigterm", "prompt_truncated", "weights_update", "flushed", "flush_timeout"})
"""Lines that other programs may write as well: they begin no session."""
_STARTS = frozenset({"server_args", "capacity", "tree_cache", "no_buffer_page_one"})
"""Start-up lines, as are those that begin with one of ``_START_HEADS``. A running server prints none of them."""
_START_HEADS = ("off_", "overlap_off_", "extra_buffer_", "radix_on_")
_RUNS = frozenset({"ready", "prefill", "fill", "decode"})
_MOST_STREAMS = 1024
"""Data-parallel ranks of a server."""
_MOST_SHAPES = 64
"""Sets of field names in batch lines; a server has two or three."""
_MOST_TEXT = 4096
"""Maximum bytes of a line kept as evidence; each period keeps several such lines."""


class Tracker:
    """Processes the events of one origin."""

    def __init__(
        self,
        path: str,
        origin: str | None,
        new_session: Callable[[str, str | None], Session],
        keep: Callable[[CacheSample | PrefillBatch], None],
    ) -> None:
        self._path = path
        self._origin = origin
        self._new_session = new_session
        self._keep = keep
        self.session: Session | None = None
        self._forget()

    def _forget(self) -> None:
        self._running = False
        self._started: Mark | None = None
        self._versions = facts.ANY
        self._mixed = False
        self._wordings: set[Message] = set()
        self._shapes: set[tuple[str, ...]] = set()
        self._streams: dict[str, RankStream] = {}
        self._requests: RequestLog | None = None
        self._port: int | None = None
        self._chunks: Chunks | None = None
        """How prompts are cut, as the lines so far say it."""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        batch = _BATCHES.get(event.message)
        if batch is not None and self._running and event.row in self._wordings and self.session is not None:
            batch(self, self.session, event)  # as nearly always: it says nothing else
            return
        session = self._session(event)
        if session is None:
            return
        session.seen.add(event.message)
        if event.message == "server_args" and self._port is None:
            self._port = facts.port(event)
        self._narrow(session, facts.learn(session, event))
        if event.row is not None and event.row not in self._wordings:
            self._wordings.add(event.row)
            self._narrow(session, facts.seen_in(event.row.first, event.row.last))
        self._running |= event.message in _RUNS
        self._chunks = None
        handler = _HANDLERS.get(event.message)
        if handler is not None:
            handler(self, session, event)

    def continue_in(self, path: str) -> None:
        """The log continues in another file."""
        self._path = path

    def _session(self, event: Event) -> Session | None:
        """Return the server run that the line belongs to; None for a line that other programs may write."""
        start = event.message in _STARTS or event.message.startswith(_START_HEADS)
        session = self.session
        again = start and (self._running or (event.message == "server_args" and self._port == facts.port(event)))
        if session is not None and not again:
            return session
        if session is None and event.message in _ANYONES:
            return None
        if session is not None and session.path == self._path:
            session.last_line = max(session.last_line, event.line - 1)
        self._forget()
        self.session = session = self._new_session(self._path, self._origin)
        session.engine = "sglang"
        session.first_line = session.last_line = event.line
        session.learn(starts_cold=start)
        self._started = _mark(event) if start else None
        return session

    def _narrow(self, session: Session, found: facts.VersionRange) -> None:
        """Narrow the versions to those that print a line; a build that mixes several has none."""
        if found == facts.ANY:
            return
        narrowed = self._versions.both(found)
        self._mixed |= narrowed.empty
        self._versions = facts.ANY if self._mixed else narrowed
        self._chunks = None
        session.version_min = facts.text(self._versions.low)
        session.version_max = facts.text(self._versions.high)

    def _stream(self, session: Session, writer: Writer) -> RankStream | None:
        stream = self._streams.get(writer.stream)
        if stream is None and len(self._streams) < _MOST_STREAMS:
            stream = self._streams[writer.stream] = RankStream(session.periods, self._started)
        return stream

    def _prefill(self, session: Session, event: Event) -> None:
        pairs, text = event.fields["more"], event.text
        writer = writer_of(text)
        batch = PrefillBatch(session.index, self._path, event.line, writer.rank, writer.time)
        streams.read(pairs, batch)
        names = tuple(pairs)
        if names not in self._shapes and len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(names)
            self._narrow(session, facts.from_batch(pairs))
        if batch.mamba_usage is not None and "hybrid_ssm" not in session.settings:
            facts.put(session, "hybrid_ssm", True, event)
        if batch.swa_usage is not None and "hybrid_swa" not in session.settings:
            facts.put(session, "hybrid_swa", True, event)
        stream = self._stream(session, writer)
        if stream is None or not stream.speaks(writer.rank):
            return
        half = (batch.new_tokens is None) is not (
            batch.cached_tokens is None
        )  # terminals write over the middle of lines
        if streams.torn(pairs) or batch.new_seqs is None or half:
            stream.lost()
        else:
            if self._chunks is None:
                self._chunks = _chunks(session)
            stream.take(batch, Mark(event.line, text[:_MOST_TEXT]), self._chunks)
            self._keep(batch)

    def _filled(self, session: Session, event: Event) -> None:
        """Take a batch in the words of early 2024."""
        said = event.fields
        event.fields = {
            "more": {
                "#new-seq": str(said["seqs"]),
                "#new-token": str(said["new"]),
                "#cached-token": str(said["cached"]),
                "#running-req": str(said["running"]),
                "#queue-req": str(said["waiting"]),
            }
        }
        self._prefill(session, event)

    def _decode(self, session: Session, event: Event) -> None:
        pairs, text = event.fields["more"], event.text
        writer = writer_of(text)
        stream = self._stream(session, writer)
        if stream is not None and stream.speaks(writer.rank) and not streams.torn(pairs):
            mark = Mark(event.line, text[:_MOST_TEXT])
            stream.used(writer.rank, streams.usage(pairs), mark, event.lines[-1] if event.lines else event.line)

    def _retracted(self, session: Session, event: Event) -> None:
        writer = writer_of(event.text)
        stream = self._stream(session, writer)
        if stream is not None and stream.speaks(writer.rank):
            stream.retracted(writer.rank, event.fields["requests"], _mark(event))

    def _flushed(self, session: Session, event: Event) -> None:
        writer = writer_of(event.text)
        stream = self._stream(session, writer)
        if stream is not None:
            stream.reset(writer.rank, _mark(event))

    def _accessed(self, session: Session, event: Event) -> None:
        facts.count(session, event)

    def _received(self, session: Session, event: Event) -> None:
        log = self._log()
        log.received(event)
        self._tell_header(session, event, log)

    def _finished(self, session: Session, event: Event) -> None:
        log = self._log()
        log.finished(event)
        self._tell_header(session, event, log)
        if log.answers.requests and not any(answers is log.answers for answers in session.answers):
            session.answers.append(log.answers)

    def _tell_header(self, session: Session, event: Event, log: RequestLog) -> None:
        if log.header and "billing_header" not in session.settings:
            session.settings["billing_header"] = Setting(True, event.line)  # without the line, which holds the prompt

    def _log(self) -> RequestLog:
        if self._requests is None:
            self._requests = RequestLog(self._path)
        return self._requests


def _mark(event: Event) -> Mark:
    return Mark(event.line, event.text[:_MOST_TEXT])


def _chunks(session: Session) -> Chunks:
    """How prompts are split, as far as the settings show it."""
    size, page = session.setting("chunked_prefill"), session.setting("page_size")
    return Chunks(
        size if isinstance(size, int) else None,
        session.setting("dynamic_chunks") is not True,
        session.setting("mixed_chunks") is True,
        page if isinstance(page, int) and page > 0 else 1,
        session.since("0.5.20") is not False,
    )


_HANDLERS: dict[str, Callable[[Tracker, Session, Event], None]] = {
    "prefill": Tracker._prefill,
    "fill": Tracker._filled,
    "decode": Tracker._decode,
    "retracted": Tracker._retracted,
    "flushed": Tracker._flushed,
    "access": Tracker._accessed,
    "received": Tracker._received,
    "finished": Tracker._finished,
}


_BATCHES = {name: _HANDLERS[name] for name in ("prefill", "decode")}


_TIME = rb"\[(?:[0-9]{4}-[0-9]{2}-[0-9]{2} )?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_COUNTS = rb" #running-req: [0-9]{1,10}, #(?:full )?token: [0-9]{1,10}"
_SPEED = (
    rb", cuda graph: \w{4,5}, gen throughput \(token/s\): [0-9]{1,9}\.[0-9]{1,9}, #queue-req: [0-9]{1,10}(?:, )?(?=\n)"
)
_DECODES = late(
    _TIME + rb"((?: [A-Z_]{2,8}[0-9]{1,4})*+\] Decode batch[.,])"
    + _COUNTS + rb"((?:, [a-z ]{9,20}: [0-9.]{1,10})*+)" + _SPEED
    + rb"(?:\n" + _TIME + rb"\1" + _COUNTS + rb"\2" + _SPEED + rb")++"
)  # fmt: skip
"""Lines of one rank while it computes no prompt and the usage of its pools does not change."""

READER = Reader(
    LoggerCatalogue(ROWS, PREFIX),
    ScanPlan(frozenset(row.id for row in ROWS), runs={"access": ACCESSES, "decode": _DECODES}),
    Tracker,
)
