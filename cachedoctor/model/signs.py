"""The signs of a request: names of the lines kept as evidence, and which of them make a rule worth evaluating.

A new sign is its name in ``MarkName`` and a row of ``SIGNS``; an engine sets the mark where it reads the line
(``Observed.record_mark``), and a rule names it in ``on``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MarkName = Literal[
    "bad_batch", "cached", "check", "checkpoint_failed", "compared", "cut", "dropped", "erased", "error", "evicted",
    "failed", "forced", "idle_cleared", "idle_saved", "lora", "n_past", "new", "old", "positions", "prompt",
    "ram", "ram_candidate", "ram_copy", "ram_failed", "ram_taken", "ram_unsearched", "release", "restored",
    "select", "shift", "slept", "slot_copy", "slot_erased", "slot_file", "slot_purged", "stale", "start", "timing",
    "too_large",
]  # fmt: skip
"""Names of the lines of a request that are kept as evidence."""

PredicateName = Literal[
    "bar", "changed", "dropped", "early", "error", "failed", "looked", "loss", "partial", "restarted", "shift",
    "stuck", "symptom", "taken", "text", "together",
]  # fmt: skip
"""Signs that follow from several values of a request."""

SignName = MarkName | PredicateName


class Sign(msgspec.Struct, frozen=True):
    """A property that a request shows at first sight; a rule is evaluated for requests with one of the signs in its
    ``on``."""

    words: str
    of_loss: bool = False
    """Only a request that lost tokens shows it, or one whose loss is unknown."""
    is_mark: bool = False
    """The request has the mark with this name; other signs are computed in ``diagnosis/rules/registry.py``."""


SIGNS: dict[SignName, Sign] = {
    "loss": Sign("tokens were lost", of_loss=True),
    "text": Sign("the text of the prompts is known: old: and new: lines, or prompts given with the log", of_loss=True),
    "changed": Sign("the client changed more than the last tokens", of_loss=True),
    "early": Sign("the common prefix ends early", of_loss=True),
    "taken": Sign("the slot held another conversation", of_loss=True),
    "stuck": Sign("the common prefix was long, but the server did not reuse it", of_loss=True),
    "dropped": Sign("a dropped checkpoint would have helped", of_loss=True),
    "looked": Sign("the server searched its checkpoints, or had some and computed everything", of_loss=True),
    "failed": Sign("the server could not truncate its memory", of_loss=True),
    "bar": Sign("the loss is unknown, but the log has the text where the prompts diverge", of_loss=True),
    "lora": Sign("LoRA adapters or their scales changed", of_loss=True, is_mark=True),
    "idle_cleared": Sign("the slot of the conversation was cleared while idle", of_loss=True, is_mark=True),
    "ram_taken": Sign("another conversation restored the copy in the RAM cache", of_loss=True, is_mark=True),
    "evicted": Sign("a prompt was evicted from the RAM cache", of_loss=True, is_mark=True),
    "too_large": Sign("a prompt did not fit into the RAM cache", of_loss=True, is_mark=True),
    "slot_erased": Sign("the slot was emptied over the API", of_loss=True, is_mark=True),
    "slot_purged": Sign("the slot of the conversation was emptied to make room", of_loss=True, is_mark=True),
    "symptom": Sign("nothing was reused, or a long prompt is under way, and the lines with the reason are missing"),
    "error": Sign("the request failed"),
    "shift": Sign("the context was shifted, in this request or the previous request"),
    "partial": Sign("the beginning or the end of the request is missing"),
    "restarted": Sign("the session follows another one of the same server"),
    "together": Sign("the texts show that another request computed the same beginning at the same time"),
    "checkpoint_failed": Sign("a checkpoint could not be restored", is_mark=True),
    "ram_failed": Sign("a prompt in the RAM cache could not be restored", is_mark=True),
    "slept": Sign("the server slept before this request", is_mark=True),
    "stale": Sign("the restored checkpoint belongs to text that was replaced later", is_mark=True),
    "slot_file": Sign("a slot file was restored into the slot", is_mark=True),
    "ram_unsearched": Sign("the RAM cache held this conversation but was not searched", of_loss=True, is_mark=True),
}

OF_LOSS = frozenset(name for name, sign in SIGNS.items() if sign.of_loss)
MARKS_OF_LOSS = frozenset(name for name, sign in SIGNS.items() if sign.is_mark and sign.of_loss)
MARKS_ALONE = frozenset(name for name, sign in SIGNS.items() if sign.is_mark and not sign.of_loss)
"""Marks that make a rule apply although the request lost nothing."""
