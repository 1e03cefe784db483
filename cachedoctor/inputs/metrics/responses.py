"""Responses given with a log: one Answer per request, with its usage in any of the API shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from cachedoctor.inputs.captures import recognise
from cachedoctor.inputs.captures.captured import values_of
from cachedoctor.inputs.metrics.prometheus import whole_lines
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import AgentClaim, Answer, Answers, CacheDoctorError, ClaimedRequest
from cachedoctor.model.bounds import MOST

PROVIDER = "the provider"
"""Source of the reason for less reuse, if the answer does not name an agent."""
MAX_HELD = 64 * 1024 * 1024
"""Bytes of one line, or of all that is not JSONL."""
MAX_DEPTH = 64
"""Levels of what spans lines; responses have about ten."""

_TOKEN = late(rb'"(?:[^"\\\n]|\\.)*+"?|[{}\[\]]')
"""A string not closed on its line is taken to end there: nothing is checked twice."""
_FIELD = late(rb"(?:event|id|retry)?:")
"""What an event stream has besides data."""
_DATA = b"data:"
_JSON_VALUES_HINT = "give the server's responses: one per line, an array, or the lines of a stream"


class PlacedObject(NamedTuple):
    """One JSON object and where it begins."""

    text: bytes
    line: int
    streamed: bool = False
    """A stream sent it."""


def values(chunks: Iterable[bytes], path: str) -> Iterator[PlacedObject]:
    """Yield the objects in a file; one that is truncated by the end of the file is left out.

    Raises:
        CacheDoctorError: it is not JSON, or too much of it is one value.
    """
    held, first = bytearray(), 0
    for number, line in enumerate(whole_lines(chunks, lambda size: _refuse_large(size, path)), 1):
        text = line.strip()
        if held and _is_next(line, held, path):
            raise CacheDoctorError(f"{path}: the JSON in line {first} is incomplete", "remove the incomplete line")
        if held or _spans_lines(text, path):
            first = first or number
            held += line
            held += b"\n"
            _refuse_large(len(held), path)
        elif text.startswith(_DATA):
            yield PlacedObject(text.removeprefix(_DATA), number, streamed=True)
        elif text.startswith(b"{"):
            yield PlacedObject(text, number)
        elif text and not _FIELD.match(text):
            raise CacheDoctorError(f"{path}: line {number} is not JSON", _JSON_VALUES_HINT)
    yield from _document(bytes(held), first, path)


def _refuse_large(size: int, path: str) -> None:
    if size > MAX_HELD:
        raise CacheDoctorError(
            f"{path}: a single value is larger than {MAX_HELD >> 20} MiB", "give one response per line"
        )


def _spans_lines(text: bytes, path: str) -> bool:
    """Whether a line is an array, or begins with an object that does not end with it."""
    if not text.startswith((b"{", b"[")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return True
    except RecursionError as error:
        raise _too_deep(path) from error
    return text.startswith(b"[")


def _is_next(line: bytes, held: bytearray, path: str) -> bool:
    """Whether a line is an object after an unfinished one: nothing that is laid out over lines looks like it."""
    return line.startswith(b'{"') and held.startswith(b"{") and not _spans_lines(line.strip(), path)


def _document(text: bytes, line: int, path: str) -> Iterator[PlacedObject]:
    """Objects that lie in no other object. A file of JSON has no more than one that does not end: its last."""
    depth = start = at = 0
    inside = 0
    """Depth of the object that is open, 0 when there is none."""
    for token in _TOKEN.finditer(text):
        found = token[0]
        if found in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(path)
            if not inside and found == b"{":
                inside, start = depth, token.start()
        elif found in b"}]":
            if inside == depth:
                line, at, inside = line + text.count(b"\n", at, start), start, 0
                yield PlacedObject(text[start : token.end()], line)
            depth = max(0, depth - 1)


def _too_deep(path: str) -> CacheDoctorError:
    return CacheDoctorError(
        f"{path}: JSON is nested too deeply", f"the response is nested more than {MAX_DEPTH} levels deep"
    )


_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_T = TypeVar("_T")
_NONE = msgspec.Raw()
_LAYERS = 3


class _Details(msgspec.Struct):
    cached_tokens: _Tokens | None = None
    created_cache_tokens: _Tokens | None = None


class Usage(msgspec.Struct):
    """Key ``usage`` of a response, whatever the endpoint."""

    prompt_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: _Tokens | None = None
    """For /v1/responses: all. For /v1/messages: without those that were read from the cache or written to it."""
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: _Tokens | None = None
    cache_creation_input_tokens: _Tokens | None = None
    total_tokens: _Tokens | None = None


class Meta(msgspec.Struct):
    """Key ``meta_info`` of SGLang's /generate."""

    id: str | None = None
    prompt_tokens: _Tokens | None = None
    cached_tokens: _Tokens | None = None


