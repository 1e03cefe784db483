"""CD312: several requests with one beginning came at once, and each computed it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

LAST = 4
"""Tokens: two prompts count as the same if one has all but this many of the other's."""
NEAR = 16
"""Tokens: a prompt that has all but this many of another one's continues it."""
LENGTHS = 3
"""Lengths at which several prompts were computed at once: fewer may be chance, or a template."""
NOTABLE = 1000
"""Tokens that a report always mentions, whatever else it contains."""
STOPPED = "stopped"
"""Key of requests beside which only one ran that its client had given up: a draft, which another one replaced."""
_BODIES = ["cachedoctor analyze server.log --requests bodies.jsonl"]
_ONE_FIRST = kit.Remedy(
    "Send the first request alone and the next requests after its answer: each request then finds the beginning in the slot. More slots or a larger RAM cache "
    "do not help."
)
_WAIT = kit.Remedy(
    "Make the client wait longer for the answer than a long prompt takes, or cancel the first request before it sends another."
)
_STOP = kit.Remedy(
    "Let the client stop the earlier request, and wait until it has stopped, before it sends the next one."
)
_CONTENTION = kit.RuledOut("slot-contention", "no slot held these tokens before")


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when another request computed the same beginning at the same time, and none had before."""
    r = s.request
    if not r.together_tokens:
        return _perhaps(s)
    if r.cached_tokens is None or r.prompt_tokens is None or r.outcome in ("failed", "cancelled", "unknown"):
        return None
    again = min(r.together_tokens, r.prompt_tokens) - r.cached_tokens
    if again < s.min_prompt:
        return None
    if r.together_tokens >= r.prompt_tokens - LAST:
        return kit.Match(again, "high", "twice")
    earlier = [one for one in s.beside(r) if one.first_line < r.first_line]
    if earlier and all(one.seen.cancelled for one in earlier):
        return kit.Match(again, "high", STOPPED, severity="note")
    return kit.Match(again, "high")


def _perhaps(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a prompt shares its beginning with one of several first prompts that were computed at once.

    What the others begin with is in no line: that they are all alike is likely, and no more than that.
    """
    first, lcp = s.slot_before, s.lcp
    if s.known or s.own_slot is not True or first is None or lcp is None or lcp < s.min_prompt:
        return None
    if first.outcome != "cold" or first.thread != s.request.thread or (first.prompt_tokens or 0) <= lcp + NEAR:
        return None  # else it continues that prompt: its own next turn
    others = [o for o in s.beside(first) if o.outcome == "cold" and (o.prompt_tokens or 0) > lcp]
    again = sum(lcp - o.cached_tokens for o in others if o.cached_tokens is not None and o.cached_tokens < lcp)
    if again < s.min_prompt:
        return None
    return kit.Match(0, "low", "perhaps", found=[first, *others], at_most=again, severity="note")


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the request that began before another one had ended."""
    r = s.request
    if match.found is not None:
        shown = kit.marked(
            r, ("select", "shares its beginning with one of these requests"), ("start", "the later request")
        )
        shown += [
            line for one in match.found for line in kit.marked(one, ("start", "one of the simultaneous requests"))
        ]
        return kit.Proof(shown[0], shown[1:5], {"shared": s.lcp, "those": len(match.found), "again": match.at_most})
    return kit.proof(
        r,
        ("start", "began while another request with the same beginning was running"),
        ("select", "the free slot"),
        kit.REUSED,
        ("timing", "tokens computed"),
        most=3,
        numbers={"shared": r.together_tokens, "twice": match.key},
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Advise an order: more slots or memory do not help."""
    shared = kit.n(g.numbers["shared"])
    if "those" in g.numbers:
        return _open(g)
    if g.numbers["twice"] == STOPPED:
        return _stopped(g)
    if g.numbers["twice"]:
        return _twice(g)
    return kit.FindingText(
        f"requests with the same beginning ran at once, and each computed the beginning: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The first {shared} tokens of this prompt match a request that was still running when this request came. A slot reuses only its own content or the RAM cache, not tokens that another slot is computing.",
        [_ONE_FIRST],
        [_CONTENTION],
    )


def _twice(g: kit.MatchGroup) -> kit.FindingText:
    """Advise to wait: the prompts are known to be the same."""
    return kit.FindingText(
        f"a prompt was sent again while it was being computed, and was computed twice: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"This prompt of {kit.n(g.worst_request.prompt_tokens)} tokens has the same text as a request that was still running when this request came. The second request got its own slot and cannot use tokens that another slot is computing.",
        [_WAIT],
        [_CONTENTION],
    )


def _stopped(g: kit.MatchGroup) -> kit.FindingText:
    """Advise to stop first: the next draft came while the slot of the last one was in use."""
    return kit.FindingText(
        f"a request came before a stopped request with the same beginning had ended: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        f"The first {kit.n(g.numbers['shared'])} tokens of this prompt match the request that the client stopped. Its slot was still in use, so this request got another slot.",
        [_STOP],
        [_CONTENTION],
    )


def _open(g: kit.MatchGroup) -> kit.FindingText:
    """Say what it may have cost, and what would tell."""
    f = g.numbers
    return kit.FindingText(
        f"the first prompts of {f['those']} conversations were computed at the same time, and a later prompt shares {kit.n(f['shared'])} tokens with one of them: up to "
        f"{kit.n(f['again'])} tokens computed more than once",
        "If all prompts begin alike, each request computed the same beginning. This log does not show how the other prompts begin.",
        [
            _ONE_FIRST,
            kit.Remedy(
                "Pass the request bodies, which show whether the prompts begin alike.",
                _BODIES,
            ),
        ],
        [
            _CONTENTION,
            kit.RuledOut(
                "first-prompts", "not excluded: if the other prompts began differently, there is nothing to fix"
            ),
        ],
    )


def sent_twice(session: kit.Session) -> list[kit.SessionFinding]:
    """Say that prompts may have been sent twice: several were of exactly one length, and at work at once, again and again."""
    found = session.twins
    tokens = sum(twins.tokens for twins in found)
    if len(found) < LENGTHS or tokens < NOTABLE:
        return []
    requests, worst = sum(twins.requests for twins in found), max(found, key=lambda twins: twins.tokens)
    words = kit.FindingText(
        f"{kit.times(requests)} arrived while another request of exactly the same length was running ({kit.n(len(found))} different lengths): up to {kit.n(tokens)} "
        "tokens computed twice",
        "A request may be sent again before the first answer: after a timeout, in two attempts at once, or by two instances of a program. The second request gets another slot and is recomputed, because a slot cannot use tokens that another slot is computing. The log does not show that these prompts are the same, but different prompts rarely have the same length again and again.",
        [
            kit.Remedy("Pass the request bodies, which show whether the prompts are the same.", _BODIES),
            kit.Remedy(f"If they are the same: {_WAIT.text[0].lower()}{_WAIT.text[1:]}"),
        ],
        [
            kit.RuledOut(
                "different-prompts",
                "not excluded: if the prompts are made from one template, as for parallel agents, there is nothing to fix",
            ),
            kit.RuledOut("several-answers", "a request for several answers (n) is counted once"),
        ],
    )
    line = (worst.mark, f"began while another request of {kit.n(worst.length)} prompt tokens was running")
    return [kit.SessionFinding(words, "twice", [line], severity="note", confidence="low")]


RULE = kit.rule(
    __name__,
    "Requests with a shared prefix ran at once, and each computed the prefix",
    decide,
    prove,
    say,
    on=("together", "changed"),
    needs=advice.needs_prompts_for_more,
    alone=sent_twice,
)
