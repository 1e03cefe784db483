"""Adds up the accounts of requests, for the whole log and for every server, conversation and client in it.

Whole numbers, so that the ledgers of two parts of a log add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec

from cachedoctor.account.asking import asker
from cachedoctor.account.from_numbers import Placed, place, written_anew
from cachedoctor.model import (
    Account,
    AccountEntry,
    AccountRow,
    ClientAccount,
    ClientName,
    Judged,
    Mark,
    Request,
    Undecided,
)  # fmt: skip

ROWS: tuple[AccountRow, ...] = get_args(AccountRow)
SHOWN = 64
"""Conversations and clients listed, each: those that computed most again."""
KEPT = 4096
"""Conversations and clients remembered, each; of those that come later only the server's sums tell."""

_PLAIN = frozenset({"reused", "new"})
"""Rows that leave no question."""

Scope = Literal["log", "server", "conversation", "client"]
Key = tuple[Scope, int, int, str]
"""Scope, session, conversation and client; -1 and "" where they do not matter."""
_OTHER = ClientName("other", "")
"""All clients that came when as many were known as are remembered."""
_UNKNOWN = ClientName("unknown", "")
_LOG: Key = ("log", -1, -1, "")
"""The sum of its servers."""


def _open(row: AccountRow, code: str | None) -> bool:
    """Whether nothing explains tokens of this row."""
    return row in ("undecided", "unexplained") or (row == "server" and code is None)


def _is_plain(placed: list[Placed]) -> bool:
    """Whether no row leaves a question; rows stand in their order."""
    return not placed or placed[-1].row in _PLAIN


class Cell(msgspec.Struct, gc=False):
    """What requests have in one row."""

    tokens: int = 0
    requests: int = 0


class Sum(msgspec.Struct):
    """The account of some requests."""

    requests: int = 0
    not_placed: int = 0
    cells: dict[tuple[AccountRow, str | None], Cell] = msgspec.field(default_factory=dict)
    """By row, and code of the rule that says why."""

    def add(self, placed: list[Placed], sign: int) -> None:
        """Count a request, or take it back."""
        if not placed:
            self.not_placed += sign
            return
        self.requests += sign
        for row, code, tokens in placed:
            cell = self.cells.get((row, code))
            if cell is None:
                cell = self.cells[row, code] = Cell()
            cell.tokens += sign * tokens
            cell.requests += sign

    def merge(self, more: Sum) -> None:
        """Count the requests of another part."""
        self.requests += more.requests
        self.not_placed += more.not_placed
        for key, found in more.cells.items():
            cell = self.cells.setdefault(key, Cell())
            cell.tokens += found.tokens
            cell.requests += found.requests

    def of(self, *rows: AccountRow) -> int:
        """Tokens of these rows; of all without any."""
        return sum(cell.tokens for (row, _), cell in self.cells.items() if not rows or row in rows)


class Worst(msgspec.Struct):
    """The request of a server with the most tokens that nothing explains."""

    tokens: int
    request: int
    mark: Mark


class Unexplained(msgspec.Struct):
    """Tokens of one life of a server that a report must not pass over, though no rule speaks of them."""

    lost: int = 0
    """The server lost them in requests of which no rule names a cause."""
    alike: int = 0
    """First prompts began like what their slot held, which was as long: these tokens may be changed, or new."""
    alike_requests: int = 0
    named: int = 0
    """Requests with tokens that may be changed, lost or new, whose slot the client had named."""
    anew: int = 0
    """Tokens that may stand again in first prompts, behind other tools or another system prompt."""
    anew_at: Mark | None = None
    returns: int = 0
    """Requests for which the RAM cache brought back what another conversation had displaced."""

    def add(self, judged: Judged, placed: list[Placed], sign: int) -> None:
        """Count a request, or take it back."""
        r = judged.request
        undecided = 0
        if not _is_plain(placed):
            if not judged.verdict.named:
                self.lost += sign * sum(tokens for row, _, tokens in placed if row in ("server", "unexplained"))
            undecided = sum(tokens for row, _, tokens in placed if row == "undecided")
        if undecided and r.slot_named:
            self.named += sign
        again = written_anew(r)
        if again:
            self.anew += sign * again
            self.anew_at = r.marks.get("select") or r.marks["start"]
        if r.thread_turn and r.text_lcp is None and (r.restored_from_ram or _displaced(r)):
            self.returns += sign
        if undecided and r.outcome == "cold" and not r.other_candidates:
            self.alike += sign * undecided
            self.alike_requests += sign

    def merge(self, more: Unexplained) -> None:
        """Count the requests of another part."""
        self.lost += more.lost
        self.alike += more.alike
        self.alike_requests += more.alike_requests
        self.named += more.named
        self.anew += more.anew
        self.anew_at = more.anew_at or self.anew_at
        self.returns += more.returns


