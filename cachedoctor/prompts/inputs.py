"""Reads prompts from any file, recognised by content, dumps of GET /slots included."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from cachedoctor.inputs.captures import recognise
from cachedoctor.inputs.captures.captured import MAX_DEPTH, Capture, Captured, depth_of, encoded, too_deep, values_of
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import common_prefix, sound
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import request_bodies
from cachedoctor.prompts.prompt import Prompt, RecordedFields
from cachedoctor.prompts.regular_files import MIB, read_all, read_file
from cachedoctor.prompts.request_bodies import Builder

MAX_MATRIX = 128
"""Maximum slots per side for comparing every pair."""


def slots_of(value: Any) -> list[dict[str, Any]] | None:
    """The slots in a JSON value, or None when it is not a dump."""
    if isinstance(value, dict) and isinstance(value.get("slots"), list):
        value = value["slots"]
    slots = value if isinstance(value, list) else [value]
    if not slots or not all(isinstance(slot, dict) and _is_slot(slot) for slot in slots):
        return None
    return slots


def prompts_of(slots: list[dict[str, Any]], path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Prompts of the slots that hold one; ``reply`` appends what was generated, as the slot's cache holds it."""
    many = len(slots) > 1
    if slot is not None:
        ids = [item["id"] for item in slots]
        slots = [item for item in slots if item["id"] == slot]
        if not slots:
            known = ", ".join(str(number) for number in ids[:20])
            raise CacheDoctorError(f"{path}: no slot {slot} in this dump", f"the dump has these slots: {known}")
    prompts = [
        _prompt(item, f"{path}#{item['id']}" if many else path, reply)
        for item in slots
        if isinstance(item.get("prompt"), str) and item["prompt"]
    ]
    if not prompts:
        raise _without_prompts(slots, path)
    return prompts


def pair(a: list[Prompt], b: list[Prompt]) -> list[tuple[Prompt, Prompt]]:
    """Match the slots of two dumps: those with the same id, then the rest by longest common prefix.

    A prompt in a slot that had held none comes first, with the last one before it: where the head of a conversation
    changes, the server takes another slot for it, and its old slot is equal to itself.
    """
    later = {prompt.slot: prompt for prompt in reversed(b) if prompt.slot is not None}
    pairs: list[tuple[Prompt, Prompt]] = []
    rest: list[Prompt] = []
    for prompt in a:
        match = None if prompt.slot is None else later.pop(prompt.slot, None)
        if match is None:
            rest.append(prompt)
        else:
            pairs.append((prompt, match))
    taken = {id(match) for _, match in pairs}
    pairs += _closest(rest, [prompt for prompt in b if id(prompt) not in taken])
    return [*_elsewhere(a, [prompt for prompt in b if all(prompt is not match for _, match in pairs)]), *pairs]


def _elsewhere(a: list[Prompt], unmatched: list[Prompt]) -> list[tuple[Prompt, Prompt]]:
    """The prompts of slots that had held none, the latest first, each with the last one of the dump before."""
    told = [prompt for prompt in a if prompt.task is not None]
    last = max(told, key=lambda prompt: prompt.task or 0, default=None)
    new = sorted(unmatched, key=lambda prompt: -1 if prompt.task is None else prompt.task, reverse=True)
    return [] if last is None else [(last, prompt) for prompt in new if prompt.slot is not None]


def _is_slot(slot: dict[str, Any]) -> bool:
    number = slot.get("id")
    named = isinstance(number, int) and not isinstance(number, bool)
    return named and "n_ctx" in slot and bool(slot.keys() & {"is_processing", "next_token", "id_task", "state"})


def _prompt(slot: dict[str, Any], path: str, reply: bool) -> Prompt:
    builder = Builder()
    builder.add("prompt", slot["prompt"])
    generated = slot.get("generated")
    if reply and isinstance(generated, str):
        builder.add("generated", generated)
    prompt = builder.prompt(path, "slots", None, rendered=True)
    prompt.slot, task = slot["id"], slot.get("id_task")
    prompt.task = task if isinstance(task, int) and not isinstance(task, bool) else None
    return prompt


