"""CD101: a billing header that changes from request to request is in the prompt."""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client.changes import (
    field_that_differs,
    from_prompts,
    header_field,
    prompts_prove,
    texts_prove,
)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the bar of both printed texts stands inside the header."""
    if s.text_alone:
        return _by_text(s.request.seen.old_text or "", s.request.seen.new_text or "")
    if not s.lost:
        return None
    first = s.changed("billing-header")
    if first is not None:
        match = from_prompts(s, first)
        match.key = ""  # one finding with what printed texts prove
        return match
    r = s.request
    if s.known or r.seen.old_text is None or r.seen.new_text is None:
        return None
    if s.lcp is None:  # how much the client changed is not known: the values themselves have to differ
        found = _by_text(r.seen.old_text, r.seen.new_text)
        return None if found is None else msgspec.structs.replace(found, tokens=s.lost)
    if s.client_lost < kit.MIN_LOST:
        return None
    field = header_field(r.seen.new_text)
    if field is None or header_field(r.seen.old_text) is None:
        return None
    return kit.Match(s.lost, "high" if field else "medium", found=field or "header")


def _by_text(old: str, new: str) -> kit.Match | None:
    """Fire on the texts alone: the same field of the header, with another value. What it cost is not known."""
    field = field_that_differs(old, new)
    if field is None:
        return None
    sure: kit.Confidence = (
        "high" if field not in ("", "cc_version") else "medium"
    )  # that one is new in each conversation
    return kit.Match(0, sure, found=field or "header")


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show both texts."""
    if not isinstance(match.found, str):
        return prompts_prove(s, match)
    return texts_prove(s, field=match.found)


_WHY = "Claude Code puts x-anthropic-billing-header at the top of the system prompt; the value of this header changes with every request or conversation, so nothing after the header can be reused."
_WHY_HERE = f"{_WHY} From b8929 on, llama-server replaces only cch=, and only on /v1/messages."
_SEE = ["https://github.com/ggml-org/llama.cpp/pull/21793", "https://code.claude.com/docs/en/llm-gateway-protocol"]


def _remedies() -> list[kit.Remedy]:
    return [
        advice.client("claude-code/billing-header"),
        kit.Remedy(
            "Behind a proxy or another client: strip the system text that starts with x-anthropic-billing-header."
        ),
    ]


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the field and the switch of the client that turns the header off."""
    f, r = g.numbers, g.worst_request
    matched = (
        f"only {kit.first_tokens(f['lcp'])} of {kit.n(r.prompt_tokens)} tokens matched"
        if f["lcp"] is not None
        else f"the prompt has {kit.n(r.prompt_tokens)} tokens"
    )
    cost = (
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}; {matched}"
        if g.tokens
        else f"{kit.times(g.count)}; this log does not show the cost"
    )
    at = (
        f"the prompts differ from {kit.token(f['lcp'])} on"
        if f["lcp"] is not None
        else "the prompts differ in their first words"
    )
    return kit.FindingText(
        f"Claude Code's billing header changes between requests ({f['field']}): {cost}",
        _WHY_HERE,
        _remedies(),
        [
            kit.RuledOut(
                "slot-held-other-prompt",
                "the text before the bar is the same header, so the slot held this client's prompt",
            ),
            kit.RuledOut(
                "no-usable-checkpoint",
                f"{at}; a checkpoint can restore only the tokens before that point",
            ),
        ],
        _SEE,
    )


def of_bodies(session: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies, with this server's treatment of the header."""
    first = difference.first
    if first is None or first.kind != "billing-header":
        return None
    head = f"Claude Code's billing header changes between requests ({first.field or 'header'})"
    from cachedoctor.diagnosis.rules.measured import billing_header

    why, remedies, references = billing_header.of(session)
    return kit.ChangeText(head, f"{_WHY}{why}", [*_remedies(), *remedies], [*references, _SEE[1]])


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from two headers that differ, in prompts, dumps or a diff of them that were pasted; of servers that log
    rates or batches, where logged prompts have it, or where Claude Code's endpoint and little reuse speak for it."""
    said = kit.stated(session, "header")
    if session.engine in ("vllm", "sglang"):
        return _logged(session)
    if said is None or said.before is None or not kit.unfinished(session):
        return []
    sure: kit.Confidence = "medium" if said.field == "cc_version" else "high"
    words = kit.FindingText(
        f"Claude Code's billing header changes between requests ({said.field}); this input does not show the cost",
        _WHY_HERE,
        _remedies(),
        references=_SEE,
    )
    evidence = [(said.mark, "the header with another value"), (said.before, "the header of the previous request")]
    return [kit.SessionFinding(words, "", evidence, confidence=sure)]


def _logged(session: kit.Session) -> list[kit.SessionFinding]:
    from cachedoctor.diagnosis.rules.measured import billing_header

    found = billing_header.logged(session)
    if found is None:
        return []
    why, remedies, references = billing_header.of(session)
    proven = found.confidence == "high"
    unsure = "" if proven else " Another client may use the endpoint as well; a request body would show the client."
    claim = (
        f"prompts begin with Claude Code's billing header, which changes between requests ({found.said})"
        if proven
        else f"most requests use /v1/messages, and almost nothing is reused: perhaps Claude Code's billing header changes between requests ({found.said})"
    )
    words = kit.FindingText(claim, f"{_WHY}{why}{unsure}", [*_remedies(), *remedies], references=[*references, _SEE[1]])
    return [kit.SessionFinding(words, "", found.lines, "warning", found.confidence)]


RULE = kit.rule(
    __name__,
    "A client's billing header changes in every request",
    decide,
    prove,
    say,
    on=("text", "bar"),
    needs=advice.needs_text,
    alone=alone,
    stated=("header",),
    of_bodies=of_bodies,
)
