"""CD513: system messages inside a conversation are moved to its front, and change the beginning of every prompt."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if vLLM warns of it."""
    merged = session.settings.get("system_merged")
    if merged is None or rolling.caching(session) is False:
        return []
    low = rolling.stretches(session)[:1]
    said = f" ({low[0].said})" if low else ""
    return [
        kit.finding(
            f"reminders inside the conversation are moved into the system prompt: each new reminder changes the beginning{said}",
            "The chat template accepts system messages only at the beginning. Claude Code sends such a message with nearly every turn.",
            [
                kit.Remedy("Use a chat template that accepts system messages anywhere: --chat-template FILE."),
                advice.client("claude-code/token-totals"),
            ],
            evidence=kit.said_by(merged, "vLLM warns once"),
            severity="warning",
        )
    ]


RULE = kit.session_rule(
    __name__,
    "System messages inside the conversation are moved to the start of the prompt",
    inspect,
    severity="warning",
)
