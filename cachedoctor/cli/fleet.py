"""``cachedoctor fleet``: sums over many logs, or each of them analysed into a folder."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Build, MaxUnpacked, Quiet, by_name, option, refuse_others
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING, UNWRITTEN, Interrupts, named
from cachedoctor.cli.read_progress import ReadProgress
from cachedoctor.cli.sink import Sink, spare_inputs
from cachedoctor.knowledge.engines import SERVERS
from cachedoctor.report.base import format_of

if TYPE_CHECKING:
    from cachedoctor.doctor.fleet.fleet import Fleet, FleetRun
    from cachedoctor.doctor.fleet.result_folder import ResultFolder
    from cachedoctor.doctor.tables.statistics import Gathering
    from cachedoctor.model import By
    from cachedoctor.model.stats import FleetPage

_NAMED = 3
"""Maximum number of faulty logs that are named; the table ``files`` lists all of them."""
_EVERY = 30.0
"""Seconds between two pages."""
_SHARE = 50
"""Pause as a multiple of the last page's time: all pages take at most a fiftieth of the run."""


class _By(StrEnum):
    """What sums are grouped by: typer reads a repeatable option from an enumeration only."""

    MODEL = "model"
    BUILD = "build"
    MEMORY = "memory"
    PATH = "path"
    ORIGIN = "origin"
    CLIENT = "client"
    ENDPOINT = "endpoint"
    HOUR = "hour"
    OUTCOME = "outcome"
    SLOT = "slot"
    TURN = "turn"


_BOTH = {"paths", "output", "build", "max_unpacked", "quiet"}
_OF_SUMS, _OF_FOLDER = _BOTH | {"by", "format"}, _BOTH | {"engine", "address", "jobs", "reports"}


def fleet(
    ctx: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Logs, folders (read recursively), quoted patterns, or s3:// addresses. For totals, fleet also "
            "reads JSON reports, tables of requests, folders written by fleet -o, and - for a log.",
        ),
    ],
    output: Annotated[
        str | None,
        option(
            "--output -o",
            "Folder for tables and an HTML page (a second run continues the first), or a .txt, .csv, .json or .md "
            "file for totals.",
            "DIR|FILE",
        ),
    ] = None,
    by: Annotated[
        list[_By] | None,
        option(
            "--by",
            "Group totals by model, build, memory, path, origin, client, endpoint, hour, outcome, slot or turn; "
            "repeatable.  [default: build and model, if there are several]",
            "NAME",
        ),
    ] = None,
    format: Annotated[
        Literal["text", "json", "csv", "markdown"], option("--format -f", "Format of the totals.")
    ] = "text",
    engine: Annotated[
        Literal["local", "ray"],
        option("--engine", "With -o DIR: run on this machine or on a cluster."),
    ] = "local",
    address: Annotated[
        str | None, option("--address", "Address of the Ray cluster.  [default: start one here]", "ADDRESS")
    ] = None,
    jobs: Annotated[int, option("--jobs -j", "With -o DIR: number of processes; 0: one per core.", "N", min=0)] = 0,
    reports: Annotated[
        bool, option("--reports/--no-reports", "With -o DIR: write a page for each log; pages take most of the space.")
    ] = True,
    build: Build = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
) -> None:
    """Sum requests over many logs, or with -o DIR write tables and an HTML page that links to each log.

    A log and its rotations count as the log of one server. The totals show reuse, recomputed and lost
    tokens, time and speed. With -o DIR, unchanged logs are not read again. The command needs the pip
    extra tables (polars).

    Exit status: 0 all logs were read; 2 wrong usage, or a file could not be read (all others were read); 3 no log was
    recognised, or none shows reuse; 130 interrupted (with -o DIR, run it again to continue).
    """
    from cachedoctor.inputs.sources.unpack import MAX_BYTES
    from cachedoctor.report.forms.stats_forms import FORMATS
    from cachedoctor.report.tables.table_writer import require_polars

    require_polars("fleet")
    limit = max_unpacked or MAX_BYTES
    if output is None or output == "-" or format_of(output, FORMATS) is not None:
        refuse_others(ctx, _OF_SUMS, "sums; use it with fleet -o DIR")
        chosen = by_name(ctx, format, output, FORMATS)
        raise typer.Exit(_sums(paths, output, chosen, [kind.value for kind in by or []], build, limit, quiet))
    refuse_others(ctx, _OF_FOLDER, "-o DIR; it applies to sums on the screen or in a file")
    if address is not None and engine == "local":
        from cachedoctor.model import CacheDoctorError

        raise CacheDoctorError("--address: works only with a cluster", "add --engine ray")
    raise typer.Exit(_folder(paths, output, engine, address, jobs, build, limit, quiet, reports=reports))


