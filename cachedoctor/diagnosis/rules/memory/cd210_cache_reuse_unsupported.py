"""CD210: --cache-reuse was asked for and cannot work here."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the history change that the option was meant for, where the server said at its start that it is off."""
    off = s.facts.said("cache_reuse_supported")
    if off is None or off.value is not False or off.line is None:
        return None
    return kit.Match(0, "high", found=kit.Mark(off.line, off.text))


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show what the server said."""
    why = "multimodal" if s.facts.setting("mmproj") else "memory"
    return kit.Proof((match.found, "the server switches the option off at start"), numbers={"why": why})


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say that the flag does nothing, and that this is not a loss by itself."""
    return _text(g.numbers["why"], f"{kit.times(g.count)} changed the history, but the option could not help")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the start-up line alone."""
    off = session.said("cache_reuse_supported")
    if off is None or off.value is not False or off.line is None or not kit.unfinished(session):
        return []
    why = "multimodal" if session.setting("mmproj") else "memory"
    words = _text(why, "the server switched the option off at start")
    return [
        kit.SessionFinding(words, "", [(kit.Mark(off.line, off.text), "the server switches the option off at start")])
    ]


def _text(why: str, what: str) -> kit.FindingText:
    because = (
        "a multimodal projector is loaded"
        if why == "multimodal"
        else "this model's memory cannot be shifted: it has several positions per token (M-RoPE, as in Qwen3.5), a sliding window without --swa-full, or (in builds of 2025) recurrent state"
    )
    return kit.FindingText(
        f"--cache-reuse has no effect here: {what}",
        f"The server switched the option off because {because}. Reuse of the common prefix continues as before.",
        [
            kit.Remedy(
                "Remove --cache-reuse. The option needs full attention (or --swa-full), one position per token, and no --mmproj.",
                options=kit.left_out("--cache-reuse", "LLAMA_ARG_CACHE_REUSE"),
            )
        ],
    )


RULE = kit.rule(
    __name__,
    "--cache-reuse cannot work with this model",
    decide,
    prove,
    say,
    severity="note",
    on=("changed",),
    only_with=("CD104", "CD105", "CD106"),
    alone=alone,
)
