"""Evaluates forwarded requests: which prompt each follows, what changed, what it cost; and records it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cachedoctor.inputs.metrics import responses
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.live.proxy import known_conversation, record_file
from cachedoctor.live.proxy.body_fixes import BodyFixer
from cachedoctor.live.proxy.exchange import (
    Change,
    Exchange,
    PassedRequest,
    ProxyOptions,
    Record,
    RecordedChange,
    RecordedDetails,
    RecordedResponse,
    RecordedUsage,
)
from cachedoctor.live.proxy.json_spans import decode
from cachedoctor.live.proxy.record_file import RecordFile, unpacked
from cachedoctor.model import CacheDoctorError, PromptDiff
from cachedoctor.prompts import compare_prompts, conversations, request_bodies, run_diff
from cachedoctor.prompts import conversations as mode_switches
from cachedoctor.prompts.model_files import ModelFiles
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.redaction import harmless_words
from cachedoctor.redaction.secrets import hidden

MOST_BYTES = 24 << 20
"""Bytes of the bodies whose prompts are kept; a prompt takes a few times its body."""


class Earlier(msgspec.Struct):
    """A prompt that was forwarded."""

    prompt: Prompt
    sent: float
    size: int
    """Bytes of its body."""
    conversation: int
    prompt_tokens: int | None
    """Prompt tokens as the server counted them."""
    tools: list[tuple[str, ...]]
    """Tool names of this prompt, then those of earlier prompts in its conversation."""
    fixed: Prompt | None = None
    """The prompt as simulated fixes would have changed it; None if they would have changed nothing."""
    reply: dict[str, Any] | None = None
    """The answer, as clients send it back; None if unknown."""
    head: int | None = None
    """Hash of its system prompt without dates and times; only for single-turn requests."""


class EarlierPrompts:
    """The earlier prompts: as many as ``diff`` looks back, and no more than fit."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Earlier, conversations.Outline]] = deque()
        self._size = 0
        self._count = 0

    def follow(self, new: Earlier) -> Earlier | None:
        """Give the prompt that a new one follows, and keep the new one; numbers its conversation."""
        outline = conversations.outline(new.prompt)
        new.head = _head(new.prompt) if len(outline.prefixes) == 1 else None
        # Answers end in another order than requests begin.
        older = [(earlier, known) for earlier, known in self._kept if earlier.sent <= new.sent]
        index = conversations.before([known for _, known in older], outline)
        found = self._alike(older, new, outline) if index is None else older[index][0]
        if found is None:
            self._count += 1
        new.conversation = self._count if found is None else found.conversation
        names = [] if found is None else found.tools[: conversations.LOOK_BACK - 1]
        new.tools = [mode_switches.tool_names(new.prompt), *names]
        self._keep(new, outline)
        return found

    def _alike(
        self, older: list[tuple[Earlier, conversations.Outline]], new: Earlier, outline: conversations.Outline
    ) -> Earlier | None:
        """Give the last single turn before a single turn whose head differs from it in dates and times alone.

        A conversation that continued has none.
        """
        if new.head is None:
            return None
        chats = {earlier.conversation for earlier, known in self._kept if len(known.prefixes) != 1}
        alike = (
            earlier
            for earlier, known in reversed(older)
            if earlier.head == new.head and known.head != outline.head and earlier.conversation not in chats
        )
        return next(alike, None)

    def _keep(self, new: Earlier, outline: conversations.Outline) -> None:
        if new.size > MOST_BYTES:
            return
        self._kept.append((new, outline))
        self._size += new.size
        while len(self._kept) > conversations.LOOK_BACK or self._size > MOST_BYTES:
            self._size -= self._kept.popleft()[0].size


def _head(prompt: Prompt) -> int | None:
    try:
        found = None if prompt.body is None else known_conversation.trail(prompt.body)
    except ValueError:  # nested too deeply
        return None
    return None if found is None else found.head


_CUT_OFF = "the body is not JSON that can be read"


_AROUND = 40
"""Code points that a template writes between the parts of a reply."""


