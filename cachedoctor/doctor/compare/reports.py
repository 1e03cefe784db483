"""JSON reports among inputs: how a file is told from a log, and read."""

from __future__ import annotations

import os
import sys

import msgspec

from cachedoctor.inputs.sources.base import Told, unheard
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, Report
from cachedoctor.report.wire import stored

_HEAD = 1 << 16
"""Bytes at the beginning of a file in which the first record of a log ends."""
_BLOCK = 1 << 20
_SCHEMA = late(rb'(?<!\\)"schema"\s{0,8}:\s{0,8}"cachedoctor\.report/')
_TABLES = {"llama.cpp": "requests", **{known.name: known.table for known in ENGINES.values()}}
"""What of an engine's log becomes a table."""
_OVERLAP = 64
"""Bytes that this may match."""


def is_report(path: str) -> bool:
    """Whether a file holds a JSON report, its keys in any order; a log of JSON records does not.

    What arrives by a pipe cannot be checked before it is read, and is none.
    """
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            if head.lstrip()[:1] != b"{":
                return False
            if _SCHEMA.search(head) is not None:
                return True
            first, newline, _ = head.lstrip().partition(b"\n")
            if newline and _is_object(first):
                return False
            rest = head[-_OVERLAP:]
            while block := file.read(_BLOCK):
                if _SCHEMA.search(rest + block) is not None:
                    return True
                rest = block[-_OVERLAP:]
    except OSError:
        pass  # whoever reads it says what is wrong
    return False


def begins_report(head: bytes) -> bool:
    """Whether an input with these first bytes is a JSON report that names its schema at once, as ours do."""
    return head.lstrip()[:1] == b"{" and _SCHEMA.search(head) is not None


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


def read(path: str, told: Told = unheard) -> Report:
    """Read a stored report; ``-`` is the standard input.

    Raises ``CacheDoctorError`` when it is none.
    """
    try:
        if path == "-" and sys.stdin is None:
            raise OSError(0, "standard input is closed")
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
    except OSError as error:
        hint = "give a readable JSON report of an analysis"
        raise CacheDoctorError(f"{path}: cannot be read: {error.strerror or error}", hint) from error
    told(len(data))
    return stored.read(data, path)


def read_whole(path: str, told: Told = unheard) -> Report:
    """Read a stored report whose requests are those that its sums count.

    Raises:
        CacheDoctorError: it is none, or shows a part of its log.
    """
    report = read(path, told)
    if report.filtered is not None:
        hint = "write the report without --task, --slot, --since and --until"
        raise CacheDoctorError(f"{path}: the report shows part of a log, but its sums cover the whole log", hint)
    return report


def tables_of(report: Report) -> list[str]:
    """Name the tables that its servers have: requests, or measurements, or neither."""
    return list(dict.fromkeys(_TABLES[s.engine] for s in report.sessions if s.engine in _TABLES))


def without_requests(report: Report) -> bool:
    """Whether there are servers in it, but none whose log has requests."""
    return bool(report.sessions) and "requests" not in tables_of(report)


def distinct(paths: list[str]) -> list[str]:
    """Return every file once, by the first of its names."""
    return list({path if path == "-" else os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]
