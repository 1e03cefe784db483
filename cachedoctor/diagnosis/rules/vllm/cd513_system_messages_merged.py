"""CD513: system messages inside a conversation are moved to its front, and change the beginning of every prompt."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.kit import FindingText, SessionFinding, SessionRule
from cachedoctor.diagnosis.rules.vllm import rolling
from cachedoctor.model import Remedy, Session


def inspect(session: Session) -> list[SessionFinding]:
    """Say it where vLLM warns of it."""
    merged = session.settings.get("system_merged")
    if merged is None or rolling.caching(session) is False:
        return []
    low = rolling.stretches(session)[:1]
    said = f" ({low[0].said})" if low else ""
    return [
        SessionFinding(
            FindingText(
                f"reminders inside the conversation are moved into the system prompt: each new one changes the beginning{said}",
                "The chat template takes system messages at the front only. Claude Code sends one with nearly every turn.",
                [
                    Remedy("Give a chat template that takes system messages where they stand: --chat-template FILE."),
                    advice.client("claude-code/token-totals"),
                ],
            ),
            "",
            rolling.said_by(merged, "vLLM warns once"),
            "warning",
        )
    ]


RULE = SessionRule(
    "CD513",
    "system-messages-merged",
    "System messages inside the conversation are moved to its front",
    severity="warning",
    inspect=inspect,
    engine="vllm",
)
