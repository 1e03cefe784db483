"""Count what stands where in the text report: the first fix, what to do now, rows in all, rows that are too wide.

usage: benchmarks/run first-screen [DIR ...] [--list]

Takes the logs of fixtures/cases, fixtures/excerpts, fixtures/measured, fixtures/vllm and fixtures/days, and *.log below
every DIR, with the prompts and the command line that a case.toml beside them gives. Counted are reports with a finding,
but rows that are too wide in all of them. The same is counted of the reports for servers that compose or systemd starts
(``--launcher``), but the number of rows. Exits 1, and names the logs, when one of these does not hold:

fix      is in one of the first 4 rows at 80 columns
do now   is in one of the last 3 rows at 80 columns, with its command or sentence
rows     at most 22 in the median report at 80 columns, and at most 24 in 95 % of them
wide     no row is wider than 60, 80 and 120 columns, each in its report
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len

from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
from cachedoctor.inputs.sources.file import FileSource
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import CacheDoctorError, Launcher, Report
from cachedoctor.redaction import sanitize
from cachedoctor.report.report_view import ReportView
from cachedoctor.report.text.text_report import render

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
FOLDERS = ("cases", "excerpts", "measured", "vllm", "days")
WIDTHS = (60, 80, 120)
FIX, FROM_END, ROWS = 4, 3, 22
SCREEN, FITTING = 24, 0.95
"""Rows of a terminal, and the share of reports that it holds whole."""
LAUNCHERS: tuple[Launcher, ...] = ("compose", "systemd")
KINDS = ("fix ", "try ", "to be sure ")
"""How the row begins that says what to do: what fixes it, what may, what tells more."""


class Screen(NamedTuple):
    """What was counted of one report."""

    log: Path
    causes: int
    fix: int | None
    """Row of the first fix, from 1; None where nothing is to be done."""
    do_now: int | None
    """Row of what to do now, from the end, from 1; None where it is missing."""
    rows: int
    wide: dict[int, list[str]]
    """Rows that are wider than the page, by its width."""
    form: Launcher | None = None
    """What was said to start the server."""

    @property
    def name(self) -> str:
        """The log, and the launcher."""
        return f"{self.log}, {self.form}" if self.form else str(self.log)


def logs(folders: list[Path]) -> Iterator[Path]:
    """Every log below the folders."""
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*.log") if path.is_file())


def analysed(log: Path) -> sanitize.ShownReport:
    """The report of a log as it may be shown.

    Raises:
        CacheDoctorError: the log cannot be read.
    """
    return sanitize.report(found_in(log))


def launched(report: Report, launcher: Launcher) -> sanitize.ShownReport:
    """The report as ``--launcher`` makes it."""
    report.fix = fixes(report.findings, report.sessions, report.inputs, StartInfo(launcher))
    return sanitize.report(report)


def found_in(log: Path) -> Report:
    """The report of a log.

    Raises:
        CacheDoctorError: the log cannot be read.
    """
    case, prompts, given = log.parent / "case.toml", None, None
    if case.exists():
        said = tomllib.loads(case.read_text())
        prompts = GivenPrompts([str(log.parent / said["prompts"])]) if "prompts" in said else None
        given = parse(said["cmdline"]) if "cmdline" in said else None
    analyzer = Analyzer(prompts=prompts, given=given, keeps_requests=False)
    analyzer.open(log.name)
    for chunk in FileSource(str(log)).chunks():
        analyzer.feed(chunk)
    return analyzer.finish()


def screen(log: Path, report: sanitize.ShownReport, form: Launcher | None = None) -> Screen:
    """Count one report."""
    pages = {width: _page(report, width) for width in WIDTHS}
    rows = pages[80]
    fix = next((at for at, row in enumerate(rows, 1) if row.startswith(KINDS)), None)
    view = ReportView(report)
    wanted = view.next_step if view.has_causes else None  # else it cannot be told
    if wanted is None:
        fix, now = None, None
    else:
        words = f"{wanted.text} {wanted.command or ''}".split()
        last = next((at for at in range(len(rows) - 1, -1, -1) if "Do now" in rows[at]), len(rows))
        tail = " ".join(row.removesuffix("\\") for row in rows[last:]).split()
        now = len(rows) - last if tail[-len(words) :] == words else None
    wide = {width: [row for row in page if cell_len(row) > width] for width, page in pages.items()}
    return Screen(log, len(report.findings), fix, now, len(rows), wide, form)


def _page(report: sanitize.ShownReport, width: int) -> list[str]:
    out = io.StringIO()
    render(report, out, width)
    return out.getvalue().splitlines()


def missed(screens: list[Screen]) -> list[str]:
    """What does not hold, a row each."""
    said = []
    with_fix = [s for s in screens if s.causes and s.fix is not None]
    for found in with_fix:
        if (found.fix or 0) > FIX:
            said.append(f"{found.name}: the fix stands in row {found.fix}")
        if found.do_now is None or found.do_now > FROM_END:
            said.append(f"{found.name}: what to do now stands in row {found.do_now} from the end")
    for found in screens:
        for width, rows in found.wide.items():
            said += [f"{found.name}: wider than {width}: {row}" for row in rows[:2]]
    counted = [s.rows for s in screens if s.causes and s.form is None]
    if counted and statistics.median(counted) > ROWS:
        said.append(f"the median report has {statistics.median(counted):.0f} rows")
    fitting = sum(rows <= SCREEN for rows in counted)
    if fitting < FITTING * len(counted):
        said.append(f"{fitting} of {len(counted)} reports fit {SCREEN} rows")
    return said


def summary(screens: list[Screen]) -> Iterator[str]:
    """The counts over all reports."""
    found = [s for s in screens if s.causes]
    fixes = [s for s in found if s.fix is not None]
    yield f"{len(screens)} logs, {len(found)} with a finding, {len(fixes)} with something to do"
    if fixes:
        rows = sorted(s.fix or 0 for s in fixes)
        early = sum(row <= FIX for row in rows)
        yield f"fix: row {statistics.median(rows):.0f} (median), {rows[-1]} (last); within {FIX} in {early}"
        ends = [s.do_now for s in fixes]
        late = sum(end is not None and end <= FROM_END for end in ends)
        yield f"do now: within the last {FROM_END} rows in {late} of {len(ends)}"
    if found:
        rows = sorted(s.rows for s in found)
        most = rows[int(0.9 * (len(rows) - 1))]
        fitting = sum(row <= SCREEN for row in rows)
        yield f"rows: {statistics.median(rows):.0f} (median), {most} (90 %), {rows[-1]} (most)"
        yield f"within {SCREEN} rows: {fitting} of {len(rows)}"
    for width in WIDTHS:
        wide = [s for s in screens if s.wide[width]]
        yield f"wider than {width}: {sum(len(s.wide[width]) for s in wide)} rows in {len(wide)} logs"


def main() -> int:
    """Count every log; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="a row per log")
    args = parser.parse_args()
    screens, unread = [], 0
    for log in logs([*(FIXTURES / name for name in FOLDERS), *args.folders]):
        try:
            report = found_in(log)
        except CacheDoctorError:
            unread += 1
            continue
        screens.append(screen(log, sanitize.report(report)))
        screens += [screen(log, launched(report, name), name) for name in LAUNCHERS if report.fix]
    if args.list:
        for s in screens:
            print(f"{s.name}: {s.causes} findings, fix {s.fix}, do now {s.do_now}, {s.rows} rows")
    wrong = missed(screens)
    forms = [s for name in LAUNCHERS for s in screens if s.form == name]
    plain = [s for s in screens if s.form is None]
    rows = [*wrong, *summary(plain), "", f"started by {' or '.join(LAUNCHERS)}:", *summary(forms)]
    print("\n".join([*rows, *([f"{unread} logs could not be read"] if unread else [])]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
