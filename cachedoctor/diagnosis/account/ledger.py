"""Adds up the accounts of requests, for the whole log and for every server, conversation and client in it.

Whole numbers, so that the ledgers of two parts of a log add up to that of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from cachedoctor.diagnosis.account.asking import asker
from cachedoctor.diagnosis.account.from_numbers import (
    GrownPrompts,
    Placed,
    Row,
    SameLengths,
    begins_alike,
    place,
    written_anew,
)
from cachedoctor.model import (
    Account,
    AccountEntry,
    AccountRow,
    ClientAccount,
    ClientName,
    Judged,
    Mark,
    Request,
    Twins,
    Undecided,
)

ROWS: tuple[AccountRow, ...] = get_args(AccountRow)
SHOWN = 64
"""Maximum number of conversations, and of clients, that are listed: those that recomputed the most tokens."""
KEPT = 4096
"""Maximum number of conversations, and of clients, that are remembered; later ones count only in the server's sums."""

_SERVER = ("server", "unexplained")

Scope = Literal["log", "server", "conversation", "client"]
_OTHER = ClientName("other", "")
"""All clients that came after the limit of known clients was reached."""
_UNKNOWN = ClientName("unknown", "")


def _open(row: AccountRow, code: str | None) -> bool:
    """Whether nothing explains tokens of this row."""
    return row in ("undecided", "unexplained") or (row == "server" and code is None)


class RowSums:
    """What requests have in one row."""

    __slots__ = ("requests", "tokens")

    def __init__(self) -> None:
        self.tokens = self.requests = 0


class Sum:
    """The account of some requests."""

    __slots__ = ("cells", "new", "not_placed", "requests", "reused")

    def __init__(self) -> None:
        self.requests = self.not_placed = 0
        self.reused, self.new = RowSums(), RowSums()
        self.cells: dict[tuple[AccountRow, str | None], RowSums] = {
            ("reused", None): self.reused,
            ("new", None): self.new,
        }
        """Sums by row and by code of the rule that gives the cause; most requests have only the first two."""

    def add(self, placed: Placed | None, sign: int) -> None:
        """Count a request, or take it back."""
        if placed is None:
            self.not_placed += sign
            return
        self.requests += sign
        reused, new, rest = placed
        if reused:
            cell = self.reused
            cell.tokens += sign * reused
            cell.requests += sign
        if new:
            cell = self.new
            cell.tokens += sign * new
            cell.requests += sign
        for row, code, tokens in rest:
            cell = self.cells.get((row, code)) or self._begin(row, code)
            cell.tokens += sign * tokens
            cell.requests += sign

    def _begin(self, row: AccountRow, code: str | None) -> RowSums:
        found = self.cells[row, code] = RowSums()
        return found

    def merge(self, more: Sum, sign: int = 1) -> None:
        """Count the requests of another part, or take them out."""
        self.requests += sign * more.requests
        self.not_placed += sign * more.not_placed
        for key, found in more.cells.items():
            cell = self.cells.setdefault(key, RowSums())
            cell.tokens += sign * found.tokens
            cell.requests += sign * found.requests

    @property
    def counts(self) -> bool:
        """Whether it has a request; those in it may have been taken back."""
        return bool(self.requests or self.not_placed)

    def of(self, *rows: AccountRow) -> int:
        """Tokens of these rows; of all without any."""
        return sum(cell.tokens for (row, _), cell in self.cells.items() if not rows or row in rows)


class Worst(msgspec.Struct):
    """The request of a server with the most tokens that nothing explains."""

    tokens: int
    request: int
    mark: Mark


