"""Dumps of /metrics that were given in the place of logs. Knows how one begins; imports what reads it only then."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_BEGIN = re.compile(rb"\s*(?:```[^\n]{0,40}\n\s*)?(?:# (?:HELP|TYPE) [a-zA-Z_:]|(?:vllm|sglang)[:_]\w)")
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
    from cachedoctor.metrics.dumps import is_only_dump
    from cachedoctor.model import CacheDoctorError

    try:
        return len(data) <= _MOST and is_only_dump(data)
    except CacheDoctorError:
        return False
