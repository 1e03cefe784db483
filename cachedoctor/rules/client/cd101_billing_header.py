"""CD101: a billing header that changes from request to request stands in the prompt."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut
from cachedoctor.rules import advice
from cachedoctor.rules.base import (
    MIN_LOST,
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    n,
    times,
)
from cachedoctor.rules.client.changes import from_prompts, prompts_prove, texts_prove
from cachedoctor.rules.client.printed_header import header_field


def decide(s: RuleContext) -> Match | None:
    """Fire when the bar of both printed texts stands inside the header."""
    if not s.lost:
        return None
    first = s.changed("billing-header")
    if first is not None:
        return from_prompts(s, first)
    r = s.request
    if s.known or r.old_text is None or r.new_text is None or s.client_lost < MIN_LOST:
        return None
    field = header_field(r.new_text)
    if field is None or header_field(r.old_text) is None:
        return None
    return Match(s.lost, "high" if field else "medium", found=field or "header")


def prove(s: RuleContext, match: Match) -> Proof:
    """Show both texts."""
    if not isinstance(match.found, str):
        return prompts_prove(s, match)
    return texts_prove(s, field=match.found)


def say(g: Group) -> FindingText:
    """Name the field and the switch of the client that turns the header off."""
    f, r = g.numbers, g.worst_request
    return FindingText(
        f"the billing header in the prompt changed ({f['field']}): {n(g.tokens)} tokens recomputed over {times(g.count)}; "
        f"only the first {n(f['lcp'])} of {n(r.prompt_tokens)} tokens matched",
        "Claude Code puts x-anthropic-billing-header at the top of the system prompt; its value is new in every request or "
        "conversation, so nothing behind it can be reused. llama-server from b8929 on replaces cch= alone, and only on /v1/messages.",
        [
            Remedy(
                'Turn the header off in Claude Code: in the environment, or under "env" in ~/.claude/settings.json',
                ["export CLAUDE_CODE_ATTRIBUTION_HEADER=0"],
            ),
            Remedy(
                "Behind a proxy or another client: strip the system text that starts with x-anthropic-billing-header."
            ),
        ],
        [
            RuledOut(
                "slot-held-other-prompt",
                "the text before the bar is the same header, so the slot held this client's prompt",
            ),
            RuledOut(
                "no-usable-checkpoint",
                f"the prompts differ from token {n(f['lcp'])} on; a checkpoint could save no more than that",
            ),
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/21793", "https://code.claude.com/docs/en/llm-gateway-protocol"],
    )


RULE = RequestRule(
    "CD101",
    "billing-header",
    "A client's billing header changes in every request",
    decide,
    prove,
    say,
    on=("text",),
    needs=advice.needs_text,
)
