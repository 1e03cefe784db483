"""Words for servers, clients, slow requests and the account, shared by all formats."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from cachedoctor.knowledge import builds
from cachedoctor.knowledge.cmdline import FASTER
from cachedoctor.knowledge.engines import ENGINES, PRINTING, in_blocks, title
from cachedoctor.model import Account, AccountRow, ClientAccount, ClientBy, Report, Session, SlowTurn
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.words.numbers import count, duration, number, percent

ROWS: dict[AccountRow, str] = {
    "reused": "reused",
    "new": "new text",
    "client": "after a change by the client",
    "server": "lost by the server",
    "together": "computed at the same time by several requests with the same beginning",
    "rounding": "unchanged, but had to be recomputed too",
    "unexplained": "not reused, although this build usually reuses such tokens",
    "undecided": "undecided (new, changed by the client, or lost by the server)",
}


class AccountPart(msgspec.Struct, frozen=True):
    """One row of the account."""

    row: AccountRow
    words: str
    tokens: int


def whole(report: Report) -> Account | None:
    """Return the account of the whole log; None if no request's tokens are known."""
    found = next((account for account in report.accounts if account.scope == "log"), None)
    return found if found is not None and found.prompt_tokens else None


def account_parts(account: Account) -> list[AccountPart]:
    """Sum up each row, in the order of the account; rows without tokens are left out."""
    sums = {row: sum(entry.tokens for entry in account.entries if entry.row == row) for row in ROWS}
    return [AccountPart(row, ROWS[row], tokens) for row, tokens in sums.items() if tokens]


def computed_for(report: Report) -> str:
    """Describe the computed tokens as shares of the prompt tokens; empty if none were computed."""
    account = whole(report)
    if account is None:
        return ""
    found = sorted((part for part in account_parts(account) if part.row != "reused"), key=lambda part: -part.tokens)
    words = ", ".join(f"{percent(part.tokens, account.prompt_tokens)} {part.words}" for part in found)
    return f"{words} (KV events)" if any(entry.proof for entry in account.entries) else words


def is_telling(report: Report) -> bool:
    """Whether the account shows more than the cost of one cause: several losses, or unexplained tokens."""
    account = whole(report)
    if account is None:
        return False
    lost = [
        part.row
        for part in account_parts(account)
        if part.row not in ("reused", "new", "rounding") and part.tokens * _TELLING >= account.prompt_tokens
    ]
    return len(lost) > 1 or "undecided" in lost or "unexplained" in lost


HEADS = ("Client", "Requests", "Prompt tokens", "Reused", "Recomputed", "Cannot tell", "Costliest cause")
_BY: dict[ClientBy, str] = {
    "session": "session", "user": "user", "salt": "salt", "system_prompt": "system prompt", "route": "route",
    "address": "address",
}  # fmt: skip
_NOT_AGAIN = ("reused", "new", "undecided")
_LONGEST = 64
_TELLING = 20
"""The part of all prompt tokens below which a loss needs no row: a twentieth."""


class ClientRow(NamedTuple):
    """What a table shows of a client."""

    who: str
    requests: str
    tokens: str
    reused: str
    again: str
    undecided: str
    """Tokens that may be new or recomputed: the log does not show it."""
    cause: str


def client_rows(report: Report, most: int) -> list[ClientRow]:
    """Return the rows of a table: ``most`` clients and the others as one; none if there is but one client."""
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
    undecided = f", {row.undecided} either new or recomputed" if row.undecided != "0 %" else ""
    return f"{row.requests}, {row.tokens} tokens, {row.reused} reused, {row.again} recomputed{cause}{undecided}"


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


_LONG = 5_000
"""Milliseconds from which a turn gets a row beside the findings."""


def split(turn: SlowTurn) -> str:
    """Say how long it took, and how much of that its prompt and its reply took."""
    prompt = f"{duration(turn.prompt_ms)} prompt ({_prompt(turn)})"
    if turn.reply_ms is None:
        return f"task {turn.task}: {prompt}, and a reply of unknown duration"
    reply = f"{duration(turn.reply_ms)} reply"
    tokens = f" ({count(turn.reply_tokens, 'token')})" if turn.reply_tokens is not None else ""
    return f"task {turn.task}: {duration(turn.ms)} = {prompt} + {reply}{tokens}"


def _prompt(turn: SlowTurn) -> str:
    if turn.new_tokens is None or turn.again_tokens is None:
        return "the log does not show how much of the prompt was new"
    computed = turn.new_tokens + turn.again_tokens + (turn.undecided_tokens or 0)
    parts = [
        (turn.reused_tokens, "reused"),
        (turn.new_tokens, "new"),
        (turn.again_tokens, "recomputed"),
        (turn.undecided_tokens, "either new or recomputed"),
    ]
    (tokens, what), *others = [part for part in parts if part[0]] or [(0, "computed")]
    said = [f"{count(tokens or 0, 'token')} {what}", *(f"{number(n or 0)} {words}" for n, words in others)]
    speed = computed / turn.prompt_ms * 1000
    return ", ".join(said) + (f", {number(speed)} tokens/s" if speed >= 1 else "")


