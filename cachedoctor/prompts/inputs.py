"""Reads prompts out of any file, told apart by content. Knows outer shapes, not what is in a body."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from cachedoctor.knowledge.texts import sound, sound_json
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import request_bodies, slots_dump
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.regular_files import MIB, read_all, read_file

DUMP_NAME = re.compile(r"\d{12}\d*\.txt")
"""What --log-prompts-dir names its files: milliseconds."""
MAX_BYTES = 1 << 30
"""Of a file of prompts, or of all in a directory; a thousand requests of long conversations have some 400 MiB."""
_PART = "give a file of prompts, or a part of it"
SLOTS_HINT = "the output of GET /slots is an array of slots with id, n_ctx and prompt"
SHAPES = "a request body has messages, prompt or input; " + SLOTS_HINT
MAGIC = (
    (b"GGUF", "a GGUF model"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NORMAL_DIFF = re.compile(r"\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n(?:[<>] |---)")
_UNIFIED_DIFF = re.compile(
    r"(?:(?:diff|index|Index:|=====|old|new|similarity|rename) ?[^\n]*\n){0,6}--- [^\n]*\n\+\+\+ [^\n]*\n@@ -"
)
_CONTEXT_DIFF = re.compile(r"(?:diff [^\n]*\n)?\*\*\* [^\n]*\n--- [^\n]*\n\*{15}")
_OTHER_DIFF = re.compile(r"diff --git a/|(?:Binary files|Files) [^\n]+ and [^\n]+ differ\s*$")
_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:\{\s*"|\]\s*$|\[+\s*$))')


def load(path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Read the prompts of a file, a directory of --log-prompts-dir, or standard input (``-``).

    ``slot`` picks one slot of a ``/slots`` dump; ``reply`` appends the slot's reply to its prompt (place
    ``generated``), which is what the next request could have reused.
    """
    if path != "-" and Path(path).is_dir():
        return _directory(Path(path))
    return parse(read(path), "<stdin>" if path == "-" else path, slot, reply)


def load_sent(path: str) -> list[Prompt | None]:
    """Read what was sent to a server, in its order: JSONL of bodies, or a directory of --log-prompts-dir.

    None stands for what holds no prompt: an embedding, a slot file.

    Raises:
        CacheDoctorError: it cannot be read, or holds no request body.
    """
    if path != "-" and Path(path).is_dir():
        return [*_directory(Path(path))]
    found = sent(read(path), path)
    if not any(prompt is not None for prompt in found):
        raise CacheDoctorError(f"{path}: holds no request bodies", SHAPES)
    return found


def sent(data: bytes, path: str) -> list[Prompt | None]:
    """Give the prompts of the request bodies in the bytes of a file, None for each without one; [] of no bodies."""
    values = _values(_decode(data, path), path) or []
    if len(values) == 1 and isinstance(values[0], list) and request_bodies.find(values[0]) is None:
        values = values[0]
    found: list[Prompt | None] = []
    for number, value in enumerate(values, 1):
        body = request_bodies.find(value)
        found += [None] if body is None else request_bodies.prompts_of(body.body, body.kind, f"{path}#{number}")
    return found if any(prompt is not None for prompt in found) else []


def read(path: str) -> bytes:
    """Bytes of a file, or of standard input (``-``)."""
    try:
        if path != "-":
            return read_file(path, MAX_BYTES, _PART, pipes=True)
        if sys.stdin is None:
            raise OSError(0, "the standard input is closed")
        return read_all(sys.stdin.buffer, "<stdin>", MAX_BYTES, _PART)
    except (OSError, ValueError) as error:  # ValueError: a name that holds NUL
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        hint = "give a file or a directory that may be read, or pipe a prompt in"
        raise CacheDoctorError(f"{path}: cannot be read: {reason}", hint) from error


