"""The HTML report: one file that loads nothing, with its headline first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

from cachedoctor.model import Report, RequestRow, Session, Totals
from cachedoctor.model.terms import OF_MEMORY
from cachedoctor.redaction.sanitize import ShownReport
from cachedoctor.report.base import Appearance
from cachedoctor.report.html import html_findings, html_measured, html_page
from cachedoctor.report.html.checkpoints_chart import MOST as RULERS
from cachedoctor.report.html.checkpoints_chart import CheckpointsChart
from cachedoctor.report.html.request_columns import KINDS, NONE, Columns, Lanes, PromptTokens, added, box, tokens
from cachedoctor.report.html.request_table import HEADS, RequestTable
from cachedoctor.report.html.reuse_chart import Speed, over_time
from cachedoctor.report.html.timeline import draw
from cachedoctor.report.report_view import ReportView
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.measurements import measures
from cachedoctor.report.words.numbers import capital, count, duration, number, percent, unknown_lengths
from cachedoctor.report.words.remarks import filtered, grouped, remarks, switched_off
from cachedoctor.report.words.traffic_words import LLAMA, ROWS, whole

WIDTH = 1000


@dataclass(slots=True)
class Headline:
    """Words and the bar under them."""

    title: str
    lead: str
    tiles: list[tuple[str, str, str]]
    """Name, number, share or time."""
    bar: list[tuple[str, str, str, str, str]]
    """Kind, its piece of the bar, words, number, share."""
    note: str
    """How recomputed and avoidable tokens relate, if they differ."""


def headline(view: ReportView, split: PromptTokens) -> Headline:
    """Say it in one sentence.

    Args:
        split: the prompt tokens of all requests that the totals count.
    """
    report = view.report
    if not report.totals.requests and any(map(measures, report.sessions)):
        title, lead = html_measured.title(report), _checked(view)
        first = view.causes[0] if view.has_causes else None
        if first is not None and first.finding.severity != "note" and first.finding.confidence != "low":
            title, lead = html_findings.sentence(first.headline()), f"{title}. {lead}"
        return Headline(title, lead, html_measured.tiles(report), [], "")
    title, lead = _title(view)
    if report.filtered is not None:  # sums are of the whole log, requests are not
        return Headline(title, lead, _tiles(report.totals), [], "")
    if any(session.engine != LLAMA for session in report.sessions):
        lead += " Measurements of other engines' servers are below."
    return Headline(title, lead, _tiles(report.totals), _bar(split), _note(report.totals, split))


def _checked(view: ReportView) -> str:
    """Text below the measurements."""
    if view.report.findings:
        return "The log has measurements but no requests: the findings below are about the server as a whole."
    if view.undecided:
        return view.undecided
    return f"No findings. {view.checked[:1].upper()}{view.checked[1:]}."


def _title(view: ReportView) -> tuple[str, str]:
    report, t = view.report, view.report.totals
    if not t.requests:
        nothing = "Nothing was checked: the log contains no requests."
        return "No requests in this log", view.undecided or nothing
    if not t.prompt_tokens:
        return (
            f"{count(t.requests, 'request')}, but {unknown_lengths(t.requests)}",
            "“Not checked” below lists the inputs that would show it.",
        )
    if report.filtered is not None and not report.findings:
        return "No findings in the part that is shown", filtered(report)
    if t.avoidable_tokens:
        return f"{count(t.avoidable_tokens, 'prompt token')} {_again(view)} unnecessarily", _saved(t)
    reused = percent(t.cached_tokens, t.prompt_tokens)
    if view.undecided and not report.findings:
        return "Cannot tell whether the cache was lost", view.undecided.removeprefix("Cannot tell: ")
    if view.has_causes:
        return f"{reused} of the prompt tokens were reused", "The findings below have no known token cost."
    blind = len({rule.code for rule in report.not_evaluated})
    left = f" {count(blind, 'rule')} could not be checked." if blind else ""
    turn = next(iter(report.slowest), None)
    words = "" if view.healthy is None else f"{capital(view.healthy.sentence)}."
    slow = (
        f" Slowest turn: {traffic_words.split(turn)}; {traffic_words.reason(turn, report)}." if turn is not None else ""
    )
    none = "No cause found" if report.findings else "No findings"
    return f"{none}: {reused} of the prompt tokens were reused", f"{words}{left}{slow}"


def _again(view: ReportView) -> str:
    """Claim no more than the most certain of the findings that cost something."""
    found = {one.finding.confidence for one in view.causes if one.finding.cost.tokens}
    if "high" in found:
        return "were recomputed"
    return "were probably recomputed" if "medium" in found else "may have been recomputed"


def _saved(t: Totals) -> str:
    share = f"The avoidable tokens are {percent(t.avoidable_tokens, t.prompt_tokens)} of all prompt tokens"
    if not t.avoidable_ms:
        return f"{share}."
    of = f" ({percent(min(t.avoidable_ms, t.prompt_ms), t.prompt_ms)} of all prompt time)" if t.prompt_ms else ""
    return f"{share}. Computing them took about {duration(t.avoidable_ms)}{of}."


def _note(t: Totals, split: PromptTokens) -> str:
    if not 0 < t.avoidable_tokens < split.recomputed:
        return ""
    return (
        f"The findings account for {number(t.avoidable_tokens)} of the {count(split.recomputed, 'recomputed token')}."
    )


def _tiles(t: Totals) -> list[tuple[str, str, str]]:
    tiles = [("Requests", number(t.requests), "")]
    if not t.prompt_tokens:
        return tiles
    spent = f" in {duration(t.prompt_ms)}" if t.prompt_ms else ""
    time = f" · {duration(t.avoidable_ms)}" if t.avoidable_ms else ""
    return [
        *tiles,
        ("Prompt tokens", number(t.prompt_tokens), "sent by clients"),
        ("Reused", number(t.cached_tokens), percent(t.cached_tokens, t.prompt_tokens)),
        ("Computed", *_computed(t, spent)),
        ("Avoidable", number(t.avoidable_tokens), percent(t.avoidable_tokens, t.prompt_tokens) + time),
    ]


def _computed(t: Totals, spent: str) -> tuple[str, str]:
    """Figure and caption of what was computed; what the log does not show is no 0."""
    known = percent(t.processed_tokens, t.prompt_tokens) + spent
    if not t.unknown_tokens:
        return number(t.processed_tokens), known
    rest = f"unknown for {number(t.unknown_tokens)} tokens: {count(t.unknown_requests, 'request')} without timings"
    return (number(t.processed_tokens), f"{known} · {rest}") if t.processed_tokens else ("unknown", rest)


def _bar(split: PromptTokens) -> list[tuple[str, str, str, str, str]]:
    if not split.prompt:
        return []
    pieces, x = [], 0.0
    for (kind, words), amount in zip(KINDS.items(), split, strict=True):
        wide = WIDTH * amount / split.prompt
        if amount:
            pieces.append((kind, box(x, 0, wide, 28), words, number(amount), percent(amount, split.prompt)))
        x += wide
    return pieces


_LISTED = 20
"""Servers and inputs listed one by one."""
_DRAWN = 20
"""Number of requests from which charts are drawn; with fewer, the table shows more."""
_CLIENTS = 20
"""Clients that have a row of their own."""
_PATH = 44
"""Cells of a path at the head of the page."""


def write(report: ShownReport, out: IO[bytes], look: Appearance) -> None:
    """Write the page."""
    report.requests.check()
    view = ReportView(report)
    parts = _RequestParts(report)
    is_drawn = parts.table.total >= _DRAWN
    page = html_page.render(
        report=report,
        title=", ".join(_short(html_findings.name(i.path)) for i in report.inputs[:2]) or "no input",
        headline=headline(view, parts.split),
        findings=[
            html_findings.shown(one, i, parts.rows, look.pages, has_same_fix=view.has_causes and view.has_same_fix(one))
            for i, one in enumerate(view.causes, 1)
        ],
        leads=view.has_causes,
        folds=view.is_decided,
        kinds=KINDS,
        account=whole(report),
        account_words=ROWS,
        clients=traffic_words.client_rows(report, _CLIENTS),
        client_heads=traffic_words.HEADS,
        timeline=draw(parts.columns) if is_drawn else None,
        checkpoints_known=parts.columns.checkpoints_known,
        reuse=over_time(parts.columns, report.totals.reuse),
        speed=parts.speed.draw(),
        rulers=parts.memory.draw() if is_drawn or _is_of_memory(view) else [],
        rulers_total=parts.memory.total,
        rulers_most=RULERS,
        lanes=parts.lanes,
        heads=HEADS,
        table=parts.table,
        names={finding.code: finding.name for finding in report.findings},
        switched_off=switched_off(report.ignored) if report.ignored else "",
        not_evaluated=_open(report),
        sessions=[_session(s) for s in report.sessions[:_LISTED]],
        measured=html_measured.servers(report),
        unmeasured=max(sum(map(measures, report.sessions)) - html_measured.MOST, 0),
        checked=view.checked,
        remarks=remarks(report),
        filtered=filtered(report),
        inputs=sorted(report.inputs, key=lambda i: i.error is None)[:_LISTED],
    )
    out.write(page.encode())


def _is_of_memory(view: ReportView) -> bool:
    """Whether a finding is about memory that could not roll back, which positions of checkpoints prove."""
    return any(one.finding.code.startswith(OF_MEMORY) for one in view.causes)


class _RequestParts:
    """What one pass over the requests leaves behind, bounded whatever their number."""

    def __init__(self, report: Report) -> None:
        self.lanes = Lanes(report.sessions)
        self.columns = Columns(self.lanes)
        self.table = RequestTable(self.lanes)
        self.speed = Speed()
        self.memory = CheckpointsChart()
        self.split = NONE
        """Split of the prompt tokens that the totals count."""
        wanted = {index for finding in report.findings for index in finding.requests}
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
    """Shorten a path at its start, because its end identifies it: ``.../gpu-1/server.log``."""
    parts = path.split("/")
    while len(parts) > 2 and len("/".join(parts)) > _PATH:
        parts = ["...", *parts[2:]]
    return cut("/".join(parts), _PATH)


def _open(report: Report) -> list[dict[str, Any]]:
    """The rules that could not be checked; those of the one restart need no advice of their own."""
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
    source = traffic_words.SOURCES.get(shown.build_source or "", "")
    return {
        "name": shown.origin or "",
        "number": shown.index + 1,
        "server": f"{traffic_words.program(shown)} {traffic_words.version(shown)}{source}".strip(),
        "measured": shown.engine != traffic_words.LLAMA,
        "about": ", ".join(cut(part, 60) for part in traffic_words.server_parts(shown)),
        "model": cut(shown.model, 80) if shown.model else "unknown",
        "memory": shown.memory or "unknown",
        "slots": shown.n_slots,
        "context": shown.n_ctx_slot,
        "requests": shown.n_requests,
        "path": html_findings.name(shown.path),
        "lines": f"{shown.first_line} to {shown.last_line}",
        "settings": [(name, cut(str(found.value), 200), found.line) for name, found in sorted(shown.settings.items())],
    }
