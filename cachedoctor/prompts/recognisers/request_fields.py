"""Requests with the same prompt that a cache keeps apart: salts and adapters. Knows fields of bodies, no text."""

from __future__ import annotations

from cachedoctor.prompts.recognisers.base import Difference, Recognition

_SALTS = ("cache_salt", "extra_key")
_ADAPTERS = ("lora", "lora_path")


def cache_salt(d: Difference) -> Recognition | None:
    """The prompts are the same, their salts are not."""
    name = _differs(d, _SALTS)
    text = f"the prompts agree, {name} does not: nothing is shared between them"
    return None if name is None else Recognition("cache-salt", "", "", text, name)


def adapter(d: Difference) -> Recognition | None:
    """The prompts are the same, the adapters they ask for are not."""
    name = _differs(d, _ADAPTERS)
    text = f"the prompts agree, the adapters ({name}) do not: what one computed is of no use for the other"
    return None if name is None else Recognition("adapter", "", "", text, name)


def _differs(d: Difference, names: tuple[str, ...]) -> str | None:
    if not d.same_text or d.a.body is None or d.b.body is None:
        return None
    return next((name for name in names if d.a.body.get(name) != d.b.body.get(name)), None)
