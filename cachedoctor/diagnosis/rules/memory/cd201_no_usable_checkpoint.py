"""CD201: the prompt matched, but the memory had no saved state near the end of it to go back to."""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.rules import advice, kit, lengths
from cachedoctor.diagnosis.rules.checkpoints import APPEND_ONLY, CLEARED, same_prefix, server_could_not, serving
from cachedoctor.knowledge.server_options import CHECKPOINT_MIN_STEP

CAUSES = ("CD202", "CD203", "CD204", "CD205", "CD207", "CD208", "CD211", "CD308")
"""Rules that say why there was none."""


def nothing_below(s: kit.RuleContext) -> bool:
    """No checkpoint at or below the common prefix: all lie beyond, or none was held."""
    lcp = s.lcp
    r = s.request
    ends = [c.pos_max for c in r.seen.checks] or [b for _, b in r.seen.held_positions]
    most = r.prefix_between[1] if s.pinned and r.prefix_between is not None else lcp
    if lcp is None or most is None or any(end + 1 <= most for end in ends):
        return False
    return not serving(r.seen.checks, most, s)


def far_below(s: kit.RuleContext) -> bool:
    """The last checkpoint inside the common prefix was restored, and nothing after it.

    The newest is checked first, so that one between the two would have been taken instead.
    """
    r, lcp = s.request, s.lcp
    if lcp is None or r.seen.restored_at is None or r.cached_tokens != r.seen.restored_at[1] + 1:
        return False
    taken = [check for check in r.seen.checks if (check.pos_min, check.pos_max) == r.seen.restored_at]
    between = [check for check in r.seen.checks if r.cached_tokens < check.pos_max + 1 <= lcp]
    return bool(taken) and not between and r.stale_from is None and s.by_the_book is not False


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the memory needs a checkpoint at or below the prefix and had none, or one far below alone."""
    match = _missing(s)
    return match if match is None else lengths.noted(s, "CD201", match)


def _missing(s: kit.RuleContext) -> kit.Match | None:
    r = s.request
    if r.cached_tokens is None or not server_could_not(s) or s.facts.setting("ctx_checkpoints") == 0:
        return None
    if far_below(s):
        return kit.Match(s.server_lost, "high" if s.pinned else "medium", found=r.cached_tokens)
    if not nothing_below(s):
        return None
    seen = bool(r.seen.checks or r.seen.held_positions) or _listed(s) or _makes_none(s)
    sure: kit.Confidence = "high" if s.pinned and r.seen.forced and seen and s.by_the_book is not False else "medium"
    return kit.Match(s.server_lost, sure)


def _makes_none(s: kit.RuleContext) -> bool:
    """This build makes no checkpoints: none before b6180, up to b6628 none but of sliding windows."""
    hybrid = s.facts.memory in ("hybrid", "recurrent")
    return s.facts.at_least(6180) is False or (hybrid and s.facts.at_least(6751) is False)


def _listed(s: kit.RuleContext) -> bool:
    """Whether every checkpoint that was checked is in the log.

    Builds that print no checks (up to b8156) could have refused a checkpoint unseen, unless its creation would stand
    here; where the beginning of the request is missing, the checks may be missing with it, and from b9873 on the
    default level hides them.
    """
    return s.facts.at_least(kit.PRINTS_CHECKS) is True and s.request.checkpoints_shown and not s.request.partial


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show where the prefix ends, and the checkpoints beyond it, or the one far below."""
    r, listed = s.request, _listed(s)
    return kit.proof(
        r,
        kit.PREFIX_AND_CONTENT,
        ("forced", "the symptom"),
        ("restored", "the nearest checkpoint inside the common prefix"),
        ("check", "a checkpoint that was checked" if match.found else "a checkpoint after the common prefix"),
        ("select", "how much matched"),
        kit.REUSED,
        kit.RECOMPUTED,
        most=4,
        numbers={
            "restored": match.found,
            "held_before": r.seen.held_checkpoints,
            "checks": len(r.seen.checks),
            "lowest": min((c.pos_max + 1 for c in r.seen.checks), default=None),
            "held": len(r.seen.checks)
            if listed and r.seen.forced
            else r.seen.held_checkpoints,  # a search that fails lists all
            "listed": listed,
            "made": "checkpoints" in s.facts.shows,
            "drops": "dropped_checkpoints" in s.facts.shows,
        },
    )


def _why_none(g: kit.MatchGroup) -> str:
    f, session = g.numbers, g.session
    if f["checks"]:
        all_of_them = kit.checkpoints(f["checks"])
        first = "it covers" if f["checks"] == 1 else "the lowest covers"
        return (
            f"{all_of_them[0].upper()}{all_of_them[1:]} after the common prefix ({first} {kit.n(f['lowest'])} tokens); "
            "this build makes most checkpoints near the end of the prompt."
        )
    if session.at_least(6751) is False:
        return "This build makes no checkpoints for hybrid and recurrent models (added between b6628 and b6751)."
    if f["listed"] or f["held"] == 0:
        return "The slot had no checkpoint at that moment."
    return "This log shows no checkpoint of the slot at that moment."


