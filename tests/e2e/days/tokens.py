"""Tokens of a prompt as the tiny models see them: a byte is one, and so is a special token like ``<|im_start|>``.

Covers the vocabulary and the template of ``e2e.models``; so lengths and common prefixes are exact without a server.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jinja2

from e2e import models

SPECIAL = re.compile("|".join(re.escape(text) for text in models.VOCAB_SPECIAL))
FIRST_SPECIAL = 257
"""Identifier of the first special token: 256 bytes and the one merge come before."""
RUN = 128
"""Tokens: the shortest text that counts as sent again. Frames of messages and of calls are shorter."""


def _json(value: Any, **_: Any) -> str:
    """Spell JSON as llama-server does: keys in the order of the request, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=False)


_ENVIRONMENT = jinja2.Environment()
_ENVIRONMENT.filters["tojson"] = _json
_TEMPLATE = _ENVIRONMENT.from_string(models.TEMPLATE)


def rendered(body: dict[str, Any]) -> str:
    """Text of a chat request as the server's template makes it."""
    switches = body.get("chat_template_kwargs", {})
    return _TEMPLATE.render(messages=body["messages"], tools=body.get("tools"), add_generation_prompt=True, **switches)


def tokens(text: str) -> str:
    """Spell a text with one character for each token, so that prefixes are compared as strings."""
    out, at = [], 0
    for found in SPECIAL.finditer(text):
        out += [text[at : found.start()].encode().decode("latin-1")]
        out += [chr(FIRST_SPECIAL + models.VOCAB_SPECIAL.index(found[0]))]
        at = found.end()
    return "".join(out) + text[at:].encode().decode("latin-1")


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
