"""CD405: the server slept in between, and its caches were empty when it woke."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import server_options


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the first request after a sleep, and on the return of each conversation from before it."""
    r = s.request
    if "slept" not in r.marks or (r.prompt_tokens or 0) < s.min_prompt or r.cached_tokens is None:
        return None
    if r.outcome != "cold" and not s.lost:
        return None
    return kit.Match(s.lost if r.thread_turn else 0, "high")


def prove(s: kit.RuleContext, _: kit.Match) -> kit.Proof:
    """Show that the server went to sleep."""
    r = s.request
    slept = r.marks["slept"]
    shown = kit.marked(
        r,
        ("select", "unused since wake-up"),
        ("cached", "nothing to reuse"),
        ("timing", "the whole prompt computed"),
    )
    return kit.Proof((slept, "the server goes to sleep"), shown, {"line": slept.line})


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what sleeping ends, and how to sleep later."""
    f = g.numbers
    cost = f": {kit.n(g.tokens)} tokens recomputed" if g.tokens else ""
    return kit.FindingText(
        f"the server had slept; {kit.times(g.count)} found all caches empty afterwards{cost}",
        f"After --sleep-idle-seconds without work the server frees the model and its context (line {f['line']}). All slots, checkpoints and the RAM prompt cache are lost. Task numbers and the clock continue.",
        [
            advice.option(
                g.session,
                server_options.SLEEP,
                "3600",
                "If the pause was short: let the server wait longer before it sleeps, or remove the option (with the default, -1, it never sleeps).",
            )
        ],
        [
            kit.RuledOut(
                "server-restarted",
                "the log shows that the server wakes up and task numbers continue, so the process did not end",
            )
        ],
        ["https://github.com/ggml-org/llama.cpp/pull/18228"],
    )


RULE = kit.rule(
    __name__, "The server slept; its caches were empty when it woke", decide, prove, say, severity="note", on=("slept",)
)
