"""What a server is, in words: its engine as it writes itself, its version, its cache.

Knows Session, and which rules are about which engine. Knows no format.
"""

from __future__ import annotations

import re

from cachedoctor.knowledge import builds
from cachedoctor.model import Session, SettingName
from cachedoctor.report.words.numbers import count

LLAMA = "llama.cpp"
"""The engine whose log has requests; those of all others have measurements."""
UNKNOWN = "unknown"
"""The engine of responses that any server may have written."""
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", UNKNOWN: "a server of unknown make"}
_RULES = {"vllm": re.compile(r"CD5\d\d"), "sglang": re.compile(r"CD6\d\d"), "ollama": re.compile(r"CD7\d\d")}
_CACHES: dict[str, tuple[SettingName, str]] = {
    "vllm": ("prefix_caching", "prefix caching"),
    "sglang": ("radix_cache", "radix cache"),
}
"""The setting that says whether the cache is on, and what the engine calls it."""
SOURCES = {
    "line": "",
    "option": " (given by --build)",
    "wording": " (from its messages)",
    "source": " (by the line numbers of its source)",
    "paste": " (by the text above the log)",
}
"""How the build or the version is known."""


def engine(name: str) -> str:
    """Write an engine as it writes itself."""
    return _NAMES.get(name, name)


def program(session: Session) -> str:
    """Write the program of a session as it writes itself."""
    return session.program or engine(session.engine)


def of_rule(code: str) -> str:
    """Return the engine whose logs a rule is about."""
    return next((name for name, pattern in _RULES.items() if pattern.fullmatch(code)), LLAMA)


def rules_of(engine: str, codes: set[str]) -> set[str]:
    """Return those of ``codes`` that are about logs of this engine."""
    return {code for code in codes if of_rule(code) == engine}


def version(session: Session) -> str:
    """Say which build or version it is, as far as that is known; nothing of a server of which not even that is."""
    if session.engine == UNKNOWN:
        return ""
    if session.engine == LLAMA:
        return builds.describe(session.build, session.build_min, session.build_max)
    if session.version:
        return session.version
    low, high = session.version_min, session.version_max
    if low and high:
        return low if low == high else f"{low} to {high}"
    if low or high:
        return f"{low} or newer" if low else f"{high} or older"
    return "unknown version"


def parts(session: Session) -> list[str]:
    """Say what a server with measurements computes and keeps; what the log does not say is named as unknown."""
    found = []
    architecture = session.setting("architecture")
    if isinstance(architecture, str) and architecture:
        found.append(architecture)
    if session.memory not in (None, "attention"):
        found.append(f"{session.memory} memory")
    found += cache(session)
    block = session.setting("attention_block") or session.setting("block_size")
    if session.engine == "vllm" and isinstance(block, int):
        found.append(f"blocks of {count(block, 'token')}")
    said = session.settings.get("kv_connector")
    connector = None if said is None else said.value
    if isinstance(connector, str) and connector:
        found.append(f"connector {connector}")
    return found


def cache(session: Session) -> list[str]:
    """Say whether the prefix cache is on, and how large the memory is that it shares with running requests.

    Nothing of engines whose logs do not tell of either.
    """
    if session.engine not in _CACHES:
        return []
    name, words = _CACHES[session.engine]
    on = session.setting(name)
    found = [f"{words} {'on' if on else 'off'}" if isinstance(on, bool) else f"{words}: unknown whether on"]
    tokens = session.setting("kv_tokens")
    found.append(f"KV cache {count(tokens, 'token')}" if isinstance(tokens, int) else "size of the KV cache unknown")
    return found
