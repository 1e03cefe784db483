"""Head of the text report: what the servers are, what the traffic cost, which inputs failed.

Knows Report and Page, and how builds are worded. Knows no finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cachedoctor.model import Finding, Report, Session, Totals
from cachedoctor.report.text import slot_bars, text_measured
from cachedoctor.report.text.page import Page
from cachedoctor.report.text.text_safe import cut
from cachedoctor.report.words import server_words
from cachedoctor.report.words.account_words import computed_for
from cachedoctor.report.words.coverage import cannot_tell
from cachedoctor.report.words.measurements import has_log, measures
from cachedoctor.report.words.numbers import computed, count, duration, number, percent, unknown_lengths

MANY = 5
"""Sessions listed one by one; more are summed up by what they are."""
_KINDS, _LOOKED_AT = 2, 1000
"""Kinds of servers that the short form names, and sessions that it looks at."""


def show(page: Page, report: Report) -> None:
    """Write the head of the report."""
    for words in _servers(report.sessions, several_inputs=len(report.inputs) > 1):
        page.facts([(f"{'server':<10}", "bold")], words, 10)
    if any(session.engine == server_words.LLAMA and has_log(session) for session in report.sessions):
        if any(session.engine != server_words.LLAMA for session in report.sessions):
            page.row((server_words.LLAMA, "bold"))
        for key, words in traffic(report.totals, sum(f.cost.tokens for f in report.findings)):
            _keyed(page, key, words)
        _account(page, report)
        _slots(page, report)
    else:
        _account(page, report)
    several = len(report.sessions) > 1
    text_measured.show(page, [(place(s) if several else "", s) for s in report.sessions if measures(s)])
    for info in report.inputs:
        if info.error is not None:
            _keyed(page, "input", f"error: {info.error}")


def short(page: Page, report: Report) -> None:
    """Write in a few rows what the servers are, and what of the prompts was reused."""
    found = report.sessions
    if len(found) == 1:
        page.facts([(f"{'server':<10}", "bold")], describe(found[0], brief=True), 10)
    elif found:
        kinds = dict.fromkeys(describe(s, brief=True) for s in found[:_LOOKED_AT])
        more = f" and {count(len(kinds) - _KINDS, 'other kind')}" if len(kinds) > _KINDS else ""
        words = "; ".join(list(kinds)[:_KINDS])
        page.facts([(f"{'servers':<10}", "bold")], f"{number(len(found))}: {words}{more}", 10)
    if any(session.engine == server_words.LLAMA and has_log(session) for session in found):
        _keyed(page, "traffic", _summed(report.totals))
        if cannot_tell(report) is None:
            _account(page, report)
    else:
        _account(page, report)
    text_measured.short(page, [(place(s) if len(found) > 1 else "", s) for s in found if measures(s)])
    for info in report.inputs:
        if info.error is not None:
            _keyed(page, "input", f"error: {info.error}")


def _account(page: Page, report: Report) -> None:
    """Write what the computed tokens were, where that is known: of a server without requests by its KV events."""
    account = computed_for(report)
    if account:
        page.facts([(f"{'account':<10}", "bold")], account, 10)


def _slots(page: Page, report: Report) -> None:
    if report.slots:
        shown = next((s for s in report.sessions if s.index == report.slots[0].session), None)
        slot_bars.show(page, report.slots, place(shown) if shown is not None and len(report.sessions) > 1 else "")


def _keyed(page: Page, key: str, words: str) -> None:
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
    """Say what a server is; unknown parts are named as unknown, or left out where it is to be brief."""
    s = session
    name = f"{server_words.program(s)} {server_words.version(s)}{server_words.SOURCES.get(s.build_source or '', '')}"
    parts = [name.strip(), *(_slots_of(s, brief) if s.engine == server_words.LLAMA else server_words.parts(s))]
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


def place(session: Session) -> str:
    """Name a server among several of one input: its origin, else the number that the head of the report gives it."""
    return session.origin or f"server {session.index + 1}"


def place_of(finding: Finding, sessions: Sequence[Session]) -> str:
    """Name the server of a finding; nothing where there is only one."""
    if len(sessions) < 2:
        return ""
    at = finding.evidence[0].session if finding.evidence else -1
    return next((place(session) for session in sessions if session.index == at), finding.origin or "")


def _extent(session: Session, several_inputs: bool) -> str:
    named = session.origin
    origin = f"{named} · " if named else ""
    path = f"{session.path} " if several_inputs else ""
    lines = f"lines {session.first_line:,} to {session.last_line:,}" if has_log(session) else "no log"
    requests = f"{count(session.n_requests, 'request')}, " if session.engine == server_words.LLAMA else ""
    return f"{origin}{requests}{path}{lines}"


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
        once = "; findings share requests, and each request counts once" if charged > totals.avoidable_tokens else ""
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
