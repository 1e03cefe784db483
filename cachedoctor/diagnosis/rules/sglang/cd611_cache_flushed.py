"""CD611: SGLang's cache was flushed while the server ran."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import every, marks

_WHY = (
    "A flush empties the whole radix cache, so the next request of every conversation is computed from its first token. "
    "POST /flush_cache or new weights (RL trainers, /update_weights_from_disk) cause it."
)


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Count the flushes after which requests came."""
    found = sorted((p for p in every(session) if p.since == "reset"), key=lambda p: p.first_line)
    if not found:
        return []
    lines = {p.first_line for p in found}
    often = "once" if len(lines) == 1 else f"{len(lines)} times"
    after = sum(p.seqs for p in found)
    came = f"; {kit.times(after)} came after that" if any(p.batches for p in found) else ", and the server continued"
    return [
        kit.finding(
            f"the radix cache was flushed {often} while the server ran{came}",
            _WHY,
            [
                kit.Remedy(
                    "If this was not intended, find what calls /flush_cache. Benchmarks call it between runs (sglang.bench_serving --flush-cache); trainers call it at every weight update."
                )
            ],
            evidence=marks(found[0], ("begin", "the cache was emptied"), ("first", "the first batch after the flush")),
        )
    ]


RULE = kit.session_rule(__name__, "SGLang's cache was flushed while the server ran", inspect)