class Unexplained(msgspec.Struct, gc=False):
    """Tokens of one life of a server that a report must not pass over, though no rule speaks of them."""

    lost: int = 0
    """Tokens that the server lost in requests for which no rule names a cause."""
    alike: int = 0
    """First prompts began like their slot's content, which was equally long: these tokens may be changed or new."""
    alike_requests: int = 0
    level: int = 0
    """The same for prompts that shared little or nothing with their slot's content but were equally long."""
    level_requests: int = 0
    able: int = 0
    """The same for prompts that may continue another conversation, which had lost its slot."""
    able_requests: int = 0
    firsts: int = 0
    """First prompts on slots that held something."""
    named: int = 0
    """Requests with tokens that may be changed, lost or new, whose slot the client had named."""
    anew: int = 0
    """Tokens that may be repeated in first prompts, after different tools or another system prompt."""
    anew_at: Mark | None = None
    returns: int = 0
    """Requests for which the RAM cache restored what another conversation had displaced."""

    def add(self, r: Request, sign: int) -> None:
        """Count a request, or take it back."""
        if r.outcome == "cold":
            self.firsts += sign * bool(r.held_tokens)
            if again := written_anew(r):
                self.anew += sign * again
                self.anew_at = r.marks.get("select") or r.marks["start"]
        if r.thread_turn and (r.held_thread != r.thread or r.restored_from_ram) and r.text_lcp is None:
            self.returns += sign * (r.restored_from_ram is True or _displaced(r))

    def question(self, judged: Judged, rows: Sequence[Row], sign: int) -> None:
        """Count the rows of a request that leave a question, or take them back."""
        r, undecided = judged.request, 0
        for row, _, tokens in rows:
            if row == "undecided":
                undecided += tokens
            elif row in _SERVER and not judged.verdict.named:
                self.lost += sign * tokens
        if undecided and r.slot_named:
            self.named += sign
        if not undecided or r.outcome != "cold":
            return
        if r.other_candidates:
            self.able += sign * undecided
            self.able_requests += sign
        elif begins_alike(r):
            self.alike += sign * undecided
            self.alike_requests += sign
        else:
            self.level += sign * undecided
            self.level_requests += sign

    def merge(self, more: Unexplained) -> None:
        """Count the requests of another part."""
        self.lost += more.lost
        self.alike += more.alike
        self.alike_requests += more.alike_requests
        self.level += more.level
        self.level_requests += more.level_requests
        self.able += more.able
        self.able_requests += more.able_requests
        self.firsts += more.firsts
        self.named += more.named
        self.anew += more.anew
        self.anew_at = more.anew_at or self.anew_at
        self.returns += more.returns


def _displaced(r: Request) -> bool:
    """Whether a prompt was reused though its slot held another conversation: by the RAM cache, which the log hides."""
    return r.outcome == "reused" and r.held_thread not in (None, r.thread)


class RunAccounts(msgspec.Struct, gc=False):
    """The accounts of one life of a server. Every request is in one of them, and with its client besides."""

    rest: Sum = msgspec.field(default_factory=Sum)
    """Requests without a conversation, or of one that is not remembered."""
    conversations: dict[int, Sum] = msgspec.field(default_factory=dict)
    clients: dict[str, Sum] = msgspec.field(default_factory=dict)
    unexplained: Unexplained = msgspec.field(default_factory=Unexplained)
    worst: Worst | None = None
    lengths: SameLengths = msgspec.field(default_factory=SameLengths)
    grown: GrownPrompts = msgspec.field(default_factory=GrownPrompts)
    last: Request | None = None
    """The request that ended last."""

    def whole(self) -> Sum:
        """Add up all of its requests."""
        whole = Sum()
        for found in (self.rest, *self.conversations.values()):
            whole.merge(found)
        return whole

    def merge(self, more: RunAccounts, requests: int) -> None:
        """Count the requests of another part; so many came before it."""
        self.rest.merge(more.rest)
        for thread, found in more.conversations.items():
            self.conversations.setdefault(thread, Sum()).merge(found)
        for client, found in more.clients.items():
            self.clients.setdefault(client, Sum()).merge(found)
        self.unexplained.merge(more.unexplained)
        self.lengths.merge(more.lengths)
        self.grown.merge(more.grown)
        if more.worst is not None:
            self.worst = msgspec.structs.replace(more.worst, request=more.worst.request + requests)


