"""What llama-server calls a task, settled: built once when it has ended, never written again.

``seen`` is what the log printed, the other fields are what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from cachedoctor.model.log_lines import Mark
from cachedoctor.model.observed import Between, Dropped, Observed
from cachedoctor.model.session import Facts
from cachedoctor.model.signs import MarkName

Outcome = Literal["cold", "reused", "partial", "reprocessed", "failed", "cancelled", "unknown"]


class Request(msgspec.Struct, frozen=True, gc=False):
    """One request, which llama-server calls a task. Times are in milliseconds. An unknown value is None, never 0."""

    index: int
    session: int
    path: str
    slot: int
    task: int
    first_line: int
    last_line: int
    seen: Observed
    """What the log printed of it."""
    facts: Facts
    """What was known of the server when it ended."""
    marks: Mapping[MarkName, Mark]
    """Lines kept as evidence, by what they show."""
    before: int = 0
    """Log lines in rotations before the file in which it begins; its line numbers continue from there."""
    parent: int | None = None
    """Task of which this is one of the ``n > 1`` choices."""
    generated_tokens: int | None = None
    prompt_ms: float | None = None
    partial: bool = False
    checkpoints_shown: bool = False
    """Checkpoint lines would be in this log, so their absence means that no checkpoint existed."""

    # what is concluded of every request
    thread: int | None = None
    """Number of the conversation within the session."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    processed_tokens: int | None = None
    derived: dict[str, str] = {}
    """Names of the fields that were computed from other numbers, and how."""
    similarity: float | None = None
    """Share of the new prompt that was already in the slot."""
    f_keep: float | None = None
    """Share of the slot's content that the new prompt kept."""
    common_prefix_tokens: int | None = None
    """Longest common prefix with what the slot held when processing began."""
    lcp_exact: bool = False
    """The common prefix was printed, or follows from a printed threshold; it is not estimated from rounded shares."""
    prefix_between: tuple[int, int] | None = None
    """Bounds of the common prefix as the log gives them, before the reused tokens narrow them; equal if exact."""
    reference_tokens: int | None = None
    """Prompt + reply of the thread's previous request, else what the slot held."""
    held_tokens: int | None = None
    """Length of the slot's content when the request took it (before a swap from RAM)."""
    held_thread: int | None = None
    outcome: Outcome = "unknown"
    lost_tokens: int | None = None
    lost_client: int | None = None
    """Reference - LCP: what the client changed."""
    lost_server: int | None = None
    """LCP - cached: what the server could not reuse."""
    thread_turn: int = 0
    """0 for the first request of its thread."""
    restored_from_ram: bool | None = None

    # what is concluded of few
    held_before: int | None = None
    """Thread whose text the slot held until a slot file was restored into it."""
    other_candidates: int = 0
    """Other threads that this prompt could have extended."""
    shifted: bool = False
    """The context was shifted."""
    ram_refused: bool = False
    """The RAM prompt cache held this conversation's earlier prompt and was searched, but did not restore it."""
    reference_lcp: int | None = None
    """Longest common prefix with the reference itself, if the RAM cache lists it or another slot held it; its own slot
    held something else."""
    between: Mapping[str, Between] = {}
    """Bounds of the lengths that no line prints, by field: ``prompt_tokens``, ``held_tokens``."""

    dropped: Dropped | None = None
    """The dropped checkpoint that would have allowed reuse of more of the common prefix."""
    text_lcp: int | None = None
    """Longest common prefix with the conversation's previous prompt, by the texts given; 0 for its first."""
    together_tokens: int = 0
    """Tokens of its prefix that another request computed at the same time, according to the texts given with the
    log."""
    uncached: bool = False
    """Its body, given with the log, disables the cache: ``"cache_prompt": false``."""
    revision: int = 0
    """How often it was judged again since it was first reported, because it belongs to another conversation."""

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Lower and upper bound of what is derived from rounded numbers, by field."""
        found: dict[str, tuple[int, int]] = {}
        if self.between:
            spans = self.between.items()
            found = {name: (low, high) for name, (low, high) in spans if high is not None and low < high}
        between = self.prefix_between
        if between is not None and "common_prefix_tokens" in self.derived and between[0] != between[1]:
            found["common_prefix_tokens"] = between
        return found

    @property
    def at_least(self) -> dict[str, int]:
        """Lower bound of what has no upper one, by field."""
        return {name: low for name, (low, high) in self.between.items() if high is None} if self.between else {}

    @property
    def cut(self) -> bool:
        """Its outcome is not in the log, so its loss is judged by the existing lines."""
        return self.outcome == "unknown" and self.lost_tokens is not None

    # ---- as printed

    @property
    def slot_named(self) -> bool:
        """The client named the slot: printed from b9873 on, before that the line of the choice is missing."""
        if self.seen.choice.selected_by is not None:
            return self.seen.choice.selected_by == "id"
        silent = self.facts.at_least(6751) is True and self.facts.at_least(9873) is False
        return silent and not self.partial and "launches" in self.facts.shows

    @property
    def tried(self) -> int | None:
        """Context checkpoints that were checked; None, like the counts below, if this log hides them."""
        return self._counted(self.seen.tried)

    @property
    def restored(self) -> int | None:
        """Context checkpoints that were restored."""
        return self._counted(self.seen.restored)

    @property
    def created(self) -> int | None:
        """Context checkpoints that were created."""
        return self._counted(self.seen.created)

    @property
    def erased(self) -> int | None:
        """Context checkpoints that were erased."""
        return self._counted(self.seen.erased)

    def _counted(self, found: int | None) -> int | None:
        return found or 0 if self.checkpoints_shown else found

    @property
    def stale_from(self) -> int | None:
        """Position from which the restored checkpoint belongs to text that had been replaced."""
        return None if self.seen.stale is None else self.seen.stale[1]

    @property
    def ram_saved(self) -> bool:
        """True if the slot's old content was first saved to the RAM prompt cache."""
        return self.seen.choice.saved is not None

    @property
    def ram_best_lcp(self) -> int | None:
        """Longest common prefix with any prompt of the RAM cache, where the log lists them."""
        return max((lcp for _, lcp in self.seen.choice.candidates), default=None)
