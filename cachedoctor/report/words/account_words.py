"""Words for the account: where the computed prompt tokens went, the most of them first. Knows no format."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.model import Account, AccountRow, Report
from cachedoctor.report.words.numbers import percent

ROWS: dict[AccountRow, str] = {
    "reused": "reused",
    "new": "new text",
    "client": "behind what the client changed",
    "server": "lost by the server",
    "together": "computed at once by several requests with one beginning",
    "rounding": "rounding",
    "unexplained": "not reused, against what this build does",
    "undecided": "cannot tell: new, changed by the client, or lost by the server",
}


class Part(NamedTuple):
    """One row of the account."""

    row: AccountRow
    words: str
    tokens: int


def whole(report: Report) -> Account | None:
    """Return the account of the whole log; None where no request's tokens are known."""
    found = next((account for account in report.accounts if account.scope == "log"), None)
    return found if found is not None and found.prompt_tokens else None


def parts(account: Account) -> list[Part]:
    """Sum up each row, in the order of the account; rows without tokens are left out."""
    sums = {row: sum(entry.tokens for entry in account.entries if entry.row == row) for row in ROWS}
    return [Part(row, ROWS[row], tokens) for row, tokens in sums.items() if tokens]


def computed_for(report: Report) -> str:
    """Say what the computed tokens were, as shares of the prompt tokens; nothing where none was computed."""
    account = whole(report)
    if account is None:
        return ""
    found = sorted((part for part in parts(account) if part.row != "reused"), key=lambda part: -part.tokens)
    words = ", ".join(f"{percent(part.tokens, account.prompt_tokens)} {part.words}" for part in found)
    return f"{words} (KV events)" if any(entry.proof for entry in account.entries) else words
