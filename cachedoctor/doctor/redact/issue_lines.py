"""Keeps what stands above the log of a pasted issue and is evidence: the build, and the options of its command line.

``$ ./llama-server -m models/x.gguf -c 16384 --slot-save-path /srv/x`` becomes
``$ llama-server -c 16384 --slot-save-path <path-1>``: options of the table, numbers, types of tensors; nothing else.
"""

from __future__ import annotations

import re

from cachedoctor.engines.llamacpp.pasted_issue import FENCE, read_issue
from cachedoctor.knowledge import flags
from cachedoctor.model import Given
from cachedoctor.redact.known_words import TYPES
from cachedoctor.redact.redact_lines import UNKNOWN
from cachedoctor.redact.tokens import Tokens

_QUOTE = re.compile(rb"[> \t]*")


def with_issue(lines: list[bytes], written: list[bytes], tokens: Tokens) -> list[bytes]:
    """Return the lines ``written`` for ``lines``, an excerpt, with what its issue says where nothing was left of it."""
    if len(lines) != len(written):
        return written  # a document of records, which holds no issue
    issue, out = read_issue(lines), list(written)
    kept: dict[int, bytes] = {at: fence[0] for at, line in enumerate(lines) if (fence := FENCE.match(line))}
    if issue.build is not None and issue.build_at is not None:
        kept[issue.build_at] = b"version: %d (0000000)" % issue.build
    if issue.given and issue.given_at is not None:
        kept[issue.given_at] = b"$ " + _command(issue.given, tokens)
    for at, text in kept.items():
        if UNKNOWN in out[at]:
            quote = _QUOTE.match(lines[at])
            out[at] = text if text.startswith((b">", b" ", b"\t")) or quote is None else quote[0] + text
    return out


def _command(given: list[Given], tokens: Tokens) -> bytes:
    """A command line with these options, and no other."""
    variables = [_variable(one, tokens) for one in given if one.env]
    return b" ".join([*variables, b"llama-server", *(_option(one, tokens) for one in given if not one.env)])


def _variable(one: Given, tokens: Tokens) -> bytes:
    return one.written.encode() + b"=" + _value(one, tokens)


def _option(one: Given, tokens: Tokens) -> bytes:
    written, name = one.written.encode(), flags.plain(one.written)
    if name in flags.NEVER:
        return written  # its number is read by nobody
    option, _, on = flags.BY_NAME[name]
    return written if option.kind == "switch" or not on else written + b" " + _value(one, tokens)


def _value(one: Given, tokens: Tokens) -> bytes:
    value = one.value
    if value is None:
        return b"<text>"  # not read either
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        return f"{value:.18f}".rstrip("0").encode() + b"0"
    raw = value.encode("utf-8", "surrogateescape")
    return raw if raw in TYPES else tokens.give("path", raw) or b"<path>"
