"""The kinds of evidence, and the weight of each kind, measured on days of real servers.

``benchmarks/differential.py`` counts the days; benchmarks/accuracy.md shows the accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Candidate = Literal["head", "body", "slots", "steal", "nocache", "checkpoint", "none"]
"""The client changed the head of its prompts, or an early message; a slot was taken; sessions share a head; the
request asked for no cache; the memory could not go back; nothing is wrong."""

RULE_OF: Mapping[Candidate, str] = {
    "head": "prefix-diverges-early",
    "body": "history-rewritten",
    "slots": "slot-contention",
    "steal": "shared-prefix-steal",
    "nocache": "cache-prompt-off",
    "checkpoint": "no-usable-checkpoint",
    "none": "new-conversations",
}
"""Name of the rule that reports it; the last one has no rule."""
ALSO: Mapping[Candidate, frozenset[str]] = {
    "head": frozenset({"tools-changed", "volatile-prefix", "billing-header"}),
    "body": frozenset({"history-truncated", "reasoning-stripped"}),
    "slots": frozenset(
        {"slot-held-other-prompt", "side-request", "cache-ram-disabled", "cache-ram-too-small", "id-slot-pinned"}
    ),
    "steal": frozenset(),
    "nocache": frozenset(),
    "checkpoint": frozenset({"checkpoints-disabled"}),
    "none": frozenset({"one-shot-prompts"}),
}
"""Other names that rules give the same candidate."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of evidence that a request can show."""

    name: str
    words: str
    """Text after a number of tokens: ``42,100 tokens in 18 requests: ...``."""
    counts: Mapping[Candidate, float]
    """Situations of each true cause in which it was seen: in a third of its tokens counts a third, and one
    whose cause rules always name counts a tenth for each day, since causes are ranked where none does."""

    def share(self, candidate: Candidate) -> float:
        """Likelihood of the cause by this evidence alone: the share of its situations, smoothed."""
        seen = self.counts.get(candidate, 0.0) + STRENGTH * PRIOR[candidate]
        return seen / (sum(self.counts.values()) + STRENGTH * sum(PRIOR.values()))


PRIOR: Mapping[Candidate, float] = {
    "head": 0.23, "body": 0.15, "slots": 0.23, "steal": 0.08, "nocache": 0.04, "checkpoint": 0.04, "none": 0.23,
}  # fmt: skip
"""How often each is the cause where nothing is known."""
STRENGTH = 2.0
"""Situations for which that counts."""

KINDS: tuple[Kind, ...] = (
    Kind(
        "same prompt, nothing reused",
        "the slot contained the start of the prompt, but nothing was reused",
        {"nocache": 2.6, "checkpoint": 0.6},
    ),
    Kind(
        "less than kept",
        "the slot contained much of the prompt, but far less was reused",
        {"head": 0.3, "body": 0.6, "checkpoint": 4.0, "none": 1.2},
    ),
    Kind(
        "head differs",
        "less than a quarter of the previous turn matches the prompt",
        {"head": 6.8, "body": 1.9, "slots": 0.2, "checkpoint": 1.2, "none": 3.9},
    ),
    Kind(
        "rest differs",
        "a quarter or more of the previous turn matches, and not every prompt is longer",
        {"body": 3.3, "checkpoint": 0.9, "none": 18.0},
    ),
    Kind(
        "rest differs, longer",
        "a quarter or more of the previous turn matches, and every prompt is longer",
        {"head": 3.6, "body": 9.0, "checkpoint": 1.2, "none": 1.8},
    ),
    Kind(
        "moving place",
        "the first difference moves forward with each turn",
        {"head": 1.3, "body": 0.2, "checkpoint": 0.2, "none": 2.3},
    ),
    Kind(
        "one place, one length",
        "all prompts have about the same length and first differ at the same token",
        {"head": 0.3, "body": 3.6, "steal": 0.7, "checkpoint": 0.1, "none": 0.1},
    ),
    Kind(
        "one place",
        "the first difference is always at the same token, and the prompt lengths vary",
        {"steal": 0.9, "none": 8.3},
    ),
    Kind(
        "in turn",
        "the prompt lengths alternate: each prompt was overwritten before its conversation's next turn",
        {"slots": 4.9, "none": 1.1},
    ),
    Kind(
        "lost with its slot",
        "another prompt had taken the slot, and no copy of this prompt was kept",
        {"slots": 16.3, "none": 0.3},
    ),
    Kind(
        "in turn, RAM cache on",
        "two chats alternate in one slot, and the RAM cache restored neither chat",
        {"slots": 0.8, "none": 0.4},
    ),
    Kind(
        "another in its slot",
        "the slot of the previous turn contained another prompt",
        {"head": 0.7, "slots": 0.3, "none": 1.0},
    ),
    Kind(
        "first prompt, RAM on",
        "the RAM cache restored other prompts, and this prompt is the first of its conversation",
        {"head": 2.2, "slots": 0.7, "steal": 0.1, "none": 9.3},
    ),
    Kind(
        "RAM kept others",
        "the RAM cache restored other prompts, but not this prompt",
        {"head": 1.0, "slots": 1.3, "steal": 0.2, "none": 1.0},
    ),
    Kind("evicted", "the RAM cache evicted prompts, and did not contain this prompt", {"slots": 0.2}),
    Kind(
        "not in RAM",
        "the RAM cache was searched but did not contain the prompt",
        {"head": 0.5, "slots": 0.6, "none": 2.1},
    ),
    Kind(
        "its own slot",
        "the slot contained the previous turn, but was not similar enough to be chosen",
        {"head": 16.3, "body": 0.1, "slots": 1.1, "nocache": 0.6, "checkpoint": 0.4, "none": 2.2},
    ),
    Kind("empty slot", "the server chose an empty slot", {"none": 17.9}),
    Kind(
        "nothing similar",
        "no slot contained a similar prompt, and the prompt lengths have no pattern",
        {"head": 0.3, "slots": 0.6, "none": 6.6},
    ),
)
"""Kinds in the order in which they decide."""

BY_NAME = {kind.name: kind for kind in KINDS}
