"""CD609: Claude Code's billing header changes the start of every prompt, and SGLang leaves it there."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.sglang.batch_periods import (
    ENOUGH,
    WholeRequests,
    caching,
    crowded,
    logged,
    marks,
    one_by_one,
    page,
    periods,
    seen,
    stateless,
    wanting,
)
from cachedoctor.diagnosis.rules.sglang.option_advice import compare_bodies, log_requests, needs_requests

_WHY = (
    "Claude Code begins its system prompt with x-anthropic-billing-header, part of which is new in every request. SGLang passes it "
    "to the model unchanged (PR 21064, which would have removed it, was closed; no version up to 0.5.23 does), so nothing "
    "after it can be reused. Text that the template puts before the system prompt, such as tools, still is."
)


def _off() -> list[kit.Remedy]:
    return [
        advice.client("claude-code/billing-header"),
        kit.Remedy(
            "Or strip the system text that starts with x-anthropic-billing-header in a proxy in front of the server."
        ),
    ]


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire on requests to /v1/messages that reused almost nothing, or where prompts that are known hold the header."""
    proven = _proven(session)
    if caching(session) is False or proven is False or (proven is None and not _claude(session)):
        return []
    for period in periods(session):
        requests = seen(session, period)
        if requests is not None and requests.barely and (proven or not (crowded(period) or stateless(period))):
            return [_note(session, period, requests, bool(proven))]
    return []


def _proven(session: kit.Session) -> bool | None:
    """Whether prompts that were logged or given part in the header; None where there are none to tell."""
    if session.setting("billing_header") is True:
        return True
    kinds = [d.first.kind for d in session.parted if d.first is not None]
    return "billing-header" in kinds if kinds else None


def _claude(session: kit.Session) -> bool:
    """Whether most requests come by Anthropic's interface, as Claude Code's do."""
    by_anthropic = session.setting("anthropic_requests") or 0
    return by_anthropic > ENOUGH and by_anthropic > (session.setting("chat_requests") or 0)


def _note(session: kit.Session, period: kit.BatchPeriod, requests: WholeRequests, proven: bool) -> kit.SessionFinding:
    same = requests.most - requests.least < page(session)
    reused = f"{kit.n(requests.most)} tokens" if same else f"{kit.n(requests.least)} to {kit.n(requests.most)} tokens"
    certain = "prompts begin with the billing header" if proven else "most requests use /v1/messages"
    return kit.finding(
        f"{certain}, and {requests.count - 1:,} requests of up to {kit.n(requests.largest)} tokens reused {reused} each",
        _WHY,
        [*_off(), *([] if proven else [compare_bodies(), log_requests()])],
        references=["https://github.com/sgl-project/sglang/pull/21064"],
        evidence=[
            *marks(period, ("whole", "a request that reused almost nothing"), ("cold", "one that reused nothing")),
            *kit.said_by(session.settings.get("anthropic_requests"), "a request to Anthropic's API"),
        ],
        severity="warning",
        confidence="high" if proven else "medium",
    )


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if caching(session) is False or _proven(session) is not None or not wanting(session):
        return None
    if (
        session.setting("anthropic_requests") is None
        and session.setting("chat_requests") is None
        and not logged(session)
    ):
        return (
            "the log has no access lines, which would show whether Claude Code sends the requests",
            "keep uvicorn's lines in the log: --log-level-http info, and no --uvicorn-access-log-exclude-prefixes",
        )
    return needs_requests() if _claude(session) and not one_by_one(session) else None


RULE = kit.session_rule(
    __name__,
    "Claude Code's billing header changes the start of every prompt",
    inspect,
    severity="warning",
    needs=_needs,
)
