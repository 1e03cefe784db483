"""Reads the output of a proxy about its requests: a line each, a row for each conversation."""

from __future__ import annotations

import time

import msgspec

from cachedoctor.inputs.metrics.responses import Usage
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.live.proxy.exchange import Change, PassedRequest
from cachedoctor.live.proxy.record_file import MARK
from cachedoctor.model.bounds import MOST
from cachedoctor.model.view import ConversationView, PassingView
from cachedoctor.redaction import harmless_words
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.text.text_safe import rows, visible

FEW = 16
"""Most recomputed tokens that are not reported for a request that only continues: they come from how a template ends a
reply."""


_INDENT = " " * 13
"""Indent of the continuation rows of a request: only its time and number are in the left column."""


def line(seen: PassedRequest, ascii_only: bool = False, width: int | None = None) -> str:
    """Describe what a request reused, how it ended, and what changed.

    One line; with a ``width`` in cells, rows broken at spaces.
    """
    parts = [f"{time.strftime('%H:%M:%S', time.localtime(seen.sent))} {_number(seen)} {_tokens(seen)}"]
    parts.append(f"{seen.seconds:.2f} s" if seen.seconds < 100 else f"{seen.seconds:,.0f} s")
    parts.append(f"{seen.path} {seen.status or '-'}")
    parts += [part for part in (seen.fault, seen.untold, _changed(seen), _cost(seen)) if part]
    parts += [f"would: {edit}" if seen.dry_run else edit for edit in seen.edits]
    parts += [seen.unfixed] if seen.unfixed else []
    if seen.would_reuse is not None:
        parts.append(_promise(seen))
    text = visible("; ".join(parts), ascii_only)
    return text if width is None else f"\n{_INDENT}".join(rows(text, width, max(width - len(_INDENT), 1)))


def _number(seen: PassedRequest) -> str:
    return "   " if seen.conversation is None else f"#{seen.conversation:<2}"


def _tokens(seen: PassedRequest) -> str:
    if seen.prompt_tokens is None:
        return "prompt length unknown"
    if seen.cached_tokens is None:
        return f"{seen.prompt_tokens:,} prompt tokens, reuse unknown"
    share = f" ({100 * seen.cached_tokens / seen.prompt_tokens:.0f} %)" if seen.prompt_tokens else ""
    return f"{seen.prompt_tokens:,} prompt tokens, {seen.cached_tokens:,} reused{share}"


def _changed(seen: PassedRequest) -> str:
    change = seen.change
    if change is None:
        return "" if seen.conversation is None else "a new conversation"
    if change.kind in ("appended", "equal"):
        return "only extended" if change.kind == "appended" else "the same prompt again"
    where = "" if change.place is None else f" in {change.place}"
    by = "" if change.client is None else f" ({change.client})"
    return f"{change.kind}{where}: {change.explanation}{by}"


def _cost(seen: PassedRequest) -> str:
    """Describe its cost; for a request that only continues, that the server had lost it."""
    if seen.recomputed is None or seen.change is None or not seen.recomputed:
        return ""
    goes_on = seen.change.kind in ("appended", "equal")
    if goes_on and seen.recomputed <= FEW:
        return ""
    words = f"{seen.recomputed:,} tokens of the previous prompt recomputed"
    return f"{words}, although the client changed nothing in it" if goes_on else words


def _promise(seen: PassedRequest) -> str:
    if seen.would_save is None:
        return f"would reuse {seen.would_reuse:,} tokens"
    return f"would reuse {seen.would_reuse:,} tokens, which saves {seen.would_save:,}"


_LONGEST = 64 << 20
"""Bytes of a line; with --keep-text a record holds the whole body."""
_MOST = 1024
"""Conversations that are kept: the one whose last request is the oldest goes first."""
_LINE = late(rb'\{"sent": ?\d[\d.e+]*, ?"path": ?"[^"\n]{0,4096}", ?"status": ?\d')
_LATEST = 1e11
"""Seconds since 1970: the year 5138."""
_SAME = ("appended", "equal")
"""Kinds of difference in which the client changed nothing it sent before."""


def is_passed(head: bytes) -> bool:
    """Whether a file that begins so was written by a proxy."""
    return head.startswith(MARK) or _LINE.match(head) is not None


class _Response(msgspec.Struct):
    model: str | None = None
    usage: Usage | None = None


class _RowRecord(msgspec.Struct):
    """The fields of a record that a row needs."""

    sent: float
    endpoint: str
    status: int
    recorder: str
    seconds: float = 0.0
    fault: str = ""
    response: _Response | None = None
    conversation: int | None = None
    recomputed: int | None = None
    change: Change | None = None
    edits: list[str] = []


