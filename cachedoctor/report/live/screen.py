"""The live view as rows for a screen of any size, measured engines included."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from cachedoctor.knowledge.engines import BOTH
from cachedoctor.model import CacheSample, Finding, LiveView, MeasuredView, PrefillBatch, ServerView, Session, SlotView
from cachedoctor.redaction import sanitize
from cachedoctor.report.text.concise import cost, lost, outcome, tokens
from cachedoctor.report.text.header import describe, traffic
from cachedoctor.report.text.page import SEVERITY as SEVERITY_STYLE
from cachedoctor.report.text.page import Part
from cachedoctor.report.text.text_safe import rows, visible
from cachedoctor.report.words import do_now
from cachedoctor.report.words.measured_table import rate
from cachedoctor.report.words.numbers import count, duration, number, percent

Row = tuple[str, str]
"""A name, and words."""


def measured_rows(view: MeasuredView) -> list[Row]:
    """Give the last numbers of each engine or rank of a server; missing ones are left out."""
    return [_row(row) for row in view.rows]


def _row(shown: CacheSample | PrefillBatch) -> Row:
    row = sanitize.mask(shown)
    if isinstance(row, CacheSample):
        return f"engine {row.engine}" if row.engine else "engine", ", ".join(_sample(row))
    return row.rank or "prefill", ", ".join(_batch(row))


def _sample(row: CacheSample) -> list[str]:
    hit = "hit rate unknown" if row.hit_rate is None else f"hit rate {rate(row.hit_rate)} (last 1,000 requests)"
    prompts = [] if row.prompt_rate is None else [f"prompts {row.prompt_rate:,.1f} tokens/s"]
    return [hit, *prompts, *_load(row.running, row.waiting, row.kv_usage)]


def _batch(row: PrefillBatch) -> list[str]:
    tokens = []
    if row.cached_tokens is not None and row.new_tokens is not None:
        tokens = [f"last batch {number(row.cached_tokens)} reused, {count(row.new_tokens, 'token')} computed"]
    return [*tokens, *_load(row.running, row.queue, row.token_usage)]


def _load(running: int | None, waiting: int | None, usage: float | None) -> list[str]:
    found = [] if running is None else [f"{number(running)} running"]
    found += [] if waiting is None else [f"{number(waiting)} waiting"]
    return found + ([] if usage is None else [f"KV {rate(usage)} held"])


_TALL, _WIDE, _BROAD = 16, 70, 130
"""Rows needed for gaps and long rows; cells needed for the counts of each slot, and for its last request."""
_CHARS_PER_CELL = 4
"""Characters read per output cell: combining marks use no cell, and a name may have a million of them."""
_NAME = 10
"""Cells for the name of a server."""
_SEPARATORS = "-_./:@ "
"""Between the parts of names of pods, containers and hosts."""
_STATES = {"prompt": "prompt", "reply": "reply", "busy": "processing", "idle": "idle", "unknown": "unknown"}
_STYLES = {"prompt": "bold green", "reply": "green", "busy": "bold green", "idle": "", "unknown": "dim"}

_KEYS = "q quits and prints the whole report   arrows: other findings   ? help"
_HELP = (
    ("slot", f"memory for one conversation; for {BOTH} an engine or a rank"),
    ("state", "state: computing a prompt or a reply, processing, idle, or unknown"),
    ("prompt", "prompt tokens of the current or last request"),
    ("reused", "prompt tokens of that request reused from the cache"),
    ("progress", "progress of the prompt; for an ended request, its loss and causes"),
    ("lost", "prompt tokens that were in the cache but were recomputed"),
    ("avoidable", "prompt tokens that the fixes below would have saved so far"),
    ("finding", "a cause, its cost, and the first fix; cachedoctor explain CODE has details"),
    ("", ""),
    ("q", "quit and print the whole report, like Ctrl-C"),
    ("arrows", "down and up (or j and k) select a finding; the first one is shown in full"),
    ("?", "show or hide this page"),
)


class ScreenRows:
    """Takes rows of at most ``width`` cells until ``height`` are full."""

    def __init__(self, width: int, height: int, ascii_only: bool) -> None:
        self.width = width
        self.left = height
        self._ascii = ascii_only
        self.taken: list[Text] = []

    def visible(self, text: str) -> str:
        """Make a text harmless and of characters that can be shown."""
        return visible(text, self._ascii)

    def row(self, *parts: Part) -> None:
        """Write one row, truncated if it is too long."""
        if self.left <= 0:
            return
        text = Text(no_wrap=True)
        for part in parts:
            words, style = (part, "") if isinstance(part, str) else part[:2]
            text.append(self.visible(words[: _CHARS_PER_CELL * self.width]), style)
        if text.cell_len > self.width:  # marked, since a number that is cut is another number
            mark = "..." if self._ascii else "…"
            text.truncate(self.width - len(mark), overflow="crop")
            text.append(mark)
        self.taken.append(text)
        self.left -= 1

    def keyed(self, key: str, words: str, most: int = 1) -> None:
        """Write a key and words after it, broken at spaces into ``most`` rows."""
        room = self.width - 10
        broken = rows(self.visible(words), room, room) if most > 1 else [words]
        if len(broken) > most:
            broken = [*broken[: most - 1], " ".join(broken[most - 1 :])]
        for at, part in enumerate(broken):
            self.row((f"{'' if at else key + ' ' * (len(key) > 9):<10}", "bold"), part)

    def gap(self) -> None:
        """Write an empty row."""
        self.row("")


class Screenful(NamedTuple):
    """What the user chose on the screen."""

    first: int = 0
    """Finding that is shown first, in full."""
    helps: bool = False
    """True if explanations of the view are shown in its place."""
    keyed: bool = False
    """True if the user can choose by keys."""


_AS_IT_BEGINS = Screenful()


def draw(
    view: LiveView, width: int, height: int, ascii_only: bool = False, chosen: Screenful = _AS_IT_BEGINS
) -> list[Text]:
    """Give at most ``height`` rows of at most ``width`` cells."""
    page = ScreenRows(width, height, ascii_only)
    if chosen.helps:
        return _help(page)
    tall = height >= _TALL
    page.left -= tall  # for the last row
    _title(page, view)
    _head(page, view, tall)
    causes = 1 + len(view.findings) * 2
    slots = [(server, slot) for server in view.servers for slot in server.slots]
    if tall:
        page.gap()
    room = page.left - min(causes, max(3, page.left // 3)) - tall
    _slots(page, slots, min(len(slots) + tall, room), tall, several=len(view.servers) > 1)
    _measured(page, view, room)
    if tall:
        page.gap()
    _findings(page, view.findings, min(chosen.first, max(len(view.findings) - 1, 0)))
    if tall:
        _last_requests(page, view)
    while page.left > 0 and tall:
        page.gap()
    page.left += tall
    page.row((_KEYS if chosen.keyed else "Ctrl-C quits and prints the whole report", "dim"))
    return page.taken


def _help(page: ScreenRows) -> list[Text]:
    """Say what the rows of the view and its keys are."""
    last, page.left = page.left > 1, page.left - 1
    page.row(("cachedoctor watch", "bold"))
    for key, words in _HELP:
        page.keyed(key, words, 2)
    while page.left > 0:
        page.gap()
    if last:
        page.left = 1
        page.row(("? goes back to the view", "dim"))
    return page.taken


def _title(page: ScreenRows, view: LiveView) -> None:
    info = view.info
    read = count(info.lines, "line")
    name = page.visible("standard input" if info.path == "-" else info.path[-4 * page.width :])
    room = page.width - len("cachedoctor  ") - len(read) - 1
    shown = name if cell_len(name) <= room else "..." + name[-max(room - 3, 0) :] if room > 3 else ""
    page.row(("cachedoctor ", "bold"), f"{shown:<{max(room, 0)}}", "  ", (read, "dim"))


def _head(page: ScreenRows, view: LiveView, tall: bool) -> None:
    sessions = [server.session for server in view.servers] + [server.session for server in view.measured]
    if not sessions:
        page.keyed("server", "no server log line recognised yet" if view.info.lines else "waiting for the first line")
    elif len(sessions) == 1:
        page.keyed("server", describe(sanitize.mask(sessions[0])), 2 if tall else 1)
    else:
        page.keyed("servers", f"{number(len(sessions))}: " + ", ".join(_name(session) for session in sessions))
    if view.measured and not view.servers:
        return
    said = traffic(view.totals)
    if tall:
        for key, words in said:
            page.keyed(key, words)
        return
    totals = view.totals
    shares = []
    if totals.prompt_tokens:
        shares.append(f"{percent(totals.cached_tokens, totals.prompt_tokens)} reused")
        shares.append(f"{percent(totals.avoidable_tokens, totals.prompt_tokens)} avoidable")
    page.row(", ".join([*shares, count(totals.requests, "request")]))


def _name(session: Session) -> str:
    return sanitize.mask(session).origin or f"server {session.index + 1}"


def _measured(page: ScreenRows, view: LiveView, room: int) -> None:
    """One row for each engine: what its last line shows."""
    several = len(view.measured) + len(view.servers) > 1
    found = [(server, row) for server in view.measured for row in measured_rows(server)]
    shown = found[: max(room - (len(found) > room), 0)]
    for server, (name, words) in shown:
        page.keyed(f"{_name(server.session)} {name}" if several else name, words)
    if len(shown) < len(found):
        page.row((f"and {count(len(found) - len(shown), 'other row')}", "dim"))


# ---- slots


def _last_requests(page: ScreenRows, view: LiveView) -> None:
    """One row for each request that ended, the newest first, as many as fit."""
    several = len(view.servers) > 1
    shown = view.ended[: max(page.left - 3, 0)]
    if not shown:
        return
    page.gap()
    names = _short({_name(session) for _, session in shown}) if several else {}
    head = ("slot", "request", "prompt tokens", "reused", "newest first: time, how it ended")
    _cells(page, "server" if several else "", head, ("bold", "bold", "bold"))
    for one, session in shown:
        request = one.request
        spent = f"{duration(request.prompt_ms)}, " if request.prompt_ms else ""
        cells = (
            str(request.slot), f"task {request.task}", tokens(request.prompt_tokens), tokens(request.cached_tokens),
            f"{spent}{outcome(one)}",
        )  # fmt: skip
        _cells(page, names.get(_name(session), ""), cells, ("", "", "yellow" if lost(request) else ""))


def _slots(page: ScreenRows, slots: list[tuple[ServerView, SlotView]], room: int, headed: bool, several: bool) -> None:
    """One row for each slot; of too many, those that compute come first."""
    room -= headed
    if not slots or room < 1:
        return
    if headed:
        head = ("slot", "state", "prompt tokens", "reused", "progress, or how the last one ended")
        _cells(page, "server" if several else "", head, ("bold", "bold", "bold"), ("last request", "bold"))
    shown = slots
    if len(slots) > room:
        shown = sorted(slots, key=lambda at: (at[1].request is None, at[1].last is None))[: max(room - 1, 1)]
        shown.sort(key=lambda at: (at[0].session.index, at[1].slot))
    names = _short({_name(server.session) for server, _ in slots}) if several else {}
    for server, slot in shown:
        _slot(page, names.get(_name(server.session), ""), slot)
    if len(shown) < len(slots) and room > 1:
        page.row((f"and {count(len(slots) - len(shown), 'other slot')}", "dim"))


def _short(names: set[str]) -> dict[str, str]:
    """Shorten names to where they differ: replicas of one deployment begin and end alike."""
    front = _common(names)
    back = _common({name[::-1] for name in names})
    begin = max(map(front.rfind, _SEPARATORS)) + 1
    end = max(map(back.rfind, _SEPARATORS)) + 1
    parts = {name: name[begin : len(name) - end] for name in names}
    whole = max(map(len, names)) <= _NAME or not all(parts.values())
    return {name: name for name in names} if whole else parts


def _common(names: set[str]) -> str:
    """Common prefix of all names; empty for a single one."""
    first, last = min(names), max(names)
    same = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same] if len(names) > 1 else ""


def _slot(page: ScreenRows, name: str, slot: SlotView) -> None:
    request = slot.request or (slot.last.request if slot.last is not None else None)
    prompt, reused = ("", "") if request is None else (tokens(request.prompt_tokens), tokens(request.cached_tokens))
    words, style = _ended(slot) if slot.request is None else (_progress(slot), "")
    task = "" if request is None or page.width < _WIDE else f"task {request.task}: "
    cells = (
        str(slot.slot),
        _STATES[slot.state],
        prompt,
        reused,
        f"{task}{words}" if words else "",
    )
    last = _ended(slot) if slot.request is not None and slot.last is not None else ("", "")
    _cells(page, name, cells, (_STYLES[slot.state], "", style), last)


def _progress(slot: SlotView) -> str:
    prompt = None if slot.request is None else slot.request.prompt_tokens
    if slot.generated is not None:
        return f"{count(slot.generated, 'token')} generated"
    if slot.state == "reply":
        return "prompt done"
    if slot.share is not None:
        return f"{percent(min(slot.share, 1.0), 1)} of the prompt"
    if slot.tokens is not None and prompt:
        return f"{percent(min(slot.tokens, prompt), prompt)} of the prompt"
    return "progress unknown" if slot.tokens is None else count(slot.tokens, "token")


def _ended(slot: SlotView) -> tuple[str, str]:
    return ("", "") if slot.last is None else (outcome(slot.last), "yellow" if lost(slot.last.request) else "")


def _cells(
    page: ScreenRows,
    server: str,
    cells: tuple[str, ...],
    styles: tuple[str, str, str],
    last: tuple[str, str] | None = None,
) -> None:
    """Write a row of the table, as many cells as fit.

    Args:
        server: its name where there are several, else empty.
        styles: of the state, of the counts, of the rest.
        last: beside it, where the screen is broad; None: the rest takes all of the row.
    """
    server, slot, state, prompt, reused, words = map(page.visible, (server, *cells))
    parts: list[Part] = (
        [(f"{server if len(server) <= _NAME else '...' + server[3 - _NAME :]:<{_NAME + 2}}", styles[1])]
        if server
        else []
    )
    parts += [(f"{slot:>4}  ", styles[1]), (f"{state:<11}", styles[0])]
    if page.width >= _WIDE:
        parts += [(f"{prompt:>13}  {reused:>9}  ", styles[1])]
    if page.width < _BROAD or last is None:
        page.row(*parts, (words, styles[2]))
        return
    room = (page.width - sum(len(part[0]) for part in parts)) // 2
    page.row(*parts, (f"{words[: room - 2]:<{room}}", styles[2]), last)


# ---- findings


def _findings(page: ScreenRows, findings: list[Finding], first: int = 0) -> None:
    """The costliest first: what, how much, the fix; of too many, the fixes and then the cheapest are left out.

    ``first``: the one to begin with, whose fix is shown whole as long as there is room.
    """
    if not findings:
        page.row(("no findings yet", "dim"))
        return
    skipped = f", from number {number(first + 1)} on" if first else ""
    page.row((f"{count(len(findings), 'finding')}, the costliest first{skipped}", "bold"))
    findings = findings[first:]
    left = len(findings)
    deep = 2 * left <= page.left
    for at, raw in enumerate(findings):
        if page.left <= 1 < left:
            page.row((f"and {count(left, 'other')}", "dim"))
            return
        finding = sanitize.mask(raw)
        style = SEVERITY_STYLE[finding.severity]
        said = cost(finding) or finding.claim
        if page.width < _WIDE:
            page.row((finding.code, style), f" {said}: {finding.name}")
        else:
            page.row((f"{finding.severity}[{finding.code}]", style), f" {finding.name}: {said}")
        left -= 1
        if not at:
            _fix_whole(page, finding, max(page.left - left, 1))
        elif deep or page.left > max(2 * left, 1):
            _fix_short(page, finding)


def _fix_short(page: ScreenRows, finding: Finding) -> None:
    """Write what to do in one row: the command, and as many words as fit."""
    found = do_now.of_finding(finding)
    if found is None:
        page.gap()
        return
    command = f"{found.commands[0]}  " if found.commands else ""
    page.row(f"  {found.kind}: ", (command, "bold green"), (found.text.split("\n")[0], "green"))


def _fix_whole(page: ScreenRows, finding: Finding, most: int) -> None:
    """Write what to do first in ``most`` rows: its commands, which are not broken, then the words."""
    found = do_now.of_finding(finding)
    if found is None:
        page.gap()
        return
    label = f"  {found.kind}: "
    for command in found.commands[:most]:
        page.row(label, (command, "bold green"))
        label = "       "
    left = most - len(found.commands)
    if left <= 0:
        return
    text = " ".join(found.words.split("\n"))
    words = rows(page.visible(text), max(page.width - len(label), 1), max(page.width - 7, 1))
    if len(words) > left:
        words = [*words[: left - 1], " ".join(words[left - 1 :])]
    for part in words:
        page.row(label, (part, "green"))
        label = "       "
