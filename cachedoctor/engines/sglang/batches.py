"""Prefill batches of SGLang: what a line says of one, and which batches continue the prompt of the one before.

A long prompt is computed in chunks. Each chunk is a batch of its own; the reused tokens of the prompt stand in the
first one, and ``#cached-token`` is 0 in the others (``add_chunked_req``, 0.4.3 to 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from cachedoctor.model import PrefillBatch
from cachedoctor.model.bounds import COUNT

_DIGITS = 15
"""Of a whole number that is read; Python converts no thousands of them."""
_SHARE = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_LONGEST_SHARE = 10
_PRESSED = 0.9
"""Share of the KV pool from which a chunk may be smaller than it should be, because no more fits."""
_NO_TREE = "0.00%"
"""Reused share of all prompts since the start, up to 0.4.2: without a radix tree it stays there, and ``#cached-token``
counts the chunks before of the same prompts (``ChunkCache``)."""
_MOST_SHARE = 2.0
"""A share above is no share."""


class Chunks(msgspec.Struct):
    """How the prompts of a scheduler are cut."""

    size: int | None = None
    """Tokens of a chunk; 0 or less: prompts are not cut; None: not known."""
    steady: bool = True
    """Whether all chunks of a prompt have that size (not with --enable-dynamic-chunking)."""
    mixed: bool = False
    """Whether requests that decode take part in a chunk, one token each (--enable-mixed-chunk)."""
    page: int = 1
    """Tokens of a page of the cache."""
    raw: bool = True
    """Whether ``#new-token`` may count tokens that are rounded up to pages elsewhere (0.5.20 and newer)."""


def torn(pairs: Mapping[str, str]) -> bool:
    """Whether a line has lost its end, so that its last number may be a part of one: all have ``#queue-req``."""
    return "#queue-req" not in pairs


def count(pairs: Mapping[str, str], name: str) -> int | None:
    """Return a whole number of a line, or None."""
    text = pairs.get(name, "")
    return COUNT.of(int(text)) if text.isdigit() and text.isascii() and len(text) <= _DIGITS else None


def share(pairs: Mapping[str, str], *names: str) -> float | None:
    """Return the first of these shares that a line has, at most 1; None without one."""
    for name in names:
        text = pairs.get(name)
        if text is not None and len(text) <= _LONGEST_SHARE and (found := _share(text)) is not None:
            return found
    return None


@lru_cache(maxsize=1024)
def _share(text: str) -> float | None:
    """Read a share; a log has a hundred of them, again and again."""
    if not _SHARE.fullmatch(text) or float(text) > _MOST_SHARE:
        return None
    return min(float(text), 1.0)


def usage(pairs: Mapping[str, str], batch: PrefillBatch) -> PrefillBatch:
    """Fill in how full the pools are, which decode lines say, too."""
    batch.token_usage = share(pairs, "token usage", "full token usage")
    batch.swa_usage = share(pairs, "swa token usage")
    batch.mamba_usage = share(pairs, "mamba usage")
    return batch


def read(pairs: Mapping[str, str], batch: PrefillBatch) -> PrefillBatch:
    """Fill ``batch`` from the pairs of its line."""
    usage(pairs, batch)
    batch.new_seqs = count(pairs, "#new-seq")
    batch.new_tokens = count(pairs, "#new-token")
    batch.cached_tokens = count(pairs, "#cached-token")
    if batch.cached_tokens and pairs.get("cache hit rate") == _NO_TREE:
        batch.cached_tokens = 0
    batch.running = count(pairs, "#running-req")
    batch.queue = count(pairs, "#queue-req")
    batch.pending_tokens = count(pairs, "#pending-token")
    return batch


def goes_on(batch: PrefillBatch, chunks: Chunks, most_new: int) -> bool | None:
    """Whether the next batch goes on with the last prompt of this one; None when that is open.

    Args:
        batch: the batch.
        chunks: how prompts are cut.
        most_new: the most tokens that a batch of this scheduler computed so far, which a chunk is not smaller than.
    """
    new = batch.new_tokens
    if batch.pending_tokens == 0:  # what waits and what is left of a chunked prompt: neither (0.5.11 and newer)
        return False
    if new is None or not chunks.steady:
        return None
    if chunks.size is None:
        return False if new < most_new else None
    if chunks.size <= 0:
        return False
    if new in (chunks.size, chunks.size // chunks.page * chunks.page):
        return True
    return None if new > chunks.size or _may_be_smaller(batch, chunks, new, chunks.size) else False


def _may_be_smaller(batch: PrefillBatch, chunks: Chunks, new: int, size: int) -> bool:
    """Whether a batch that ends in the middle of a prompt can have computed only ``new`` tokens."""
    if batch.token_usage is not None and batch.token_usage >= _PRESSED:
        return True
    if batch.pending_tokens and batch.queue == 0:
        return True
    rounded = chunks.page * (batch.new_seqs or 1) if chunks.raw and chunks.page > 1 else 0
    decoding = (batch.running or 0) if chunks.mixed else 0
    return new + rounded + decoding >= size and rounded + decoding > 0


def alone(batch: PrefillBatch) -> bool:
    """Whether no other request was there."""
    return batch.new_seqs == 1 and batch.running == 0 and batch.queue == 0
