"""A request that passed, as a line of text. Knows words; what a line says is harmless to a terminal."""

from __future__ import annotations

import time

from cachedoctor.proxy.exchange import Seen
from cachedoctor.report.text.text_safe import visible

FEW = 16
"""Tokens that a request which only goes on may have computed again without a word: where a template ends a reply."""


def line(seen: Seen, ascii_only: bool = False) -> str:
    """Say in one line how a request ended, what it reused, and what changed."""
    parts = [f"{time.strftime('%H:%M:%S', time.localtime(seen.sent))} {_number(seen)} {seen.path} {seen.status or '-'}"]
    parts.append(_tokens(seen))
    parts.append(f"{seen.seconds:.2f} s" if seen.seconds < 100 else f"{seen.seconds:,.0f} s")
    parts += [part for part in (seen.fault, seen.untold, _changed(seen), _cost(seen)) if part]
    parts += [f"would: {edit}" if seen.dry_run else edit for edit in seen.edits]
    parts += [seen.unfixed] if seen.unfixed else []
    if seen.would_reuse is not None:
        parts.append(_promise(seen))
    return visible("; ".join(parts), ascii_only)


def _number(seen: Seen) -> str:
    return "   " if seen.conversation is None else f"#{seen.conversation:<2}"


def _tokens(seen: Seen) -> str:
    if seen.prompt_tokens is None:
        return "prompt unknown"
    if seen.cached_tokens is None:
        return f"{seen.prompt_tokens:,} prompt, reused unknown"
    share = f" ({100 * seen.cached_tokens / seen.prompt_tokens:.0f} %)" if seen.prompt_tokens else ""
    return f"{seen.prompt_tokens:,} prompt, {seen.cached_tokens:,} reused{share}"


def _changed(seen: Seen) -> str:
    change = seen.change
    if change is None:
        return "" if seen.conversation is None else "a new conversation"
    if change.kind in ("appended", "equal"):
        return "goes on" if change.kind == "appended" else "the same prompt again"
    where = "" if change.place is None else f" in {change.place}"
    by = "" if change.client is None else f" ({change.client})"
    return f"{change.kind}{where}: {change.explanation}{by}"


def _cost(seen: Seen) -> str:
    """What it cost; of a request that only goes on, that the server had lost it."""
    if seen.recomputed is None or seen.change is None or not seen.recomputed:
        return ""
    goes_on = seen.change.kind in ("appended", "equal")
    if goes_on and seen.recomputed <= FEW:
        return ""
    words = f"{seen.recomputed:,} tokens of the previous prompt computed again"
    return f"{words}, though the client changed nothing in it" if goes_on else words


def _promise(seen: Seen) -> str:
    if seen.would_save is None:
        return f"would reuse {seen.would_reuse:,}"
    return f"would reuse {seen.would_reuse:,}, which saves {seen.would_save:,}"
