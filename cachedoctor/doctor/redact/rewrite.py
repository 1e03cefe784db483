"""Rewrites lines of vLLM, SGLang and small programs for redact: prefix, message, values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from cachedoctor.doctor.redact.scan import EngineReader, ProgramReader
from cachedoctor.engines.catalogue.base import Message
from cachedoctor.engines.catalogue.logger import Vocabulary
from cachedoctor.engines.catalogue.spans import RecognisedLine
from cachedoctor.engines.sglang import request_log
from cachedoctor.engines.sglang.facts import NEW_SETTINGS
from cachedoctor.engines.vllm import facts
from cachedoctor.engines.vllm.logged_requests import prompt_in
from cachedoctor.knowledge import literals
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction import holes, holes_measured
from cachedoctor.redaction.holes import DIGITS_MAX, PLAIN
from cachedoctor.redaction.known_words import DEVICES
from cachedoctor.redaction.redact_lines import UNKNOWN
from cachedoctor.redaction.stand_ins import StandInNames, StandIns

_AMOUNT = late(
    r"(?:-?\d{1,15}(?:\.\d{1,15})?|True|False|None|nan|inf)"
    r"(?:%| ?(?:reqs|tokens|tokens/s|waiting to start|in progress|completed waiting))?\.?"
)
_SETTINGS: dict[str, str | None] = {
    "page_size": None, "chunked_prefill_size": None, "context_length": None, "mem_fraction_static": None,
    "enable_hierarchical_cache": None, "enable_dynamic_chunking": None, "enable_mixed_chunk": None,
    "disable_radix_cache": None, "dp_size": None, "attn_dp_size": None, "port": None,
    "schedule_policy": "policy", "attention_backend": "backend", "mamba_scheduler_strategy": "other",
    "mamba_radix_cache_strategy": "other", "speculative_algorithm": "algorithm", "disaggregation_mode": "other",
}  # fmt: skip
"""Settings of SGLang that are read, and the vocabulary of their words; None: numbers and truth values only."""


_USAGE = late(r"\b([A-Z]{2,8})(?= KV cache usage: )")
"""vLLM calls it after the device."""


class ValueRewriter:
    """The values of one log."""

    def __init__(self, tokens: StandInNames) -> None:
        self._tokens = tokens
        self._stand_ins = StandIns()
        self._special: dict[tuple[str, str, str], Callable[[str, str], str]] = {
            ("vllm", "engine_start", "config"): self._resolved,
            ("vllm", "args_given", "args"): self._asked,
            ("vllm", "request", "prompt"): self._prompt,
            ("vllm", "request_details", "prompt"): self._prompt,
            ("sglang", "server_args", "args"): self._settings,
            ("sglang", "received", "request"): self._request,
            ("sglang", "finished", "request"): self._request,
        }

    def value(self, words: Vocabulary, row: Message, name: str, kind: str, raw: bytes) -> bytes:
        """Return what stands for ``raw``, the value ``name`` of a message."""
        if kind == "pairs":
            return self._pairs(words, row.id, raw)
        special = self._special.get((words.engine, row.id, name))
        if special is not None:
            return special(raw.decode("utf-8", "replace"), row.template).encode()
        return holes_measured.replaced(row.id, name, raw, self._tokens)

    def _token(self, kind: str, text: str) -> str:
        return self._tokens.give(kind, text.encode("utf-8", "surrogateescape")).decode()

    def _pairs(self, words: Vocabulary, message: str, raw: bytes) -> bytes:
        """Keep known names with amounts; a part that is anything else becomes a token."""
        out, last = [], ""
        for part in _USAGE.sub(_device, raw.decode("utf-8", "replace")).split(","):
            name, colon, value = part.partition(":")
            last = name.strip() if colon else last
            known = bool(last) and words.pair(message, last) is not None and _names_no_other_device(last)
            amount = value if colon else part
            blank = part[: len(part) - len(part.lstrip())]
            if not part.strip() or (known and (not amount.strip() or _AMOUNT.fullmatch(amount.strip()))):
                out.append(part)
            elif known and colon:
                out.append(f"{name}: {self._token('text', value)}")
            else:
                out.append(blank + self._token("text", part))
        return ",".join(out).encode()

    def _resolved(self, text: str, _: str) -> str:
        """The configuration of vLLM's engine."""
        found = facts.resolved(text)
        values: dict[str, object] = {
            "max_seq_len": found.max_model_len,
            "data_parallel_size": found.data_parallel,
            "tensor_parallel_size": found.tensor_parallel,
            "device_config": found.device and holes_measured.word("device", found.device),
            "enable_prefix_caching": found.prefix_caching,
            "enable_chunked_prefill": found.chunked_prefill,
        }
        parts = [] if found.model is None else [f"model='{self._token('model', found.model) or 'model'}'"]
        if found.speculative is not None:
            method = holes_measured.word("algorithm", found.speculative) if found.speculative else ""
            parts.append("speculative_config=" + (f"SpeculativeConfig(method='{method}')" if method else "None"))
        parts += [f"{name}={value}" for name, value in values.items() if value is not None and _is_short(value)]
        return ", ".join(parts) or self._token("text", text)

    def _asked(self, text: str, _: str) -> str:
        """The arguments that vLLM was given."""
        parts = []
        for name, value in facts.asked(text).items():
            if name == "chat_template":
                parts.append("'chat_template': '<path>'")
            elif name == "speculative_config":
                parts.append(f"'speculative_config': {{'method': '{holes_measured.word('algorithm', value)}'}}")
            elif name == "kv_connector":
                parts.append(f"'kv_connector': '{holes_measured.word('connector', value)}'")
            elif isinstance(value, str):
                parts.append(f"'{name}': '{holes_measured.word('other', value)}'")
            elif _is_short(value):
                parts.append(f"'{name}': {value}")
        return "{" + ", ".join(parts) + "}"

    def _prompt(self, text: str, _: str) -> str:
        prompt = prompt_in(text)
        if prompt is None:
            return self._token("text", text)
        size = len(prompt.encode("utf-8", "surrogateescape"))
        # The analysis counts bytes here: each stands for itself, whatever character it belongs to.
        return f"'{self._stand_ins.give(_bytewise(prompt, size))}', params: SamplingParams({self._token('text', text)})"

    def _settings(self, text: str, template: str) -> str:
        """``server_args`` of SGLang: every name, as it tells the version, and the values that are read."""
        call = "ServerArgs(" in template
        parts, end = [], ""
        for number, (name, printed) in enumerate(literals.entries(text)):
            if name == ")":
                end = ")" if call else "}"
                break
            if not name:
                continue
            shown = name if name in _KNOWN else f"setting_{number}"
            parts.append(
                f"{shown}={self._setting(name, printed)}" if call else f"'{shown}': {self._setting(name, printed)}"
            )
        return ", ".join(parts) + (end or ", ")

    def _setting(self, name: str, printed: str) -> str:
        value = literals.value(printed)
        if name == "model_path":
            return f"'{self._token('model', value)}'" if isinstance(value, str) else "None"
        if name not in _SETTINGS or value is None:
            return "None"
        words = _SETTINGS[name]
        if not isinstance(value, str):
            return printed if _is_short(printed) else "None"
        return "None" if words is None else f"'{holes_measured.word(words, value)}'"

    def _request(self, text: str, template: str) -> str:
        """A request of SGLang, as its line in Python's or JSON's form prints it."""
        as_json = template.startswith("{")
        found = request_log.read_request(text, as_json)
        if found is None:
            return self._token("text", text)
        rid = self._tokens.name("request", found.rid.encode("utf-8", "surrogateescape")).decode()
        prompt = None if found.text is None else self._stand_ins.give(found.text)
        meta = {"prompt_tokens": found.prompt_tokens, "cached_tokens": found.cached_tokens}
        kept = ", ".join(f"'{name}': {value}" for name, value in meta.items() if value is not None and _is_short(value))
        kept += ", 'finish_reason': {'type': 'abort'}" if found.aborted else ""
        if as_json:
            shown = "" if prompt is None else f'"text": "{prompt}"'
            end = f', "out": {{"meta_info": {{{kept}}}}}'.replace("'", '"') if kept else ""
            return f'"rid": "{rid}", "obj": {{{shown}}}{end}}}'
        shown = "" if prompt is None else f", text='{prompt}'"
        return f"GenerateReqInput(rid='{rid}'{shown})" + (f", out={{'meta_info': {{{kept}}}}}" if kept else "")