class Timings(msgspec.Struct):
    """Key ``timings`` of llama-server; older builds have no ``cache_n``."""

    prompt_n: _Tokens | None = None
    """Tokens that were computed."""
    cache_n: _Tokens | None = None


class Response(msgspec.Struct):
    """Keys of a response that are needed here, each parsed separately: an invalid one does not affect the others."""

    id: msgspec.Raw = _NONE
    type: msgspec.Raw = _NONE
    object: msgspec.Raw = _NONE
    model: msgspec.Raw = _NONE
    stop: msgspec.Raw = _NONE
    """true in the last part of a reply that llama-server's /completion streams; other servers have none."""
    usage: msgspec.Raw = _NONE
    meta_info: msgspec.Raw = _NONE
    timings: msgspec.Raw = _NONE
    response: msgspec.Raw = _NONE
    body: msgspec.Raw = _NONE
    message: msgspec.Raw = _NONE
    diagnostics: msgspec.Raw = _NONE
    """Why less was reused, according to the provider; recordings of agents contain their own reasons in this form."""

    def layers(self) -> list[Response]:
        """Itself, and what an event, a batch file (in two wrappers) or a proxy has wrapped."""
        found = [self]
        while len(found) < _LAYERS:
            wrapped = (decoded(raw, Response) for raw in (found[-1].response, found[-1].body, found[-1].message))
            inner = next((response for response in wrapped if response is not None), None)
            if inner is None:
                break
            found.append(inner)
        return found


class _MissReason(msgspec.Struct):
    type: str = ""
    cache_missed_input_tokens: int | None = None


class _Diagnostics(msgspec.Struct):
    cache_miss_reason: _MissReason | None = None
    by: str = PROVIDER


class ResponseUsage(msgspec.Struct, frozen=True):
    """Numbers that a response shows."""

    prompt_tokens: int
    cached_tokens: int | None
    engine: str | None = None
    """Engine that writes such responses; None if many do."""


