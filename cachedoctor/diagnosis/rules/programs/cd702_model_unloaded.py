"""CD702: ollama unloaded a model to make room for another, and its cached prompts with it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the line of the scheduler."""
    said = kit.stated(session, "unloaded")
    if said is None:
        return []
    fewer = kit.Remedy(
        "Use fewer or smaller models at the same time, or a smaller num_ctx, so all models in use fit into memory."
    )
    return [
        kit.finding(
            f"a model was unloaded to make room for another model {'once' if said.count == 1 else f'{said.count:,} times'} in this log",
            "An unloaded model loses its slots and its prompt cache. After it is loaded again, every conversation is computed in full.",
            [fewer, advice.memory_short(session, "OLLAMA_MAX_LOADED_MODELS") or _parallel()],
            evidence=[(said.mark, "a model is unloaded")],
            severity="warning",
        )
    ]


def _parallel() -> kit.Remedy:
    return kit.Remedy(
        "Set OLLAMA_NUM_PARALLEL=1, which needs less memory for each model; OLLAMA_KEEP_ALIVE does not prevent unloading."
    )


RULE = kit.session_rule(
    __name__, "A model was unloaded to make room for another model", inspect, severity="warning", engine="ollama",
    on=("unloaded",),
)  # fmt: skip
