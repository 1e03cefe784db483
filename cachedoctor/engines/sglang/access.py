"""Access lines of SGLang's web server: which interface the clients use.

``INFO:     127.0.0.1:49294 - "POST /v1/chat/completions HTTP/1.1" 200 OK``

Source: entrypoints/http_server.py, 0.4.3 to 0.5.23.
"""

from __future__ import annotations

from cachedoctor.engines import callers
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.model import Session, Setting

_MOST_TEXT = 4096
"""Bytes of the line that is kept."""
_ANTHROPIC = "/v1/messages"
_OTHERS = frozenset(
    {"/generate", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/api/chat", "/api/generate"}
)


def count(session: Session, event: Event) -> None:
    """Count a request for text by its interface, as a setting with the first of these lines."""
    path = str(event.fields["path"]).partition("?")[0]
    if event.fields["method"] != "POST" or not 200 <= event.fields["status"] < 300:
        return
    name = "anthropic_requests" if path == _ANTHROPIC else "chat_requests" if path in _OTHERS else None
    if name is None:
        return
    callers.count(session, str(event.fields["path"]), str(event.fields["host"]))
    known = session.settings.get(name)
    if known is None:
        session.settings[name] = Setting(1, event.line, event.text[:_MOST_TEXT])
    else:
        known.value += 1
