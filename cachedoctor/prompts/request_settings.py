"""What of two requests, beside their prompts, decides what a cache gives back. Knows names of fields, no server.

Sources: vLLM's protocol (``cache_salt``; adapters by name of ``model``), SGLang's (``lora_path``, ``extra_key``),
llama-server's README (``lora``).
"""

from __future__ import annotations

import json
from typing import Any

from cachedoctor.model import RequestSetting
from cachedoctor.prompts.digest import digest
from cachedoctor.prompts.prompt import Prompt

_SALT = "vLLM and SGLang share no block between requests with different ones; llama-server does not read it"
_ADAPTER = "what was computed with one adapter is of no use with another: nothing is shared"
WORDS = {
    "cache_salt": _SALT,
    "extra_key": "SGLang shares nothing between requests with different ones",
    "lora": _ADAPTER,
    "lora_path": _ADAPTER,
    "model": "the requests name different models; where an adapter is chosen so, nothing is shared",
}
SECRET = ("cache_salt", "extra_key")
"""Values that are never shown: who knows a salt can tell what others asked."""
_MOST = 4096
"""Code points of a value that are kept: more than are shown, as secrets are looked for before it is cut."""
_IMAGES = 4
"""Images that are listed."""


def differences(a: Prompt, b: Prompt) -> list[RequestSetting]:
    """What differs, in the order of the table; nothing where one of both is no request body."""
    found = []
    if a.body is not None and b.body is not None:
        for name, words in WORDS.items():
            old, new = a.body.get(name), b.body.get(name)
            if old != new:
                found.append(RequestSetting(name, _shown(name, old), _shown(name, new), words))
    pairs = zip(a.images, b.images, strict=False)
    other = [i for i, (old, new) in enumerate(pairs) if old != new][:_IMAGES]
    found += [
        RequestSetting(
            f"images[{i}]", f"sha256:{a.images[i][:16]}", f"sha256:{b.images[i][:16]}",
            "other bytes: nothing behind it is shared",
        )
        for i in other
    ]  # fmt: skip
    return found


def decides(settings: list[RequestSetting]) -> bool:
    """Whether two requests with the same text are not the same for a cache; the name of a model alone does not tell."""
    return any(setting.place != "model" for setting in settings)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return digest(text) if name in SECRET else text[:_MOST]