def _share_again(turn: SlowTurn) -> float | None:
    """Share of the computed tokens that were recomputed; None if most of it is not known."""
    if turn.new_tokens is None or turn.again_tokens is None or turn.undecided_tokens is None:
        return None
    computed = turn.new_tokens + turn.again_tokens + turn.undecided_tokens
    if 2 * turn.undecided_tokens >= max(computed, 1):
        return None
    return turn.again_tokens / max(computed, 1)


def reason(turn: SlowTurn, report: Report) -> str:
    """Say in one sentence why it took so long."""
    if turn.reply_ms is not None and turn.reply_ms > turn.prompt_ms:
        return "most of the time went to the reply: the machine limits it, not the cache"
    again = _share_again(turn)
    if again is None:
        return "this log does not show how much of the prompt could have been reused"
    if again >= 0.5:
        return "most of the prompt time went to text that had been computed before: the cache was lost"
    return f"limited by the machine, not the cache; try {', '.join(['shorter prompts', *_faster(report)])}"


def _faster(report: Report) -> list[str]:
    """What else makes prompts faster, in the launcher's words; nothing if the launcher is unknown."""
    starts = {info.launcher for info in report.inputs} | {session.launcher for session in report.sessions}
    known = [words for launcher, words in FASTER.items() if launcher in starts]
    if known or any(session.program is not None for session in report.sessions):
        return known[:1]
    return ["more GPU layers, larger -ub"]


def not_the_cache(report: Report) -> SlowTurn | None:
    """Return the slowest request if it took long and the cache is not the reason; None otherwise."""
    turn = next(iter(report.slowest), None)
    again = None if turn is None else _share_again(turn)
    if turn is None or again is None or turn.ms < _LONG:
        return None
    return turn if 2 * again * turn.prompt_ms < turn.ms else None


LLAMA = "llama.cpp"
"""The engine whose logs contain requests; logs of all others contain measurements."""
UNKNOWN = "unknown"
"""The engine of responses that any server may have written."""
_OF_OLLAMA = ("CD701", "CD702", "CD703")
_PROGRAM = "the server"
"""Name for the programs whose logs the rules about printed per-request numbers cover."""
_RULES: dict[str, str | tuple[str, ...]] = {
    **{name: facts.rules for name, facts in ENGINES.items()},
    "ollama": _OF_OLLAMA,
    _PROGRAM: "CD7",
}
"""Prefixes of the codes of engine rules."""
SOURCES = {
    "line": "",
    "option": " (given by --build)",
    "wording": " (from its messages)",
    "source": " (from source line numbers)",
    "paste": " (from the text above the log)",
}
"""How the build or the version is known."""


def engine(name: str) -> str:
    """Write the name of an engine in its own spelling."""
    return "an unknown server" if name == UNKNOWN else title(name)


def program(session: Session) -> str:
    """Write the name of a session's program in its own spelling."""
    return session.program or engine(session.engine)


def of_rule(code: str) -> str:
    """Return the engine whose logs a rule is about."""
    return next((name for name, begin in _RULES.items() if code.startswith(begin)), LLAMA)


def rules_of(engine: str, codes: set[str]) -> set[str]:
    """Return those of ``codes`` that are about logs of this engine."""
    whose = {engine, _PROGRAM} if engine in PRINTING else {engine}
    return {code for code in codes if of_rule(code) in whose}


def version(session: Session) -> str:
    """Name the build or version, as far as it is known; empty if nothing is known."""
    if session.engine == UNKNOWN:
        return ""
    if session.engine == LLAMA:
        return builds.describe(session.build, session.build_min, session.build_max)
    if session.version:
        return session.version
    low, high = session.version_min, session.version_max
    if low and high:
        return low if low == high else f"{low} to {high}"
    if low or high:
        return f"{low} or newer" if low else f"{high} or older"
    return "unknown version"


def server_parts(session: Session) -> list[str]:
    """Say what a server with measurements computes and keeps; what the log does not show is named as unknown."""
    found = []
    architecture = session.setting("architecture")
    if isinstance(architecture, str) and architecture:
        found.append(architecture)
    if session.memory not in (None, "attention"):
        found.append(f"{session.memory} memory")
    found += cache(session)
    block = session.setting("attention_block") or session.setting("block_size")
    if in_blocks(session.engine) and isinstance(block, int):
        found.append(f"blocks of {count(block, 'token')}")
    said = session.settings.get("kv_connector")
    connector = None if said is None else said.value
    if isinstance(connector, str) and connector:
        found.append(f"connector {connector}")
    return found


def cache(session: Session) -> list[str]:
    """Say whether the prefix cache is on, and how large the memory is that it shares with running requests.

    Nothing of engines whose logs do not show of either.
    """
    facts = ENGINES.get(session.engine)
    if facts is None:
        return []
    on = session.setting(facts.cache_setting)
    found = [f"{facts.cache} {'on' if on else 'off'}" if isinstance(on, bool) else f"{facts.cache}: unknown whether on"]
    tokens = session.setting("kv_tokens")
    found.append(f"KV cache {count(tokens, 'token')}" if isinstance(tokens, int) else "size of the KV cache unknown")
    return found
