"""Responses that were given beside a log: one Answer for each request, however its answer came. Knows no file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from cachedoctor.captures import recognise
from cachedoctor.captures.json_file import values_of
from cachedoctor.metrics.json_values import Value, values
from cachedoctor.metrics.usage import Meta, Response, Timings, Told, Usage, decoded, told
from cachedoctor.model import Answer, Answers, CacheDoctorError
from cachedoctor.model.bounds import MOST

MAX_EACH = 10_000
"""Answers that are kept one by one."""
MAX_MODEL = 200
"""Characters of a model's name."""
_FRUITLESS = 1_000_000
"""Values in a row that say nothing; the longest stream of a reply has fewer parts."""
_STARTS = frozenset({b'"message_start"', b'"response.created"'})
_ENDS = frozenset({b'"message_stop"', b'"response.completed"', b'"response.incomplete"'})
"""Types of events of a stream that begin and end an answer; ``[DONE]`` ends one, too."""
_HINT = 'a response has usage; a stream has it with stream_options {"include_usage": true}'


class Given(NamedTuple):
    """The answers in one file."""

    answers: Answers
    engine: str | None
    """Who wrote them, where their shape tells."""
    model: str | None
    """None where they name none, or several."""


def read(chunks: Iterable[bytes], path: str) -> Given:
    """Read the responses in a file, or those in a recording of requests.

    Raises:
        CacheDoctorError: it holds none that says how long its prompt was.
    """
    reader = _Reader(path)
    head, rest = _begun(chunks)
    if recognise.looks(head):
        _of_recording(b"".join(rest), reader, path)
        rest = iter(())
    for value in values(rest, path):
        reader.take(value)
        if reader.fruitless > _FRUITLESS:
            raise CacheDoctorError(f"{path}: holds a million values without usage in a row", _HINT)
    reader.end()
    if not reader.answers.requests:
        raise CacheDoctorError(f"{path}: holds no response that says how long its prompt was", _HINT)
    return Given(reader.answers, reader.engine, reader.models.pop() if len(reader.models) == 1 else None)


def of_answer(answer: bytes) -> Answer | None:
    """Read what is kept of one answer; None where it does not say how long its prompt was, or is several."""
    reader = _Reader("the answer")
    try:
        for value in values([answer], "the answer"):
            reader.take(value)
    except CacheDoctorError:
        return None
    reader.end()
    return reader.answers.each[0] if len(reader.answers.each) == 1 else None


def _begun(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The beginning of a file, and all of it."""
    iterator, parts = iter(chunks), list[bytes]()
    while sum(map(len, parts)) < recognise.HEAD:
        part = next(iterator, None)
        if part is None:
            break
        parts.append(part)
    return b"".join(parts)[: recognise.HEAD], chain(parts, iterator)


def _of_recording(data: bytes, reader: _Reader, path: str) -> None:
    """Take the answers of a recording, one for each request."""
    capture = recognise.of_values(values_of(data.decode("utf-8", "replace"), path) or [])
    for number, one in enumerate(capture.requests if capture is not None else [], 1):
        for value in values([one.answer], path):
            reader.take(value._replace(line=number))
        reader.end()


class _Reader:
    """Adds up answers; what a stream says of one request in several of its lines is one answer."""

    def __init__(self, path: str) -> None:
        self.answers = Answers(path, "responses")
        self.engine: str | None = None
        self.models: set[str] = set()
        self.fruitless = 0
        self._stream: bytes | None = None
        """Id of the answer that is being streamed."""
        self._usage: Usage | None = None
        self._told: Told | None = None
        self._line = 0

    def take(self, value: Value) -> None:
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
        """Take what a response, or a part of one, says; what comes later replaces what came before."""
        model = decoded(response.model, str)
        if model is not None and len(self.models) < 2:
            self.models.add(model[:MAX_MODEL])
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


def _name(response: Response) -> bytes:
    """What tells the parts of one answer from those of another, empty where nothing does."""
    if bytes(response.id):
        return bytes(response.id)
    meta = decoded(response.meta_info, Meta)
    return (meta.id or "").encode("utf-8", "replace") if meta is not None else b""


def _joined(before: Usage, usage: Usage) -> Usage:
    """The two as one: /v1/messages streams the prompt's tokens at first and the reply's at the end."""
    said = {name: value for name, value in msgspec.structs.asdict(usage).items() if value is not None}
    return msgspec.structs.replace(before, **said)