def _displaced(r: Request) -> bool:
    """Whether a prompt was reused though its slot held another conversation: by the RAM cache, which the log hides."""
    return r.outcome == "reused" and r.held_thread not in (None, r.thread)


class Ledger(msgspec.Struct):
    """Takes every request when it is judged, and takes back those that are judged anew."""

    sums: dict[Key, Sum] = msgspec.field(default_factory=dict)
    worst: dict[int, Worst] = msgspec.field(default_factory=dict)
    """By session."""
    unexplained: dict[int, Unexplained] = msgspec.field(default_factory=dict)
    """By session."""
    clients: dict[ClientName, Sum] = msgspec.field(default_factory=dict)
    """By who sent them, over all servers; ``KEPT`` at most, and the others together."""

    def add(self, judged: Judged, sign: int = 1) -> list[Placed]:
        """Count a request that was judged, and return its rows; ``sign`` -1 takes it back."""
        r = judged.request
        if r.parent is not None:
            return []
        placed = place(judged)
        for key in _keys(r):
            found = self.sums.get(key)
            if found is None:
                if len(self.sums) >= KEPT and key[0] == "conversation":
                    continue
                found = self.sums[key] = Sum()
            found.add(placed, sign)
        unexplained = self.unexplained.get(r.session)
        if unexplained is None:
            unexplained = self.unexplained[r.session] = Unexplained()
        unexplained.add(judged, placed, sign)
        if _is_plain(placed):
            return placed
        left = sum(tokens for row, code, tokens in placed if _open(row, code))
        before = self.worst.get(r.session)
        if sign > 0 and left and (before is None or left > before.tokens):
            self.worst[r.session] = Worst(left, r.index, r.marks.get("select") or r.marks["start"])
        return placed

    def add_client(self, judged: Judged, placed: list[Placed]) -> None:
        """Count a request that is final for the client that asked: who that was stands in a line behind its end."""
        if judged.request.parent is not None:
            return
        key = _client(judged.request)
        if key is not None and (key in self.sums or len(self.sums) < KEPT):
            self.sums.setdefault(key, Sum()).add(placed, 1)
        self._of_client(asker(judged) or _UNKNOWN).add(placed, 1)

    def _of_client(self, name: ClientName) -> Sum:
        """Return the sum of a client, or that of all who came too late to be remembered."""
        if name not in self.clients and len(self.clients) >= KEPT and name.by != "unknown":
            name = _OTHER
        return self.clients.setdefault(name, Sum())

    def merge(self, more: Ledger, requests: int, sessions: int) -> None:
        """Take the ledger of a later part of the logs; so many requests and sessions came before that part."""
        for (scope, session, thread, client), found in more.sums.items():
            key = (scope, session + sessions if session >= 0 else session, thread, client)
            self.sums.setdefault(key, Sum()).merge(found)
        for name, found in more.clients.items():
            self._of_client(name).merge(found)
        for session, unexplained in more.unexplained.items():
            self.unexplained.setdefault(session + sessions, Unexplained()).merge(unexplained)
        for session, worst in more.worst.items():
            self.worst[session + sessions] = Worst(worst.tokens, worst.request + requests, worst.mark)

    def undecided(self, session: int) -> Undecided | None:
        """What one life of a server computed and nothing explains."""
        worst, found = self.worst.get(session), self.sums.get(("server", session, -1, ""))
        more = self.unexplained.get(session, Unexplained())
        mark = more.anew_at if worst is None else worst.mark
        if mark is None or found is None:
            return None
        requests = sum(cell.requests for key, cell in found.cells.items() if _open(*key))
        return Undecided(
            found.of("undecided"), requests, more.lost, more.alike, more.alike_requests, more.named,
            more.anew, more.anew_at, more.returns, found.requests, found.of("reused"), found.of(), mark,
        )  # fmt: skip

    def accounts(self, names: Mapping[str, str], recent: Iterable[tuple[Judged, list[Placed]]] = ()) -> list[Account]:
        """The whole log first, then servers, conversations, clients.

        ``names``: of the rules, by code; ``recent``: requests that are not final, and are counted for no client yet,
        with their rows.
        """
        pending = Ledger()
        for judged, placed in recent:
            pending.add_client(judged, placed)
        for key, found in pending.sums.items():
            if key in self.sums:
                found.merge(self.sums[key])
        whole = Sum()
        by_scope: dict[Scope, list[tuple[Key, Sum]]] = {}
        for key, found in {**self.sums, **pending.sums}.items():
            if found.requests or found.not_placed:
                by_scope.setdefault(key[0], []).append((key, found))
        servers = sorted(by_scope.get("server", []), key=lambda kept: kept[0])
        for _, found in servers:
            whole.merge(found)
        shown = [(_LOG, whole), *servers] if servers else []
        for scope in ("conversation", "client"):
            some = sorted(by_scope.get(scope, []), key=lambda kept: (-_again(kept[1]), kept[0]))
            shown += some[:SHOWN]
        return [_account(key, found, names) for key, found in shown]

    def by_client(
        self,
        names: Mapping[str, str],
        recent: Iterable[tuple[Judged, list[Placed]]] = (),
        callers: Iterable[Mapping[ClientName, int]] = (),
    ) -> list[ClientAccount]:
        """The clients that computed most again, then all others together, then requests of nobody that is known.

        Empty where no request tells who sent it. ``names`` and ``recent`` as for ``accounts``; ``callers``: requests of
        servers whose logs have none, by who sent them.
        """
        whole = Ledger()
        for name, found in self.clients.items():
            whole.clients.setdefault(name, Sum()).merge(found)
        for one, rows_of_it in recent:
            whole.add_client(one, rows_of_it)
        for counted in callers:
            for name, requests in counted.items():
                whole._of_client(name).not_placed += requests
        known = [(name, found) for name, found in whole.clients.items() if name not in (_OTHER, _UNKNOWN)]
        if not known and _OTHER not in whole.clients:
            return []
        known.sort(key=_rank)
        rest = whole.clients.get(_OTHER, Sum())
        others = len(known) - SHOWN if len(known) > SHOWN else 0
        for _, found in known[SHOWN:]:
            rest.merge(found)
        rows = [_client_account(name, 1, found, names) for name, found in known[:SHOWN]]
        if rest.requests or rest.not_placed:
            rows.append(_client_account(_OTHER, others, rest, names))
        if _UNKNOWN in whole.clients:
            rows.append(_client_account(_UNKNOWN, 0, whole.clients[_UNKNOWN], names))
        return rows


