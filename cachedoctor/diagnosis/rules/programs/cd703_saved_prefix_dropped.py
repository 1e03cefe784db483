"""CD703: ollama's MLX runner dropped saved prefixes: its memory was full, or one could not be restored."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the lines of the prefix cache."""
    said = kit.stated(session, "dropped")
    if said is None:
        return []
    tokens = said.numbers.get("tokens")
    is_failure = tokens is None
    first = (
        "all saved prefixes were dropped because one could not be restored"
        if is_failure
        else f"saved prefixes were dropped; the first had {kit.n(tokens)} tokens"
    )
    return [
        kit.finding(
            f"{first} ({kit.n(said.count)} {'line' if said.count == 1 else 'lines'} in this log)",
            "The runner keeps snapshots of prompts in memory and drops the least used ones when memory is full. A prompt that continues a dropped prompt is recomputed.",
            [
                kit.Remedy(
                    "Send fewer different conversations to this model at the same time, or use a model with a smaller state."
                )
            ],
            evidence=[(said.mark, "the dropped prefix")],
            severity="warning" if is_failure else "note",
        )
    ]


RULE = kit.session_rule(
    __name__, "Saved prefixes were dropped", inspect, severity="note", engine="ollama", on=("dropped",)
)