def _are_they_on(session: kit.Session) -> kit.Remedy | None:
    """Where no line shows a checkpoint, a longer list of them is not advice yet."""
    if session.at_least(6751) is False or session.setting("ctx_checkpoints") is not None:
        return None
    return kit.Remedy(
        "Check whether --ctx-checkpoints (or LLAMA_ARG_CTX_CHECKPOINTS) is 0, which switches checkpoints off, or so small that earlier checkpoints are soon dropped."
    )


def _look_alikes(g: kit.MatchGroup) -> list[kit.RuledOut]:
    """What the lines exclude; an excerpt without the lines on checkpoints leaves open what became of them."""
    f = g.numbers
    if f["checks"] or f["listed"] or f["made"] or g.session.at_least(6751) is False:
        return [kit.RuledOut("swa-threshold-misfire", "the log shows no rejected checkpoint inside the common prefix")]
    if f["drops"]:
        return [
            kit.RuledOut(
                "checkpoint-evicted",
                "not excluded: checkpoints were dropped from a full list, and this log level hides the remaining checkpoints",
            ),
            kit.RuledOut(
                "swa-threshold-misfire",
                "not excluded: this log level hides the lines about the checkpoints that the server checked",
            ),
        ]
    return [
        kit.RuledOut(
            "checkpoints-disabled", "not excluded: this log does not show whether the server makes checkpoints"
        ),
        kit.RuledOut("checkpoint-evicted", "not excluded: this log does not show whether a checkpoint was dropped"),
        kit.RuledOut(
            "swa-threshold-misfire",
            "not excluded: this log lacks the lines about the checkpoints that the server checked",
        ),
    ]


def _is_servers(r: kit.Request) -> bool:
    """Whether what was lost is the server's: a client that changed more is a cause of its own."""
    return (r.lost_client or 0) <= (r.lost_server or 0)


_SPREAD = "from b9873 on a checkpoint is made at every user message (from b9538 on, only at the last one)"
"""Where newer builds make checkpoints."""
_SOURCES = ["https://github.com/ggml-org/llama.cpp/pull/15293", "https://github.com/ggml-org/llama.cpp/pull/20288"]


def _say_far(g: kit.MatchGroup) -> kit.FindingText:
    """Say how far below the nearest checkpoint lay, and what makes more."""
    f, r, session = g.numbers, g.worst_request, g.session
    known = session.at_least(9873) is True
    more = advice.more_checkpoints(session, f["held_before"])
    closer = "Place checkpoints closer together; each checkpoint costs main memory."
    return kit.FindingText(
        f"{'in the worst request ' if g.count > 1 else ''}{kit.n(r.common_prefix_tokens)} tokens matched, but the nearest checkpoint covers only {kit.n(f['restored'])}: "
        f"{kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Recurrent and sliding-window memory cannot be rewound; it goes back to the last saved state (context checkpoint) inside the common prefix. No later checkpoint inside the prefix was kept. Checkpoints are made while a prompt is computed, not while a reply is generated.",
        [
            advice.option(session, CHECKPOINT_MIN_STEP, "1024", closer)
            if known
            else advice.update(session, f"{_SPREAD}."),
            *([more] if more is not None else []),
        ],
        [
            *([same_prefix(r.common_prefix_tokens)] if _is_servers(r) else []),
            kit.RuledOut("cache-prompt-off", "a checkpoint was restored"),
            *(
                []
                if f["listed"]
                else [
                    kit.RuledOut(
                        "checkpoint-evicted", "not excluded: a checkpoint in between may have been dropped earlier"
                    )
                ]
            ),
            *lengths.left_open(g),
        ],
        _SOURCES,
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say why there was no checkpoint, and what makes one."""
    f, r, session = g.numbers, g.worst_request, g.session
    if f["restored"]:
        return _say_far(g)
    newer = advice.update(
        session,
        f"{_SPREAD}, so an edited history finds a checkpoint.",
    )
    more = advice.more_checkpoints(session, f["held"]) if f["checks"] or f["made"] else _are_they_on(session)
    known = session.at_least(9873)
    longer = [] if more is None else [more]
    # of checks in an excerpt there may have been more; those that it has did not fill the list
    guessed = not f["listed"] and advice.more_checkpoints(session, f["checks"] or None) is None
    remedies = [
        *([newer] if known is False else []),
        *([] if guessed else longer),
        APPEND_ONLY,
        *([msgspec.structs.replace(one, purpose="depends") for one in longer] if guessed else []),
        *([newer] if known is None else []),  # this build may be new enough
    ]
    return kit.FindingText(
        f"{'in the worst request ' if g.count > 1 else ''}{kit.n(r.common_prefix_tokens)} tokens matched, but memory could not be rewound to that point: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}",
        "Recurrent and sliding-window memory cannot be rewound; it needs a saved state (context checkpoint) inside the common prefix. "
        + _why_none(g),
        remedies,
        [
            *([same_prefix(r.common_prefix_tokens)] if _is_servers(r) else []),
            *_look_alikes(g),
            *lengths.left_open(g),
        ],
        _SOURCES,
    )


RULE = kit.rule(
    __name__,
    "The prefix matched, but there was no checkpoint near its end",
    decide,
    prove,
    say,
    needs=advice.needs_accounting,
    on=("stuck",),
    unless=(*CLEARED, *CAUSES),
)