class _Answered(NamedTuple):
    """Numbers from the answer."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    model: str | None = None


class _Asked(NamedTuple):
    """A request body that holds one prompt or several."""

    body: dict[str, Any]
    prompts: list[Prompt]


class Looking:
    """Evaluates one request after the other."""

    def __init__(self, asked: ProxyOptions) -> None:
        """Load the tokenizer, open the file of records. Raises CacheDoctorError if one of them cannot be used."""
        self._asked = asked
        self._files = ModelFiles(asked.tokenizer, asked.template)
        self._ask = run_diff.DiffJob(asked.tokenizer, asked.template)
        self._earlier = EarlierPrompts()
        self._fixer = BodyFixer(asked.fixes) if asked.fixes and asked.dry_run else None
        self._records = None if asked.record is None else RecordFile(asked.record, asked.record_size)

    def close(self) -> None:
        """Close what is open."""
        self._files.close()
        if self._records is not None:
            self._records.close()

    def at(self, exchange: Exchange) -> PassedRequest:
        """Evaluate a request, and record it."""
        answered = _answered(exchange)
        seen = PassedRequest(
            exchange.sent, harmless_words.path(exchange.path), exchange.status, exchange.seconds,
            harmless_words.word(exchange.method, "method"), exchange.first_byte,
            answered.model and harmless_words.model(answered.model), None,
            answered.prompt_tokens, answered.cached_tokens, edits=list(exchange.edits),
            fault=exchange.fault, untold=exchange.untold, is_prompt=True, unfixed=exchange.unfixed,
        )  # fmt: skip
        found = self._read(exchange, seen)
        if found is None:
            return seen
        model = found.body.get("model")
        if seen.model is None and isinstance(model, str):
            seen.model = harmless_words.model(model)
        recorded: PromptDiff | None = None
        if len(found.prompts) == 1 and found.prompts[0].text:
            try:
                recorded = self._followed(found.prompts[0], exchange, seen)
            except CacheDoctorError as error:  # a template or a server that gives no tokens
                seen.notes.append(error.message)
        self._record(exchange, seen, found.body, recorded)
        return seen

    def _read(self, exchange: Exchange, seen: PassedRequest) -> _Asked | None:
        """The prompts of the body; None if there are none, or it cannot be read."""
        body = None if exchange.body is None else unpacked(exchange.body, exchange.coding)
        if body is None:
            seen.untold = (
                seen.untold
                or f"the body is {harmless_words.word(exchange.coding, 'coding')}, which is not decompressed here"
            )
            return None
        found = _parsed(body, exchange.path)
        if found is None:
            seen.untold = _CUT_OFF
        elif not found.prompts:
            seen.is_prompt = False
        return found if found is not None and found.prompts else None

    def _followed(self, prompt: Prompt, exchange: Exchange, seen: PassedRequest) -> PromptDiff | None:
        """Compare with the request before it; what may be recorded of the difference is given."""
        size = len(exchange.body or b"")
        prompt = run_diff.rendered(prompt, self._ask, self._files)
        reply = decode(exchange.reply.decode()) if exchange.reply else None
        new = Earlier(prompt, exchange.sent, size, 0, seen.prompt_tokens, [], self._tried(exchange, seen), reply)
        before = self._earlier.follow(new)
        seen.conversation = new.conversation
        if before is None:
            return None
        options = compare_prompts.DiffOptions()
        found = compare_prompts.compare(before.prompt, prompt, self._files.cutter, options)
        found = conversations.told(found, before.prompt, prompt, before.tools[1:])
        seen.change = _change(found, seen.prompt_tokens)
        if None not in (before.prompt_tokens, seen.prompt_tokens, seen.cached_tokens):
            seen.recomputed = _recomputed(before.prompt_tokens or 0, seen.prompt_tokens or 0, seen.cached_tokens or 0)
        if before.fixed is not None or new.fixed is not None:
            scale = _scale(found, seen.prompt_tokens)
            self._promise(before, new.fixed or prompt, scale, seen)
        return compare_prompts.hashed(found)

    def _tried(self, exchange: Exchange, seen: PassedRequest) -> Prompt | None:
        """The prompt as simulated fixes would have changed it; None if nothing is simulated or would have changed."""
        body = unpacked(exchange.body or b"", exchange.coding)
        if self._fixer is None or body is None:
            return None
        fixed = self._fixer.fix(body, exchange.path, exchange.sender)
        if exchange.reply:
            self._fixer.replied(fixed, decode(exchange.reply.decode()))
        seen.edits += fixed.edits
        seen.dry_run = bool(fixed.edits)
        found = _parsed(fixed.body, exchange.path) if fixed.edits else None
        return None if found is None else run_diff.rendered(found.prompts[0], self._ask, self._files)

    def _promise(self, before: Earlier, b: Prompt, scale: float, seen: PassedRequest) -> None:
        """Compute what the fixes in both requests would have kept, on memory that can be truncated anywhere."""
        a, cutter = before.fixed or before.prompt, self._files.cutter
        found = compare_prompts.compare(a, b, cutter, compare_prompts.DiffOptions())
        common = found.common_prefix_tokens
        if before.reply is not None and b.text.startswith(a.text):
            held = b.text[: _with_reply(b.text, len(a.text), before.reply)]
            common = max(common, len(cutter.encode(held)) + cutter.leading(held))
        seen.would_reuse = max(0, round(min(common, found.b.tokens - 1) * scale))
        if seen.cached_tokens is not None:
            seen.would_save = max(0, seen.would_reuse - seen.cached_tokens)

    def _record(self, exchange: Exchange, seen: PassedRequest, body: dict[str, Any], change: PromptDiff | None) -> None:
        if self._records is None:
            return
        kept = self._asked.keep_text
        record = Record(
            "cachedoctor proxy", 1, "kept" if kept else "digests", seen.sent, seen.path, seen.status,
            round(seen.seconds, 6), seen.fault, _told(seen), seen.conversation, seen.recomputed, _recorded(change),
            seen.edits, seen.dry_run, seen.unfixed, body if kept else record_file.without_texts(body),
        )  # fmt: skip
        # Not as msgspec writes JSON: a body may hold halves of surrogates.
        note = self._records.add(json.dumps(msgspec.to_builtins(record), separators=(",", ":")).encode())
        if note:
            seen.notes.append(note)


def _answered(exchange: Exchange) -> _Answered:
    """Numbers that the answer shows of its prompt; none if it is not a single answer."""
    answer = unpacked(exchange.answer, exchange.answer_coding)
    if not answer:
        return _Answered()
    try:
        given = responses.read([answer], "the answer")
    except CacheDoctorError:
        return _Answered()
    if len(given.answers.each) != 1:
        return _Answered()
    told = given.answers.each[0]
    return _Answered(told.prompt_tokens, told.cached_tokens, given.model)


def _parsed(body: bytes, path: str) -> _Asked | None:
    """The body and its prompts; no prompts if it carries none. None if it cannot be read."""
    try:
        value = json.loads(sound_json(body))
        if not isinstance(value, dict):
            return _Asked({}, [])
        kind = request_bodies.kind_of(value, path)
        return _Asked(value, [] if kind is None else request_bodies.prompts_of(value, kind, path))
    except (ValueError, RecursionError, CacheDoctorError):
        return None


def _change(found: PromptDiff, prompt_tokens: int | None) -> Change:
    first = found.first
    if first is None:
        return Change("equal", found.explanation, None, found.common_prefix_tokens)
    return Change(
        first.kind,
        hidden(found.explanation),
        None if first.place is None else hidden(first.place),
        round(found.common_prefix_tokens * _scale(found, prompt_tokens)),
        None if first.client is None else first.client.title,
        hidden(first.advice[0].text) if first.advice else None,
    )


def _with_reply(text: str, at: int, reply: dict[str, Any]) -> int:
    """How far a prompt equals the previous one, which ends at ``at``, and its reply as it was generated."""
    for said in _said(reply):
        start = text.find(said, at, at + len(said) + _AROUND)
        if start < 0:
            break
        at = start + len(said)
    return at


def _said(reply: dict[str, Any]) -> Iterator[str]:
    """The texts of a reply in the order in which models write them."""
    content = reply.get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    texts = [reply.get(key) for key in ("reasoning_content", "reasoning", "thinking")]
    texts += [block.get(key) for block in blocks if isinstance(block, dict) for key in ("thinking", "text")]
    calls = [call.get("function") or {} for call in reply.get("tool_calls") or () if isinstance(call, dict)]
    texts += [call.get(key) for call in calls for key in ("name", "arguments")]
    return (text.strip() for text in texts if isinstance(text, str) and text.strip())


def _recomputed(before: int, prompt: int, cached: int) -> int:
    """Tokens of the prompt before that were recomputed; the last token of a prompt always is."""
    return max(0, min(before, prompt - 1) - cached)


def _scale(found: PromptDiff, prompt_tokens: int | None) -> float:
    """Server tokens per token counted here; 1 if the server does not report them."""
    return prompt_tokens / found.b.tokens if prompt_tokens is not None and found.b.tokens and not found.exact else 1.0


def _told(seen: PassedRequest) -> RecordedResponse:
    """Counts in the form that every reader of responses knows."""
    cached = None if seen.cached_tokens is None else RecordedDetails(seen.cached_tokens)
    return RecordedResponse(
        seen.model, RecordedUsage(seen.prompt_tokens, None if seen.prompt_tokens is None else cached)
    )


def _recorded(change: PromptDiff | None) -> RecordedChange | None:
    if change is None or change.first is None:
        return None
    return RecordedChange(change.first.kind, change.first.field, change.first.place, change.explanation)


def looked(looking: Looking, data: bytes) -> bytes:
    """Evaluate an exchange that came through a pipe."""
    return msgspec.msgpack.encode(looking.at(msgspec.msgpack.decode(data, type=Exchange)))
