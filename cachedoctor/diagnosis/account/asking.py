"""The client of a request: by its body, or else by the log's line of the HTTP server.

``/team-a/v1/chat/completions`` from ``10.0.0.7`` is of the route ``/team-a``, ``/v1/chat/completions`` of the address.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import ClientName, Judged, Session

_INTERFACE = late(
    r"(/.{1,200}?)(?<!/chat)"
    r"/(?:v\d/)?(?:chat/completions|completions?|messages|responses|infill|generate|embeddings|rerank)(?:\?.*)?",
    re.ASCII,
)
_VERSION = late(r"/v\d", re.ASCII)
_MOST_CALLERS = 4096
"""Clients of a session that are remembered; those that come later count together."""


def asker(judged: Judged) -> ClientName | None:
    """Name the client; None if it is unknown."""
    if judged.asker is not None:
        return judged.asker
    asked = judged.request.seen.asked
    return None if asked.endpoint is None and asked.client is None else logged(asked.endpoint, asked.client)


@lru_cache(maxsize=1024)  # a log has few clients
def logged(path: str | None, address: str | None) -> ClientName | None:
    """Name the client by the log: the path before the interface separates tenants behind one proxy."""
    found = _INTERFACE.fullmatch(path) if path is not None else None
    if found is not None and not _VERSION.fullmatch(found[1]):
        return ClientName("route", found[1])
    return None if address is None else ClientName("address", address)


def count_caller(session: Session, path: str, host: str, times: int = 1) -> None:
    """Count answered requests by client, in a session whose log has no requests.

    ``INFO:     10.0.0.7:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK`` counts for the address ``10.0.0.7``: the
    port differs for every connection.
    """
    address, _, port = host.rpartition(":")
    name, callers = logged(path, address if address and port.isdigit() else host), session.callers
    if name is None:
        return
    count = callers.get(name)
    if count is None and len(callers) >= _MOST_CALLERS:
        name = ClientName("other", "")
        count = callers.get(name)
    callers[name] = (count or 0) + times
