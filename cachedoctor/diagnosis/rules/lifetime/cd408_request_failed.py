"""CD408: a request failed for a reason that has no rule of its own."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.base import (
    FindingText,
    Group,
    Match,
    Proof,
    RequestRule,
    RuleContext,
    SessionFinding,
    stated,
    times,
    unfinished,
)
from cachedoctor.model import Mark, Remedy, Session, as_typed


class _Fault(NamedTuple):
    """What is known of an error, by its words."""

    key: str
    words: tuple[bytes, ...]
    claim: str
    why: str
    remedies: tuple[Remedy, ...]


_FAULTS = (
    _Fault(
        "room",
        (b"Context size has been exceeded", b"KV cache is full"),
        "the KV memory had no room left",
        "A batch found no free cells, however small it was made, and no idle slot was left to empty. Slots that share the memory (unified KV) fill it "
        "together, though each stays within its own limit.",
        (Remedy("Or let fewer requests run at once: a smaller --parallel."),),
    ),
    _Fault(
        "compute",
        (b"Compute error", b"failed to decode"),
        "the model could not compute a batch",
        "The backend failed. What it says stands above this line: often the device had no memory left.",
        (
            Remedy("Look at the lines above it for the backend's own words."),
            Remedy(
                "If the device ran out of memory: make the physical batch smaller.",
                options=as_typed("--ubatch-size 256"),
                purpose="depends",
            ),
        ),
    ),
    _Fault(
        "batch",
        (b"too large to process",),
        "a prompt was longer than one physical batch",
        "Embeddings and reranking need the whole prompt in one physical batch.",
        (Remedy("Raise the physical batch size: --ubatch-size and --batch-size, to the tokens of the longest text."),),
    ),
    _Fault(
        "image",
        (b"failed to process image", b"mtmd chunk", b"mtmd batch"),
        "an image or audio clip could not be processed",
        "The multimodal library failed on it; the rest of the prompt is not computed.",
        (Remedy("Try the clip alone, and a projector file that belongs to the model."),),
    ),
)
_OTHER = _Fault(
    "other",
    (),
    "the server answered with an error",
    "The line has the server's words, which its client got as well. What the slot held before stays, so far as the request did not touch it.",
    (Remedy("Look at what the line says; the lines above it may say more."),),
)
_RETRIES = 3
"""Batches that were tried again: the first smaller one mostly finds room."""
_RETRIED = _Fault(
    "retried",
    (),
    "the KV memory had no room for a batch",
    "The server empties an idle slot, if there is one, or takes smaller pieces, down to single tokens; where these find no cells either, the requests "
    "fail. What became of them is not in these lines.",
    (Remedy("Or let fewer requests run at once: a smaller --parallel."),),
)


def _fault(mark: Mark) -> _Fault:
    return next((fault for fault in _FAULTS if any(words in mark.text for words in fault.words)), _OTHER)


def decide(s: RuleContext) -> Match | None:
    """Fire on any error but a prompt that did not fit."""
    if s.request.seen.error != "other":
        return None
    fault = _fault(s.request.marks["error"])
    return Match(0, "high", key=fault.key, found=fault)


def prove(s: RuleContext, match: Match) -> Proof:
    """Show the error."""
    return Proof((s.request.marks["error"], "the error"), numbers={"fault": match.found})


def _text(fault: _Fault, session: Session, what: str) -> FindingText:
    room = advice.more_context(session, "Raise the context: it is the size of the pool.", pool=True)
    remedies = [*([room] if fault.key in ("room", "retried") else []), *fault.remedies]
    return FindingText(f"{fault.claim}: {what}", fault.why, remedies)


def say(g: Group) -> FindingText:
    """Say what failed."""
    return _text(g.numbers["fault"], g.session, f"{times(g.count)} failed")


def alone(session: Session) -> list[SessionFinding]:
    """Say it of the line alone."""
    found = stated(session, "batch_failed") or stated(session, "refused")
    if not unfinished(session):
        return []
    tried = stated(session, "no_room")
    if found is None and tried is not None and tried.count >= _RETRIES and "purged" not in session.incidents:
        said = _text(_RETRIED, session, "it was tried again in smaller pieces")
        return [SessionFinding(said, _RETRIED.key, [(tried.mark, "no free cells")], confidence="medium")]
    if found is None:
        return []
    fault = _fault(found.mark)
    return [
        SessionFinding(_text(fault, session, "the request failed"), fault.key, [(found.mark, "the error")], "error")
    ]


RULE = RequestRule(
    "CD408",
    "request-failed",
    "A request failed for a reason that has no rule of its own",
    decide,
    prove,
    say,
    severity="error",
    on=("error",),
    unless=("CD213", "CD214"),
    alone=alone,
)
