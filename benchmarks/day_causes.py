"""Which answers are right for the cause of a day, by construction.

A cause is a slug of ``tests/e2e/days/situations.py``. An answer is right when acting on it fixes the day, as the same
day without its fault shows; it is near when it says what the evidence shows and leads on.
"""

from __future__ import annotations

from typing import Any

SILENT = "silent"
SLOT_TAKEN = {"slot-contention", "slot-held-other-prompt", "side-request"}
"""A slot was taken, told by who took it; each of them advises more slots, which is what fixes it."""

RIGHT: dict[str, set[str]] = {
    # more conversations than slots, and no copy in main memory: more slots fix it, and so does the RAM cache
    "slots_taken_ram_off": SLOT_TAKEN | {"cache-ram-disabled"},
    "side_requests_ram_off": SLOT_TAKEN | {"cache-ram-disabled"},
    # the RAM cache is on and holds one or two prompts; with automatic slots idle ones are cleared into it
    "slots_taken_ram_small": {"slot-contention", "cache-ram-too-small", "idle-slots-cleared"},
    # infill and embeddings take the slot, and what it held is not copied for them: only another slot fixes it
    "slot_taken_unsaved": SLOT_TAKEN,
    "slept": {"server-slept"},
    "restarted": {"server-restarted"},
    # a unified KV cache of two thirds of what the chats need; with the RAM cache on the purged prompts were copied
    "kv_too_small": {"kv-purged", "cache-ram-disabled"},
    # a prompt with the same head takes the copy out of main memory, which ends it: a slot each fixes it
    "sibling_took_ram_entry": {
        "ram-entry-consumed",
        "shared-prefix-steal",
        "slot-contention",
        "slot-held-other-prompt",
    },
    # two chats with a long common beginning are most similar to the same slot; asking for more similarity parts them
    "slot_shared_by_branches": {"shared-prefix-steal"},
    "checkpoints_off": {"checkpoints-disabled"},
    "clock": {"volatile-prefix"},
    "billing_header": {"billing-header", "volatile-prefix"},
    # both are in the head of the same prompts; the tools come first in this template
    "clock_and_tools": {"tools-changed", "volatile-prefix"},
    "tools_shuffled": {"tools-changed"},
    "tools_come_and_go": {"tools-changed"},
    "tools_added": {"tools-changed"},
    "rolling_window": {"history-truncated"},
    "passages_shuffled": {"history-rewritten"},
    "cache_prompt_false": {"cache-prompt-off"},
    # both name one slot, and there is no copy in main memory
    "slot_pinned": {"id-slot-pinned", "slot-held-other-prompt", "cache-ram-disabled"},
    "reasoning_dropped": {"reasoning-stripped"},
    "early_message_edited": {"history-rewritten"},
    "results_pruned": {"history-rewritten"},
    "together": {"cold-burst", "computed-together"},
    # one checkpoint is kept, after the place where a question is asked again
    "checkpoints_few": {"checkpoint-evicted", "checkpoints-bunched", "no-usable-checkpoint"},
    # values that change are at the end of a system prompt of 1,100 tokens
    "status_in_system": {"volatile-prefix"},
    "reminder_moves": {"history-rewritten"},
    # a list at the end of the system prompt: with bodies it is said that this text grows
    "memory_grows": {"history-rewritten", "volatile-prefix"},
    "personas": {"history-rewritten", "prefix-diverges-early"},
    # a number in the first line; of a version with a hash behind it only the first message is named, and to keep it
    "request_ids": {"volatile-prefix", "history-rewritten"},
    "arguments_rewritten": {"history-rewritten"},
    "replies_shortened": {"history-rewritten"},
    "tool_stamped": {"tools-changed", "volatile-prefix"},
    # every request takes the slot that was idle longest, whatever it holds; a RAM cache would hide that, too
    "similarity_off": SLOT_TAKEN | {"cache-ram-disabled"},
    # a number that changes, behind 350 tokens of rules and before 1,050
    "session_in_system": {"volatile-prefix"},
    # each question is new; what is drawn for it differs from the first example on
    "examples_drawn": {"volatile-prefix", "history-rewritten"},
    # the file stands behind tools and rules of 1,600 tokens, before what was said
    "open_file_first": {"history-rewritten"},
    # the summary is the first message; the oldest exchange is gone
    "summary_rolls": {"history-rewritten", "history-truncated"},
    "note_moves": {"history-rewritten"},
    # entries of a lexicon come and go in the system prompt
    "entries_in_system": {"volatile-prefix", "history-rewritten"},
    "passages_leave": {"history-rewritten"},
    # the order of a list in the first message
    "keys_shuffled": {"volatile-prefix", "history-rewritten"},
    "compacts_often": {"history-rewritten", "history-truncated"},
    "answers_rewritten": {"history-rewritten"},
    # the greeting is no value of a known kind; that the first message changes, and to keep it, is said all the same
    "greeting_varies": {"volatile-prefix", "history-rewritten"},
    # what is measured stands at the beginning of the first message, behind a system prompt of 1,000 tokens
    "first_message_stamped": {"volatile-prefix", "history-rewritten"},
    # the end of a log file in the system prompt
    "log_in_system": {"volatile-prefix", "history-rewritten"},
    # all letters stand in one message, which begins with another one each time
    "newest_first": {"history-rewritten", "prefix-diverges-early"},
    # the age stands before each message, behind a system prompt of 1,300 tokens
    "ages_rewritten": {"history-rewritten", "volatile-prefix"},
    # branch, commit and changed files, behind tools and 260 tokens of rules
    "git_state_in_system": {"volatile-prefix"},
    # ``--no-cache-prompt``: the option is in no body
    "cache_off_by_option": {"cache-prompt-off"},
    "slot_erased": {"slot-erased"},
    # a turn that shares less than nine tenths goes to the slot that was idle longest, and its own slot keeps the rest;
    # more slots make it worse; the RAM cache saves 68 % of what the default threshold does
    "similarity_strict": {"slot-held-other-prompt", "cache-ram-disabled"},
    # two chats on one slot with other adapters: a slot each fixes it, too
    "lora_switched": SLOT_TAKEN | {"lora-changed"},
    "images_dropped": {"history-rewritten", "image-changed"},
    # the dated chat has the longest prompts and loses as much as the others: slots, RAM and the time each save a part
    "slots_and_clock": SLOT_TAKEN | {"cache-ram-disabled", "volatile-prefix"},
    # a list of tools comes back: the RAM cache alone saves 71 % of what one list does
    "tools_and_slots": SLOT_TAKEN | {"cache-ram-disabled", "tools-changed"},
    # b9294 computes a recurrent state anew without checkpoints even where the prompt only grows; b11549 does not
    "checkpoints_off_old_build": {"checkpoints-disabled", "swa-threshold-misfire"},
    # b8672 does not find cells for a prompt of a sliding window that comes back from RAM; a slot each fixes it
    "restore_failed": {"prompt-cache-restore-failed"},
    "ram_small_and_restore_failed": {
        "slot-contention",
        "cache-ram-too-small",
        "idle-slots-cleared",
        "prompt-cache-restore-failed",
    },
    # who writes stands before the rules
    "customer_first": {"volatile-prefix", "history-rewritten"},
    # the picture is in the first message, behind a system prompt of 600 tokens
    "image_packed_again": {"image-changed", "history-rewritten"},
    # each request names the next slot: the chat finds there what it was three requests ago, or another one; b8672 does
    # not search main memory for a slot that is named, b10566 does, and saves 72 % so
    "slots_named_in_turn": {"id-slot-pinned", "slot-held-other-prompt"},
    "slots_named_ram_off": {"id-slot-pinned", "slot-held-other-prompt", "cache-ram-disabled"},
    # documents behind one instruction: more slots alone save nothing, since each goes to the slot of the last one
    "documents_ram_off": {"slot-contention", "cache-ram-disabled", "shared-prefix-steal"},
    # the same with talks that go on; the RAM cache saves all, and so does asking for more similarity
    "branches_ram_off": {"shared-prefix-steal", "cache-ram-disabled"},
    # as sibling_took_ram_entry; more slots alone save nothing, with more similarity they save all
    "copy_taken_by_sibling": {"ram-entry-consumed", "shared-prefix-steal"},
    # b8352 keeps no copy of what it purges: the RAM cache saves nothing
    "kv_purged_uncopied": {"kv-purged"},
    # an older question is asked otherwise, and no checkpoint was kept there, as others were too close; the list is not
    # full
    "checkpoints_sparse": {"no-usable-checkpoint", "checkpoints-bunched", "short-prompt-checkpoint-lost"},
    # the reply did not fit, and what was shifted no longer begins as the prompt
    "context_shifted": {"context-shift", "context-overflow", "slot-context-too-small"},
    # the prompt is refused as too long each turn, and the repeat leaves out the oldest exchanges: a larger context
    # fixes it, and so does a client that cuts rarely
    "overflow_each_turn": {"context-overflow", "slot-context-too-small", "history-truncated"},
    # a switch of the template shows or hides the reasoning of older turns
    "template_switched": {"reasoning-stripped", "history-rewritten"},
    # two files come after the history and move with each turn
    "files_move": {"history-rewritten"},
    # the results of one turn come in another order from the next turn on
    "results_reordered": {"history-rewritten"},
    # older messages lose their empty lines
    "pastes_normalised": {"history-rewritten"},
    # the first line is one of two; each of them has a past of its own
    "effort_in_head": {"volatile-prefix", "history-rewritten"},
    # the time in the head of one client is three quarters, the field in the requests of another one a quarter
    "clock_and_uncached": {"volatile-prefix"},
    # the second sentence names the speaker, and speakers return: the RAM cache alone saves 63 % of what no name does
    "speaker_in_system": SLOT_TAKEN | {"cache-ram-disabled", "volatile-prefix", "history-rewritten"},
    # a random mark after 520 tokens of the system prompt, and around each message
    "delimiter_changes": {"volatile-prefix", "history-rewritten"},
}
"""Answers after which the day is fixed, by cause."""