def parse(data: bytes, path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Prompts in the bytes of a file."""
    text = _decode(data, path)
    if not text.strip():
        raise CacheDoctorError(f"{path}: is empty", "nothing to compare")
    if _is_diff(text):
        raise CacheDoctorError(
            f"{path}: is the output of diff, not a prompt", "give the two files themselves: cachedoctor diff OLD NEW"
        )
    values = _values(text, path)
    if values is None:
        return [Prompt(path, "text", text)]
    return _prompts(values, path, slot, reply)


def is_folder(path: str) -> bool:
    """Whether a directory of prompts was named."""
    try:
        return Path(path).is_dir()
    except ValueError:  # a name that holds NUL
        return False


def _directory(folder: Path) -> list[Prompt]:
    try:
        names = sorted(
            (p for p in folder.iterdir() if DUMP_NAME.fullmatch(p.name)), key=lambda p: (len(p.name), p.name)
        )
        names = [p for p in names if p.is_file()]
        if sum(p.stat().st_size for p in names) > MAX_BYTES:
            raise CacheDoctorError(f"{folder}: holds more than {MAX_BYTES // MIB:,} MiB of prompts", _PART)
        dumps = [(str(p), read_file(p, MAX_BYTES, _PART)) for p in names]
    except OSError as error:
        raise CacheDoctorError(f"{folder}: cannot be read: {error.strerror}") from error
    prompts = [
        # A server that was killed leaves a file without content.
        Prompt(name, "prompt-dump", _decode(data, name), rendered=True)
        for name, data in dumps
        if data
    ]
    if not prompts:
        raise CacheDoctorError(
            f"{folder}: holds no prompts written by --log-prompts-dir",
            "its files are named after milliseconds (000123456789.txt); give other files one by one",
        )
    return prompts


def _decode(data: bytes, path: str) -> str:
    for magic, name in MAGIC:
        if data.startswith(magic):
            raise CacheDoctorError(f"{path}: is binary ({name}), not a prompt", _binary_hint(name))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _utf16(data, path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data:
        raise CacheDoctorError(f"{path}: is binary (NUL bytes), not a prompt", "give text, JSON or JSONL")
    try:
        return data.decode()
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
    # A dump may end inside a character, and old builds print half ones; text in another encoding has many.
    if text.count("\ufffd") - data.count(b"\xef\xbf\xbd") > max(8, len(text) // 100):
        raise CacheDoctorError(f"{path}: is binary or not UTF-8", "give text, JSON or JSONL in UTF-8")
    return text


def _binary_hint(name: str) -> str:
    return "a model goes with --tokenizer or --template" if "GGUF" in name else "decompress it first"


def _utf16(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise CacheDoctorError(f"{path}: is binary or broken UTF-16", "give text, JSON or JSONL in UTF-8") from error


def _is_diff(text: str) -> bool:
    head = _ANSI.sub("", text[:4096]).lstrip("\n")
    return any(kind.match(head) for kind in (_NORMAL_DIFF, _UNIFIED_DIFF, _CONTEXT_DIFF, _OTHER_DIFF))


def _values(text: str, path: str) -> list[Any] | None:
    """The JSON values of a file, one or many, on lines or not; None when it is plain text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    decoder, text = json.JSONDecoder(), sound_json(text)
    values: list[Any] = []
    end = len(text.rstrip())
    at = len(text) - len(text.lstrip())
    try:
        while at < end:
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            while at < end and text[at] in " \t\r\n,":
                at += 1
    except json.JSONDecodeError as error:
        # "[INST] ...", "[1] ..." and "{{user}}: ..." are prompts; what begins with a key was meant as JSON.
        if not _JSON_START.match(text[:4096]):
            return None
        hint = (
            "cut off while it was written?" if error.pos >= end - 1 else "save the server's or proxy's JSON unchanged"
        )
        message = f"{path}: broken JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise CacheDoctorError(message, hint) from error
    except RecursionError as error:
        raise _too_deep(path) from error
    except ValueError as error:  # an integer of thousands of digits
        raise CacheDoctorError(f"{path}: broken JSON: a number is too long") from error
    if any(_depth(value) > request_bodies.MAX_DEPTH for value in values):
        raise _too_deep(path)
    return _as_sent(values)


def _as_sent(values: list[Any]) -> list[Any]:
    """Records of ``cachedoctor proxy`` in the order in which requests were sent: it writes each when it ends."""
    if not all(isinstance(value, dict) and "recorder" in value and _is_time(value.get("sent")) for value in values):
        return values
    return sorted(values, key=lambda value: float(value["sent"]))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _prompts(values: list[Any], path: str, slot: int | None, reply: bool) -> list[Prompt]:
    if len(values) == 1:
        slots = slots_dump.slots_of(values[0])
        if slots is not None:
            return slots_dump.prompts_of(slots, path, slot, reply)
        if isinstance(values[0], list) and request_bodies.find(values[0]) is None:
            values = values[0]
    prompts: list[Prompt] = []
    empty: CacheDoctorError | None = None
    for number, value in enumerate(values, 1):
        name = f"{path}#{number}" if len(values) > 1 else path
        slots = slots_dump.slots_of(value)
        if slots is not None:
            try:
                prompts += slots_dump.prompts_of(slots, name, slot, reply)
            except CacheDoctorError as error:  # one of many dumps may come before the first request
                empty = error
            continue
        found = request_bodies.find(value)
        # A log of requests also has those that carry no prompt: slot actions, embeddings, token counts.
        if found is not None:
            prompts += request_bodies.prompts_of(found.body, found.kind, name)
    if prompts:
        return prompts
    raise empty or _unknown(values, path)


def _unknown(values: list[Any], path: str) -> CacheDoctorError:
    first = values[0] if values else None
    if isinstance(first, dict) and isinstance(first.get("error"), dict | str):
        return CacheDoctorError(
            f"{path}: is an error reply of the server, not a dump", "GET /slots needs --slots on builds up to b6180"
        )
    if isinstance(first, dict) and ("choices" in first or "usage" in first):
        return CacheDoctorError(f"{path}: is a response; the prompt is in the request", SHAPES)
    keys = ", ".join(str(key)[:40] for key in list(first)[:6]) if isinstance(first, dict) else type(first).__name__
    return CacheDoctorError(f"{path}: JSON of unknown shape ({sound(keys) or 'empty'})", SHAPES)


def _too_deep(path: str) -> CacheDoctorError:
    return CacheDoctorError(
        f"{path}: JSON is nested too deeply", f"more than {request_bodies.MAX_DEPTH} levels is no request"
    )


def _depth(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, level = stack.pop()
        if level > deepest:
            deepest = level
            if deepest > request_bodies.MAX_DEPTH:
                break
        if isinstance(item, dict):
            stack.extend((inner, level + 1) for inner in item.values() if isinstance(inner, dict | list))
        elif isinstance(item, list):
            stack.extend((inner, level + 1) for inner in item if isinstance(inner, dict | list))
    return deepest