_KNOWN = frozenset(_SETTINGS) | frozenset(NEW_SETTINGS.values()) | {"model_path"}


def _is_short(value: object) -> bool:
    """Whether a number is no longer than any that is read; a longer one may be a key."""
    return len(str(value)) <= DIGITS_MAX


def _device(found: re.Match[str]) -> str:
    return found[0] if found[0].encode() in DEVICES else "GPU"


def _names_no_other_device(name: str) -> bool:
    device = name.removesuffix("KV cache usage")
    return device == name or device.strip().encode() in DEVICES


def _bytewise(text: str, size: int) -> str:
    """Write ``text`` with a character for each of its bytes; plain ASCII is that already."""
    return text if len(text) == size else text.encode("utf-8", "surrogateescape").decode("latin-1")


def write(data: bytes, reader: ProgramReader, found: RecognisedLine, tokens: StandInNames) -> bytes:
    """Write a line again; of one that only begins like a message the begin stays."""
    parts = [holes.prefix(data[found.start : found.message], reader.before, tokens)]
    done, rest = found.message, data[found.end : found.stop]
    for hole in found.holes:
        raw = data[hole.start : hole.end]
        if hole.kind in PLAIN and len(raw) <= DIGITS_MAX and not raw.endswith(b")"):
            continue
        parts += [data[done : hole.start], holes.replaced_in_program(hole.name, hole.kind, raw, tokens)]
        done = hole.end
    parts.append(data[done : found.end])
    if rest.strip():
        parts.append(b" " + (UNKNOWN if found.row is None else tokens.give("text", rest)))
    return b"".join(parts)


