"""Counters of vLLM and SGLang beside a log: dumps of /metrics given as logs, and --prometheus URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cachedoctor.cli import terminal
from cachedoctor.knowledge.engines import PATTERN
from cachedoctor.knowledge.late_patterns import late

if TYPE_CHECKING:
    from cachedoctor.inputs.metrics.dump import Dump

_BEGIN = late(rb"\s*(?:```[^\n]{0,40}\n\s*)?(?:# (?:HELP|TYPE) [a-zA-Z_:]|(?:" + PATTERN.encode() + rb")[:_]\w)")
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


def refuse_addresses(metrics: Sequence[str]) -> None:
    """Raise ``CacheDoctorError`` where an address is given as a dump."""
    for path in metrics:
        if is_address(path):
            from cachedoctor.model import CacheDoctorError

            hint = "save the page with curl before and after the requests and give both files, or use --prometheus URL"
            raise CacheDoctorError(f"--metrics {path}: is an address, not a file", hint)


def check_prometheus(url: str | None, match: str | None) -> None:
    """Raise ``CacheDoctorError`` where the address of Prometheus is missing or not an address."""
    from cachedoctor.model import CacheDoctorError

    if url is None and match is not None:
        raise CacheDoctorError("--match: needs --prometheus URL", "give both")
    if url is not None and not is_address(url):
        raise CacheDoctorError(f"--prometheus {url}: is not an address", "e.g. --prometheus http://localhost:9090")


def prometheus_dumps(url: str, since: str | None, match: str | None, *, alone: bool) -> list[Dump]:
    """Ask Prometheus for counters; where that fails, say so and give none.

    Raises:
        CacheDoctorError: it failed, and nothing else is given (``alone``).
    """
    from cachedoctor.doctor.extras.prometheus_counters import RANGE_SECONDS, stored_counters
    from cachedoctor.model import CacheDoctorError

    try:
        return stored_counters(url, RANGE_SECONDS if since is None else terminal.seconds(since), match)
    except CacheDoctorError as fault:
        if alone:
            raise
        terminal.complain(fault.message, fault.hint)
        return []
