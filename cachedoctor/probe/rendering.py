"""Lets a server say which tokens it makes of a prompt, without computing it; what cannot be had is None.

Knows llama-server's /apply-template and /tokenize, and vLLM's /tokenize.
"""

from __future__ import annotations

from typing import Any

from cachedoctor.model.probed import ProbedServer
from cachedoctor.probe.connection import Connection
from cachedoctor.probe.plan import Body


def tokens(at: Connection, server: ProbedServer, model: str | None, body: Body) -> list[int] | None:
    """Give the tokens of a chat request as the server's own template and tokenizer make them."""
    if server.engine == "llama.cpp":
        rendered = _post(at, "/apply-template", body)
        text = rendered.get("prompt") if isinstance(rendered, dict) else None
        if not isinstance(text, str):
            return None
        return _ids(_post(at, "/tokenize", {"content": text, "add_special": True, "parse_special": True}))
    if server.engine == "vllm":
        return _ids(_post(at, "/tokenize", {"model": model, "add_generation_prompt": True, **body}))
    return None


def _ids(answer: Any) -> list[int] | None:
    found = answer.get("tokens") if isinstance(answer, dict) else None
    return found if isinstance(found, list) and found and all(type(i) is int for i in found) else None


def _post(at: Connection, path: str, body: Body) -> Any:
    answer = at.post(path, body)
    return answer.value if answer.status == 200 else None