class Ledger(msgspec.Struct, gc=False):
    """Takes every request when it is judged, and takes back those that are judged again."""

    servers: dict[int, RunAccounts] = msgspec.field(default_factory=dict)
    """Accounts by session."""
    clients: dict[ClientName, Sum] = msgspec.field(default_factory=dict)
    """By sender, over all servers; at most ``KEPT`` senders, and the others together."""
    kept: int = 0
    """Servers, conversations and clients by address."""

    def add(self, judged: Judged, sign: int = 1) -> Placed | None:
        """Count a request that was judged, and return its rows; ``sign`` -1 takes it back."""
        r = judged.request
        if r.parent is not None:
            return None
        placed, thread = place(judged), r.thread
        server = self.servers.get(r.session) or self._begin(r.session)
        found = None if thread is None else server.conversations.get(thread)
        (found or self._first_of(server, thread)).add(placed, sign)
        if r.outcome == "cold" or r.held_thread != thread or r.restored_from_ram:
            server.unexplained.add(r, sign)
        if sign > 0 and not r.revision:
            server.lengths.add(r)
            if r.outcome == "cold":
                server.grown.add(r, server.last)
            server.last = r
        if placed is None or not placed[2]:
            return placed
        server.unexplained.question(judged, placed[2], sign)
        left = sum([tokens for row, code, tokens in placed[2] if _open(row, code)])
        if sign > 0 and left and (server.worst is None or left > server.worst.tokens):
            server.worst = Worst(left, r.index, r.marks.get("select") or r.marks["start"])
        return placed

    def _begin(self, session: int) -> RunAccounts:
        self.kept += 1
        self.servers[session] = server = RunAccounts()
        return server

    def _first_of(self, server: RunAccounts, thread: int | None) -> Sum:
        """Begin the account of a conversation, if one more is kept."""
        if thread is None or self.kept >= KEPT:
            return server.rest
        self.kept += 1
        server.conversations[thread] = found = Sum()
        return found

    def add_client(self, judged: Judged, placed: Placed | None) -> None:
        """Count a request that is final for the client that asked: who that was is in a line after its end."""
        r = judged.request
        asked = r.seen.asked
        if asked.client is None and asked.endpoint is None and judged.asker is None:
            return  # as in most logs
        name, address = asker(judged), asked.client
        if r.parent is not None or name is None:
            return
        self._of_client(name).add(placed, 1)
        if address is None:
            return
        clients = self.servers[r.session].clients
        found = clients.get(address)
        if found is None:
            if self.kept >= KEPT:
                return
            self.kept += 1
            found = clients[address] = Sum()
        found.add(placed, 1)

    def _of_client(self, name: ClientName) -> Sum:
        """Return the sum of a client, or that of all who came too late to be remembered."""
        found = self.clients.get(name)
        if found is None:
            found = self.clients.setdefault(name if len(self.clients) < KEPT else _OTHER, Sum())
        return found

    def merge(self, more: Ledger, requests: int, sessions: int) -> None:
        """Take the ledger of a later part of the logs; so many requests and sessions came before that part."""
        for session, server in more.servers.items():
            self.servers.setdefault(session + sessions, RunAccounts()).merge(server, requests)
        for name, found in more.clients.items():
            self._of_client(name).merge(found)
        self.kept += more.kept

    def twins(self, session: int) -> list[Twins]:
        """What one life of a server may have computed twice at once, by length of the prompts."""
        server = self.servers.get(session)
        return [] if server is None else server.lengths.twins()

    def undecided(self, session: int) -> Undecided | None:
        """What one life of a server computed and nothing explains."""
        server = self.servers.get(session)
        if server is None:
            return None
        more, worst, grown = server.unexplained, server.worst, server.grown
        mark = (more.anew_at or grown.mark) if worst is None else worst.mark
        if mark is None:
            return None
        found = server.whole()
        requests = sum(cell.requests for key, cell in found.cells.items() if _open(*key))
        return Undecided(
            found.of("undecided"), requests, more.lost, more.alike, more.alike_requests, more.named,
            more.anew, more.anew_at, more.returns, found.requests, found.of("reused"), found.of(), mark,
            more.level, more.level_requests, more.able, more.able_requests, more.firsts,
            grown.tokens, grown.requests,
        )  # fmt: skip

    def accounts(self, names: Mapping[str, str], recent: Iterable[tuple[Judged, Placed | None]] = ()) -> list[Account]:
        """The whole log first, then servers, conversations, clients.

        ``names``: of the rules, by code; ``recent``: requests that are not final, and are counted for no client yet,
        with their rows.
        """
        whole, servers, conversations = Sum(), [], []
        clients = self._clients(recent)
        for session, server in sorted(self.servers.items()):
            of_server = server.whole()
            whole.merge(of_server)
            servers.append(_OwnedAccount("server", session, of_server))
            conversations += [
                _OwnedAccount("conversation", session, found, thread) for thread, found in server.conversations.items()
            ]
        shown = [entry for entry in servers if entry.sum.counts]
        if shown:
            shown.insert(0, _OwnedAccount("log", None, whole))
        for entries in (conversations, clients):
            entries.sort(key=lambda entry: (-_again(entry.sum), entry.session, entry.thread, entry.client))
            shown += [entry for entry in entries if entry.sum.counts][:SHOWN]
        return [_account(entry, names) for entry in shown]

    def _clients(self, recent: Iterable[tuple[Judged, Placed | None]]) -> list[_OwnedAccount]:
        """The accounts of all clients, with the requests that are not counted for them yet."""
        found: dict[tuple[int, str], Sum] = {}
        for session, server in self.servers.items():
            for client, counted in server.clients.items():
                found[session, client] = Sum()
                found[session, client].merge(counted)
        for judged, placed in recent:
            r = judged.request
            if r.seen.asked.client is not None and r.parent is None:
                found.setdefault((r.session, r.seen.asked.client), Sum()).add(placed, 1)
        return [_OwnedAccount("client", session, one, client=client) for (session, client), one in found.items()]

    def by_client(
        self,
        names: Mapping[str, str],
        recent: Iterable[tuple[Judged, Placed | None]] = (),
        callers: Sequence[Mapping[ClientName, int]] = (),
    ) -> list[ClientAccount]:
        """The clients that computed most again, then all others together, then requests without a known client.

        Empty where no request tells who sent it. ``names`` and ``recent`` as for ``accounts``; ``callers``: requests of
        servers whose logs have none, by who sent them.
        """
        whole = Ledger()
        for name, found in self.clients.items():
            whole.clients.setdefault(name, Sum()).merge(found)
        for one, rows_of_it in recent:
            who = asker(one)
            if one.request.parent is None and who is not None:
                whole._of_client(who).add(rows_of_it, 1)
        if not whole.clients and not any(callers):
            return []
        unknown = self._of_nobody(whole.clients.values())
        for counted in callers:
            for name, requests in counted.items():
                whole._of_client(name).not_placed += requests
        known = [(name, found) for name, found in whole.clients.items() if name != _OTHER]
        known.sort(key=_rank)
        rest = whole.clients.get(_OTHER, Sum())
        others = len(known) - SHOWN if len(known) > SHOWN else 0
        for _, found in known[SHOWN:]:
            rest.merge(found)
        rows = [_client_account(name, 1, found, names) for name, found in known[:SHOWN]]
        if rest.requests or rest.not_placed:
            rows.append(_client_account(_OTHER, others, rest, names))
        if unknown.counts:
            rows.append(_client_account(_UNKNOWN, 0, unknown, names))
        return rows

    def _of_nobody(self, clients: Iterable[Sum]) -> Sum:
        """What all servers have and none of these clients."""
        rest = Sum()
        for server in self.servers.values():
            rest.merge(server.whole())
        for found in clients:
            rest.merge(found, -1)
        return rest


class _OwnedAccount(msgspec.Struct, frozen=True):
    """An account, and whose it is."""

    scope: Scope
    session: int | None
    sum: Sum
    thread: int | None = None
    client: str | None = None


def _again(found: Sum) -> int:
    """Tokens that were recomputed."""
    return found.of() - found.of("reused", "new")


def _account(entry: _OwnedAccount, names: Mapping[str, str]) -> Account:
    found = entry.sum
    return Account(
        entry.scope, entry.session, entry.thread, entry.client,
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
