"""CD507: running requests lost their memory and were recomputed."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if counters or lines show preemptions; the statistics line never does."""
    counted = sum(c.preemptions or 0 for c in session.counters)
    logged = session.settings.get("preemptions")
    count = max(counted, logged.value if logged is not None else 0)
    if not count:
        return []
    source = next((c.path for c in session.counters if c.preemptions), None)
    size = session.settings.get("kv_tokens")
    lines = kit.said_by(logged, "a request loses its memory; the line ends with the preemption count")
    lines += kit.said_by(size, f"the cache holds {kit.n(size.value)} tokens" if size else "")
    where = f" according to {source}" if source else ""
    return [
        kit.finding(
            f"{kit.n(count)} {'preemption' if count == 1 else 'preemptions'}{where}: running requests lost their memory, and their prompts and partial answers were recomputed",
            "The KV cache was full while all these requests were running. Freed blocks may be reused if they are not overwritten first.",
            [
                kit.Remedy("Run fewer requests at once: a smaller --max-num-seqs."),
                *rolling.more_room(session),
            ],
            references=["https://github.com/vllm-project/vllm/pull/38452"],
            evidence=lines,
            severity="warning",
        )
    ]


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if session.counters or "preemptions" in session.settings or "stats_v0" in session.seen:
        return None  # the V0 engine warns of the first one, and of every fiftieth
    return (
        "vLLM up to 0.33 never logs preempted requests",
        "give dumps of /metrics\ncachedoctor analyze vllm.log --metrics before.txt --metrics after.txt",
    )


RULE = kit.session_rule(
    __name__, "Running requests lost their memory and were recomputed", inspect, needs=_needs, severity="warning"
)
