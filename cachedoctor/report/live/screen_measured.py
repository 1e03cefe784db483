"""The last sample or batch of each engine as rows of the live view. Knows samples and batches; knows no screen."""

from __future__ import annotations

from cachedoctor.model import CacheSample, MeasuredView, PrefillBatch
from cachedoctor.report import sanitize
from cachedoctor.report.words.measured_table import rate
from cachedoctor.report.words.numbers import count, number

Row = tuple[str, str]
"""A name, and words."""


def rows(view: MeasuredView) -> list[Row]:
    """Say what each engine or rank of a server said last; what it did not say is left out."""
    return [_row(row) for row in view.rows]


def _row(shown: CacheSample | PrefillBatch) -> Row:
    row = sanitize.measured(shown)
    if isinstance(row, CacheSample):
        return f"engine {row.engine}" if row.engine else "engine", ", ".join(_sample(row))
    return row.rank or "prefill", ", ".join(_batch(row))


def _sample(row: CacheSample) -> list[str]:
    hit = "hit rate unknown" if row.hit_rate is None else f"hit rate {rate(row.hit_rate)} (last 1,000 requests)"
    prompts = [] if row.prompt_rate is None else [f"prompts {row.prompt_rate:,.1f} tokens/s"]
    return [hit, *prompts, *_load(row.running, row.waiting, row.kv_usage)]


def _batch(row: PrefillBatch) -> list[str]:
    tokens = []
    if row.cached_tokens is not None and row.new_tokens is not None:
        tokens = [f"last batch {number(row.cached_tokens)} reused, {count(row.new_tokens, 'token')} computed"]
    return [*tokens, *_load(row.running, row.queue, row.token_usage)]


def _load(running: int | None, waiting: int | None, usage: float | None) -> list[str]:
    found = [] if running is None else [f"{number(running)} running"]
    found += [] if waiting is None else [f"{number(waiting)} waiting"]
    return found + ([] if usage is None else [f"KV {rate(usage)} held"])
