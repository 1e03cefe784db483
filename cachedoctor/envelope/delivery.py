"""What started a server, by the wrappers around its first lines. Knows wrappers; knows no message."""

from __future__ import annotations

import re

from cachedoctor.envelope.chain import unwrapped
from cachedoctor.envelope.prefixes import HEADER
from cachedoctor.envelope.shapes import is_written, strip_controls
from cachedoctor.model import Launcher

_BEGIN = 512
"""Bytes of a line that are looked at for the lines of a program between wrappers."""
_LINES = 64
"""Lines that are looked at."""
_ROWS: tuple[tuple[str, Launcher], ...] = (
    ("docker compose", "compose"),
    ("compose, one space", "compose"),
    ("journald", "systemd"),
    ("kubectl --prefix", "kubernetes"),
    ("stern", "kubernetes"),
    ("Jan", "jan"),
)
"""Begins of the names of prefixes, and what they tell. ``docker logs -t`` and kubectl write the same dates."""
_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_DOCKER = re.compile(rb'\{"log":".*"stream":"(?:stdout|stderr)"')
_COLLECTED = re.compile(
    rb'"(?:kubernetes|kubernetes\.pod_name|kubernetes\.pod\.name|k8s\.pod\.name|podName)": ?["{]|"k8s_container"'
)
"""What collectors add to the record of a pod: Fluent Bit, Filebeat, Vector, OpenTelemetry, stern, Google Cloud."""
_SWAP = re.compile(rb"(?:\S+ )?\[(?:INFO|DEBUG)\] <[^>]{1,200}> Executing start command: ")
_OLLAMA = re.compile(
    rb"(?:^|: )time=\S+ level=[A-Z]+ source=(?:llama_server|routes|runner|sched|server|types)\.go:\d+ msg="
)
"""Its own lines, between those of the llama-server that it starts; it may run in a unit or a container itself."""


def delivered_by(head: bytes) -> Launcher | None:
    """What started the server whose log begins so; None where the lines do not tell, or tell different things."""
    found: set[Launcher] = set()
    for line in strip_controls(head).split(b"\n")[:_LINES]:
        if HEADER.fullmatch(line.strip()):
            found.add("lm-studio")
        elif _SWAP.match(line):
            return "llama-swap"
        elif _OLLAMA.search(line[:_BEGIN]):
            return "ollama"
        elif _CRI.match(line) or (line.startswith(b"{") and _COLLECTED.search(line)):
            found.add("kubernetes")
        elif _DOCKER.match(line):
            found.add("docker")
        else:
            found |= _by_prefix(line)
    return found.pop() if len(found) == 1 else None


def _by_prefix(line: bytes) -> set[Launcher]:
    chain, body = unwrapped(line)
    names = [step.row.name for step in chain.steps if step.row is not None]
    if not names or not is_written(body):
        return set()
    return {launcher for name in names for begin, launcher in _ROWS if name.startswith(begin)}
