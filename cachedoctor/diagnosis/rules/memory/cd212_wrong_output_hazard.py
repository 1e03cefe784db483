"""CD212: a checkpoint was restored that is older than the text it stands for: the answer may be wrong."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

FIXED = 8672
"""First checked build that drops every checkpoint reaching beyond the common prefix (PR #20671, after b8353)."""


def _stale_window(s: kit.RuleContext) -> bool:
    """Up to b8353: a sliding-window checkpoint outlived a change inside its window, and was restored."""
    r, facts = s.request, s.facts
    if "stale" not in r.marks or facts.memory != "swa" or facts.at_least(FIXED) is not False:
        return False
    return r.stale_from is not None and (r.cached_tokens or 0) > r.stale_from


def _foreign(s: kit.RuleContext) -> bool:
    """Up to b9873: a slot file was restored over another conversation, whose checkpoint was then taken for its own."""
    r = s.request
    if "slot_file" not in r.marks or not r.restored or s.facts.at_least(9874) is not False:
        return False
    return r.held_before is not None and r.held_thread is not None and r.held_before != r.held_thread


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a restored checkpoint stands for text that the prompt does not hold, by the order of the lines."""
    if _stale_window(s):
        return kit.Match(0, "medium", "window")
    return kit.Match(0, "low", "file") if _foreign(s) else None


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the restored checkpoint, and the line after which it was out of date."""
    r = s.request
    if match.key == "window":
        kind, line = "a checkpoint made before the text changed", r.marks["stale"]
        why = "the prompt diverged here, inside the range of the checkpoint"
    else:
        kind, line = "a checkpoint of the slot's earlier content", r.marks["slot_file"]
        why = "the slot does not hold the tokens of its last request"
    numbers = {"kind": match.key, "from": r.stale_from, "held": r.held_tokens, "to": r.cached_tokens}
    return kit.Proof((r.marks["restored"], kind), [(line, why), *kit.marked(r, ("cached", "reused"))], numbers)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what may be wrong, and that it is not a proof."""
    f = g.numbers
    if f["kind"] == "window":
        claim = f"in {kit.times(g.count)} a checkpoint older than a change of the prompt was restored: tokens {kit.n(f['from'])} to {kit.n(f['to'])} of the checkpoint are no longer in the prompt, so the answer may be wrong"
        why = "The prompt had diverged from the slot's content inside the checkpoint's window, but the checkpoint was kept. These builds only drop checkpoints that begin after the divergence, not checkpoints that end after it. The log cannot show whether the answer is wrong."
        update = f"PR #20671 (in b{FIXED}, not in b8353) drops checkpoints of this kind."
    else:
        claim = f"in {kit.times(g.count)} a slot file was restored over another conversation, and then a checkpoint of that conversation was used: the first {kit.n(f['to'])} tokens may belong to another prompt"
        why = f"The length of {kit.n(f['held'])} tokens shows that the restored content is not the slot's last conversation. In these builds, restoring a file does not clear the slot's checkpoints, so an old checkpoint was used for the new content. If both prompts are the same up to that point, nothing is wrong."
        update = (
            "b10068 and newer drop a slot's checkpoints with its content; b11549 restores the checkpoints in the file."
        )
    remedies = [advice.update(g.session, update)]
    if f["kind"] == "file":
        remedies.append(
            kit.Remedy("Until you update: before you restore a file, erase the slot and send the slot a short prompt.")
        )
    alike = kit.RuledOut(
        "prompts-alike", f"not excluded: if both prompts are the same up to token {kit.n(f['to'])}, nothing is wrong"
    )
    return kit.FindingText(claim, why, remedies, [alike], ["https://github.com/ggml-org/llama.cpp/pull/20671"])


RULE = kit.rule(
    __name__,
    "A restored checkpoint belonged to text that had been replaced: the answer may be wrong",
    decide,
    prove,
    say,
    severity="note",
    on=("stale", "slot_file"),
)