_PROCESS = late(
    rb"(?:APIServer|ApiServer|EngineCore|EngineCoreProc|Worker|VllmWorker|VllmWorkerProcess|MainProcess|ProcessWrapper"
    rb"|DPCoordinator|RayWorkerProc)(?:[_-](?:DP|PP|TP|EP|CP|DCP|PCP)?\d{1,5}){0,5}"
)
_PLACE = late(rb"(?<![^\s\[\]])([^\s\[\]]+)(:\d{1,5}\] ?)\Z")
_GPU = late(rb"\[gpu(?:_id)?=\d{1,3}\] ?")
"""What SGLang of 2024 writes before its lines."""


class EngineLineRewriter:
    """Writes the lines of one log."""

    def __init__(self, tokens: StandInNames) -> None:
        self._tokens = tokens
        self._restating = ValueRewriter(tokens)

    def write(self, data: bytes, reader: EngineReader, found: RecognisedLine) -> bytes:
        """Write a line again; of one that only begins like a message the begin stays."""
        prefix = self._prefix(reader, data[found.start : found.message])
        rest = data[found.end : found.stop]
        if found.row is None:
            blank = b" " if rest[:1].isspace() else b""
            return prefix + data[found.message : found.end] + (blank + UNKNOWN if rest.strip() else b"")
        parts = [prefix, *self._values(reader, found.row, data, found)]
        if rest.strip():
            parts.append(b" " + self._tokens.give("text", rest))
        return b"".join(parts)

    def _values(self, reader: EngineReader, row: Message, data: bytes, found: RecognisedLine) -> Iterator[bytes]:
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
        """Keep process, time, level and place; what else comes before a message is a user's, or a progress bar."""
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
