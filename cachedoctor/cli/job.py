"""One analysis from its inputs to its report: steps, live output, exit status.

Imported when an analysis begins, since it brings all stages with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.cli import settings, terminal
from cachedoctor.cli.ending import INTERRUPTED, Interrupts, complain, conclude, has_content, named, status
from cachedoctor.cli.live import Live, Stepwise, StreamWriter
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink
from cachedoctor.doctor.analysis.run import drive, drive_followed, feed_all, processes_for, source_of
from cachedoctor.doctor.scratch import clear_folders
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.engines import SERVERS
from cachedoctor.report.base import FORMATS, Appearance, write

if TYPE_CHECKING:
    from cachedoctor.doctor.analysis.analyzer import Analyzer
    from cachedoctor.doctor.analysis.filtering import RequestFilter
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.doctor.fixing.fixes import StartInfo
    from cachedoctor.doctor.redact.redact import UnknownLines
    from cachedoctor.inputs.sources.base import SourceError
    from cachedoctor.inputs.sources.stdin import BegunSource
    from cachedoctor.model import CacheDoctorError, GivenOption, Report

_HEAD = 1 << 13
"""Bytes of the standard input in which a JSON report names its schema."""


class Job(msgspec.Struct, frozen=True):
    """One analysis."""

    paths: list[str]
    prompts: GivenPrompts | None
    extras: ExtraInputs | None
    follow: str | None
    settings: settings.CommandSettings
    build: int | None
    given: list[GivenOption]
    jobs: int
    max_unpacked: int | None
    quiet: bool
    wanted: RequestFilter | None
    """Requests that are shown, None for all."""
    start: StartInfo | None
    unknown: UnknownLines | None
    """Counts the unknown lines, if that was requested."""

    @property
    def lists_requests(self) -> bool:
        """Whether all requests must be kept."""
        return FORMATS[self.settings.format].lists_requests or self.wanted is not None


def run_job(job: Job, sink: Sink, look: Appearance, interrupts: Interrupts, refuse: Callable[[str], None]) -> int:
    """Analyse, write the report and return the exit status.

    Args:
        job: the analysis.
        sink: takes the report.
        look: how it is shown.
        interrupts: signals that wait for the end of a step.
        refuse: raises for options that do not go with what is named, a JSON report on standard input.
    """
    stream = StreamWriter(sink) if job.settings.format == "jsonl" else None
    # Lines that come one by one, and live ones, leave no place for it.
    silent = job.quiet or job.follow is not None or (stream is not None and sink.path is None)
    progress = ReadProgress([] if job.follow else job.paths, silent)
    begun = _begun(job, progress)
    is_report = interrupted = False
    try:
        is_report = begun is not None and _begins_report(begun)
    except KeyboardInterrupt:  # nothing has come yet
        interrupted = True
    if begun is not None and is_report:
        refuse("a JSON report on standard input")
        return render_report(job, "-", b"".join(begun.chunks()), sink, look)
    live = Live(sink, look, job.settings.format, progress.hide) if _is_live(job, sink) else None
    hearers = [hearer for hearer in (progress, live, stream) if hearer is not None]
    listener = None if stream is None else stream.listener
    analyzer = Stepwise(
        interrupts,
        hearers,
        listener,
        job.build,
        job.prompts,
        job.given,
        keeps_requests=job.lists_requests,
        options=job.settings.options,
        extras=job.extras,
        unknown=job.unknown,
        told=job.start,
    )
    errors: list[SourceError] = []
    try:
        if not interrupted:
            errors, interrupted = _feed(job, analyzer, begun, progress, interrupts)
    finally:
        progress.close()
    end = stream.close if stream is not None else lambda report: _write(report, job, sink, look, live)
    choose = partial(_chosen, wanted=job.wanted, start=job.start, unknown=job.unknown)
    report, interrupted = conclude(analyzer, interrupted, interrupts, end, choose)
    if not job.quiet and job.prompts is not None and job.prompts.matched < len(job.prompts):
        found = f"{job.prompts.matched} of {len(job.prompts)} prompts were matched to requests of the log"
        terminal.complain(found, "--tokenizer MODEL.gguf matches them by their exact length", "note")
    for note in job.prompts.notes if job.prompts is not None and not job.quiet else []:
        terminal.complain(note, kind="note")
    faults = [error for _, error in job.prompts.faults] if job.prompts else []
    complain([*map(_explained, errors), *faults], analyzer)
    clear_folders()
    return INTERRUPTED if interrupted else status(report, analyzer.crashed, job.settings.fail_on, analyzer.begin)


def _begins_report(begun: BegunSource) -> bool:
    head = begun.head(_HEAD, lambda: None)
    if head.lstrip()[:1] != b"{":
        return False
    from cachedoctor.doctor.compare.reports import begins_report

    return begins_report(head)


def _begun(job: Job, progress: ReadProgress) -> BegunSource | None:
    """What is piped in and may be a JSON report; of None and of what somebody types the beginning is not waited for."""
    if job.paths != ["-"] or job.follow is not None or terminal.typed():
        return None
    from cachedoctor.inputs.sources.stdin import BegunSource

    return BegunSource(source_of("-", job.max_unpacked or MAX_BYTES, progress.read))


def render_report(job: Job, path: str, data: bytes | None, sink: Sink, look: Appearance) -> int:
    """Write a JSON report in another format; ``data``: its bytes, where they were read already."""
    from cachedoctor.doctor.compare.reports import read
    from cachedoctor.report.wire import stored

    found = read(path) if data is None else stored.read(data, path)
    if job.start is not None or job.wanted is not None:
        from cachedoctor.doctor.analysis.filtering import shown_part

        found = shown_part(found, job.wanted, job.start)
    with sink.writing() as out:
        write(job.settings.format, found, out, look)
    return 0


def _chosen(
    report: Report, wanted: RequestFilter | None, start: StartInfo | None, unknown: UnknownLines | None
) -> Report:
    """The report as it is to be shown; one of nothing is left as it is, and says so."""
    if wanted is not None and not any(info.recognised for info in report.inputs):
        wanted = None
    if wanted is not None:
        from cachedoctor.doctor.analysis.filtering import shown_part

        report = shown_part(report, wanted, start)
    if unknown is not None:
        unknown.close()  # an interrupt may have come before its end
        report.unknown = unknown.shapes()
    return report


def _is_live(job: Job, sink: Sink) -> bool:
    if job.settings.format not in ("text", "concise") or sink.path is not None or job.wanted is not None:
        return False
    if job.follow is not None:
        return True
    from cachedoctor.inputs.sources.file import is_stream

    # `analyze < server.log` is a file like any other, and a paste is read to its end.
    return any(is_stream(0 if path == "-" else path) for path in job.paths if path != "-" or not terminal.typed())


def _feed(
    job: Job, analyzer: Analyzer, begun: BegunSource | None, progress: ReadProgress, interrupts: Interrupts
) -> tuple[list[SourceError], bool]:
    try:
        if begun is not None:
            error = drive(analyzer, begun)
            return [] if error is None else [error], False
        if job.follow is None:
            limit = job.max_unpacked or MAX_BYTES
            # Bodies are matched to requests in their order, and events are told in theirs.
            jobs = job.jobs or processes_for(job.paths)
            if jobs > 1 and job.prompts is None and job.unknown is None and job.settings.format != "jsonl":
                from cachedoctor.doctor.analysis.parallel import Terms, feed_parallel, suits

                if suits(job.paths):
                    terms = Terms(job.build, job.given, job.lists_requests, limit, job.settings.options)
                    return feed_parallel(analyzer, job.paths, jobs, terms, progress.read), False
            return feed_all(analyzer, job.paths, limit, progress.read), False
        return drive_followed(analyzer, job.follow, interrupts.deferred())
    except KeyboardInterrupt:
        return [], True


def _write(report: Report, job: Job, sink: Sink, look: Appearance, live: Live | None) -> None:
    if not FORMATS[job.settings.format].always and not has_content(report):
        return
    with sink.writing() as out:
        if live is not None:
            live.end(report, out)
        else:
            write(job.settings.format, report, out, look)


def _explained(error: CacheDoctorError) -> CacheDoctorError:
    """Say of a folder that it holds no log, and what would be taken for one; other errors stay."""
    from cachedoctor.inputs.sources.base import FolderError

    if not isinstance(error, FolderError):
        return error
    from cachedoctor.doctor.tables.tables import logs_in
    from cachedoctor.model import CacheDoctorError

    _, others = logs_in(error.path)
    found = f": {named(others)}" if others else ""
    return CacheDoctorError(
        f"{error.path}: contains no log of {SERVERS}{found}",
        "files with any name are read if their first lines look like a server log; this command skips subfolders, "
        "but cachedoctor fleet reads them",
    )
