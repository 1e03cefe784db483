"""Who sent the requests of a server whose log has no requests: uvicorn's access lines name path and address.

``INFO:     10.0.0.7:40782 - "POST /v1/chat/completions HTTP/1.1" 200 OK`` is one of the address ``10.0.0.7``.
"""

from __future__ import annotations

from cachedoctor.diagnosis.account.asking import logged
from cachedoctor.model import ClientName, Session

_MOST = 4096
"""Clients remembered; those that come later count together."""


def count(session: Session, path: str, host: str) -> None:
    """Count an answered request for its client; the port of ``host`` is another one for every connection."""
    address, _, port = host.rpartition(":")
    name = logged(path, address if address and port.isdigit() else host)
    if name is None:
        return
    if name not in session.callers and len(session.callers) >= _MOST:
        name = ClientName("other", "")
    session.callers[name] = session.callers.get(name, 0) + 1
