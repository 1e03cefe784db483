"""CD104: reasoning of earlier turns disappears from the history."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import (
    cost_of_change,
    from_prompts,
    prompts_prove,
    references,
    why_before,
    why_client,
    with_client,
)
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.server_options import name_for

_KINDS = ("reasoning-dropped", "reasoning-added")
_SEND = "In the client: send reasoning_content of earlier turns back unchanged"
_SLACK_BEFORE, _SLACK_AFTER = 12, 3
"""Tokens: the template's opening of a reply (``<|im_start|>assistant``, ``<think>``) belongs to the prompt's end."""


def reply_start(s: kit.RuleContext) -> int | None:
    """Prompt length of the earlier turn at whose reply the common prefix ends, or None."""
    lcp = s.lcp
    if lcp is None:
        return None
    least, most = lcp - _SLACK_AFTER, lcp + _SLACK_BEFORE
    for turn in reversed(s.history):
        end = turn.prompt_tokens
        if end is not None and least <= end <= most:
            return end
    return None


def _shared(turn: kit.Request) -> int:
    return turn.common_prefix_tokens or turn.cached_tokens or 0


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a tool loop that was reused ends, and the prefix now ends where an earlier reply begins."""
    if not s.lost:
        return None
    first = None if s.first is None else s.changed(*_KINDS)
    if first is not None:
        return from_prompts(s, first, cost_of_change(s))
    told = s.known and not s.changed("appended")  # prompts hold no replies: that one came back without its reasoning
    if told or s.client_lost < kit.MIN_LOST or s.own_slot is False or s.early:
        return None
    end = reply_start(s)
    if end is None:
        return None
    since = [h for h in s.history if (h.prompt_tokens or 0) > end]
    if not since or not all(h.outcome == "reused" for h in since):
        return None  # the turns in between must have kept that reply
    following = next((after for turn, after in pairwise(s.history) if turn.prompt_tokens == end), None)
    if following is not None and _shared(following) < end - _SLACK_AFTER:
        return None  # what followed parts there, too: it is only a beginning that several conversations have
    return kit.Match(cost_of_change(s), "medium")


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show where the prefix ends, and what was reused."""
    if match.found is not None:
        return prompts_prove(s, match)
    r = s.request
    return kit.Proof(
        kit.marked(
            r,
            ("n_past", "common prefix"),
            ("select", "the slot holds most of the new prompt, but keeps less of its own"),
            kit.RECOMPUTED,
        )[0],
        kit.marked(r, kit.REUSED, ("new", "the new prompt"), ("old", "the slot's content")),
        {"lcp": s.lcp, "changed": r.lost_client},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say where the history was cut and how the server or the client keeps reasoning."""
    f, session = g.numbers, g.session
    low, high = advice.span(session)
    remedies = [
        kit.Remedy(f"{_SEND} (llama-server has accepted it since January 2026)."),
    ]
    if session.at_least(10809) is True:
        remedies.append(
            kit.Remedy(
                "Remove --no-reasoning-preserve if it is set, and check chat_template_caps.supports_preserve_reasoning in /props: this build keeps "
                "reasoning by default if the chat template supports it. Kept reasoning uses context."
            )
        )
    elif name_for(server_options.REASONING, low, high):
        remedies.append(
            kit.Remedy(
                "Let the template keep reasoning. Kept reasoning uses context, because it stays in every later prompt.",
                options=kit.as_typed("--reasoning-preserve"),
            )
        )
    else:
        remedies.append(
            kit.Remedy(
                'If the template has a switch for reasoning (Qwen3.5 and newer; GLM: {"clear_thinking":false}), keep the reasoning of earlier turns. Kept reasoning uses context.',
                options=[kit.OptionChange("--chat-template-kwargs", '{"preserve_thinking":true}')],
                purpose="depends",
            )
        )
    return kit.FindingText(
        f"the history changed where an earlier reply begins ({kit.token(f['lcp'])}), and {kit.n(f['changed'])} tokens of old turns are gone: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"Earlier turns reused everything; in this turn the common prefix ends right at the start of an earlier reply. Such a prefix is typical of dropped reasoning: the template or the client removes reasoning once a new user message follows.{why_before(g)}{why_client(g)}",
        with_client(g, remedies),
        [
            kit.RuledOut(
                "retokenised-tail", f"{kit.n(f['changed'])} tokens changed, more than re-tokenisation explains"
            ),
            kit.RuledOut(
                "history-rewritten",
                "not excluded by lengths alone: an edited reply looks the same; only the text can show the difference",
            ),
        ],
        [
            "https://github.com/ggml-org/llama.cpp/pull/25105",
            "https://github.com/ggml-org/llama.cpp/pull/28174",
            *references(g),
        ],
    )


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies, which show the direction of the change."""
    first = difference.first
    if first is None or first.kind not in _KINDS:
        return None
    went = "was removed from the history" if first.kind == _KINDS[0] else "was added to the history"
    return changes.of_bodies(
        difference,
        f"reasoning of an earlier reply {went} at {changes.place(difference)}",
        "If a template or a client drops the reasoning of earlier turns once a new user message follows, everything after that reasoning changes.",
        [kit.Remedy(f"{_SEND}, or never.")],
    )


RULE = kit.rule(
    __name__, "Reasoning of earlier turns disappears from the prompt", decide, prove, say, on=("changed",),
    of_bodies=of_bodies,
)  # fmt: skip
