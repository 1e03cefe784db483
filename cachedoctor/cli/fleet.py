"""``cachedoctor fleet``: many logs, side by side, into a folder. Knows arguments and exit statuses; knows no table."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.common_options import Build, MaxUnpacked, Quiet
from cachedoctor.cli.ending import FAULT, INTERRUPTED, NOTHING
from cachedoctor.cli.keys import Interrupts
from cachedoctor.cli.read_progress import Progress
from cachedoctor.knowledge.engines import SERVERS

if TYPE_CHECKING:
    from cachedoctor.doctor.fleet.fleet import Fleet, FleetRun
    from cachedoctor.doctor.fleet.result_folder import ResultFolder
    from cachedoctor.model.stats import FleetPage

_NAMED = 3
"""Logs that are named where something is wrong with them; the table ``files`` has all."""
_EVERY = 30.0
"""Seconds between two pages."""
_SHARE = 50
"""Times as long as the last page took: all pages take a fiftieth of the run at most."""


def fleet(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Logs, folders with all below them, patterns in quotes, s3:// and gs:// addresses; plain or packed.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Folder for the result; a run goes on with its own.")
    ],
    engine: Annotated[
        Literal["local", "ray", "dask"], typer.Option(help="What runs the processes: this machine, or a cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of the cluster of Ray or Dask.  [default: one is started here]"),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, metavar="N", help="Processes that are started; 0: one per core.")
    ] = 0,
    reports: Annotated[
        bool, typer.Option("--reports/--no-reports", help="A page for each log, which takes most of the room.")
    ] = True,
    build: Build = None,
    max_unpacked: MaxUnpacked = None,
    quiet: Quiet = False,
) -> None:
    """Analyze many logs, each on its own, into tables of all and a page that links to each report.

    Every log is one of a server, with its rotations. A log that was read before and has not changed is not read again.
    Needs polars: pip install 'cachedoctor[tables]'. Exit status: 0 all were read; 2 wrong usage, or a file that could
    not be read (its row says why; all others are done); 3 none was recognised; 130 interrupted (run it again to go on).
    """
    from cachedoctor.doctor.fleet.fleet import Fleet
    from cachedoctor.doctor.fleet.result_folder import ResultFolder
    from cachedoctor.inputs.sources.unpack import MAX_BYTES
    from cachedoctor.model import CacheDoctorError
    from cachedoctor.report.tables.table_writer import require_polars

    require_polars("fleet")
    if address is not None and engine == "local":
        raise CacheDoctorError("--address: is that of a cluster", "give --engine ray or --engine dask with it")
    with ResultFolder(output).opened() as folder:
        found = Fleet(paths, folder, build, max_unpacked or MAX_BYTES, reports=reports)
        index = _Index(found, folder)
        try:
            interrupted = _read(found, engine, jobs or os.cpu_count() or 1, address, quiet, index.refresh)
        finally:  # a cluster that goes away takes nothing of what is done
            page = index.write()
    if not quiet:
        _tell(found.run, page, output)
    raise typer.Exit(INTERRUPTED if interrupted else _status(found.run, page, output))


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
    engine: Literal["local", "ray", "dask"],
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
    progress = Progress([], quiet, sum(task.log.size for task in due))
    try:
        with chosen_engine.engine(engine, min(jobs, len(due)), address) as running, Interrupts():
            fleet.read(due, running, progress.read, paused)
    except KeyboardInterrupt:
        return True
    finally:
        progress.close()
    return False


def _tell(run: FleetRun, page: FleetPage, output: str) -> None:
    from cachedoctor.report.text.text_safe import visible
    from cachedoctor.report.words.numbers import count, percent

    words = [f"{run.counts[status]:,} {said}" for status, said in _SAID if run.counts[status]]
    if run.done_before:
        words.append(f"{run.done_before:,} known from an earlier run")
    if run.again:
        words.append(f"{run.again:,} given out again, as their process was killed")
    lines = [f"{count(run.counts.total() + run.done_before, 'log')}: {', '.join(words) or 'none'}."]
    if run.waiting:
        lines.append(f"{count(run.waiting, 'log')} not read yet; start the same command again: it goes on.")
    sums = page.sums
    if sums.requests:
        share = percent(sums.cached_tokens or 0, sums.prompt_tokens) if sums.prompt_tokens else None
        reused = "" if share is None else f", {share} reused"
        avoidable = "" if sums.avoidable_tokens is None else f", {count(sums.avoidable_tokens, 'token')} avoidable"
        lines.append(f"{count(sums.requests, 'request')}{reused}{avoidable}.")
    if page.logs and page.logs[0].worst is not None:
        lines.append(f"Worst: {page.logs[0].log}: {page.logs[0].worst}.")
    lines.append(f"{os.path.join(output, 'index.html')} shows them; cachedoctor stats {output} sums them up.")
    typer.echo("\n".join(map(visible, lines)))


_SAID = (("read", "read"), ("cut", "not to the end"), ("failed", "not read"), ("no log", "no log of a server"))


def _status(run: FleetRun, page: FleetPage, output: str) -> int:
    for one in run.amiss[:_NAMED]:
        named = "" if one.reason.startswith(one.log) else f"{one.log}: "
        terminal.complain(f"{named}{one.reason}", "the others are done; a further run tries it again")
    if len(run.amiss) > _NAMED:
        where = os.path.join(output, "files")
        terminal.complain(f"and {len(run.amiss) - _NAMED:,} more", f"the table {where} has a row for each")
    if run.amiss or run.bugs:
        return FAULT
    if not page.all_logs:
        terminal.complain(f"nothing in the input was recognised as a log of {SERVERS}", "see the table of files")
        return NOTHING
    return 0
