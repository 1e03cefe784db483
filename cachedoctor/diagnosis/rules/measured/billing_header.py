"""Claude Code's billing header on servers that log rates or batches: its effect, and the log's evidence."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.diagnosis.rules.kit import Confidence, Line, Remedy, Session, n, said_by
from cachedoctor.diagnosis.rules.measured import batch_periods, rolling

_STRIPPED = "0.18"
"""vLLM takes the header out of /v1/messages from here on (PR 36829; the source of 0.18.0 does, that of 0.17.1 does not)."""
_STRIPPED_EVERYWHERE = "0.32"
"""vLLM takes it out of all chat endpoints from here on (run on 0.32; 0.30 does not)."""


class LoggedHeader(NamedTuple):
    """A log's evidence of the header."""

    said: str
    """Reuse, as claims name it."""
    confidence: Confidence
    """High if logged prompts have the header, medium if only the endpoint of Claude Code suggests it."""
    lines: list[Line]


def of(session: Session) -> tuple[str, list[Remedy], list[str]]:
    """Return the server's treatment of the header as a sentence, the remedy, and their source."""
    if session.engine == "vllm":
        newer = (
            "Or use vLLM 0.18 or newer, which removes the header on /v1/messages."
            if session.since(_STRIPPED) is False
            else "Or use vLLM 0.32 or newer, which removes the header on all chat endpoints."
        )
        remedies = [] if session.since(_STRIPPED_EVERYWHERE) is True else [Remedy(newer)]
        return " vLLM removes the header from 0.18 on.", remedies, ["https://github.com/vllm-project/vllm/pull/36829"]
    if session.engine == "sglang":
        why = " SGLang passes the header to the model unchanged (no version up to 0.5.23 removes it)."
        return why, [], ["https://github.com/sgl-project/sglang/pull/21064"]
    return "", [], []


def logged(session: Session) -> LoggedHeader | None:
    """Return the log's evidence; None if it does not suggest the header."""
    return _of_vllm(session) if session.engine == "vllm" else _of_sglang(session)


def _of_vllm(session: Session) -> LoggedHeader | None:
    header, endpoint = (session.settings.get(name) for name in ("billing_header", "messages_endpoint"))
    low = next((s for s in rolling.stretches(session) if s.share <= rolling.LITTLE), None)
    if session.since(_STRIPPED_EVERYWHERE) is True or rolling.caching(session) is False:
        return None
    said, rest = ("reuse is not known", []) if low is None else (low.said, low.evidence[:1])
    if header is not None:  # the prompt as the model gets it: whatever the version, it was not taken out
        return LoggedHeader(said, "high", [*said_by(header, "a prompt that begins with the header"), *rest])
    if endpoint is None or low is None or session.sent is not None or session.since(_STRIPPED) is not False:
        return None
    return LoggedHeader(said, "medium", [*said_by(endpoint, "a request to the endpoint that Claude Code uses"), *rest])


def _of_sglang(session: Session) -> LoggedHeader | None:
    proven = session.setting("billing_header") is True
    if batch_periods.caching(session) is False or not (proven or (session.sent is None and _by_anthropic(session))):
        return None
    for period in batch_periods.periods(session):
        seen = batch_periods.seen(session, period)
        told = batch_periods.crowded(period) or batch_periods.stateless(period)
        if seen is not None and seen.barely and (proven or not told):
            same = seen.most - seen.least < batch_periods.page(session)
            reused = f"{n(seen.most)} tokens" if same else f"{n(seen.least)} to {n(seen.most)} tokens"
            said = f"{seen.count - 1:,} requests of up to {n(seen.largest)} tokens each reused {reused}"
            cold = ("whole", "a request that reused almost nothing"), ("cold", "a request that reused nothing")
            lines = batch_periods.marks(period, *cold)
            lines += said_by(session.settings.get("anthropic_requests"), "a request to Anthropic's API")
            return LoggedHeader(said, "high" if proven else "medium", lines)
    return None


def _by_anthropic(session: Session) -> bool:
    """Whether most requests come by Anthropic's interface, as Claude Code's do."""
    by_anthropic = session.setting("anthropic_requests") or 0
    return by_anthropic > batch_periods.ENOUGH and by_anthropic > (session.setting("chat_requests") or 0)