def decoded(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T | None:
    """Read JSON as ``kind``; None for anything else."""
    if not isinstance(raw, bytes) and not bytes(raw):
        return None
    try:
        return msgspec.json.decode(sound_json(bytes(raw)), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def told(usage: Usage | None, meta: Meta | None, timings: Timings | None) -> ResponseUsage | None:
    """Say how long the prompt was and how much of it was reused; None when not even the first is known."""
    found = _of_usage(usage) if usage is not None else None
    if timings is not None and timings.cache_n is not None and timings.prompt_n is not None:
        return _sound(ResponseUsage(timings.prompt_n + timings.cache_n, timings.cache_n, "llama.cpp"))
    if meta is not None and meta.prompt_tokens is not None:
        return _sound(ResponseUsage(meta.prompt_tokens, meta.cached_tokens, "sglang"))
    if found is not None and timings is not None:
        found = msgspec.structs.replace(found, engine="llama.cpp")
    return None if found is None else _sound(found)


def _of_usage(usage: Usage) -> ResponseUsage | None:
    if usage.prompt_tokens is not None:
        details = usage.prompt_tokens_details or _Details()
        engine = "vllm" if details.created_cache_tokens is not None else None
        return ResponseUsage(usage.prompt_tokens, details.cached_tokens, engine)
    if usage.input_tokens is None:
        return None
    if usage.input_tokens_details is not None or usage.total_tokens is not None:
        return ResponseUsage(usage.input_tokens, (usage.input_tokens_details or _Details()).cached_tokens)
    # vLLM 0.32: 49 + 896 read, or 49 + 896 written, of a prompt of 945 tokens.
    parts = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return ResponseUsage(usage.input_tokens + sum(part or 0 for part in parts), usage.cache_read_input_tokens)


def _sound(found: ResponseUsage) -> ResponseUsage:
    """Reject more reused tokens than prompt tokens: SGLang reported that for retracted requests up to 0.5.3 (PR
    11900)."""
    if found.cached_tokens is not None and found.cached_tokens > found.prompt_tokens:
        return msgspec.structs.replace(found, cached_tokens=None)
    return found


MAX_EACH = 10_000
"""Answers that are kept one by one."""
MAX_MODEL = 200
"""Characters of a model's name."""
_FRUITLESS = 1_000_000
"""Consecutive values without information; the longest stream of a reply has fewer parts."""
_STARTS = frozenset({b'"message_start"', b'"response.created"'})
_ENDS = frozenset({b'"message_stop"', b'"response.completed"', b'"response.incomplete"'})
"""Types of events of a stream that begin and end an answer; ``[DONE]`` ends one, too."""
_REASON = late(r"[a-z][a-z0-9_-]{0,63}")
"""Format of the reasons that providers and agents write."""
_AGENTS = frozenset({"Claude Code", "Copilot"})
"""Agents whose recordings contain their own reason."""
_SILENT = frozenset({"unavailable", "previous_message_not_found"})
"""Reasons that show nothing about the prompt (Anthropic, cache diagnostics)."""
_RESPONSES_HINT = (
    'each response needs usage; a stream has usage if the request has stream_options {"include_usage": true}'
)


class ResponseFile(NamedTuple):
    """The answers in one file."""

    answers: Answers
    engine: str | None
    """Engine that wrote them, if their shape shows it."""
    model: str | None
    """None if they name none, or several."""
    claims: list[ClaimedRequest]
    """Why less was reused, as stated by the program that wrote the records."""


def read(chunks: Iterable[bytes], path: str) -> ResponseFile:
    """Read the responses in a file, or those in a recording of requests.

    Raises:
        CacheDoctorError: it holds none that says how long its prompt was.
    """
    reader = _AnswerSums(path)
    head, rest = _begun(chunks)
    if recognise.looks(head):
        _of_recording(b"".join(rest), reader, path)
        rest = iter(())
    for value in values(rest, path):
        reader.take(value)
        if reader.fruitless > _FRUITLESS:
            raise CacheDoctorError(f"{path}: contains a million values in a row without token usage", _RESPONSES_HINT)
    reader.end()
    if not reader.answers.requests and not reader.claims:
        raise CacheDoctorError(f"{path}: contains no response with a prompt length", _RESPONSES_HINT)
    model = reader.models.pop() if len(reader.models) == 1 else None
    return ResponseFile(reader.answers, reader.engine, model, reader.claims)


def of_answer(answer: bytes) -> Answer | None:
    """Read what is kept of one answer; None if it does not show the length of its prompt, or contains several
    answers."""
    reader = _of_one(answer)
    return None if reader is None else reader.only


def claim_of(answer: bytes) -> ClaimedRequest | None:
    """Read why less was reused, from what is kept of one answer, with its counts; None if it does not show it."""
    reader = _of_one(answer)
    if reader is None or len(reader.claims) != 1:
        return None
    told = reader.only
    counts = (None, None) if told is None else (told.prompt_tokens, told.cached_tokens)
    return ClaimedRequest(reader.claims[0].claim, *counts)


def _of_one(answer: bytes) -> _AnswerSums | None:
    """Read what is kept of one answer; None if nothing is, or if it cannot be read."""
    if not answer:
        return None
    reader = _AnswerSums("the answer")
    try:
        for value in values([answer], "the answer"):
            reader.take(value)
    except CacheDoctorError:
        return None
    reader.end()
    return reader


def _begun(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a file, and its whole content."""
    iterator, parts = iter(chunks), list[bytes]()
    while sum(map(len, parts)) < recognise.HEAD:
        part = next(iterator, None)
        if part is None:
            break
        parts.append(part)
    return b"".join(parts)[: recognise.HEAD], chain(parts, iterator)


def _of_recording(data: bytes, reader: _AnswerSums, path: str) -> None:
    """Take the answers of a recording, one for each request."""
    capture = recognise.of_values(values_of(data.decode("utf-8", "replace"), path) or [])
    for number, one in enumerate(capture.requests if capture is not None else [], 1):
        for value in values([one.answer], path):
            reader.take(value._replace(line=number))
        reader.end()


class _AnswerSums:
    """Adds up answers; several lines of a stream about one request count as one answer."""

    def __init__(self, path: str) -> None:
        self.answers = Answers(path, "responses")
        self.engine: str | None = None
        self.models: set[str] = set()
        self.fruitless = 0
        self.claims: list[ClaimedRequest] = []
        self._claim: AgentClaim | None = None
        self._stream: bytes | None = None
        """Id of the answer that is being streamed."""
        self._usage: Usage | None = None
        self._told: ResponseUsage | None = None
        self._line = 0

    @property
    def only(self) -> Answer | None:
        """The answer; None if there is none, or several."""
        return self.answers.each[0] if len(self.answers.each) == 1 else None

    def take(self, value: PlacedObject) -> None:
        """Take the next value."""
        self.fruitless += 1
        response = decoded(value.text, Response)
        if response is None:
            if value.streamed:
                self.end()  # [DONE]
            return
        layers, kind = response.layers(), bytes(response.type)
        whole = not value.streamed and not bytes(response.object).endswith(b'.chunk"')
        name = next(filter(None, map(_name, layers)), b"")
        if whole or kind in _STARTS or (name and self._stream not in (None, name)):
            self.end()
        self._stream = name or self._stream
        for layer in layers:
            self._hear(layer, value.line)
        if whole or kind in _ENDS or bytes(response.stop) == b"true":
            self.end()

    def _hear(self, response: Response, line: int) -> None:
        """Take the numbers of a response, or of a part of one; later ones replace earlier ones."""
        model = decoded(response.model, str)
        if model is not None and len(self.models) < 2:
            self.models.add(model[:MAX_MODEL])
        self._claim = _claimed(response) or self._claim
        usage = decoded(response.usage, Usage)
        if usage is not None:
            self._usage = usage if self._usage is None else _joined(self._usage, usage)
        found = told(self._usage, decoded(response.meta_info, Meta), decoded(response.timings, Timings))
        if found is None:
            return
        self.fruitless = 0
        self._line = line if self._told is None else self._line
        self._told = found

    def end(self) -> None:
        """An answer is over."""
        found, self._told, self._usage, self._stream = self._told, None, None, None
        claim, self._claim = self._claim, None
        if claim is not None and len(self.claims) < MAX_EACH:
            counts = (None, None) if found is None else (found.prompt_tokens, found.cached_tokens)
            self.claims.append(ClaimedRequest(claim, *counts))
        if found is None:
            return
        answers = self.answers
        self.engine = self.engine or found.engine
        answers.requests += 1
        if found.cached_tokens is not None and answers.prompt_tokens + found.prompt_tokens <= MOST:
            answers.told += 1
            answers.prompt_tokens += found.prompt_tokens
            answers.cached_tokens += found.cached_tokens
        if len(answers.each) < MAX_EACH:
            answers.each.append(Answer(found.prompt_tokens, found.cached_tokens, self._line))


def _claimed(response: Response) -> AgentClaim | None:
    found = decoded(response.diagnostics, _Diagnostics)
    reason = None if found is None else found.cache_miss_reason
    if found is None or reason is None or not _REASON.fullmatch(reason.type) or reason.type in _SILENT:
        return None
    missed = reason.cache_missed_input_tokens
    is_count = missed is not None and 0 <= missed <= MOST
    return AgentClaim(found.by if found.by in _AGENTS else PROVIDER, reason.type, missed if is_count else None)


def _name(response: Response) -> bytes:
    """Id that distinguishes the parts of one answer from those of another; empty if there is none."""
    if bytes(response.id):
        return bytes(response.id)
    meta = decoded(response.meta_info, Meta)
    return (meta.id or "").encode("utf-8", "replace") if meta is not None else b""


def _joined(before: Usage, usage: Usage) -> Usage:
    """The two as one: /v1/messages streams the prompt's tokens at first and the reply's at the end."""
    said = {name: value for name, value in msgspec.structs.asdict(usage).items() if value is not None}
    return msgspec.structs.replace(before, **said)
