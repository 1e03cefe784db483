"""The JSON values of a file: one or many, on lines or not. Knows no shape of a value."""

from __future__ import annotations

import json
import re
from typing import Any

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import CacheDoctorError

MAX_DEPTH = 200
"""Levels of JSON nesting; a tool schema has a dozen. Bounds every recursion over a request."""
_JSON_START = re.compile(r'\s*(?:\{\s*(?:"|\}\s*$)|\[\s*(?:\{\s*"|\]\s*$|\[+\s*$))')


def values_of(text: str, path: str) -> list[Any] | None:
    """Give the values of a file; None when it is plain text.

    Raises:
        CacheDoctorError: what begins like JSON is broken, or nested too deeply.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    decoder, text = json.JSONDecoder(), sound_json(text)
    values: list[Any] = []
    end = len(text.rstrip())
    at = len(text) - len(text.lstrip())
    try:
        while at < end:
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            while at < end and text[at] in " \t\r\n,":
                at += 1
    except json.JSONDecodeError as error:
        # "[INST] ...", "[1] ..." and "{{user}}: ..." are prompts; what begins with a key was meant as JSON.
        if not _JSON_START.match(text[:4096]):
            return None
        hint = (
            "cut off while it was written?" if error.pos >= end - 1 else "save the server's or proxy's JSON unchanged"
        )
        message = f"{path}: broken JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        raise CacheDoctorError(message, hint) from error
    except RecursionError as error:
        raise too_deep(path) from error
    except ValueError as error:  # an integer of thousands of digits
        raise CacheDoctorError(f"{path}: broken JSON: a number is too long") from error
    if any(depth_of(value) > MAX_DEPTH for value in values):
        raise too_deep(path)
    return values


def too_deep(path: str) -> CacheDoctorError:
    """The error about a value that is nested too deeply."""
    return CacheDoctorError(f"{path}: JSON is nested too deeply", f"more than {MAX_DEPTH} levels is no request")


def depth_of(value: Any) -> int:
    """Levels of nesting, counted without recursion."""
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, level = stack.pop()
        if level > deepest:
            deepest = level
            if deepest > MAX_DEPTH:
                break
        if isinstance(item, dict):
            stack.extend((inner, level + 1) for inner in item.values() if isinstance(inner, dict | list))
        elif isinstance(item, list):
            stack.extend((inner, level + 1) for inner in item if isinstance(inner, dict | list))
    return deepest
