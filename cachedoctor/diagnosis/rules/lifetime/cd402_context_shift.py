"""CD402: the server moved the context to make room, and no later prompt matches what is left."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the shift itself, and on the loss of the conversation's next turn."""
    if s.lost and s.history and s.history[-1].shifted:
        return kit.Match(s.lost, "high", found=s.history[-1])
    r = s.request
    if r.shifted:  # each shift has a line; "truncated" is said of an answer that stopped as well
        return kit.Match(0, "high" if not r.marks.keys().isdisjoint(("shift", "cut")) else "low")
    if r.seen.truncated and s.facts.n_ctx_slot is None:
        return kit.Match(0, "low", key="full")
    return None


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the shift."""
    r, before = s.request, match.found
    numbers = {"limit": s.facts.n_ctx_slot, "full": (r.seen.released_tokens or 0) + 1 if match.key == "full" else None}
    if before is None:
        shift = kit.marked(r, ("shift", "the shift"), ("release", "truncated = 1"), ("cut", "the prompt was truncated"))
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
    if g.numbers["full"]:
        return _stopped(g)
    cost = f", {kit.n(g.tokens)} tokens recomputed" if g.tokens else ""
    printed = g.worst.confidence == "high" or "shift" in g.worst_request.marks
    stopped = kit.RuledOut(
        "answer-at-full-context", "not excluded: if an answer stopped because the context was full, nothing was lost"
    )
    return _text(g.session, g.numbers["limit"], f"in {kit.times(g.count)}{cost}", alike=[] if printed else [stopped])


def _stopped(g: kit.MatchGroup) -> kit.FindingText:
    """Say that an answer ended for lack of room: nothing was shifted, and nothing of the cache is lost."""
    size = g.numbers["full"]
    return kit.FindingText(
        f"the answer stopped at a full context of {kit.n(size)} tokens in {kit.times(g.count)}",
        "The server prints truncated = 1 for a full context, and also for a context shift, which has its own line. The slot keeps its content.",
        [
            advice.more_context(
                g.session,
                f"Raise the context above {kit.n(size)} tokens, or let the client compact its history before the limit.",
            )
        ],
        [kit.RuledOut("shift-not-printed", "not excluded: the line of a context shift may be missing in this log")],
    )


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the line alone, if the requests are not read."""
    said = kit.stated(session, "shifted")
    if said is None:
        return []
    times = "once" if said.count == 1 else f"{kit.n(said.count)} times"
    words = _text(session, said.numbers.get("limit"), times, said.field, is_old=True)
    return [kit.SessionFinding(words, "", [(said.mark, "the shift")])]


def _text(
    session: kit.Session,
    limit: float | None,
    what: str,
    writer: str = "",
    alike: list[kit.RuledOut] | None = None,
    *,
    is_old: bool = False,
) -> kit.FindingText:
    """``is_old``: words of programs and builds that cannot switch it off."""
    size = f" of {kit.n(limit)} tokens" if limit else ""
    off = [
        kit.Remedy(
            "Or switch context shift off, so the server reports the limit instead.",
            options=kit.as_typed("--no-context-shift"),
            purpose="depends",
        )
    ]
    return kit.FindingText(
        f"the context{size} was full and was shifted {what}",
        "A context shift keeps the start of the prompt and drops the older half of the rest. The next prompt still contains the dropped half, so it no longer matches.",
        [
            advice.more_context(
                session, "Raise the context, or let the client compact its history before the limit.", writer=writer
            ),
            *(off if session.engine == "llama.cpp" and not is_old and session.launcher != "ollama" else []),
        ],
        alike or [],
    )


RULE = kit.rule(
    __name__,
    "The context was shifted to make room",
    decide,
    prove,
    say,
    severity="note",
    on=("shift",),
    alone=alone,
    stated=("shifted",),
)