def _sums(
    paths: list[str],
    output: str | None,
    format: Literal["text", "json", "csv", "markdown"],
    by: list[By],
    build: int | None,
    max_unpacked: int,
    quiet: bool,
) -> int:
    """Write sums over all inputs; returns the exit status."""
    from cachedoctor.doctor.tables.statistics import Gathering
    from cachedoctor.report.forms import stats_forms

    spare_inputs(output, paths)
    inputs = [name for path in paths for name in _expanded(path)]
    progress = ReadProgress(inputs, quiet)
    gathering = Gathering(inputs, build, max_unpacked, progress.read)
    try:
        with Interrupts(), Sink(output) as sink:
            found = gathering.stats(by)
            progress.close()
            if gathering.recognised:
                with sink.writing() as out:
                    stats_forms.write(format, found, out, terminal.look(sink.path is not None))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        progress.close()
    if gathering.measured and not (quiet and gathering.recognised):
        has = "has" if len(gathering.measured) == 1 else "have"
        what = f"{named(gathering.measured)}: {has} neither requests nor statistics of reuse to sum"
        terminal.complain(
            what, "cachedoctor analyze shows the missing data", "note" if gathering.recognised else "error"
        )
    return _status_of_sums(gathering)


def _expanded(path: str) -> list[str]:
    """The files at a folder or pattern; the path itself where it is one input."""
    import glob

    from cachedoctor.doctor.stored_fleet import is_fleet

    is_folder = os.path.isdir(path) and not is_fleet(path)
    if not is_folder and (os.path.lexists(path) or "://" in path or not glob.has_magic(path)):
        return [path]
    from cachedoctor.doctor.fleet.fleet_inputs import logs_at

    return [file.path for log in logs_at([path], "")[0] for file in log.files] or [path]


def _status_of_sums(gathering: Gathering) -> int:
    for error in gathering.errors:
        terminal.complain(error.message, error.hint)
    if gathering.errors:
        return FAULT
    if not gathering.recognised and gathering.measured:
        return NOTHING
    if not gathering.recognised:
        terminal.complain(f"the inputs do not look like logs of {SERVERS}", UNWRITTEN)
        return NOTHING
    return 0


def _folder(
    paths: list[str],
    output: str,
    engine: Literal["local", "ray"],
    address: str | None,
    jobs: int,
    build: int | None,
    max_unpacked: int,
    quiet: bool,
    *,
    reports: bool,
) -> int:
    """Analyze each log into a folder of tables and pages; returns the exit status."""
    from cachedoctor.doctor.fleet.fleet import Fleet
    from cachedoctor.doctor.fleet.result_folder import ResultFolder
    from cachedoctor.doctor.processes import cores

    with ResultFolder(output).opened() as folder:
        found = Fleet(paths, folder, build, max_unpacked, reports=reports)
        index = _Index(found, folder)
        try:
            interrupted = _read(found, engine, jobs or cores(), address, quiet, index.refresh)
        finally:  # a cluster that goes away takes nothing of what is done
            page = index.write()
    if not quiet:
        _tell(found.run, page, output)
    return INTERRUPTED if interrupted else _status(found.run, page, output)


