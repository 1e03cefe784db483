"""Reads requests in the order of sending, and says which follows which. Knows files and dicts; compares nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import conversations, inputs
from cachedoctor.prompts.prompt import Prompt

HINT = "give consecutive requests of a conversation: JSONL of bodies, or several files in the order of sending"
NUMBER = late(r"#(\d+)(?:#\d+)?\Z")
"""Behind the name of a file: which of its requests."""


class Sent(msgspec.Struct):
    """A request as it was read."""

    prompt: Prompt
    line: int | None
    """In its file; None where requests do not stand on a line each."""
    recording: int = 0
    """Requests of different recordings do not follow each other; files of one request each are one recording."""


def read_files(paths: Sequence[str]) -> list[Sent]:
    """Read the requests of files: each file of several is a recording by itself, those of one request are one.

    Raises:
        CacheDoctorError: one of them cannot be read, or holds no prompts.
    """
    if list(paths).count("-") > 1:
        raise CacheDoctorError("standard input can be read once only", "give the others as files")
    found: list[Sent] = []
    for number, path in enumerate(paths, 1):
        requests = _of_file(path)
        if len(requests) > 1:
            for request in requests:
                request.recording = number
        found += requests
    return found


def _of_file(path: str) -> list[Sent]:
    if path != "-" and inputs.is_folder(path):
        return [Sent(prompt, None) for prompt in inputs.load(path)]
    data = inputs.read(path)
    name = "<stdin>" if path == "-" else path
    rows = _rows(data)
    return [Sent(prompt, _line(prompt, name, rows)) for prompt in inputs.parse(data, name)]


def from_dicts(bodies: Iterable[Mapping[str, Any]]) -> list[Sent]:
    """Take bodies as a program has them; they are called ``bodies#1`` and so on.

    Raises:
        CacheDoctorError: one of them is no JSON, or none holds a prompt.
    """
    try:
        data = "\n".join(json.dumps(body) for body in bodies)
    except (TypeError, ValueError, RecursionError) as error:
        hint = "give what is posted: dicts of strings, numbers, lists and dicts"
        raise CacheDoctorError(f"bodies: are not JSON: {error}", hint) from error
    if not data:
        raise CacheDoctorError("bodies: there are none", HINT)
    return [Sent(prompt, None) for prompt in inputs.parse(data.encode(), "bodies")]


def pairs_of(sent: list[Sent]) -> list[tuple[int, int]]:
    """Which request follows which, as indexes (earlier, later)."""
    recordings: dict[int, list[int]] = {}
    for index, request in enumerate(sent):
        recordings.setdefault(request.recording, []).append(index)
    return [
        (places[earlier], places[later])
        for places in recordings.values()
        for earlier, later in conversations.walk([sent[index].prompt for index in places])
    ]


def _rows(data: bytes) -> list[int]:
    """The lines on which the values of JSONL stand; nothing where the file is something else."""
    rows = [(number, row) for number, row in enumerate(data.split(b"\n"), 1) if row.strip()]
    if all(row.strip()[:1] in b"{[" and row.rstrip().rstrip(b",")[-1:] in (b"}", b"]") for _, row in rows):
        return [number for number, _ in rows]
    return []


def _line(prompt: Prompt, name: str, rows: list[int]) -> int | None:
    if prompt.recorded is not None and prompt.recorded.is_moved:
        return None
    number = NUMBER.search(prompt.path[len(name) :])
    at = 0 if number is None else int(number.group(1)) - 1
    return rows[at] if at < len(rows) and (number is not None or len(rows) == 1) else None
