"""Requests that SGLang logs (--log-requests): what each request reused, and its common prefix with earlier prompts.

Prompts are compared and then forgotten: no prompt leaves this module.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, TypeVar

import msgspec

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.inputs.captures.sglang_requests import uncut
from cachedoctor.knowledge import literals
from cachedoctor.knowledge.texts import longest_prefix, sound_json
from cachedoctor.model import Answer, Answers
from cachedoctor.model.bounds import COUNT

_EACH = 10_000
"""Maximum answers that are kept one by one."""
_RIDS = 4096
"""Requests remembered by id until they finish, to recognise one that is logged twice."""
_PROMPTS = 64
_CHARACTERS = 16 << 20
"""Characters of the prompts that a new one is compared with, all together."""
_HEALTH = "HEALTH_CHECK"
"""Prefix of the ids of requests that the server sends to itself."""


_T = TypeVar("_T")

_HEADER = "x-anthropic-billing-header:"
_HEAD = 512
"""Characters at the start of a prompt within which the header is real; later it may be quoted text."""


class RecentPrompts:
    """The latest prompts, to measure the common prefix of a new prompt with them."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._size = 0

    def compare(self, text: str) -> int | None:
        """Return the characters that ``text`` shares with the start of the best earlier prompt, and store ``text``.

        None without an earlier prompt.
        """
        best = longest_prefix(text, reversed(self._texts))
        self._texts.append(text)
        self._size += len(text)
        while len(self._texts) > _PROMPTS or self._size > _CHARACTERS:
            self._size -= len(self._texts.popleft())
        return best


class RequestLog:
    """Reads the request lines of one server run."""

    def __init__(self, path: str) -> None:
        self.answers = Answers(path, "log")
        self.header = False
        """Whether a prompt has Claude Code's billing header."""
        self._prompts = RecentPrompts()
        self._prefixes: OrderedDict[str, int | None] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()

    def received(self, event: Event) -> None:
        """Process a line about a request that came in."""
        found = _read(event)
        if found is not None and found.rid not in self._prefixes:
            self._remember(found)

    def finished(self, event: Event) -> None:
        """Process a line about an answered request; a request that was counted before or was aborted is not counted."""
        found = _read(event)
        if found is None or found.prompt_tokens is None or found.aborted or found.rid in self._finished:
            return
        _put(self._finished, found.rid, None)
        if found.rid not in self._prefixes:
            self._remember(found)
        answers, prompt, cached = self.answers, found.prompt_tokens, found.cached_tokens
        answers.requests += 1
        if cached is not None:
            answers.told += 1
            answers.prompt_tokens += prompt
            answers.cached_tokens += cached
        if len(answers.each) < _EACH:
            answers.each.append(Answer(prompt, cached, event.line, self._prefixes.pop(found.rid, None)))

    def _remember(self, found: LoggedRequest) -> None:
        text = found.text
        if text is not None:
            self.header |= _HEADER in text[:_HEAD]
            _put(self._prefixes, found.rid, self._prompts.compare(text))


class LoggedRequest(msgspec.Struct):
    """The values that a line shows of one request."""

    rid: str
    plain: str | None = None
    """The prompt of the JSON form."""
    printed: str = ""
    """The prompt of the text form, which is not JSON: a Python string literal."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    aborted: bool = False

    @property
    def text(self) -> str | None:
        """The prompt, as far as it was printed in one piece; parsed on access, because it is long."""
        return literals.string(self.printed) if self.plain is None else self.plain


def _read(event: Event) -> LoggedRequest | None:
    return read_request(event.fields["request"], "time" in event.fields)


def read_request(text: str, as_json: bool) -> LoggedRequest | None:
    """Read a request of either form; None if it is torn, a health check of the server, or several requests."""
    found = _from_json(text) if as_json else _from_text(text)
    return None if found is None or found.rid.startswith(_HEALTH) else found


def _from_text(text: str) -> LoggedRequest | None:
    parts = dict(literals.entries(text + ")"))
    request = dict(literals.entries(literals.inside(parts.get("", ""))))
    rid = literals.string(request.get("rid", ""))
    if rid is None or ")" not in parts:
        return None
    found = LoggedRequest(rid, printed=request.get("text", ""))
    out = dict(literals.entries(literals.inside(parts.get("out", ""))))
    meta = dict(literals.entries(literals.inside(out.get("meta_info", ""))))
    reason = dict(literals.entries(literals.inside(meta.get("finish_reason", ""))))
    _tell(found, {name: literals.value(meta.get(name, "None")) for name in ("prompt_tokens", "cached_tokens")})
    found.aborted = literals.string(reason.get("type", "")) == "abort"
    return found


class _LoggedRequest(msgspec.Struct):
    rid: Any = None
    obj: dict[str, Any] | None = None
    out: dict[str, Any] | None = None


def _from_json(text: str) -> LoggedRequest | None:
    try:
        record = msgspec.json.decode("{" + sound_json(text), type=_LoggedRequest)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    obj = record.obj or {}
    prompt = obj.get("text")
    if not isinstance(record.rid, str):
        return None
    found = LoggedRequest(record.rid, uncut(prompt) if isinstance(prompt, str) else None)
    meta = (record.out or {}).get("meta_info")
    if isinstance(meta, dict):
        _tell(found, meta)
        reason = meta.get("finish_reason")
        found.aborted = isinstance(reason, dict) and reason.get("type") == "abort"
    return found


def _tell(found: LoggedRequest, meta: dict[str, Any]) -> None:
    prompt, cached = (_count(meta.get(name)) for name in ("prompt_tokens", "cached_tokens"))
    found.prompt_tokens = prompt or None
    if prompt is not None and cached is not None and cached <= prompt:  # up to 0.5.3 more after a retraction
        found.cached_tokens = cached


def _count(value: Any) -> int | None:
    return COUNT.of(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _put(store: OrderedDict[str, _T], key: str, value: _T) -> None:
    store[key] = value
    if len(store) > _RIDS:
        store.popitem(last=False)
