"""The batches of one SGLang scheduler from reset to reset, which become periods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import BatchPeriod, Mark, PrefillBatch
from cachedoctor.model.bounds import COUNT
from cachedoctor.model.measured import BURST, FULL, PROBE, STATES_FULL, Period, Since

_DIGITS = 15
"""Maximum digits of an integer that is read; Python refuses to convert thousands of digits."""
_READ = _DIGITS + 1
"""Characters of a number that are read: a longer text is not a number."""
_MOST_COUNT = COUNT.most
_SHARE = late(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_PRESSED = 0.9
"""KV pool usage from which a chunk may be smaller than configured, because no more fits."""
_NO_TREE = "0.00%"
"""Reused share of all prompts since the start, up to 0.4.2: without a radix tree it stays at this value, and
``#cached-token`` counts earlier chunks of the same prompts (``ChunkCache``)."""
_MOST_SHARE = 2.0
"""Maximum of a share; larger values are not shares."""


class Chunks(msgspec.Struct, gc=False):
    """How the prompts of a scheduler are split into chunks."""

    size: int | None = None
    """Tokens of a chunk; 0 or less: prompts are not split; None: unknown."""
    steady: bool = True
    """Whether all chunks of a prompt have that size (not with --enable-dynamic-chunking)."""
    mixed: bool = False
    """Whether requests that decode take part in a chunk, one token each (--enable-mixed-chunk)."""
    page: int = 1
    """Tokens of a page of the cache."""
    raw: bool = True
    """Whether ``#new-token`` may be unrounded while the chunk limit counts whole pages (0.5.20 and newer)."""


def torn(pairs: Mapping[str, str]) -> bool:
    """Whether a line has lost its end, so its last number may be incomplete: every whole line has ``#queue-req``."""
    return "#queue-req" not in pairs


@lru_cache(maxsize=1024)
def _count(text: str) -> int | None:
    """Read an integer from its first ``_READ`` characters; cached, because few different ones occur."""
    if len(text) > _DIGITS or not (text.isdigit() and text.isascii()):
        return None
    value = int(text)
    return value if value <= _MOST_COUNT else None


@lru_cache(maxsize=1024)
def _share(text: str) -> float | None:
    """Read a share, at most 1, given as a count is; a log has a hundred of them, again and again."""
    if not _SHARE.fullmatch(text) or float(text) > _MOST_SHARE:
        return None
    return min(float(text), 1.0)


PoolUsage = tuple[float | None, float | None, float | None]
"""How full the pools are: of tokens, of a sliding window, of recurrent states."""


def usage(pairs: Mapping[str, str]) -> PoolUsage:
    """Read how full the pools are; decode lines show it, too."""
    get = pairs.get
    tokens, swa, mamba = get("token usage", ""), get("swa token usage", ""), get("mamba usage", "")
    share = _share(tokens[:_READ])
    if share is None:
        share = _share(get("full token usage", "")[:_READ])
    return share, _share(swa[:_READ]), _share(mamba[:_READ])


def read(pairs: Mapping[str, str], batch: PrefillBatch) -> PrefillBatch:
    """Fill ``batch`` from the pairs of its line."""
    batch.token_usage, batch.swa_usage, batch.mamba_usage = usage(pairs)
    get = pairs.get
    batch.new_seqs = _count(get("#new-seq", "")[:_READ])
    batch.new_tokens = _count(get("#new-token", "")[:_READ])
    batch.cached_tokens = _count(get("#cached-token", "")[:_READ])
    if batch.cached_tokens and pairs.get("cache hit rate") == _NO_TREE:
        batch.cached_tokens = 0
    batch.running = _count(get("#running-req", "")[:_READ])
    batch.queue = _count(get("#queue-req", "")[:_READ])
    batch.pending_tokens = _count(get("#pending-token", "")[:_READ])
    return batch


