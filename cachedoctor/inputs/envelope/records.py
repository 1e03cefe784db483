"""Records with a line as a value: docker, CRI, logcli, --log-jsonl, slog of ollama and LocalAI, Python loggers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from cachedoctor.inputs.envelope import labels
from cachedoctor.inputs.envelope.prefixes import ISO
from cachedoctor.inputs.envelope.shapes import is_shaped, is_written
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json

_LEVELS = {"info": "I", "warn": "W", "error": "E", "debug": "D"}
_LOGGED = frozenset({"DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "TRACE", "SUCCESS"})
"""Levels of Python loggers; another word in their place may be a user's."""
_NUMBER_MAX = 10**15
"""Upper limit of numbers in records: process ids, and microseconds of thirty years."""
_SLOG = late(rb'time=\S+ level=\w+ (?:source=\S+ )?msg=("(?:[^"\\]|\\.)*+")')
_LOCALAI = late(
    rb'([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (DEBUG|INFO|WARN|ERROR) GRPC (stdout|stderr) id="([^"\\\n]{1,250})" '
    rb'line=("(?:[^"\\\n]|\\.)*+")'
)
"""LocalAI of 2026: ``Aug 05 15:27:04 DEBUG GRPC stderr id="model-127.0.0.1:42043" line="..." caller={...}``."""
_MONTHS = b"JFMASOND"
_ASCTIME = late(r"\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,6})?$")
_STAMP = late(ISO)
_CRI = late(ISO + rb" (stdout|stderr) ([FP])(?::\S*)?(?: |$)")
_LABEL = rb'[A-Za-z_]\w{0,100}="(?:[^"\\\n]|\\.)*+"'
_LOGCLI = late(rb"(" + ISO + rb") \{((?:" + _LABEL + rb"(?:, ?)?)*+)\}(?: |$)")
_LABELS_AT = 40
"""Bytes before which the labels begin."""
_PAIR = late(rb'(?<!\w)(\w++)=("(?:[^"\\\n]|\\.)*+")')


class RecordPiece(msgspec.Struct):
    """The part of a line that one container record holds."""

    text: bytes
    complete: bool
    """False if the line continues in the next record of this stream."""
    stream: str
    origin: bytes | None = None
    """The pod, container or host that the record names."""


class RecordMessage(msgspec.Struct):
    """Content of one ``--log-jsonl`` or slog record, in the server's textual form."""

    text: bytes
    nested: bool
    """True when the text is a line of another process, forwarded as it came."""
    origin: bytes | None = None


class _Docker(msgspec.Struct, forbid_unknown_fields=True):
    """A record of docker's json-file, which has no other keys; collectors write such with more."""

    log: str
    stream: str
    time: str | None = None
    attrs: dict[str, str] | None = None


class _Json(msgspec.Struct):
    time: int | float | str | None = None
    type: str | None = None
    level: str | None = None
    msg: str | None = None
    # A Python logger with a JSON formatter, as vLLM 0.32 and newer have one (--logging-config.formatter json).
    levelname: str | None = None
    message: str | None = None
    asctime: str | None = None
    name: str | None = None
    lineno: int | None = None
    process: int | None = None
    processName: str | None = None  # noqa: N815  # the key of Python's own record
    vllm_process_name: str | None = None


_DOCKER = msgspec.json.Decoder(_Docker)
_DECODER = msgspec.json.Decoder(_Json)
_STRING = msgspec.json.Decoder(str)
_NAMING = (b'"pod', b'"kubernetes', b'"k8s', b'"container', b'"host', b'"_HOSTNAME', b'"log')
"""Prefixes of keys that may name the server; Python's own records have none."""


def read_record(line: bytes) -> RecordPiece | RecordMessage | None:
    """Read a record of any known kind; None for a line that is not one."""
    first = line[:1]
    if first == b"{":
        return read_json(line)
    if first == b"t":
        return read_slog(line)
    if first == b"2":
        return read_cri(line) or read_logcli(line)
    return read_localai(line) if first in _MONTHS and b" GRPC std" in line[:_LABELS_AT] else None


def rewritten(line: bytes, text: bytes, name: Callable[[str, bytes], bytes]) -> bytes:
    """Return the record ``line`` with another text, and without what the server did not write (labels, tags).

    ``name(kind, part)`` renames the parts that distinguish servers.
    """
    if line[:1] == b"{":
        return _rewritten_json(line, text.decode("utf-8", "replace"))
    if line[:1] == b"t":
        stamp = _STAMP.match(line, len(b"time="))
        time = stamp[0] if stamp is not None else b"-"
        return b"time=" + time + b" level=INFO msg=" + msgspec.json.encode(text.decode("utf-8", "replace"))
    match = _LOCALAI.match(line)
    if match is not None:
        quoted = msgspec.json.encode(text.decode("utf-8", "replace"))
        return line[: match.end(3)] + b' id="' + name("host", match[4]) + b'" line=' + quoted
    match = _CRI.match(line)
    if match is not None:
        return line[: match.end(2)] + b" " + text
    match = _LOGCLI.match(line)
    if match is None:
        raise ValueError("not a record")
    named = labels.origin_labels(labels.record_labels(_pairs(match[2])))
    kept = (label.path[0].encode() + b'="' + name("host", str(label.value).encode()) + b'"' for label in named)
    return match[1] + b" {" + b", ".join(kept) + b"} " + text


