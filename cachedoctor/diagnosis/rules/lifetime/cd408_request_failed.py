"""CD408: a request failed for a reason that has no rule of its own."""

from __future__ import annotations

import msgspec

from cachedoctor.diagnosis.rules import advice, kit


class _Fault(msgspec.Struct, frozen=True):
    """What is known of an error, by its words."""

    key: str
    words: tuple[bytes, ...]
    claim: str
    why: str
    remedies: tuple[kit.Remedy, ...]


_FAULTS = (
    _Fault(
        "bad-batch",
        (b"ret = -1",),
        "a batch was not valid",
        "The library rejected the batch itself (ret = -1): it has an invalid token or position. The lines above name the problem. This does not prove a full context, because some forks report a full context for every failure.",
        (
            kit.Remedy(
                "Read the lines above the error, which name an invalid token or inconsistent positions. Update the server, and report the error if the build is new."
            ),
        ),
    ),
    _Fault(
        "room",
        (b"Context size has been exceeded", b"KV cache is full", b"ret = 1"),
        "the KV memory had no room left",
        "No free cells were found even for the smallest batch, and no idle slot was left to empty. Slots that share the memory (unified KV) can fill it together, even if each slot stays within its limit.",
        (kit.Remedy("Or run fewer requests at once: a smaller --parallel."),),
    ),
    _Fault(
        "compute",
        (b"Compute error", b"failed to decode"),
        "the model could not compute a batch",
        "The backend failed. The backend's message is above this line. Often the device has run out of memory.",
        (
            kit.Remedy("Read the backend's message in the lines above."),
            kit.Remedy(
                "If the device ran out of memory: make the physical batch smaller.",
                options=kit.as_typed("--ubatch-size 256"),
                purpose="depends",
            ),
        ),
    ),
    _Fault(
        "batch",
        (b"too large to process",),
        "a prompt was longer than one physical batch",
        "Embeddings and reranking need the whole prompt in one physical batch.",
        (
            kit.Remedy(
                "Raise the physical batch size (--ubatch-size and --batch-size) to the length of the longest text in tokens."
            ),
        ),
    ),
    _Fault(
        "image",
        (b"failed to process image", b"mtmd chunk", b"mtmd batch"),
        "an image or audio clip could not be processed",
        "The multimodal library failed to process the clip; the rest of the prompt is not computed.",
        (kit.Remedy("Try the clip alone, and check that the projector file belongs to the model."),),
    ),
)
_OTHER = _Fault(
    "other",
    (),
    "the server answered with an error",
    "The line has the server's error message, which the client also received. The slot keeps its earlier content, except the part that this request changed.",
    (kit.Remedy("Read the error in this line; the lines above may have details."),),
)
_RETRIES = 3
"""Batches that were tried again: the first smaller one mostly finds room."""
_RETRIED = _Fault(
    "retried",
    (),
    "the KV memory had no room for a batch",
    "The server empties an idle slot, if there is one, or uses smaller batches, down to single tokens; if even these find no free cells, the requests "
    "fail. These lines do not show whether requests failed.",
    (kit.Remedy("Or run fewer requests at once: a smaller --parallel."),),
)


def _fault(mark: kit.Mark) -> _Fault:
    return next((fault for fault in _FAULTS if any(words in mark.text for words in fault.words)), _OTHER)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire on any error but a prompt that did not fit."""
    if s.request.seen.error != "other":
        return None
    fault = _fault(s.request.marks.get("bad_batch", s.request.marks["error"]))
    return kit.Match(0, "high", key=fault.key, found=fault)


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the error."""
    return kit.proof(
        s.request, ("error", "the error"), ("bad_batch", "the batch is rejected"), numbers={"fault": match.found}
    )


def _text(fault: _Fault, session: kit.Session, what: str) -> kit.FindingText:
    room = advice.more_context(session, "Raise the context size, which all slots share.", pool=True)
    remedies = [*([room] if fault.key in ("room", "retried") else []), *fault.remedies]
    return kit.FindingText(f"{fault.claim}: {what}", fault.why, remedies)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say what failed."""
    return _text(g.numbers["fault"], g.session, f"{kit.times(g.count)} failed")


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the line alone."""
    found = kit.stated(session, "batch_failed") or kit.stated(session, "refused")
    if not kit.unfinished(session):
        return []
    tried = kit.stated(session, "no_room")
    down = tried is not None and (tried.count >= _RETRIES or tried.numbers.get("batch") == 1)
    if found is None and tried is not None and down and "purged" not in session.incidents:
        said = _text(_RETRIED, session, "it was retried in smaller batches")
        return [kit.SessionFinding(said, _RETRIED.key, [(tried.mark, "no free cells")], confidence="medium")]
    if found is None:
        return []
    fault = _fault(found.mark)
    return [
        kit.SessionFinding(_text(fault, session, "the request failed"), fault.key, [(found.mark, "the error")], "error")
    ]


RULE = kit.rule(
    __name__,
    "A request failed for a reason that no other rule covers",
    decide,
    prove,
    say,
    severity="error",
    on=("error",),
    unless=("CD213", "CD214"),
    alone=alone,
    stated=("batch_failed", "refused", "no_room"),
)
