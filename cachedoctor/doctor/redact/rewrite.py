"""Writes the lines of vLLM and SGLang anew for ``redact``: prefix, message, values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cachedoctor.doctor.redact.scan import EngineReader
from cachedoctor.doctor.redact.values import ValueRewriter
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.spans import Recognised
from cachedoctor.redact.holes import DIGITS_MAX, PLAIN
from cachedoctor.redact.redact_lines import UNKNOWN
from cachedoctor.redact.tokens import Tokens

_PROCESS = re.compile(
    rb"(?:APIServer|ApiServer|EngineCore|EngineCoreProc|Worker|VllmWorker|VllmWorkerProcess|MainProcess|ProcessWrapper"
    rb"|DPCoordinator|RayWorkerProc)(?:[_-](?:DP|PP|TP|EP|CP|DCP|PCP)?\d{1,5}){0,5}"
)
_PLACE = re.compile(rb"(?<![^\s\[\]])([^\s\[\]]+)(:\d{1,5}\] ?)\Z")
_GPU = re.compile(rb"\[gpu(?:_id)?=\d{1,3}\] ?")
"""What SGLang of 2024 writes in front of its lines."""


class EngineLineRewriter:
    """Writes the lines of one log."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._restating = ValueRewriter(tokens)

    def write(self, data: bytes, reader: EngineReader, found: Recognised) -> bytes:
        """Write a line anew; of one that only begins like a message the begin stays."""
        prefix = self._prefix(reader, data[found.start : found.message])
        rest = data[found.end : found.stop]
        if found.row is None:
            blank = b" " if rest[:1].isspace() else b""
            return prefix + data[found.message : found.end] + (blank + UNKNOWN if rest.strip() else b"")
        parts = [prefix, *self._values(reader, found.row, data, found)]
        if rest.strip():
            parts.append(b" " + self._tokens.give("text", rest))
        return b"".join(parts)

    def _values(self, reader: EngineReader, row: Message, data: bytes, found: Recognised) -> Iterator[bytes]:
        done = found.message
        for hole in found.holes:
            raw = data[hole.start : hole.end]
            if hole.kind in PLAIN and len(raw) <= DIGITS_MAX and not raw.endswith(b")"):
                continue
            yield data[done : hole.start]
            yield self._restating.value(reader.words, row, hole.name, hole.kind, raw)
            done = hole.end
        yield data[done : found.end]

    def _prefix(self, reader: EngineReader, prefix: bytes) -> bytes:
        """Keep process, time, level and place; what else stands before a message is a user's, or a progress bar."""
        parts, _, unknown = reader.words.prefix(prefix)
        known = prefix[len(unknown) :]
        if not parts:
            place = _PLACE.search(unknown)
            known = b"[" + place[0] if place is not None else b""
            unknown = unknown[: place.start()] if place is not None else unknown
        if parts.get("process") and not _PROCESS.fullmatch(parts["process"]):
            known = known.replace(parts["process"], b"Process", 1)
        if _GPU.fullmatch(unknown):
            return unknown + known
        before = self._tokens.give("text", unknown)
        return (before + b" " if before else b"") + b"".join(self._places(reader, known))

    def _places(self, reader: EngineReader, known: bytes) -> Iterator[bytes]:
        """Keep the name of a source file that the engine has."""
        place = _PLACE.search(known.rstrip() + b" ") if b".py:" in known else None
        if place is None or place[1] in reader.files:
            yield known
        else:
            yield known[: place.start(1)]
            yield place[1].rpartition(b"/")[2] if place[1].rpartition(b"/")[2] in reader.files else b"x.py"
            yield known[place.end(1) :]