def _keys(r: Request) -> tuple[Key, ...]:
    server: Key = ("server", r.session, -1, "")
    return (server,) if r.thread is None else (server, ("conversation", r.session, r.thread, ""))


def _client(r: Request) -> Key | None:
    return None if r.client is None or r.parent is not None else ("client", r.session, -1, r.client)


def _again(found: Sum) -> int:
    """Tokens that were computed again."""
    return found.of() - found.of("reused", "new")


def _account(key: Key, found: Sum, names: Mapping[str, str]) -> Account:
    scope, session, thread, client = key
    return Account(
        scope, None if session < 0 else session, None if thread < 0 else thread, client or None,
        found.requests, found.not_placed, found.of(), _entries(found, names),
    )  # fmt: skip


def _rank(one: tuple[ClientName, Sum]) -> tuple[int, int, int, str, str]:
    name, found = one
    return -_again(found), -found.of(), -found.requests - found.not_placed, name.by, name.name


def _client_account(name: ClientName, clients: int, found: Sum, names: Mapping[str, str]) -> ClientAccount:
    return ClientAccount(
        name.by, name.name or None, clients, found.requests, found.not_placed, found.of(), _entries(found, names)
    )


def _entries(found: Sum, names: Mapping[str, str]) -> list[AccountEntry]:
    entries = [
        AccountEntry(row, None if code is None else names.get(code, code), cell.tokens, cell.requests)
        for (row, code), cell in found.cells.items()
        if cell.tokens
    ]
    return sorted(entries, key=lambda e: (ROWS.index(e.row), -e.tokens, e.kind or ""))