class _Index:
    """The page of the whole, written now and then: Ray ends a process whose cluster is gone, and memory may end."""

    def __init__(self, fleet: Fleet, folder: ResultFolder) -> None:
        self._fleet, self._folder = fleet, folder
        self._shown: int | None = None
        """Logs that were still to be read when it was written."""
        self._next = 0.0

    def refresh(self) -> None:
        """Write it when it is time to, and there is something new."""
        began = time.monotonic()
        if began >= self._next and self._fleet.run.waiting != self._shown:
            self.write()
            ended = time.monotonic()
            self._next = ended + max(_EVERY, _SHARE * (ended - began))

    def write(self) -> FleetPage:
        """Write it; gives what it shows."""
        from cachedoctor.report.html import fleet_page

        page, out = self._fleet.page(), io.BytesIO()
        fleet_page.write(page, out)
        self._folder.put_page(out.getvalue())
        self._shown = self._fleet.run.waiting
        return page


def _read(
    fleet: Fleet,
    engine: Literal["local", "ray"],
    jobs: int,
    address: str | None,
    quiet: bool,
    paused: Callable[[], None],
) -> bool:
    """Read what is due; gives whether that was interrupted."""
    from cachedoctor.doctor.fleet import chosen_engine

    fleet.note_unfound()
    due = fleet.due()
    if not due:
        return False
    progress = ReadProgress([], quiet, sum(task.log.size for task in due))
    try:
        with chosen_engine.engine(engine, min(jobs, len(due)), address) as running, Interrupts():
            fleet.read(due, running, progress.read, paused)
    except KeyboardInterrupt:
        return True
    finally:
        progress.close()
    return False


def _tell(run: FleetRun, page: FleetPage, output: str) -> None:
    from cachedoctor.report.text.text_safe import rows as broken
    from cachedoctor.report.text.text_safe import visible
    from cachedoctor.report.words.numbers import count, first_sentence, percent

    words = [f"{run.counts[status]:,} {said}" for status, said in _SAID if run.counts[status]]
    if run.done_before:
        words.append(f"{run.done_before:,} already done in an earlier run")
    if run.again:
        words.append(f"{run.again:,} restarted because their process was killed")
    lines = [f"{count(run.counts.total() + run.done_before, 'log')}: {', '.join(words) or 'none'}."]
    if run.waiting:
        lines.append(f"{count(run.waiting, 'log')} not read yet; run the same command again to continue.")
    sums = page.sums
    if sums.requests:
        share = percent(sums.cached_tokens or 0, sums.prompt_tokens) if sums.prompt_tokens else None
        reused = "" if share is None else f", {share} reused"
        avoidable = "" if sums.avoidable_tokens is None else f", {count(sums.avoidable_tokens, 'token')} avoidable"
        lines.append(f"{count(sums.requests, 'request')}{reused}{avoidable}.")
    if page.logs and page.logs[0].worst is not None:
        lines.append(f"Worst: {page.logs[0].log}: {page.logs[0].worst}.")
    first = next((cause for cause in page.causes if cause.fix), None)
    if first is not None:
        lines += [f"Do first: {first.code}, in {count(first.logs, 'log')}: {first.summary}."]
        lines += [f"  {row}" for row in broken(first_sentence(first.fix or ""), 78, 78)]
        lines += [f"  {row}" for command in first.commands for row in command.splitlines()]
    lines.append(f"{os.path.join(output, 'index.html')} shows the logs; cachedoctor fleet {output} prints the sums.")
    typer.echo("\n".join(map(visible, lines)))


_SAID = (("read", "read"), ("cut", "not read to the end"), ("failed", "not read"), ("no log", "not a server log"))


def _status(run: FleetRun, page: FleetPage, output: str) -> int:
    for one in run.amiss[:_NAMED]:
        named = "" if one.reason.startswith(one.log) else f"{one.log}: "
        terminal.complain(f"{named}{one.reason}", "the other logs are done; another run retries this one")
    if len(run.amiss) > _NAMED:
        where = os.path.join(output, "files")
        terminal.complain(f"and {len(run.amiss) - _NAMED:,} more", f"the table {where} has a row for each file")
    if run.amiss or run.bugs:
        return FAULT
    if not page.all_logs:
        terminal.complain(f"the input does not look like a log of {SERVERS}", "see the table of files")
        return NOTHING
    return 0
