"""Tokens of a prompt as the tiny models see them: a byte is one, and so is a special token like ``<|im_start|>``.

Covers the vocabulary and the template of ``e2e.models``; so lengths and common prefixes are exact without a server.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

import jinja2

from e2e import models

SPECIAL = re.compile("|".join(re.escape(text) for text in models.VOCAB_SPECIAL))
FIRST_SPECIAL = 257
"""Identifier of the first special token: 256 bytes and the one merge come before."""
IMAGE = 16
"""Tokens of an image with the projector of ``e2e.models``."""
_FIRST_IMAGE, _IMAGES = 0xF0000, 0xFFFF
"""Private characters that stand for images."""
RUN = 128
"""Tokens: the shortest text that counts as sent again. Frames of messages and of calls are shorter."""


def _json(value: Any, **_: Any) -> str:
    """Spell JSON as llama-server does: keys in the order of the request, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=False)


_ENVIRONMENT = jinja2.Environment()
_ENVIRONMENT.filters["tojson"] = _json
_TEMPLATE = _ENVIRONMENT.from_string(models.TEMPLATE)


def rendered(body: dict[str, Any]) -> str:
    """Text of a request as the server makes it: a bare prompt, or messages through the template."""
    if isinstance(body.get("prompt"), str):
        return str(body["prompt"])
    switches = body.get("chat_template_kwargs", {})
    head = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    messages = [*head, *(message | {"content": _joined(message.get("content"))} for message in body["messages"])]
    return _TEMPLATE.render(messages=messages, tools=body.get("tools"), add_generation_prompt=True, **switches)


def _joined(content: Any) -> Any:
    """Text of a message; an image becomes as many characters as it has tokens, the same ones for the same
    bytes. A message has one text at most."""
    if not isinstance(content, list):
        return content
    return "".join(_part(part) for part in content)


def _part(part: dict[str, Any]) -> str:
    if part["type"] == "text":
        return str(part["text"])
    return chr(_FIRST_IMAGE + zlib.crc32(part["image_url"]["url"].encode()) % _IMAGES) * IMAGE


def tokens(text: str) -> str:
    """Spell a text with one character for each token, so that prefixes are compared as strings."""
    out, at = [], 0
    for found in SPECIAL.finditer(text):
        out += [_bytes(text[at : found.start()])]
        out += [chr(FIRST_SPECIAL + models.VOCAB_SPECIAL.index(found[0]))]
        at = found.end()
    return "".join(out) + _bytes(text[at:])


def _bytes(text: str) -> str:
    """One character for each byte; those that stand for images stay."""
    return "".join(c if ord(c) >= _FIRST_IMAGE else c.encode().decode("latin-1") for c in text)


def common(a: str, b: str) -> int:
    """Length of the common prefix, in tokens."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


def runs(prompt: str) -> set[int]:
    """Fingerprints of every text of ``RUN`` tokens in a prompt."""
    return {hash(prompt[at : at + RUN]) for at in range(len(prompt) - RUN + 1)}


def repeated(prompt: str, start: int, known: set[int]) -> int:
    """Tokens after ``start`` that lie in a run which ``known`` has too."""
    count, end = 0, start
    for at in range(start, len(prompt) - RUN + 1):
        if hash(prompt[at : at + RUN]) in known:
            count += at + RUN - max(at, end)
            end = at + RUN
    return count