def read_json(line: bytes) -> RecordPiece | RecordMessage | None:
    """Decode a docker or ``--log-jsonl`` record; None for any other or broken JSON."""
    docker = _docker(line)
    if docker is not None:
        return RecordPiece(_encode(docker.log.removesuffix("\n")), docker.log.endswith("\n"), docker.stream)
    try:
        record = _DECODER.decode(sound_json(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if record.type == "log" and record.msg is not None:
        prefix = _console_prefix(record.time, record.level)
        return RecordMessage(_encode(prefix + record.msg.removesuffix("\n")), record.level == "none")
    if record.levelname is not None and record.message is not None:
        text = _encode(_logger_prefix(record) + record.message.removesuffix("\n"))
        return RecordMessage(text, True, _origin(line) if any(word in line for word in _NAMING) else None)
    return None


def read_cri(line: bytes) -> RecordPiece | None:
    """Read a line of a container runtime's log file: time, stream, F(ull) or P(artial), text."""
    match = _CRI.match(line)
    if not match:
        return None
    return RecordPiece(line[match.end() :], match[2] == b"F", match[1].decode())


def read_logcli(line: bytes) -> RecordPiece | None:
    """Read a line that logcli prints: time, labels, padded to one width, text."""
    match = _LOGCLI.match(line) if b" {" in line[:_LABELS_AT] else None
    if not match:
        return None
    text = line[match.end() :]
    body = text.lstrip(b" ")
    return RecordPiece(
        body if is_written(body) else text, True, "", labels.origin(labels.record_labels(_pairs(match[2])))
    )


def read_slog(line: bytes) -> RecordMessage | None:
    """Unquote the message of an ollama line when it is a server line; ollama's own lines stay as they are."""
    match = _SLOG.match(line)
    if not match:
        return None
    try:
        text = _encode(_STRING.decode(match[1]).rstrip("\n"))
    except (msgspec.DecodeError, UnicodeDecodeError):  # Go's \x1b is not JSON
        return None
    return RecordMessage(text, True) if is_shaped(text) else None


def read_localai(line: bytes) -> RecordMessage | None:
    """Unquote a line of a server that LocalAI runs, which it names by model and port."""
    match = _LOCALAI.match(line)
    if not match:
        return None
    try:
        text = _encode(_STRING.decode(match[5]).rstrip("\n"))
    except (msgspec.DecodeError, UnicodeDecodeError):  # Go's \x1b is not JSON
        return None
    return RecordMessage(text, True, match[4])


def _console_prefix(time: int | float | str | None, level: str | None) -> str:
    """Write the prefix that the server's console log has for this record; it has none without a time or a level."""
    letter = _LEVELS.get(level or "")
    if not letter or not isinstance(time, int) or time <= 0:
        return ""
    micros = time % 1_000_000
    return f"{time // 60_000_000}.{time // 1_000_000 % 60:02d}.{micros // 1000:03d}.{micros % 1000:03d} {letter} "


def _logger_prefix(record: _Json) -> str:
    """Write the prefix that the record would have as text; a missing source line number is 0."""
    if record.name == "uvicorn.access":
        return f"{record.levelname}:     "
    found = _ASCTIME.match(record.asctime or "")
    time = f" {found[1]}" if found is not None else ""
    process = f"({record.vllm_process_name or record.processName or 'MainProcess'} pid={record.process or 0}) "
    return f"{process}{record.levelname}{time} [{(record.name or 'root').replace('.', '/')}.py:{record.lineno or 0}] "


def _docker(line: bytes) -> _Docker | None:
    if b'"log"' not in line:
        return None
    try:
        record = _DOCKER.decode(line if b"\\u" not in line else sound_json(line))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.stream in ("stdout", "stderr") else None


def _pairs(text: bytes) -> dict[str, object]:
    """Decode logcli's labels; a value that Go quotes and JSON does not is left out."""
    found: dict[str, object] = {}
    for key, value in _PAIR.findall(text):
        try:
            found[key.decode()] = _STRING.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


def _origin(line: bytes) -> bytes | None:
    record = msgspec.json.decode(sound_json(line))
    return labels.origin(labels.record_labels(record))


def _rewritten_json(line: bytes, text: str) -> bytes:
    docker = _docker(line)
    if docker is not None:
        end = "\n" if docker.log.endswith("\n") else ""
        time = docker.time if docker.time is not None and _STAMP.fullmatch(docker.time.encode()) else None
        return _bare(_Docker(log=text + end, stream=docker.stream, time=time))
    record = _DECODER.decode(sound_json(line))
    if record.levelname is not None and record.message is not None:
        kept = text.removeprefix(_logger_prefix(record))
        plain = record.asctime if _ASCTIME.match(record.asctime or "") else None
        logged = record.levelname if record.levelname in _LOGGED else "INFO"
        process = record.process if record.process is not None and 0 <= record.process < _NUMBER_MAX else None
        return _bare(_Json(asctime=plain, levelname=logged, process=process, message=kept))
    level = record.level if record.level in _LEVELS or record.level == "none" else None
    clock = record.time if isinstance(record.time, int) and abs(record.time) < _NUMBER_MAX else None
    kept = text.removeprefix(_console_prefix(record.time, record.level))
    return _bare(_Json(type="log", time=clock, level=level, msg=kept))


def _bare(record: _Json | _Docker) -> bytes:
    return msgspec.json.encode({k: v for k, v in msgspec.structs.asdict(record).items() if v is not None})


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")
