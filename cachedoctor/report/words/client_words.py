"""The clients of a report as rows: who, how many requests, what was reused and computed again. Knows no format.

``user alice, 120 requests, 1,200,000 tokens, 91.0 % reused, 4.0 % computed again, most for tools-changed``
"""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import ClientAccount, ClientBy, Report
from cachedoctor.report.secrets import hidden
from cachedoctor.report.words.numbers import count, number, percent

HEADS = ("Client", "Requests", "Prompt tokens", "Reused", "Computed again", "Cannot tell", "Most of it for")
_BY: dict[ClientBy, str] = {
    "session": "session", "user": "user", "salt": "salt", "system_prompt": "system prompt", "route": "route",
    "address": "address",
}  # fmt: skip
_NOT_AGAIN = ("reused", "new", "undecided")
_LONGEST = 64


class ClientRow(NamedTuple):
    """What a table shows of a client."""

    who: str
    requests: str
    tokens: str
    reused: str
    again: str
    undecided: str
    """New or computed again: nothing tells."""
    cause: str


def rows(report: Report, most: int) -> list[ClientRow]:
    """Return the rows of a table: ``most`` clients and the others as one; none where there is but one client."""
    named = [one for one in report.clients if one.by in _BY]
    if len(report.clients) < 2:
        return []
    rest = [one for one in report.clients if one.by == "other"]
    left = named[most:] + rest
    found = [_row(one, who(one)) for one in named[:most]]
    if left:
        found.append(_row(_together(left), f"{number(sum(one.clients for one in left))} others"))
    return found + [_row(one, "unknown") for one in report.clients if one.by == "unknown"]


def who(client: ClientAccount) -> str:
    """Write which client it is."""
    name = hidden(client.name or "")
    return f"{_BY[client.by]} {name if len(name) <= _LONGEST else name[: _LONGEST - 3] + '...'}"


def sentence(row: ClientRow) -> str:
    """Write a row as a sentence."""
    if not row.tokens:
        return f"{row.requests}, lengths unknown"
    cause = f", most for {row.cause}" if row.cause else ""
    undecided = f", {row.undecided} new or again" if row.undecided != "0 %" else ""
    return f"{row.requests}, {row.tokens} tokens, {row.reused} reused, {row.again} computed again{cause}{undecided}"


def _together(clients: list[ClientAccount]) -> ClientAccount:
    return ClientAccount(
        "other", None, sum(c.clients for c in clients), sum(c.requests for c in clients),
        sum(c.not_placed for c in clients), sum(c.prompt_tokens for c in clients),
        [entry for c in clients for entry in c.entries],
    )  # fmt: skip


def _row(client: ClientAccount, name: str) -> ClientRow:
    requests, whole = count(client.requests + client.not_placed, "request"), client.prompt_tokens
    if not whole:
        return ClientRow(name, requests, "", "", "", "", "")
    lost: dict[str | None, int] = {}
    for entry in client.entries:
        if entry.row not in _NOT_AGAIN:
            lost[entry.kind] = lost.get(entry.kind, 0) + entry.tokens
    cause = max(lost, key=lambda kind: (lost[kind], kind or ""), default=None)
    return ClientRow(
        name, requests, number(whole), percent(_of(client, "reused"), whole), percent(sum(lost.values()), whole),
        percent(_of(client, "undecided"), whole), cause or "",
    )  # fmt: skip


def _of(client: ClientAccount, row: str) -> int:
    return sum(entry.tokens for entry in client.entries if entry.row == row)
