"""CD402: the server moved the context to make room, and no later prompt matches what is left."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the shift itself, and on the loss of the conversation's next turn."""
    if s.lost and s.history and s.history[-1].shifted:
        return kit.Match(s.lost, "high", found=s.history[-1])
    return kit.Match(0, "high") if s.request.shifted else None


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the shift."""
    r, before = s.request, match.found
    numbers = {"limit": s.facts.n_ctx_slot}
    if before is None:
        shift = kit.marked(r, ("shift", "the shift"), ("release", "truncated = 1"), ("cut", "the prompt was cut"))
        return kit.Proof(shift[0], numbers=numbers)
    shown = kit.marked(
        r,
        ("select", "the shifted content no longer matches"),
        kit.RECOMPUTED,
        ("start", "the next turn"),
    )
    return kit.Proof(kit.marked(before, ("shift", "the shift"), ("release", "truncated = 1"))[0], shown, numbers)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what the shift did."""
    cost = f", {kit.n(g.tokens)} tokens recomputed" if g.tokens else ""
    return _text(g.session, g.numbers["limit"], f"{kit.times(g.count)}{cost}")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it of the line alone, where the requests are not read."""
    said = kit.stated(session, "shifted")
    if said is None:
        return []
    words = _text(session, said.numbers.get("limit"), "once" if said.count == 1 else f"{kit.n(said.count)} times")
    return [kit.SessionFinding(words, "", [(said.mark, "the shift")])]


def _text(session: kit.Session, limit: float | None, what: str) -> kit.FindingText:
    size = f" of {kit.n(limit)} tokens" if limit else ""
    off = [
        kit.Remedy(
            "Or switch the shift off, so that the limit is reported instead.",
            options=kit.as_typed("--no-context-shift"),
            purpose="depends",
        )
    ]
    return kit.FindingText(
        f"the context{size} was full and was shifted: {what}",
        "A context shift drops the older half behind the kept head. The next prompt still has it, so it matches nothing.",
        [
            advice.more_context(session, "Raise the context, or let the client compact its history before the limit."),
            *(off if session.engine == "llama.cpp" else []),
        ],
    )


RULE = kit.rule(
    __name__, "The context was shifted to make room", decide, prove, say, severity="note", on=("shift",), alone=alone
)
