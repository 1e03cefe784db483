"""Which answers to an excerpt are honest where the whole log shows more: by the definitions of causes, not by output.

A cut can take away what a cause is told by. Then another name is right, if it claims no more than the lines left do:

- the text of the prompts (``old:`` / ``new:``, bodies) says what changed; without it there is only where;
- the requests before and between say whose prompt the slot held; without them there is only that it was another one,
  which looks like a changed head: both names must be there (``PAIRS``);
- start-up lines and earlier lines of the slot say why there is no checkpoint; without them there is none.
"""

from __future__ import annotations

from collections.abc import Set

from cachedoctor.model import Finding

SAME, PAIR, LESS_SAID, TOO_TERSE, UNTOLD = "same", "pair", "less", "terse", "untold"
OTHER_LOW, OTHER, UNREAD, ALL_CLEAR = "other low", "OTHER", "unread", "ALL CLEAR"
VERDICTS = (SAME, PAIR, LESS_SAID, TOO_TERSE, UNTOLD, OTHER_LOW, OTHER, UNREAD, ALL_CLEAR)
"""The same cause as in the whole log; one of two look-alikes, with the other named; a less specific name that is true;
that the log is too terse; no finding, and no all-clear; another cause at low confidence, and at medium or high; not
recognised as a log; no finding, and the words of a healthy log."""

PAIRS = {
    "prefix-diverges-early": "slot-held-other-prompt",
    "slot-held-other-prompt": "prefix-diverges-early",
    "history-rewritten": "shared-prefix-steal",
    "shared-prefix-steal": "history-rewritten",
}
"""Look-alikes that one request cannot tell apart: either is honest where the other is named as not excluded."""

_CHANGED_HEAD = {"prefix-diverges-early"}
_TAKEN = {"slot-held-other-prompt"}
_CHANGED_HISTORY = {"history-rewritten", "no-usable-checkpoint"}
_NO_CHECKPOINT = {"no-usable-checkpoint"}

LESS: dict[str, set[str]] = {
    # what changed is told by text: the place is left
    "billing-header": _CHANGED_HEAD
    | {"history-rewritten"},  # the header comes after the tools where a template puts them first
    "volatile-prefix": _CHANGED_HEAD | {"history-rewritten"},
    "tools-changed": _CHANGED_HEAD | {"history-rewritten"},
    "image-changed": _CHANGED_HEAD | {"history-rewritten", "no-usable-checkpoint"},
    # where the client changed its history, and the turns before that were reused: an edit somewhere, or, where the
    # memory cannot go back, what the server lost below it
    "reasoning-stripped": _CHANGED_HISTORY,
    "history-truncated": _CHANGED_HISTORY
    | _CHANGED_HEAD,  # that what follows the head is a later part of the old prompt
    "retokenised-tail": {"history-rewritten", "no-usable-checkpoint"},
    # whose prompt the slot held is told by other requests
    "slot-contention": _TAKEN,
    "cache-ram-disabled": _TAKEN,  # the start-up line, and the thread that came back
    "cache-ram-too-small": _TAKEN,  # the eviction happened at an earlier request
    "side-request": _TAKEN,
    "id-slot-pinned": _TAKEN,
    "idle-slots-cleared": _TAKEN,
    "kv-purged": _TAKEN,
    "prompt-cache-restore-failed": _TAKEN,  # its line comes before the launch, and cuts C to F begin after it
    "shared-prefix-steal": _TAKEN | {"no-usable-checkpoint"},  # where the memory cannot go back to the shared beginning
    # why there is no checkpoint is told by start-up lines and earlier lines of the slot
    "checkpoints-disabled": _NO_CHECKPOINT,
    "checkpoint-evicted": _NO_CHECKPOINT,
    "checkpoints-bunched": _NO_CHECKPOINT,
    "short-prompt-checkpoint-lost": _NO_CHECKPOINT,
    "slot-restored-without-checkpoints": _NO_CHECKPOINT,
    "swa-window-lost": _NO_CHECKPOINT,
    "mmproj-truncation": {"rollback-failed"},  # the projector is told by start-up lines
    "slot-context-too-small": {"context-overflow"},  # the context divided by the slots: start-up lines
}
"""By the cause in the whole log, the names that claim less and are true; a cause without a row has none."""

LESS_AT_LOW: dict[str, set[str]] = {
    # a common prefix below half of what the slot held, and neither the text nor the other turns
    "history-rewritten": _CHANGED_HEAD,
    "reasoning-stripped": _CHANGED_HEAD,
}
"""The same for low confidence alone."""

LESS_WITHOUT_CHECKS: dict[str, set[str]] = {
    # up to b8156 the search prints nothing: that there was a checkpoint is told by an earlier line, which made it
    "swa-threshold-misfire": _NO_CHECKPOINT,
}
"""The same for cuts without a check line, at medium or low confidence."""

STATED = {"cache-ram-too-small", "kv-purged", "cache-reuse-unsupported", "server-restarted", "context-shift"}
"""As notes they repeat what a line of the excerpt says, and name no cause of the loss."""
NO_ANSWER = {"log-cut"}
"""Says of an excerpt that it is one."""
TERSE = "log-too-terse"
UNKNOWN = "unknown-format"


def open_names(finding: Finding) -> set[str]:
    """The look-alikes that a finding says it does not exclude."""
    return {other.name for other in finding.ruled_out if other.why.startswith("not excluded")}


def less_than(causes: Set[str], finding: Finding, has_checks: bool) -> set[str]:
    """The less specific names that are honest for causes, from lines with or without a search for a checkpoint."""
    tables = [LESS]
    if finding.confidence == "low":
        tables.append(LESS_AT_LOW)
    if not has_checks and finding.confidence != "high":
        tables.append(LESS_WITHOUT_CHECKS)
    return {name for table in tables for cause in causes for name in table.get(cause, ())}


def verdict(finding: Finding, findings: list[Finding], causes: Set[str], has_checks: bool) -> str:
    """One of ``VERDICTS`` on a finding of a cut, against the causes in the whole log."""
    less = less_than(causes, finding, has_checks)
    if finding.name in causes:
        return SAME
    if finding.name in less:
        return LESS_SAID
    left_open, partner = open_names(finding), PAIRS.get(finding.name)
    if left_open & causes or (partner in causes | less and partner in left_open | {other.name for other in findings}):
        return PAIR
    if finding.name == TERSE:
        return TOO_TERSE
    return OTHER_LOW if finding.confidence == "low" else OTHER


def judged(findings: list[Finding], causes: Set[str], has_checks: bool) -> str | None:
    """What the findings of a cut come to, if any: a wrong one that is sure outweighs all, else the best one counts."""
    if any(finding.name == UNKNOWN for finding in findings):
        return UNREAD
    said = [f for f in findings if f.name not in NO_ANSWER and not (f.name in STATED - causes and f.severity == "note")]
    verdicts = {verdict(finding, said, causes, has_checks) for finding in said}
    order = (OTHER, SAME, PAIR, LESS_SAID, TOO_TERSE, OTHER_LOW)
    return next((each for each in order if each in verdicts), None)
