"""HAR 1.2, what browsers and debugging proxies save: ``{"log": {"version": "1.2", "entries": [...]}}``.

Shape: http://www.softwareishard.com/blog/har-12-spec/ (postData.text, content.text with content.encoding). Some
programs write the body of a request in base64 as well, with or without ``encoding`` beside it.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from cachedoctor.inputs.captures.captured import (
    Capture,
    Captured,
    is_llm,
    is_prompt,
    object_of,
    seconds,
    telling,
    text_of,
)
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(rb'\A\s*\{\s*"log"\s*:\s*\{')


def read(values: list[Any]) -> Capture | None:
    """Read the entries of an archive; None of anything else."""
    log = values[0].get("log") if len(values) == 1 and isinstance(values[0], dict) else None
    entries = log.get("entries") if isinstance(log, dict) else None
    if not isinstance(entries, list):
        return None
    found = Capture("HAR", [], hint="save the HAR file with content, including the requests to the server")
    unread = 0
    for entry in entries:
        one = _request(entry) if isinstance(entry, dict) else None
        found.requests += [] if one is None else [one]
        unread += one is not None and one.body is None
    if unread:
        found.notes.append(f"{unread:,} of its requests to a model have no body, or a truncated one")
    return found.in_order()


def _request(entry: dict[str, Any]) -> Captured | None:
    request, response = _part(entry, "request"), _part(entry, "response")
    post = _part(request, "postData")
    endpoint = _path(request.get("url"))
    body = _body(post)
    if body is not None and not is_prompt(body, endpoint):
        return None
    if body is None and not (is_llm(endpoint) and request.get("method") == "POST"):
        return None
    content = _part(response, "content")
    answer = text_of(content.get("text"), content.get("encoding") == "base64")
    return Captured(body, endpoint, telling(answer), seconds(entry.get("startedDateTime")))


def _body(post: dict[str, Any]) -> dict[str, Any] | None:
    text = post.get("text")
    if post.get("encoding") != "base64":
        found = object_of(text) if isinstance(text, str) else None
        if found is not None:
            return found
    return object_of(text_of(text, True) or None)


def _part(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _path(url: Any) -> str:
    try:
        return urlsplit(url).path if isinstance(url, str) else ""
    except ValueError:
        return ""
