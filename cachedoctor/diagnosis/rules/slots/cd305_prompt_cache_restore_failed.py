"""CD305: a prompt was found in the RAM cache and could not be put back."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on the server's own message."""
    return kit.Match(s.lost, "high") if "ram_failed" in s.request.marks else None


PROOF = kit.lines(
    ("ram", "the prompt that was found"), kit.REUSED, kit.RECOMPUTED, first=("ram_failed", "the restore that failed")
)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what was lost and where it is fixed."""
    lost = f": {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}" if g.tokens else f": {kit.times(g.count)}"
    return _text(g.session, f"a prompt in the RAM cache could not be restored{lost}")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the server's line alone, or from libllama's, which does not show the kind of state."""
    said, library = kit.stated(session, "ram_failed"), kit.stated(session, "state_failed")
    if said is not None:
        size = said.numbers.get("size")
        mib = "" if size is None else f" of {size / 2**20:,.1f} MiB"
        words = _text(session, f"a prompt{mib} in the RAM cache could not be restored and is recomputed")
        return [kit.SessionFinding(words, "", [(said.mark, "the restore that failed")], "error")]
    if library is None or not kit.unfinished(session):
        return []
    words = _text(session, "a saved state could not be restored: the tokens it covers are recomputed")
    words.ruled_out = [
        kit.RuledOut(
            "checkpoint-restore-failed",
            "not excluded: either a prompt in RAM or a checkpoint could not be restored; the line does not show which",
        ),
        kit.RuledOut("slot-restored-without-checkpoints", "not excluded: the saved state may also be a slot file"),
    ]
    evidence = [(library.mark, "the restore that failed")]
    return [kit.SessionFinding(words, "", evidence, "error", "medium", unless=("CD213",))]


def _text(session: kit.Session, claim: str) -> kit.FindingText:
    return kit.FindingText(
        claim,
        "The slot could not take the saved state: no free cells, another sequence number, or a different size. If a restore fails, the slot is cleared.",
        [
            advice.update(session, "several causes of failed restores have been fixed (PR #17078, issue 22756)."),
            advice.more_context(session, "Raise the context, so a saved prompt finds enough free cells.", pool=True),
        ],
        [kit.RuledOut("cache-ram-too-small", "the prompt was in the cache")],
        ["https://github.com/ggml-org/llama.cpp/pull/17078"],
    )


RULE = kit.rule(
    __name__,
    "A prompt in the RAM cache could not be restored",
    decide,
    PROOF,
    say,
    severity="error",
    on=("ram_failed",),
    alone=alone,
    stated=("ram_failed", "state_failed"),
)
