"""Names what a finding without high confidence leaves open, from its request, if the rule itself names nothing."""

from __future__ import annotations

from cachedoctor.diagnosis.rules.kit import MIN_LOST, MatchGroup, RuledOut, n
from cachedoctor.model import Request
from cachedoctor.model.terms import OF_CLIENTS, OF_SLOTS

_OF_MEMORY, _EVICTED = "CD2", "CD203"
_ONLY_TEXT = "only the prompt text shows which conversation this turn belongs to"
_CHANGED = ("prefix-diverges-early", "history-rewritten")
"""Changes by a client that leave the same lengths as a slot that another conversation took."""


def left_open(code: str, group: MatchGroup, ruled_out: list[RuledOut]) -> list[RuledOut]:
    """Look-alikes of a finding below high confidence, excluded or still possible: at least one is still possible."""
    if any(other.is_open for other in ruled_out):
        return ruled_out
    r = group.worst_request
    if code.startswith(OF_SLOTS):
        return _of_slots(r, ruled_out)
    if code.startswith(OF_CLIENTS):
        return [*ruled_out, *_of_client(r, {other.name for other in ruled_out})]
    if code.startswith(_OF_MEMORY):
        return [*ruled_out, *_of_memory(code, r)]
    return ruled_out


def _of_slots(r: Request, ruled_out: list[RuledOut]) -> list[RuledOut]:
    """Open what lengths alone exclude: a client that changes its prompts at such moments leaves the same."""
    if r.text_lcp is not None:
        return ruled_out
    opened = [
        RuledOut(other.name, f"not excluded: {other.why}; {_ONLY_TEXT}") if other.name in _CHANGED else other
        for other in ruled_out
    ]
    if any(other.is_open for other in opened):
        return opened
    return [
        *opened,
        RuledOut(
            _CHANGED[0],
            f"not excluded: if the client changed this prompt of {n(r.prompt_tokens)} tokens, the log would look the same; {_ONLY_TEXT}",
        ),
    ]


def _of_client(r: Request, named: set[str]) -> list[RuledOut]:
    """Name whose prompt the slot may have held: by the length of the common prefix, another one's or one's of the same head."""
    shared, held = r.common_prefix_tokens, r.reference_tokens or 0
    whole = min(held, r.prompt_tokens or held)
    new = RuledOut(
        "new-conversations",
        f"not excluded: if a new conversation begins with the same {n(shared or r.cached_tokens)} tokens, nothing is wrong",
    )
    if r.text_lcp is not None or (r.thread_turn <= 1 and r.lcp_exact):
        return [new]
    if shared is not None and 2 * shared >= whole and "shared-prefix-steal" not in named:
        why = f"another conversation with the same first {n(shared)} tokens, such as a branch of this one"
        return [RuledOut("shared-prefix-steal", f"not excluded: {why}"), new]
    return [
        RuledOut(
            "slot-held-other-prompt",
            f"not excluded: only the length suggests which conversation the slot's {n(held)} tokens came from",
        )
    ]


def _of_memory(code: str, r: Request) -> list[RuledOut]:
    """Name the client where the common prefix is not printed, else what the lines of this level do not show."""
    if not r.lcp_exact and r.common_prefix_tokens is not None and (r.lost_client or 0) < MIN_LOST:
        why = f"the common prefix of {n(r.common_prefix_tokens)} tokens is computed from rounded shares or from the reused tokens"
        return [RuledOut("prefix-shorter", f"not excluded: {why}")]
    if not r.checkpoints_shown and code != _EVICTED:
        return [RuledOut("checkpoint-evicted", "not excluded: this log does not show what happened to checkpoints")]
    if not r.cached_tokens and not r.seen.forced:
        return [RuledOut("cache-prompt-off", "not excluded: with cache_prompt false nothing is reused either")]
    return []
