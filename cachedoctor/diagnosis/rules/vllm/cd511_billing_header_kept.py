"""CD511: Claude Code changes a header before every prompt, and this version does not take it out."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.vllm import rolling

_STRIPPED = "0.18"
"""vLLM takes the header out of /v1/messages from here on (PR 36829; the source of 0.18.0 does, that of 0.17.1 does not)."""
_STRIPPED_EVERYWHERE = "0.32"
"""And out of all chat endpoints (run on 0.32; 0.30 does not)."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it where a logged prompt has the header, or as a candidate where its endpoint was used and little reused."""
    header = session.settings.get("billing_header")
    messages = session.settings.get("messages_endpoint")
    low = next((s for s in rolling.stretches(session) if s.share <= rolling.LITTLE), None)
    if session.since(_STRIPPED_EVERYWHERE) is True or rolling.caching(session) is False:
        return []
    if header is not None:  # the prompt as the model gets it: whatever the version, it was not taken out
        return [_note(session, kit.said_by(header, "a prompt that begins with the header"), low, "high")]
    if messages is None or low is None or session.since(_STRIPPED) is not False:
        return []
    return [_note(session, kit.said_by(messages, "a request to the endpoint that Claude Code uses"), low, "medium")]


def _note(
    session: kit.Session, lines: rolling.Shown, low: rolling.TrafficStretch | None, sure: str
) -> kit.SessionFinding:
    proven = sure == "high"
    said = f" ({low.said})" if low is not None else ""
    claim = (
        f"prompts begin with a billing header that changes with every request, and this version does not remove it{said}"
        if proven
        else "requests use /v1/messages, and almost nothing is reused: Claude Code puts a changing header at the start of every "
        f"prompt, and this version does not remove it{said}"
    )
    return kit.finding(
        claim,
        "A cached prefix ends at the first token that differs, and the header is at the very start."
        + ("" if proven else " Another client may use the endpoint as well: a request body would show it."),
        [
            advice.client("claude-code/billing-header"),
            kit.Remedy(
                "Or use vLLM 0.18 or newer, which removes it from /v1/messages."
                if session.since(_STRIPPED) is False
                else "Or use vLLM 0.32 or newer, which removes it from all chat endpoints."
            ),
        ],
        references=["https://github.com/vllm-project/vllm/pull/36829"],
        evidence=[*lines, *(low.evidence[:1] if low is not None else [])],
        severity="warning",
        confidence="high" if proven else "medium",
    )


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if session.version is None and session.since(_STRIPPED) is None:
        return "the version of vLLM is not in the log", "give the log from the start of the server"
    return None


RULE = kit.session_rule(
    __name__,
    "Claude Code's header changes every prompt, and this version does not remove it",
    inspect,
    needs=_needs,
    severity="warning",
)