def goes_on(batch: PrefillBatch, chunks: Chunks, most_new: int) -> bool | None:
    """Whether the next batch continues the last prompt of this one; None if unknown.

    Args:
        batch: the batch.
        chunks: how prompts are split.
        most_new: the most tokens that a batch of this scheduler computed so far; a chunk is not smaller.
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
    """Whether no other request was running."""
    return batch.new_seqs == 1 and batch.running == 0 and batch.queue == 0


_MOST_PERIODS = 64
"""Periods that a session keeps."""


class _Alone(msgspec.Struct, gc=False):
    """A request that has been the only one so far, over all its chunks."""

    new: int
    cached: int
    mark: Mark


class RankStream:
    """One data-parallel rank."""

    def __init__(self, periods: list[Period], started: Mark | None) -> None:
        """Begin without a batch.

        Args:
            periods: those of the session; new ones are added.
            started: the first line of the server's start; None if it is not in the log.
        """
        self._periods = periods
        self._since: Since = "log" if started is None else "start"
        self._idle = started is not None  # nothing is known to have been before the next batch
        self._begin = started
        self._leader: str | None = None
        self._led = False
        self._last: PrefillBatch | None = None
        self._most_new = 0
        self._alone: _Alone | None = None
        self._period: BatchPeriod | None = None

    def speaks(self, rank: str | None) -> bool:
        """Whether the lines of this rank count: only the first rank that prints counts.

        The others of its group repeat its lines.
        """
        if not self._led:
            self._led, self._leader = True, rank
        return self._leader == rank

    def reset(self, rank: str | None, mark: Mark) -> None:
        """Note that the cache was emptied, which happens only while nothing runs."""
        if (self._led and self._leader != rank) or (self._period is None and self._since != "log"):
            return
        self._since, self._begin, self._idle = "reset", mark, True
        self._period = self._last = self._alone = None

    def lost(self) -> None:
        """Note that a batch cannot be read."""
        self._last, self._alone, self._idle = None, None, False

    def retracted(self, rank: str | None, requests: int, mark: Mark) -> None:
        """Note that requests were put back into the queue."""
        period = self._open(rank, mark)
        period.retracted += requests
        period.marks.setdefault("retracted", mark)
        self._alone = None

    def used(self, rank: str | None, usage: PoolUsage, mark: Mark, last_line: int) -> None:
        """Note the usage that a line prints, and later values up to ``last_line``: decode lines show it, too."""
        period, (tokens, swa, mamba) = self._open(rank, mark), usage
        period.last_line = last_line
        if tokens is not None and _above(tokens, period.token_usage):
            period.token_usage, period.marks["usage"] = tokens, mark
        if swa is not None and _above(swa, period.swa_usage):
            period.swa_usage, period.marks["swa"] = swa, mark
        if mamba is not None and _above(mamba, period.mamba_usage):
            period.mamba_usage, period.marks["mamba"] = mamba, mark
            period.usage_at_mamba = tokens

    def take(self, batch: PrefillBatch, mark: Mark, chunks: Chunks) -> None:
        """Add the next batch, and set whether it continues the previous one and is one complete request."""
        period = self._open(batch.rank, mark)
        batch.continues = self._continues(batch, chunks)
        if self._alone is not None and batch.continues is not True:
            self._whole(period, self._alone, chunks)  # it ended exactly with its chunk
        self._most_new = max(self._most_new, batch.new_tokens or 0)
        ends = goes_on(batch, chunks, self._most_new) is False
        batch.whole = alone(batch) and batch.continues is False and ends and None not in _tokens(batch)
        self.used(batch.rank, (batch.token_usage, batch.swa_usage, batch.mamba_usage), mark, mark.line)
        self._add(period, batch, mark, chunks.page)
        self._follow(period, batch, mark, chunks, ends)
        self._last = batch

    def _open(self, rank: str | None, mark: Mark) -> BatchPeriod:
        if self._period is not None:
            return self._period
        begin = self._begin or mark
        self._period = BatchPeriod(rank, self._since, begin.line, mark.line)
        if self._begin is not None:
            self._period.marks["begin"] = self._begin
        if len(self._periods) >= _MOST_PERIODS:
            self._periods.remove(min(self._periods, key=_size))
        self._periods.append(self._period)
        return self._period

    def _continues(self, batch: PrefillBatch, chunks: Chunks) -> bool | None:
        if batch.new_seqs == 1 and batch.cached_tokens:
            return False
        if self._last is None:
            return False if self._idle else None
        return goes_on(self._last, chunks, self._most_new)

    def _add(self, period: BatchPeriod, batch: PrefillBatch, mark: Mark, page: int) -> None:
        new, cached = batch.new_tokens or 0, batch.cached_tokens or 0
        probes = batch.new_seqs == 1 and not batch.continues and new + cached <= max(PROBE, page)
        seqs = 0 if probes else max((batch.new_seqs or 0) - (batch.continues is True), 0)
        period.batches += 1
        period.seqs += seqs
        period.new_tokens += new
        period.cached_tokens += cached
        if batch.token_usage is not None and batch.token_usage >= FULL:
            period.full_new_tokens += new
            period.full_cached_tokens += cached
        if batch.mamba_usage is not None and batch.mamba_usage >= STATES_FULL:
            period.states_new_tokens += new
            period.states_cached_tokens += cached
        period.marks.setdefault("first", mark)
        period.marks["last"] = mark
        if seqs >= BURST and batch.cached_tokens == 0:
            period.bursts += 1
            period.burst_seqs += seqs
            period.burst_new_tokens += new
            period.after_burst_seqs = period.after_burst_cached = 0
            period.marks.setdefault("burst", mark)
        elif period.bursts:
            period.after_burst_seqs += seqs
            period.after_burst_cached += cached

    def _follow(self, period: BatchPeriod, batch: PrefillBatch, mark: Mark, chunks: Chunks, ends: bool) -> None:
        """Follow a request that is the only one from its first chunk to its last."""
        new, cached = _tokens(batch)
        known, self._alone = self._alone, None
        if new is None or cached is None or not alone(batch):
            return
        if batch.continues is False:
            known = _Alone(new, cached, mark)
        elif known is not None:
            known.new += new
        if known is None:
            return
        if ends:
            self._whole(period, known, chunks)
        elif goes_on(batch, chunks, self._most_new):
            self._alone = known

    def _whole(self, period: BatchPeriod, request: _Alone, chunks: Chunks) -> None:
        prompt = request.new + request.cached
        if prompt <= max(PROBE, chunks.page):
            return
        first = period.wholes == 0
        period.wholes += 1
        period.whole_tokens += prompt
        period.smallest_prompt = min(prompt, period.smallest_prompt or prompt)
        period.largest_prompt = max(prompt, period.largest_prompt or prompt)
        if request.cached == 0:
            period.cold += 1
            if period.cold == 1 or period.marks["cold"].line == period.marks["first_whole"].line:
                period.marks["cold"] = request.mark  # one after the first says more: the first has nothing to reuse
        if first:
            period.marks["first_whole"] = request.mark
            return
        period.whole_cached += request.cached
        period.cached_most = max(request.cached, period.cached_most or 0)
        period.best_share = max(request.cached / prompt, period.best_share or 0.0)
        if period.cached_least is None or request.cached < period.cached_least:
            period.cached_least = request.cached
            period.marks["whole"] = request.mark


def _above(value: float, most: float | None) -> bool:
    return most is None or value > most


def _tokens(batch: PrefillBatch) -> tuple[int | None, int | None]:
    return batch.new_tokens, batch.cached_tokens


def _size(period: Period) -> int:
    return period.new_tokens + period.cached_tokens if isinstance(period, BatchPeriod) else 0
