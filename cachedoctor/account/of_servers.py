"""The account of a server without requests in its log, by its KV events: whole blocks that were computed, and why.

What was reused is in no event: responses, or counters of /metrics, tell it beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cachedoctor.model import Account, AccountEntry, AccountRow, KvEvents, Session

_RULES: dict[str, tuple[str, str]] = {"vllm": ("CD504", "CD510"), "sglang": ("CD603", "CD610")}
"""Those that name eviction and a changed beginning."""


def accounts(sessions: Iterable[Session], names: Mapping[str, str]) -> list[Account]:
    """Give one account for each server whose events are known, after their sum; empty without any.

    ``names``: of the rules, by code.
    """
    found = [account for session in sessions if (account := _account(session, names)) is not None]
    return [_sum(found), *found] if found else []


def _account(session: Session, names: Mapping[str, str]) -> Account | None:
    told = [events for events in session.kv_events if events.stored and events.doubt is None]
    if not told or len(told) < len(session.kv_events):
        return None
    lost, changed = (names.get(code) for code in _RULES.get(session.engine, ("", "")))
    rows: list[tuple[AccountRow, str | None, int]] = [
        ("client", changed, _tokens(told, "changed", "salted")),
        ("server", lost, _tokens(told, "evicted")),
        ("server", None, _tokens(told, "emptied", "routed")),
        ("together", None, _tokens(told, "present")),
    ]
    stored = _tokens(told, "stored")
    prompt, reused = _reused(session) or (stored, 0)
    new = prompt - reused - sum(tokens for _, _, tokens in rows)
    if new < 0:  # they are not of the same traffic
        prompt, reused, new = stored, 0, _tokens(told, "new")
    whole: list[tuple[AccountRow, str | None, int]] = [("reused", None, reused), ("new", None, new), *rows]
    entries = [
        AccountEntry(row, kind, tokens, 0, None if row == "reused" else "kv events")
        for row, kind, tokens in whole
        if tokens
    ]
    return Account("server", session.index, None, None, 0, 0, prompt, entries)


def _tokens(told: Iterable[KvEvents], *names: str) -> int:
    return sum(getattr(events, name) for events in told for name in names)


def _reused(session: Session) -> tuple[int, int] | None:
    """Prompt tokens and reused ones of all requests, as responses or counters say; None where neither does."""
    answers = [a for a in session.answers if a.source == "responses"]
    if answers and all(a.told == a.requests for a in answers):
        return sum(a.prompt_tokens for a in answers), sum(a.cached_tokens for a in answers)
    counted = [(c.prompt_tokens, c.reused) for c in session.counters]
    known = [(prompt, reused) for prompt, reused in counted if prompt is not None and reused is not None]
    if not counted or len(known) < len(counted):
        return None
    return sum(prompt for prompt, _ in known), sum(reused for _, reused in known)


def _sum(found: list[Account]) -> Account:
    cells: dict[tuple[AccountRow, str | None], AccountEntry] = {}
    for account in found:
        for entry in account.entries:
            cell = cells.setdefault((entry.row, entry.kind), AccountEntry(entry.row, entry.kind, 0, 0, entry.proof))
            cell.tokens += entry.tokens
    return Account("log", None, None, None, 0, 0, sum(a.prompt_tokens for a in found), list(cells.values()))
