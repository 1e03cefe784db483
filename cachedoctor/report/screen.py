"""The live view as rows for a screen of any size. Knows View; never asks the terminal, and keeps nothing."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from cachedoctor.model import Finding, ServerView, Session, SlotView, View
from cachedoctor.report import quoted
from cachedoctor.report.text_finding import SEVERITY_STYLE
from cachedoctor.report.text_header import describe, traffic
from cachedoctor.report.text_page import Part
from cachedoctor.report.text_request import cost, fix, outcome, tokens
from cachedoctor.report.text_safe import cut, rows, visible
from cachedoctor.report.text_words import count, number, percent

_TALL, _WIDE, _BROAD = 16, 70, 130
"""Rows from which on there is room for gaps and long rows; cells for counts of each slot, and for its last request."""
_STATES = {"prompt": "prompt", "reply": "reply", "busy": "processing", "idle": "idle", "unknown": "unknown"}
_STYLES = {"prompt": "bold green", "reply": "green", "busy": "bold green", "idle": "", "unknown": "dim"}


class _Rows:
    """Takes rows of at most ``width`` cells until ``height`` are full."""

    def __init__(self, width: int, height: int, ascii_only: bool) -> None:
        self.width = width
        self.left = height
        self._ascii = ascii_only
        self.taken: list[Text] = []

    def row(self, *parts: Part) -> None:
        if self.left <= 0:
            return
        text = Text(no_wrap=True, end="")
        for part in parts:
            words, style = (part, "") if isinstance(part, str) else part
            # Four characters may stand in one cell, and a name may be a million long.
            text.append(visible(words[: 4 * self.width], self._ascii), style)
        text.truncate(self.width, overflow="crop")
        self.taken.append(text)
        self.left -= 1

    def keyed(self, key: str, words: str, most: int = 1) -> None:
        """Write a key and words behind it, broken at spaces into ``most`` rows."""
        broken = rows(visible(words, self._ascii), self.width - 10, self.width - 10)
        for at, part in enumerate(broken[:most]):
            self.row((f"{'' if at else key:<10}", "bold"), part)

    def gap(self) -> None:
        self.row("")


def draw(view: View, width: int, height: int, ascii_only: bool = False) -> list[Text]:
    """Give at most ``height`` rows of at most ``width`` cells."""
    page = _Rows(width, height, ascii_only)
    tall = height >= _TALL
    page.left -= tall  # for the last row
    _title(page, view)
    _head(page, view, tall)
    causes = 1 + len(view.findings) * 2
    slots = [(server, slot) for server in view.servers for slot in server.slots]
    if tall:
        page.gap()
    room = page.left - min(causes, max(3, page.left // 3)) - tall
    _slots(page, slots, min(len(slots) + 1, room), several=len(view.servers) > 1)
    if tall:
        page.gap()
    _findings(page, view.findings)
    while page.left > 0 and tall:
        page.gap()
    page.left += tall
    page.row(("Ctrl-C ends it and prints the whole report", "dim"))
    return page.taken


def _title(page: _Rows, view: View) -> None:
    info = view.info
    read = count(info.lines, "line")
    name = "standard input" if info.path == "-" else info.path
    room = page.width - len("cachedoctor  ") - len(read) - 1
    shown = name if cell_len(name) <= room else "..." + name[-max(room - 3, 0) :] if room > 3 else ""
    page.row(("cachedoctor ", "bold"), f"{shown:<{max(room, 0)}}", "  ", (read, "dim"))


def _head(page: _Rows, view: View, tall: bool) -> None:
    sessions = [server.session for server in view.servers]
    if not sessions:
        page.keyed("server", "no line of a server recognised yet" if view.info.lines else "waiting for the first line")
    elif len(sessions) == 1:
        page.keyed("server", describe(sessions[0]), 2 if tall else 1)
    else:
        page.keyed("servers", f"{number(len(sessions))}: " + ", ".join(_name(session) for session in sessions))
    said = traffic(view.totals)
    if tall:
        for key, words in said:
            page.keyed(key, words)
        return
    totals = view.totals
    shares = [count(totals.requests, "request")]
    if totals.prompt_tokens:
        shares.append(f"{percent(totals.cached_tokens, totals.prompt_tokens)} reused")
        shares.append(f"{percent(totals.avoidable_tokens, totals.prompt_tokens)} avoidable")
    page.row(", ".join(shares))


def _name(session: Session) -> str:
    return session.origin or f"server {session.index + 1}"


# ---- slots


def _slots(page: _Rows, slots: list[tuple[ServerView, SlotView]], room: int, several: bool) -> None:
    """One row for each slot; of too many, those that compute come first."""
    if not slots or room < 2:
        return
    head = ("slot", "state", "prompt", "reused", "progress, or how the last request ended")
    _cells(page, several, ("server", *head), ["bold"] * 6, ("last request", "bold"))
    shown = slots
    if len(slots) > room - 1:
        shown = sorted(slots, key=lambda at: (at[1].request is None, at[1].last is None))[: max(room - 2, 1)]
        shown.sort(key=lambda at: (at[0].session.index, at[1].slot))
    for server, slot in shown:
        _slot(page, several, server, slot)
    if len(shown) < len(slots) and room > 2:
        page.row((f"and {count(len(slots) - len(shown), 'other slot')}", "dim"))


def _slot(page: _Rows, several: bool, server: ServerView, slot: SlotView) -> None:
    request = slot.request or slot.last
    prompt, reused = ("", "") if request is None else (tokens(request.prompt_tokens), tokens(request.cached_tokens))
    if slot.request is not None:
        words, style = _progress(slot), ""
    else:
        words, style = ("", "") if slot.last is None else _ended(slot)
    cells = (_name(server.session), str(slot.slot), _STATES[slot.state], prompt, reused, words)
    last = _ended(slot) if slot.request is not None and slot.last is not None else ("", "")
    _cells(page, several, cells, ["", "", _STYLES[slot.state], "", "", style], last)


def _progress(slot: SlotView) -> str:
    request = slot.request
    task = "" if request is None else f"task {request.task}: "
    if slot.generated is not None:
        return f"{task}{count(slot.generated, 'token')} generated"
    prompt = None if request is None else request.prompt_tokens
    if slot.state == "reply":
        return f"{task}prompt done"
    if slot.share is not None:
        return f"{task}{percent(min(slot.share, 1.0), 1)} of the prompt"
    if slot.tokens is not None:
        done = f"{percent(min(slot.tokens, prompt), prompt)} of the prompt" if prompt else count(slot.tokens, "token")
        return task + done
    return f"{task}progress unknown"


def _ended(slot: SlotView) -> tuple[str, str]:
    last = slot.last
    if last is None:
        return "", ""
    lost = bool(last.lost_tokens) and last.outcome in ("partial", "reprocessed")
    return f"task {last.task}: {outcome(last)}", "yellow" if lost else ""


def _cells(page: _Rows, several: bool, cells: tuple[str, ...], styles: list[str], last: tuple[str, str]) -> None:
    """Write a row of the table: what there is room for."""
    server, slot, state, prompt, reused, words = (visible(cell) for cell in cells)
    parts: list[Part] = [(f"{cut(server, 10)[:10]:<12}", styles[0])] if several else []
    parts += [(f"{slot:>4}  ", styles[1]), (f"{state:<12}", styles[2])]
    if page.width >= _WIDE:
        parts += [(f"{prompt:>9}  {reused:>9}  ", styles[3])]
    used = sum(len(part[0]) for part in parts)
    if page.width < _BROAD:
        page.row(*parts, (words, styles[5]))
        return
    room = (page.width - used) // 2
    page.row(*parts, (f"{words[: room - 2]:<{room}}", styles[5]), last)


# ---- findings


def _findings(page: _Rows, findings: list[Finding]) -> None:
    """The costliest first: what, how much, the fix; of too many, the fixes and then the cheapest are left out."""
    if not findings:
        page.row(("no findings yet", "dim"))
        return
    left = len(findings)
    page.row((f"{count(left, 'finding')}, the costliest first", "bold"))
    deep = 2 * left <= page.left
    for raw in findings:
        if page.left <= 1 < left:
            page.row((f"and {count(left, 'other')}", "dim"))
            return
        finding = quoted.finding(raw)
        style = SEVERITY_STYLE[finding.severity]
        page.row((f"{finding.severity}[{finding.code}]", style), f" {finding.name}: {cost(finding) or finding.claim}")
        left -= 1
        if deep or page.left > max(2 * left, 1):
            advice = fix(finding)
            page.row("  fix: ", (advice, "green")) if advice else page.gap()
