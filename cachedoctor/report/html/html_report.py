"""The HTML report: one file that loads nothing, for somebody who will not read a log.

Goes through the requests once and keeps what charts and table need. Knows the Report and the parts of the page.
"""

from __future__ import annotations

from typing import IO, Any

from cachedoctor.model import Finding, Report, RequestRow, Session
from cachedoctor.report.base import Look
from cachedoctor.report.html import html_findings, html_measured, html_page
from cachedoctor.report.html.checkpoints_chart import MOST as RULERS
from cachedoctor.report.html.checkpoints_chart import CheckpointsChart
from cachedoctor.report.html.headline import headline
from cachedoctor.report.html.lanes import Lanes
from cachedoctor.report.html.request_columns import Columns
from cachedoctor.report.html.request_table import HEADS, Table
from cachedoctor.report.html.reuse_chart import Speed, over_time
from cachedoctor.report.html.timeline import draw
from cachedoctor.report.html.token_split import KINDS, NONE, added, tokens
from cachedoctor.report.sanitize import ShownReport
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import client_words, do_now, server_words
from cachedoctor.report.words.account_words import ROWS, whole
from cachedoctor.report.words.cause_words import shared
from cachedoctor.report.words.coverage import checked, remarks
from cachedoctor.report.words.filter_words import filtered
from cachedoctor.report.words.measurements import measures
from cachedoctor.report.words.not_evaluated_words import grouped
from cachedoctor.report.words.verdicts import leading, switched_off

_LISTED = 20
"""Servers and inputs listed one by one."""
_CLIENTS = 20
"""Clients that have a row of their own."""
_PATH = 44
"""Cells of a path at the head of the page."""


def write(report: ShownReport, out: IO[bytes], look: Look) -> None:
    """Write the page."""
    report.requests.check()
    findings = report.findings
    parts = _Parts(report, findings)
    totals = report.totals
    urls = {rule.code: look.pages + rule.url for rule in report.rules} if look.pages is not None else {}
    summaries = {rule.code: rule.summary for rule in report.rules}
    page = html_page.render(
        report=report,
        title=", ".join(_short(html_findings.name(i.path)) for i in report.inputs[:2]) or "no input",
        headline=headline(report, parts.split),
        findings=[
            html_findings.shown(
                one,
                i,
                parts.rows,
                totals,
                urls.get(one.first.code),
                summaries.get(one.first.code, ""),
                do_now.fix_of(one.first, report.fix),
            )
            for i, one in enumerate(shared(report, findings), 1)
        ],
        leads=bool(leading(report)),
        kinds=KINDS,
        account=whole(report),
        account_words=ROWS,
        clients=client_words.rows(report, _CLIENTS),
        client_heads=client_words.HEADS,
        timeline=draw(parts.columns),
        checkpoints_known=parts.columns.checkpoints_known,
        reuse=over_time(parts.columns, totals.reuse),
        speed=parts.speed.draw(),
        rulers=parts.memory.draw(),
        rulers_total=parts.memory.total,
        rulers_most=RULERS,
        lanes=parts.lanes,
        heads=HEADS,
        table=parts.table,
        names={finding.code: finding.name for finding in findings},
        switched_off=switched_off(report.ignored) if report.ignored else "",
        not_evaluated=_open(report),
        sessions=[_session(s) for s in report.sessions[:_LISTED]],
        measured=html_measured.servers(report),
        unmeasured=max(sum(map(measures, report.sessions)) - html_measured.MOST, 0),
        checked=checked(report),
        remarks=remarks(report),
        filtered=filtered(report),
        inputs=sorted(report.inputs, key=lambda i: i.error is None)[:_LISTED],
    )
    out.write(page.encode())


class _Parts:
    """What one pass over the requests leaves behind, bounded whatever their number."""

    def __init__(self, report: Report, findings: list[Finding]) -> None:
        self.lanes = Lanes(report.sessions)
        self.columns = Columns(self.lanes)
        self.table = Table(self.lanes)
        self.speed = Speed()
        self.memory = CheckpointsChart()
        self.split = NONE
        """Of the requests that the totals count."""
        wanted = {index for finding in findings for index in finding.requests}
        self.rows: dict[int, RequestRow] = {}
        """Requests that findings name."""
        for row in report.requests:
            if row.index in wanted:
                self.rows[row.index] = row
            for part in (self.columns, self.table, self.speed, self.memory):
                part.add(row)
            split = tokens(row)
            if split is not None and row.parent is None:
                self.split = added((self.split, split))


def _short(path: str) -> str:
    """Shorten a path at its begin, as its end says most: ``.../gpu-1/server.log``."""
    parts = path.split("/")
    while len(parts) > 2 and len("/".join(parts)) > _PATH:
        parts = ["...", *parts[2:]]
    return cut("/".join(parts), _PATH)


def _open(report: Report) -> list[dict[str, Any]]:
    """The rules that could not be evaluated; those of the one restart need no advice of their own."""
    found = []
    for group in grouped(report.not_evaluated):
        covered = group.covered(report.restart)
        found.append(
            {
                "rules": group.rules,
                "reason": html_findings.sentence(group.reason),
                "advice": "" if covered else html_findings.sentence(group.advice),
                "commands": [] if covered else group.commands,
            }
        )
    return found


def _session(session: Session) -> dict[str, Any]:
    shown = session
    source = server_words.SOURCES.get(shown.build_source or "", "")
    return {
        "name": shown.origin or "",
        "number": shown.index + 1,
        "server": f"{server_words.program(shown)} {server_words.version(shown)}{source}".strip(),
        "measured": shown.engine != server_words.LLAMA,
        "about": ", ".join(cut(part, 60) for part in server_words.parts(shown)),
        "model": cut(shown.model, 80) if shown.model else "unknown",
        "memory": shown.memory or "unknown",
        "slots": shown.n_slots,
        "context": shown.n_ctx_slot,
        "requests": shown.n_requests,
        "path": html_findings.name(shown.path),
        "lines": f"{shown.first_line} to {shown.last_line}",
        "settings": [(name, cut(str(found.value), 200), found.line) for name, found in sorted(shown.settings.items())],
    }
