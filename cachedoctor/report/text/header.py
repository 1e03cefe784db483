"""Head of the text report: servers, traffic, reuse of each slot, measurements, inputs that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cachedoctor.model import Finding, Report, Session, SlotReuse, Totals
from cachedoctor.model.terms import OF_INPUT
from cachedoctor.report.report_view import ReportView, places
from cachedoctor.report.text import page as text_table
from cachedoctor.report.text.page import BARS, TextPage
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import traffic_words
from cachedoctor.report.words.measured_table import lowest
from cachedoctor.report.words.measurements import grid, has_log, largest, measures, said
from cachedoctor.report.words.numbers import computed, count, duration, number, percent, unknown_lengths
from cachedoctor.report.words.traffic_words import computed_for

_BARS, _UNKNOWN = "▁▂▃▄▅▆▇█", "·"
_ASCII_BARS, _ASCII_UNKNOWN = ".:-=+*#", "?"
_KEY, _EACH = 10, len(", 1,024 a bar")
"""Cells of a row before the bars, and of the explanation needed when a bar represents many requests."""
_NARROW = 60
"""On a page narrower than that only the most important words come after the bars."""
_FEWEST = 6
"""Minimum bars drawn on any page."""

Cells = list[tuple[int, int] | None]


def show_slots(page: TextPage, slots: list[SlotReuse], where: str) -> None:
    """Write a row for each slot; none if the requests show nothing.

    Args:
        where: which server, when there are several.
    """
    if sum(slot.requests for slot in slots) < 2 or not any(cell for slot in slots for cell in slot.cells):
        return
    narrow, behind = page.width < _NARROW, f" ({where})" if where else ""
    room = page.width - _KEY - 2 - max(len(_reuse_text(slot, narrow)) for slot in slots) - len(behind)
    if not narrow and any(len(slot.cells) > room or slot.step > 1 for slot in slots):
        room -= _EACH
    room = max(room, _FEWEST)
    # A bar is as many requests in every slot, so that they can be compared. Where many share a row, it is more.
    alone = _step([slot for slot in slots if slot.slot is not None], room)
    steps = [alone if slot.slot is not None else _step([slot], room) for slot in slots]
    drawn = [bars(joined(slot, step), page.ascii_only) for slot, step in zip(slots, steps, strict=True)]
    wide = max(map(len, drawn))
    for slot, row, step in zip(slots, drawn, steps, strict=True):
        key = f"slot {slot.slot}" if slot.slot is not None else "others"
        page.facts(
            [(f"{key:<{_KEY}}", "bold"), (f"{row:<{wide}}", BARS), "  "],
            _reuse_text(slot, narrow, step) + behind,
            _KEY,
        )


def _step(slots: list[SlotReuse], room: int) -> int:
    """Requests of a bar with which all of ``slots`` fit."""
    step = max((slot.step for slot in slots), default=1)
    while any(len(slot.cells) * slot.step > room * step for slot in slots):
        step *= 2
    return step


def joined(slot: SlotReuse, step: int) -> Cells:
    """Join neighbouring cells until each holds ``step`` requests."""
    cells, each = slot.cells, slot.step
    while each < step:
        pairs = zip(cells[::2], [*cells[1::2], None], strict=False)
        cells, each = [_sum(a, b) for a, b in pairs], each * 2
    return cells


def _sum(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return a[0] + b[0], a[1] + b[1]


def bars(cells: Cells, ascii_only: bool = False) -> str:
    """Draw a bar for each cell, the higher the more was reused; what is not known is a gap."""
    levels, gap = (_ASCII_BARS, _ASCII_UNKNOWN) if ascii_only else (_BARS, _UNKNOWN)
    # In a torn log more tokens may have been reused than the prompt had.
    return "".join(gap if c is None else levels[min(c[1] * len(levels) // c[0], len(levels) - 1)] for c in cells)


def _reuse_text(slot: SlotReuse, narrow: bool, step: int = 1) -> str:
    known = [cell for cell in slot.cells if cell is not None]
    prompt = sum(cell[0] for cell in known)
    share = percent(sum(cell[1] for cell in known), prompt) if prompt else "unknown"
    requests = count(slot.requests, "request")
    if narrow:
        return f"{share}, {requests}"
    each = f", {number(step)} a bar" if step > 1 else ""
    return f"{share}{' reused' if prompt else ''}, {requests}{each}"


MOST = 5
"""Servers; of more, those of which most was measured."""


def show_measured(page: TextPage, found: list[tuple[str, Session]]) -> None:
    """Write what was measured of each session, after its name; the name is empty if there is only one."""
    names = {session.index: name for name, session in found}
    for session in largest([session for _, session in found], MOST):
        if names[session.index]:
            page.row((names[session.index], "bold"))
        _session(page, session)
    if len(found) > MOST:
        page.row(f"and {count(len(found) - MOST, 'other server')} with measurements")


def measured_short(page: TextPage, found: list[tuple[str, Session]]) -> None:
    """Write a row for each measurement of the session with most of them, and how many other sessions there are; for
    many, the range of their hit rates."""
    names = {session.index: name for name, session in found}
    rates = lowest(found)
    if rates:
        page.facts([("hit rates ", "bold")], f"{rates}; -v shows all", 10)
        return
    for session in largest([session for _, session in found], 1):
        if names[session.index]:
            page.row((names[session.index], "bold"))
        for key, words in said(session):
            page.cut_row([(f"{key:<10}", "bold")], words)
        if len(found) > 1:
            page.facts([("others    ", "bold")], f"{count(len(found) - 1, 'other server')}: -v shows them", 10)


def _session(page: TextPage, session: Session) -> None:
    for key, words in said(session):
        page.facts([(f"{key:<10}", "bold")], words, 10)
    table = grid(session)
    if table is None:
        return
    text_table.show_table(page, table.key, table.headings, table.rows)
    if table.more:
        page.row(f"and {number(table.more)} more")


MANY = 5
"""Sessions listed one by one; more are summarised by kind."""
_KINDS, _LOOKED_AT = 2, 1000
"""Kinds of servers that the short form names, and sessions that it checks."""


def show_header(page: TextPage, report: Report) -> None:
    """Write the head of the report."""
    for words in _servers(report.sessions, several_inputs=len(report.inputs) > 1):
        page.facts([(f"{'server':<10}", "bold")], words, 10)
    if any(session.engine == traffic_words.LLAMA and has_log(session) for session in report.sessions):
        if any(session.engine != traffic_words.LLAMA for session in report.sessions):
            page.row((traffic_words.LLAMA, "bold"))
        for key, words in traffic(report.totals, _charged(report.findings)):
            _keyed(page, key, words)
        _account(page, report)
        _slots(page, report)
    else:
        _account(page, report)
    names = places(report.sessions)
    show_measured(page, [(names[s.index], s) for s in report.sessions if measures(s)])
    for info in report.inputs:
        if info.error is not None:
            _keyed(page, "input", f"error: {info.error}")


def short(page: TextPage, view: ReportView, *, with_account: bool = True) -> None:
    """Write in a few rows what the servers are, and what of the prompts was reused."""
    report, found = view.report, view.report.sessions
    if len(found) == 1:
        page.cut_row([(f"{'server':<10}", "bold")], describe(found[0], brief=True))
    elif found:
        kinds = dict.fromkeys(describe(s, brief=True) for s in found[:_LOOKED_AT])
        more = f" and {count(len(kinds) - _KINDS, 'other kind')}" if len(kinds) > _KINDS else ""
        words = "; ".join(list(kinds)[:_KINDS])
        page.facts([(f"{'servers':<10}", "bold")], f"{number(len(found))}: {words}{more}", 10)
    if any(session.engine == traffic_words.LLAMA and has_log(session) for session in found):
        _keyed(page, "traffic", _summed(report.totals))
        if with_account and view.cannot_tell is None and traffic_words.is_telling(report):
            _account(page, report, is_cut=True)
    else:
        _account(page, report, is_cut=True)
    names = places(found)
    measured_short(page, [(names[s.index], s) for s in found if measures(s)])
    for info in report.inputs:
        if info.error is not None:
            _keyed(page, "input", f"error: {info.error}")


def _account(page: TextPage, report: Report, *, is_cut: bool = False) -> None:
    """Write what the computed tokens were, if that is known: for a server without requests, from its KV events."""
    account = computed_for(report)
    if account and is_cut:
        page.cut_row([(f"{'account':<10}", "bold")], account)
    elif account:
        page.facts([(f"{'account':<10}", "bold")], account, 10)


def _slots(page: TextPage, report: Report) -> None:
    if report.slots:
        show_slots(page, report.slots, places(report.sessions).get(report.slots[0].session, ""))


def _keyed(page: TextPage, key: str, words: str) -> None:
    page.prose([(f"{key:<10}", "bold")], words, 10)


def _servers(sessions: Sequence[Session], several_inputs: bool) -> list[str]:
    if len(sessions) == 1:
        return [describe(sessions[0])]
    if len(sessions) <= MANY:
        return [f"{s.index + 1}. {describe(s)} · {_extent(s, several_inputs)}" for s in sessions]
    kinds = Counter(describe(s) for s in sessions)
    rows = [f"{number(n)} x {words}" for words, n in kinds.most_common(MANY)]
    left = len(sessions) - sum(n for _, n in kinds.most_common(MANY))
    return [*rows, f"and {count(left, 'other session')}"] if left else rows


def describe(session: Session, *, brief: bool = False) -> str:
    """Describe a server; unknown parts are named as unknown, or left out in the brief form."""
    s = session
    source = "" if brief else traffic_words.SOURCES.get(s.build_source or "", "")
    name = f"{traffic_words.program(s)} {traffic_words.version(s)}{source}"
    parts = [name.strip(), *(_slots_of(s, brief) if s.engine == traffic_words.LLAMA else traffic_words.server_parts(s))]
    if s.model:
        parts.append(s.model)
    return " · ".join(cut(part, 60) for part in parts)


def _slots_of(session: Session, brief: bool) -> list[str]:
    memory = f"{session.memory} memory" if session.memory else "model type: not in this log"
    slots = count(session.n_slots, "slot") if session.n_slots else "slots: not in this log"
    if session.n_ctx_slot:
        each = f"{number(session.n_ctx_slot)} tokens"
        slots = f"{slots} x {each}" if session.n_slots else f"slots of {each}"
    known = [session.memory is not None, bool(session.n_slots or session.n_ctx_slot)]
    return [part for part, said in zip((memory, slots), known, strict=True) if said or not brief]


def _extent(session: Session, several_inputs: bool) -> str:
    named = session.origin
    origin = f"{named} · " if named else ""
    path = f"{session.path} " if several_inputs else ""
    lines = f"lines {session.first_line:,} to {session.last_line:,}" if has_log(session) else "no log"
    requests = f"{count(session.n_requests, 'request')}, " if session.engine == traffic_words.LLAMA else ""
    return f"{origin}{requests}{path}{lines}"


def _charged(findings: Sequence[Finding]) -> int:
    """Tokens of all findings that name a cause."""
    return sum(finding.cost.tokens for finding in findings if not finding.code.startswith(OF_INPUT))


def traffic(totals: Totals, charged: int = 0) -> list[tuple[str, str]]:
    """What came, what was reused, computed and avoidable: pairs of a key and words.

    ``charged``: tokens that all findings cost together.
    """
    requests = count(totals.requests, "request")
    if not totals.prompt_tokens:
        unknown = f"; {unknown_lengths(totals.requests)}" if totals.requests else ""
        return [("traffic", requests + unknown)]
    rows = [
        ("traffic", f"{requests}, {count(totals.prompt_tokens, 'prompt token')}"),
        ("reused", _share(totals.cached_tokens, totals.prompt_tokens)),
        ("computed", computed(totals)),
    ]
    if totals.avoidable_tokens:
        time = f", {duration(totals.avoidable_ms)}" if totals.avoidable_ms else ""
        once = "; findings overlap, but each token is counted once" if charged > totals.avoidable_tokens else ""
        rows.append(("avoidable", _share(totals.avoidable_tokens, totals.prompt_tokens) + time + once))
    return rows


def _summed(totals: Totals) -> str:
    """What came, and how much of it was reused and computed, in one sentence."""
    came = traffic(totals)[0][1]
    if not totals.prompt_tokens:
        return came
    reused = percent(totals.cached_tokens, totals.prompt_tokens)
    if totals.unknown_tokens:
        return f"{came}: {reused} reused; computed {computed(totals)}"
    spent = f", {duration(totals.prompt_ms)} of prompt time" if totals.prompt_ms else ""
    return f"{came}, {reused} reused{spent}"


def _share(tokens: int, whole: int) -> str:
    return f"{count(tokens, 'token')} ({percent(tokens, whole)})"
