"""Counters of vLLM and SGLang that Prometheus has stored."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from cachedoctor.inputs import http_requests
from cachedoctor.inputs.metrics import dumps
from cachedoctor.inputs.metrics.dump import Dump
from cachedoctor.knowledge.engines import EITHER
from cachedoctor.model import CacheDoctorError

RANGE_SECONDS = 3600.0


def stored_counters(url: str, seconds: float = RANGE_SECONDS, match: str | None = None) -> list[Dump]:
    """Ask Prometheus at ``url`` for the last ``seconds``, one dump for each server and moment.

    Args:
        url: address of Prometheus.
        seconds: length of the range, which ends now.
        match: labels of the wanted series, e.g. ``job="vllm"``.

    Raises:
        CacheDoctorError: it does not answer, or has no such counters.
    """
    body = http_requests.get(dumps.address(url, time.time(), seconds, match))
    shown = http_requests.shown(url)
    found = [
        dump
        for moment, exposition in dumps.moments(body, shown)
        for dump in dumps.of(exposition, f"{shown} at {datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}")
    ]
    if not found:
        raise CacheDoctorError(f"{shown}: has no counters of {EITHER} in this range", "check --since and --match")
    for dump in found:
        dump.asked = shown
    return found