_CHANGED_HEAD = {"prefix-diverges-early"}
NEAR: dict[str, set[str]] = {
    "clock": _CHANGED_HEAD,
    "billing_header": _CHANGED_HEAD,
    "clock_and_tools": _CHANGED_HEAD,
    "tools_shuffled": _CHANGED_HEAD,
    "tools_come_and_go": _CHANGED_HEAD,
    # the log shows that the prompt parts after its head, and what is new of it; not that the oldest are gone
    "rolling_window": {"history-rewritten", "prefix-diverges-early"},
    "early_message_edited": _CHANGED_HEAD,
    # the passages begin after 400 tokens of instructions and are the longest part of the head
    "passages_shuffled": _CHANGED_HEAD,
    "reasoning_dropped": {"history-rewritten"},
    # the constant place of the difference is in the log, but not the text there
    "status_in_system": {"prefix-diverges-early", "history-rewritten"},
    "memory_grows": _CHANGED_HEAD,
    "request_ids": _CHANGED_HEAD,
    "tool_stamped": {"prefix-diverges-early", "history-rewritten"},
    # the constant place in the first third is in the log
    "session_in_system": {"prefix-diverges-early", "history-rewritten"},
    # one tool more at the end of the list: the part before it is a quarter and more of the prompt
    "tools_added": {"prefix-diverges-early", "history-rewritten"},
    "examples_drawn": _CHANGED_HEAD,
    "summary_rolls": _CHANGED_HEAD,
    "open_file_first": _CHANGED_HEAD,
    "entries_in_system": _CHANGED_HEAD,
    "keys_shuffled": _CHANGED_HEAD,
    "compacts_often": _CHANGED_HEAD,
    "greeting_varies": _CHANGED_HEAD,
    "first_message_stamped": _CHANGED_HEAD,
    "log_in_system": _CHANGED_HEAD,
    "ages_rewritten": _CHANGED_HEAD,
    "git_state_in_system": {"prefix-diverges-early", "history-rewritten"},
    "images_dropped": _CHANGED_HEAD,
    "image_packed_again": _CHANGED_HEAD,
    "customer_first": _CHANGED_HEAD,
    "slots_and_clock": _CHANGED_HEAD,
    "tools_and_slots": {"prefix-diverges-early", "history-rewritten"},
    "checkpoints_off_old_build": {"no-usable-checkpoint"},
    "overflow_each_turn": {"history-rewritten", "prefix-diverges-early"},
    "template_switched": _CHANGED_HEAD,
    "effort_in_head": _CHANGED_HEAD,
    "clock_and_uncached": {"prefix-diverges-early", "cache-prompt-off"},
    "speaker_in_system": _CHANGED_HEAD,
    "delimiter_changes": _CHANGED_HEAD,
}
"""Answers that say as much as a log without text can show, and how to see more."""

TERSE = {"log-too-terse", "reuse-undecided"}
"""Near for every cause: the log does not hold the evidence, and that is said."""

GOING_BACK = {
    "no-usable-checkpoint", "checkpoints-disabled", "checkpoint-evicted", "checkpoints-bunched", "swa-window-lost",
    "swa-threshold-misfire", "short-prompt-checkpoint-lost", "rollback-failed",
}  # fmt: skip
"""Right where memory that needs checkpoints lost what plain attention keeps: the server's share of the day."""

NO_CAUSE = {"context-shift", "cache-reuse-unsupported", "log-cut", "unknown-format", "wrong-output-hazard"}
"""Notes that name no cause of a loss."""


def nothing_to_mend(truth: dict[str, Any]) -> bool:
    """Whether nothing is to be fixed: by construction, or because the fault cost nothing here."""
    return truth["cause"] == "none" or truth["side"] == "none"


def right(truth: dict[str, Any]) -> set[str]:
    """Right answers of a run."""
    names = set() if nothing_to_mend(truth) else set(RIGHT[truth["cause"]])
    backwards = truth["memory"] != "dense" and truth["side"] in ("server", "both")
    if backwards and (truth["going_back"] or not names or truth["total"]["client"]):
        names |= GOING_BACK
    return names
