"""Assigns the tokens of blocks to account rows by KV events, for requests and for servers without logged requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.model import Account, AccountEntry, AccountRow, Session
from cachedoctor.model.kv_events import (
    ClearedBlocks,
    KvEvents,
    KvLine,
    KvMessage,
    KvUnread,
    RemovedBlocks,
    StoredBlocks,
)

_GONE, _EMPTIED, _THERE = "gone", "emptied", "there"
_AGAIN = {_GONE: "evicted", _EMPTIED: "emptied", _THERE: "present"}
"""Row of a block that was stored before, by its state on the engine that stores it again."""
_TOLD_APART = ("evicted", "emptied", "changed", "salted", "routed", "present")

MAX_KNOWN = 1_000_000
"""Number of different blocks to remember; those unused for longest are forgotten."""

_Place = tuple[int, int]
"""Endpoint and rank: an engine with a cache of its own."""


class _StoredBlock(msgspec.Struct):
    parent: str | None
    text: str | None
    whole: bytes | None
    """Its text and that of all blocks before it; None where a text is not known."""
    size: int
    """Tokens; 0 for a block that was removed but never seen stored."""


class _EngineBlocks(msgspec.Struct):
    """What one engine has."""

    state: dict[str, str] = msgspec.field(default_factory=dict)
    """State of each block by id: ``_THERE``, or why it is gone."""
    last: int = -1
    """Number of the last message."""
    time: float = 0.0
    """Time of that message, by the server's clock."""

    def empty(self) -> None:
        self.state = dict.fromkeys(self.state, _EMPTIED)


class KvFold:
    """Processes the lines of a recording in order."""

    def __init__(self, path: str, most: int = MAX_KNOWN) -> None:
        self.sums = KvEvents(path)
        self._most = most
        self._engines: dict[_Place, _EngineBlocks] = {}
        self._blocks: dict[str, _StoredBlock] = {}
        """Blocks by id, the one unused for longest first."""
        self._texts: Counter[str | bytes] = Counter()
        """Number of blocks with this text, and with this text and everything before it."""
        self._groups: set[int] = set()

    def take(self, lines: Iterable[KvLine]) -> KvEvents:
        """Process all lines, and return the sums."""
        for line in lines:
            if isinstance(line, KvMessage):
                self._message(line)
            elif isinstance(line, KvUnread):
                self.sums.unread += line.messages
        sums = self.sums
        sums.publishers = len(self._engines)
        if len(self._groups) > 1:
            sums.doubt = "groups"
        if sums.doubt is not None:
            for name in _TOLD_APART:
                sums.new += getattr(sums, name)
                setattr(sums, name, 0)
        return sums

    def _message(self, message: KvMessage) -> None:
        sums = self.sums
        place = message.source, message.rank or 0
        engine = self._engines.get(place)
        if engine is None:
            engine = self._engines[place] = _EngineBlocks()
            sums.late |= message.number > 0
        elif message.number <= engine.last:
            if message.time <= engine.time:
                return  # it came twice
            sums.restarts += 1
            sums.missing += message.number
            engine.empty()
        else:
            sums.missing += message.number - engine.last - 1
        engine.last, engine.time = message.number, message.time
        sums.messages += 1
        for event in message.events:
            if isinstance(event, ClearedBlocks):
                engine.empty()
            elif event.medium is not None:
                sums.doubt = sums.doubt or "tiers"
            elif isinstance(event, RemovedBlocks):
                self._removed(engine, event)
            else:
                self._stored(engine, event)

    def _removed(self, engine: _EngineBlocks, event: RemovedBlocks) -> None:
        for one in event.ids:
            known = self._blocks.get(one)
            if known is None:  # stored before the recording began
                self._remember(one, _StoredBlock(None, None, None, 0))
            elif engine.state.get(one) == _THERE:
                self.sums.removed += known.size
            engine.state[one] = _GONE

    def _stored(self, engine: _EngineBlocks, event: StoredBlocks) -> None:
        sums = self.sums
        self._groups.add(event.group)
        parent, unknown = event.parent, len(event.texts) != len(event.ids)
        for at, one in enumerate(event.ids):
            block = self._block(parent, None if unknown else event.texts[at], event.size)
            known = self._let_go(one)
            if known is not None and known.size and known.parent != parent:
                sums.doubt = "names"
            row = self._new(block) if known is None else _AGAIN.get(engine.state.get(one, ""), "routed")
            setattr(sums, row, getattr(sums, row) + event.size)
            sums.stored += event.size
            self._remember(one, block)
            engine.state[one] = _THERE
            parent = one

    def _block(self, parent: str | None, text: str | None, size: int) -> _StoredBlock:
        before = b"" if parent is None else self._blocks[parent].whole if parent in self._blocks else None
        return _StoredBlock(parent, text, None if text is None or before is None else _chained(before, text), size)

    def _new(self, block: _StoredBlock) -> str:
        """Row of a block that is seen for the first time."""
        if block.whole is not None and block.whole in self._texts:
            return "salted"
        return "changed" if block.text in self._texts else "new"

    def _remember(self, one: str, block: _StoredBlock) -> None:
        self._blocks[one] = block
        self._texts.update(_texts(block))
        if len(self._blocks) > self._most:
            oldest = next(iter(self._blocks))
            self._let_go(oldest)
            for engine in self._engines.values():
                engine.state.pop(oldest, None)
            self.sums.forgotten += 1

    def _let_go(self, one: str) -> _StoredBlock | None:
        """Take out a block; other ones may have its text."""
        block = self._blocks.pop(one, None)
        for text in _texts(block) if block is not None else ():
            self._texts[text] -= 1
            if not self._texts[text]:
                del self._texts[text]
        return block


def _texts(block: _StoredBlock) -> list[str | bytes]:
    return [text for text in (block.text, block.whole) if text is not None]


def _chained(before: bytes, text: str) -> bytes:
    from hashlib import blake2b  # takes longer to import than a short log to read

    return blake2b(before + text.encode(), digest_size=12).digest()


def accounts(sessions: Iterable[Session], names: Mapping[str, str]) -> list[Account]:
    """Return one account for each server with known events, after their sum; empty if there are none.

    ``names``: names of the rules, by code.
    """
    found = [account for session in sessions if (account := _account(session, names)) is not None]
    return [_sum(found), *found] if found else []


def _account(session: Session, names: Mapping[str, str]) -> Account | None:
    told = [events for events in session.kv_events if events.stored and events.doubt is None]
    if not told or len(told) < len(session.kv_events):
        return None
    facts = ENGINES.get(session.engine)
    lost, changed = (names.get(facts.evicted_rule), names.get(facts.changed_rule)) if facts else (None, None)
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