def _without_prompts(slots: list[dict[str, Any]], path: str) -> CacheDoctorError:
    # From b6751 on a slot that never had a task has neither id_task nor params, whatever the environment says.
    used = [slot for slot in slots if "id_task" in slot or "params" in slot]
    if not used or any("prompt" in slot for slot in used):
        which = f"slot {slots[0]['id']} is" if len(slots) == 1 else f"all {len(slots)} slots are"
        return CacheDoctorError(f"{path}: {which} empty", "dump /slots after a request, before the next one")
    return CacheDoctorError(
        f"{path}: this /slots dump contains no prompts",
        "start llama-server with the environment variable LLAMA_SERVER_SLOTS_DEBUG=1 and dump /slots again",
    )


def _closest(a: list[Prompt], b: list[Prompt]) -> list[tuple[Prompt, Prompt]]:
    if len(a) > MAX_MATRIX or len(b) > MAX_MATRIX:
        return list(zip(a, b, strict=False))
    scored = [(-common_prefix(x.text, y.text), i, j) for i, x in enumerate(a) for j, y in enumerate(b)]
    pairs: list[tuple[Prompt, Prompt]] = []
    used_a: set[int] = set()
    used_b: set[int] = set()
    for _, i, j in sorted(scored):
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
            pairs.append((a[i], b[j]))
    return pairs


