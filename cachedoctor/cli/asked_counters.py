"""Counters given as logs, as --metrics URL or as --prometheus URL."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from cachedoctor.cli import terminal
from cachedoctor.cli.ending import INTERRUPTED
from cachedoctor.knowledge.engines import PATTERN

if TYPE_CHECKING:
    from cachedoctor.doctor.extras.polled_metrics import Asked, Heard


_BEGIN = re.compile(rb"\s*(?:```[^\n]{0,40}\n\s*)?(?:# (?:HELP|TYPE) [a-zA-Z_:]|(?:" + PATTERN.encode() + rb")[:_]\w)")
_HEAD = 256
_MOST = 4 * 1024 * 1024
"""Bytes: one of vLLM has about 50 KB for each engine."""


def dumps_in(paths: Sequence[str]) -> list[str]:
    """Return those that are dumps of /metrics with counters that are read, bare or in a fence, and nothing else."""
    return [path for path in paths if _is_dump(path)]


def _is_dump(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            if _BEGIN.match(head) is None:
                return False
            data = head + file.read(_MOST)
    except OSError:
        return False  # whoever reads it says so
    from cachedoctor.inputs.metrics.dumps import is_only_dump
    from cachedoctor.model import CacheDoctorError

    try:
        return len(data) <= _MOST and is_only_dump(data)
    except CacheDoctorError:
        return False


def is_address(text: str) -> bool:
    """Whether an argument is a web address, not a file."""
    return text.startswith(("http://", "https://"))


def asked(
    metrics: list[str],
    every: float | None,
    length: float | None,
    prometheus: str | None,
    match: str | None,
    since: str | None,
) -> Asked | None:
    """Return what is to be asked of servers; None without an address."""
    from cachedoctor.model import CacheDoctorError

    urls = [url for url in metrics if is_address(url)]
    if length is not None and not urls:
        raise CacheDoctorError("--for: is how long --metrics URL asks", "e.g. --metrics http://localhost:8000 --for 5m")
    if prometheus is None:
        if match is not None:
            raise CacheDoctorError("--match: is about --prometheus URL", "give both")
        if not urls:
            return None
    elif not is_address(prometheus):
        raise CacheDoctorError(f"--prometheus {prometheus}: is no address", "e.g. --prometheus http://localhost:9090")
    from cachedoctor.doctor.extras.polled_metrics import EVERY_SECONDS, RANGE_SECONDS, Asked

    past = RANGE_SECONDS if prometheus is None or since is None else terminal.seconds(since)
    return Asked(urls, EVERY_SECONDS if every is None else every, length, prometheus, past, match)


def heard(asking: Asked | None, quiet: bool, lonely: bool) -> Heard | None:
    """Ask, and say what went wrong; ``lonely``: nothing else is given, so that it must not all go wrong."""
    if asking is None:
        return None
    from cachedoctor.doctor.extras.polled_metrics import ask

    if asking.length is not None and not quiet:
        terminal.complain(
            f"asking for counters for {asking.length:.0f} s; the logs are read then", "Ctrl-C: now", "note"
        )
    found = ask(asking)
    if lonely and not found.dumps:
        raise found.faults[0] if found.faults else typer.Exit(INTERRUPTED)
    for fault in found.faults:
        terminal.complain(fault.message, fault.hint)
    return found