class PassedRequests:
    """Takes the bytes of a file as they come."""

    def __init__(self, path: str) -> None:
        self._view = PassingView(path, [])
        self._open: dict[int, ConversationView] = {}
        """Conversations by number; after a proxy restart, the newer ones."""
        self._rows: list[ConversationView] = []
        self._line = bytearray()
        self._skips = False
        """The line is too long."""

    def take(self, chunk: bytes) -> list[PassedRequest]:
        """Take what was appended; gives the requests whose lines are complete now."""
        *ends, rest = chunk.split(b"\n")
        found = []
        for end in ends:
            self._grow(end)
            seen = self._whole()
            found += [] if seen is None else [seen]
        self._grow(rest)
        return found

    def view(self) -> PassingView:
        """Return the current view."""
        self._view.conversations = sorted(self._rows, key=lambda row: (-(row.recomputed or 0), -row.last))
        return self._view

    def _grow(self, part: bytes) -> None:
        self._skips = self._skips or len(self._line) + len(part) > _LONGEST
        self._line += b"" if self._skips else part

    def _whole(self) -> PassedRequest | None:
        line, skips = bytes(self._line).strip(), self._skips
        self._line.clear()
        self._skips = False
        if not line and not skips:
            return None
        seen = None if skips else read(line)
        if seen is None:
            self._view.unread += 1
        else:
            self._count(seen)
        return seen

    def _count(self, seen: PassedRequest) -> None:
        view = self._view
        view.requests += 1
        trouble = seen.fault or (str(seen.status) if seen.status >= 400 else "")
        view.failed += bool(trouble)
        if seen.prompt_tokens is not None and seen.cached_tokens is not None:
            view.counted += 1
            view.prompt_tokens += seen.prompt_tokens
            view.cached_tokens += seen.cached_tokens
        if seen.conversation is not None:
            self._row(seen, trouble)

    def _row(self, seen: PassedRequest, trouble: str) -> None:
        row = self._open.get(seen.conversation or 0)
        if row is None or seen.change is None:  # the first request of a conversation has none to be compared with
            row = self._open[seen.conversation or 0] = ConversationView(seen.conversation or 0)
            self._rows.append(row)
            self._forget()
        row.requests += 1
        row.model, row.trouble, row.last = seen.model or row.model, trouble, max(row.last, seen.sent)
        row.prompt_tokens, row.cached_tokens = seen.prompt_tokens, seen.cached_tokens
        if seen.change is None:
            return
        goes_on = seen.change.kind in _SAME
        if seen.recomputed is not None:
            again = 0 if goes_on and seen.recomputed <= FEW else seen.recomputed
            row.recomputed = (row.recomputed or 0) + again
            self._view.recomputed += again
            row.lost += goes_on and again > 0
        if not goes_on:
            row.changes += 1
            row.kind, row.place = seen.change.kind, seen.change.place and hidden(seen.change.place)
            row.explanation, row.advice = hidden(seen.change.explanation), seen.change.advice

    def _forget(self) -> None:
        if len(self._rows) <= _MOST:
            return
        oldest = min(self._rows[:-1], key=lambda row: row.last)
        self._rows.remove(oldest)
        if self._open.get(oldest.number) is oldest:
            del self._open[oldest.number]


def read(line: bytes) -> PassedRequest | None:
    """Read a line of either form; None for another line, a torn one, and one with impossible numbers."""
    try:
        seen = _of_record(line) if line.startswith(MARK) else msgspec.json.decode(sound_json(line), type=PassedRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    counts = (seen.prompt_tokens, seen.cached_tokens, seen.recomputed, seen.conversation, seen.status)
    seen.path, seen.method = harmless_words.path(seen.path), harmless_words.word(seen.method, "method")
    seen.model = seen.model and harmless_words.model(seen.model)  # of records that older versions wrote
    is_sound = all(count is None or 0 <= count <= MOST for count in counts) and 0 <= seen.seconds < _LATEST
    return seen if is_sound and 0 <= seen.sent < _LATEST else None


def _of_record(line: bytes) -> PassedRequest:
    record = msgspec.json.decode(sound_json(line), type=_RowRecord)
    response = record.response or _Response()
    usage = response.usage or Usage()
    details = usage.prompt_tokens_details
    return PassedRequest(
        record.sent, record.endpoint, record.status, record.seconds, model=response.model,
        conversation=record.conversation, prompt_tokens=usage.prompt_tokens,
        cached_tokens=None if details is None else details.cached_tokens, change=record.change,
        recomputed=record.recomputed, edits=record.edits, fault=record.fault, is_prompt=True,
    )  # fmt: skip