DUMP_NAME = late(r"\d{12}\d*\.txt")
"""What --log-prompts-dir names its files: milliseconds."""
MAX_BYTES = 1 << 30
"""Maximum bytes of a file of prompts, or of all in a directory; a thousand requests of long conversations need about
400 MiB."""
_PART = "give one file of prompts, or fewer prompts"
SLOTS_HINT = "the output of GET /slots is an array of slots with id, n_ctx and prompt"
SHAPES = "a request body has messages, prompt or input; " + SLOTS_HINT
MAGIC = (
    (b"GGUF", "a GGUF model"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)

_ANSI = late(r"\x1b\[[0-9;]*m")
_NORMAL_DIFF = late(r"\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n(?:[<>] |---)")
_UNIFIED_DIFF = late(
    r"(?:(?:diff|index|Index:|=====|old|new|similarity|rename) ?[^\n]*\n){0,6}--- [^\n]*\n\+\+\+ [^\n]*\n@@ -"
)
_CONTEXT_DIFF = late(r"(?:diff [^\n]*\n)?\*\*\* [^\n]*\n--- [^\n]*\n\*{15}")
_OTHER_DIFF = late(r"diff --git a/|(?:Binary files|Files) [^\n]+ and [^\n]+ differ\s*$")


def load(path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Read the prompts of a file, a directory of --log-prompts-dir, or standard input (``-``).

    ``slot`` picks one slot of a ``/slots`` dump; ``reply`` appends the slot's reply to its prompt (place
    ``generated``), which is what the next request could have reused.
    """
    if path != "-" and Path(path).is_dir():
        return _directory(Path(path))
    return parse(read(path), "<stdin>" if path == "-" else path, slot, reply)


def load_sent(path: str) -> list[Prompt | None]:
    """Read what was sent to a server, in its order: JSONL of bodies, a recording, a directory of --log-prompts-dir.

    None is given for what contains no prompt: an embedding, a slot file.

    Raises:
        CacheDoctorError: it cannot be read, holds no request body, or parts of the prompts are missing.
    """
    if path != "-" and Path(path).is_dir():
        return [*_directory(Path(path))]
    found = sent(read(path), path)
    if not any(prompt is not None for prompt in found):
        raise CacheDoctorError(f"{path}: contains no request bodies", SHAPES)
    torn = next((one.recorded for one in found if one is not None and not one.is_whole), None)
    if torn is not None and torn.note:
        raise CacheDoctorError(
            f"{path}: prompts are incomplete: {torn.note}", "cachedoctor proxy --record saves complete prompts"
        )
    return found


def sent(data: bytes, path: str) -> list[Prompt | None]:
    """Give the prompts of the request bodies in the bytes of a file, None for each without one; [] of no bodies."""
    text = _decode(data, path)
    capture = recognise.of_log(text)
    values = [] if capture is not None else values_of(text, path) or []
    capture = capture or recognise.of_values(values)
    if capture is not None:
        return _captured(capture, path)
    values, is_moved = _as_sent(values)
    if len(values) == 1 and isinstance(values[0], list) and request_bodies.find(values[0]) is None:
        values = values[0]
    found: list[Prompt | None] = []
    for number, value in enumerate(values, 1):
        body = request_bodies.find(value)
        found += [None] if body is None else _answered(body, value, f"{path}#{number}", is_moved)
    return found if any(prompt is not None for prompt in found) else []


def read(path: str) -> bytes:
    """Bytes of a file, or of standard input (``-``)."""
    try:
        if path != "-":
            return read_file(path, MAX_BYTES, _PART, pipes=True)
        if sys.stdin is None:
            raise OSError(0, "standard input is closed")
        return read_all(sys.stdin.buffer, "<stdin>", MAX_BYTES, _PART)
    except (OSError, ValueError) as error:  # ValueError: a name that holds NUL
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        hint = "give a readable file or directory, or pipe a prompt in"
        raise CacheDoctorError(f"{path}: cannot be read: {reason}", hint) from error


def parse(data: bytes, path: str, slot: int | None = None, reply: bool = False) -> list[Prompt]:
    """Prompts in the bytes of a file."""
    text = _decode(data, path)
    if not text.strip():
        raise CacheDoctorError(f"{path}: is empty", "there is no prompt to compare")
    if _is_diff(text):
        raise CacheDoctorError(
            f"{path}: is the output of diff, not a prompt", "give the two files themselves: cachedoctor diff OLD NEW"
        )
    capture = recognise.of_log(text)
    values = None if capture is not None else values_of(text, path)
    capture = capture or recognise.of_values(values or [])
    if capture is not None:
        return [one for one in _captured(capture, path) if one is not None]
    if values is None:
        return [Prompt(path, "text", text)]
    return _prompts(values, path, slot, reply)


def has_logged_prompts(path: str) -> bool:
    """Whether a file is the log of a server that prints prompts; False of one that cannot be read as prompts."""
    try:
        return recognise.has_requests(_decode(read(path), path))
    except CacheDoctorError:
        return False


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
            raise CacheDoctorError(f"{folder}: contains more than {MAX_BYTES // MIB:,} MiB of prompts", _PART)
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
            f"{folder}: contains no prompts written by --log-prompts-dir",
            "files of --log-prompts-dir are named by time in milliseconds (000123456789.txt); give files with other "
            "names one by one",
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
    return "give a model with --tokenizer or --template" if "GGUF" in name else "decompress it first"


def _utf16(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-16")
    except UnicodeDecodeError as error:
        raise CacheDoctorError(f"{path}: is binary or broken UTF-16", "give text, JSON or JSONL in UTF-8") from error


def _is_diff(text: str) -> bool:
    head = _ANSI.sub("", text[:4096]).lstrip("\n")
    return any(kind.match(head) for kind in (_NORMAL_DIFF, _UNIFIED_DIFF, _CONTEXT_DIFF, _OTHER_DIFF))


def _as_sent(values: list[Any]) -> tuple[list[Any], bool]:
    """Records of ``cachedoctor proxy`` in the order in which requests were sent: it writes each when it ends.

    And whether that is another order than in the file.
    """
    if not all(isinstance(value, dict) and "recorder" in value and _is_time(value.get("sent")) for value in values):
        return values, False
    found = sorted(values, key=lambda value: float(value["sent"]))
    return found, any(one is not other for one, other in zip(found, values, strict=True))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _prompts(values: list[Any], path: str, slot: int | None, reply: bool) -> list[Prompt]:
    values, is_moved = _as_sent(values)
    if len(values) == 1:
        slots = slots_of(values[0])
        if slots is not None:
            return prompts_of(slots, path, slot, reply)
        if isinstance(values[0], list) and request_bodies.find(values[0]) is None:
            values = values[0]
    prompts: list[Prompt] = []
    empty: CacheDoctorError | None = None
    for number, value in enumerate(values, 1):
        name = f"{path}#{number}" if len(values) > 1 else path
        slots = slots_of(value)
        if slots is not None:
            try:
                prompts += prompts_of(slots, name, slot, reply)
            except CacheDoctorError as error:  # one of many dumps may come before the first request
                empty = error
            continue
        found = request_bodies.find(value)
        # A log of requests also has those that carry no prompt: slot actions, embeddings, token counts.
        if found is not None:
            prompts += _answered(found, value, name, is_moved)
    if prompts:
        return prompts
    raise empty or _unknown(values, path)


def _answered(found: request_bodies.Body, value: Any, name: str, is_moved: bool) -> list[Prompt]:
    """Prompts of a body, with the counts of the answer that was recorded with it."""
    prompts = request_bodies.prompts_of(found.body, found.kind, name)
    response = value.get("response") if isinstance(value, dict) else None
    told = {key: response[key] for key in ("usage", "timings") if key in response} if isinstance(response, dict) else {}
    return _recorded(prompts, RecordedFields(encoded(told), is_moved=is_moved)) if told else prompts


def _captured(capture: Capture, path: str) -> list[Prompt | None]:
    """Prompts of a recording of others, None for each request without one."""
    note, found = "; ".join(capture.notes), list[Prompt | None]()
    for number, one in enumerate(capture.requests, 1):
        name = f"{path}#{number}" if len(capture.requests) > 1 else path
        found += _of_captured(one, note, name) or [None]
    if not any(one is not None for one in found):
        what = f"{path}: contains no prompts of requests to a model ({capture.kind}"
        raise CacheDoctorError(f"{what}: {note})" if note else f"{what})", capture.hint)
    return found


def _of_captured(one: Captured, note: str, name: str) -> list[Prompt]:
    if one.body is None:
        return []
    if depth_of(one.body) > MAX_DEPTH:
        raise too_deep(name)
    body = request_bodies.find({"endpoint": one.endpoint, "body": one.body})
    prompts = [] if body is None else request_bodies.prompts_of(body.body, body.kind, name)
    return _recorded(prompts, RecordedFields(one.answer, one.is_whole, note, is_moved=True))


def _recorded(prompts: list[Prompt], recorded: RecordedFields) -> list[Prompt]:
    """Give each prompt what was recorded with it; the counts of one answer belong to none of several prompts."""
    if len(prompts) > 1:
        recorded = msgspec.structs.replace(recorded, answer=b"")
    return [msgspec.structs.replace(prompt, recorded=recorded) for prompt in prompts]


def _unknown(values: list[Any], path: str) -> CacheDoctorError:
    first = values[0] if values else None
    if isinstance(first, dict) and isinstance(first.get("error"), dict | str):
        return CacheDoctorError(
            f"{path}: is an error reply of the server, not a dump", "GET /slots needs --slots on builds up to b6180"
        )
    if isinstance(first, dict) and ("choices" in first or "usage" in first):
        return CacheDoctorError(f"{path}: is a response; the prompt is in the request", SHAPES)
    keys = ", ".join(str(key)[:40] for key in list(first)[:6]) if isinstance(first, dict) else type(first).__name__
    return CacheDoctorError(f"{path}: is JSON of an unknown kind ({sound(keys) or 'empty'})", SHAPES)
