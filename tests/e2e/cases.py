"""The faults: a server or client that is set up wrong, the traffic that shows it, and the name it must get.

One entry is one case; adding one is described in tests/e2e/README.md.
"""

from __future__ import annotations

from e2e import traffic
from e2e.case import Case
from e2e.remedy import Setup
from e2e.wheels import NEWEST

SEE = ("-lv", "4")
"""Level that shows reuse and checkpoints, from b9294 on."""
TEXT = {"LLAMA_SERVER_SLOTS_DEBUG": "1", "LLAMA_SERVER_SLOTS_N_DIFF": "32"}


def server(model: str, *options: str, build: int = NEWEST, **more: object) -> Setup:
    """One slot of 16,384 tokens, unless the options, which come behind, say otherwise."""
    return Setup(build, model, ("-np", "1", "-c", "16384", *options), **more)  # type: ignore[arg-type]


ALL = [
    Case(
        "cache-ram-disabled", "cache-ram-disabled", server("dense", *SEE, "--cache-ram", "0"), traffic.taking_turns(2)
    ),
    Case(
        "cache-ram-too-small", "cache-ram-too-small", server("dense", *SEE, "--cache-ram", "1"), traffic.taking_turns(4)
    ),
    Case(
        "cache-ram-disabled-terse", "cache-ram-disabled", server("dense", "--cache-ram", "0"), traffic.taking_turns(2)
    ),
    Case(
        "slot-contention", "slot-contention", server("dense", *SEE, "--cache-ram", "0", "-np", "2"),
        traffic.taking_turns(4),
    ),
    Case(
        "growing-in-turn", "cache-ram-disabled", server("dense", *SEE, "--cache-ram", "0"),
        traffic.taking_turns(2, longer=300, first=traffic.HEAD),
        known="conversations in turn, each request longer than the one before, are taken for one that changed its head",
    ),
    Case(
        "contention-growing", "slot-contention", server("dense", *SEE, "--cache-ram", "0", "-np", "2"),
        traffic.taking_turns(4, longer=300, first=traffic.HEAD),
        known="two of four conversations are taken for one, so too few slots are advised",
    ),
    Case(
        "kv-purged", "kv-purged",
        server("dense", *SEE, "-np", "4", "-c", "4096", "--kv-unified", "--cache-ram", "0"),
        traffic.taking_turns(3, longer=-30, first=1400, rounds=2),
    ),
    Case(
        "ram-not-searched-empty-slot", "ram-cache-not-searched", server("dense", *SEE, "-np", "2"),
        traffic.named_empty_slot, words={"remove id_slot": {"names_slots": False}},
    ),
    Case(
        "ram-not-searched-slot-file", "ram-cache-not-searched", server("dense", *SEE, "--slot-save-path", "./"),
        traffic.restored_file, words={"Save the slot (action=save) after the last turn": {"saves_last_turn": True}},
    ),
    Case(
        "checkpoints-disabled", "checkpoints-disabled", server("hybrid", *SEE, "--ctx-checkpoints", "0"),
        traffic.regenerated(600),
    ),
    Case(
        "checkpoints-disabled-swa", "checkpoints-disabled", server("swa", *SEE, "--ctx-checkpoints", "0"),
        traffic.regenerated(2000), remains=("history-rewritten",),
    ),
    Case(
        "log-too-terse", "checkpoints-disabled", server("hybrid", "--ctx-checkpoints", "0"), traffic.regenerated(600),
        leads=("log-too-terse",),
    ),
    Case(
        "no-usable-checkpoint", "no-usable-checkpoint", server("hybrid", build=8672), traffic.middle_edited,
        remains=("history-rewritten",),
    ),
    Case("swa-threshold-misfire", "swa-threshold-misfire", server("swa", build=8672), traffic.reply_replaced(1000)),
    Case(
        "recurrent-misfire", "swa-threshold-misfire", server("hybrid", "--ctx-checkpoints", "1", build=8352),
        traffic.parted_at_checkpoint,
    ),
    Case("rollback-failed", "rollback-failed", server("hybrid", build=8672), traffic.same_again, severity="error"),
    Case(
        "billing-header", "billing-header", server("dense", *SEE), traffic.changing_head(traffic.billing_line),
        leads=("prefix-diverges-early",),
    ),
    Case(
        "billing-header-hybrid", "billing-header", server("hybrid", *SEE, server_env=TEXT),
        traffic.changing_head(traffic.billing_line),
    ),
    Case(
        "volatile-prefix", "volatile-prefix", server("dense", *SEE), traffic.changing_head(traffic.dated_line),
        leads=("prefix-diverges-early",), words={"freeze the value": {"frozen": True}},
    ),
    Case(
        "cache-prompt-off-client", "cache-prompt-off", server("dense", *SEE, habits={"cache_prompt": False}),
        traffic.uncached, words={'remove "cache_prompt": false': {"cache_prompt": True}},
    ),
    Case("cache-prompt-off-server", "cache-prompt-off", server("dense", *SEE, "--no-cache-prompt"), traffic.uncached),
    Case(
        "reasoning-stripped", "reasoning-stripped", server("dense", *SEE, build=9873), traffic.reasoning(300, 900),
    ),
    Case(
        "reasoning-stripped-b8672", "reasoning-stripped", server("dense", build=8672), traffic.reasoning(300, 900),
    ),
    Case(
        "reasoning-stripped-switch", "reasoning-stripped", server("dense", *SEE, "--no-reasoning-preserve"),
        traffic.reasoning(300, 900),
    ),
    Case(
        "reasoning-stripped-long", "reasoning-stripped", server("dense", *SEE, build=9873),
        traffic.reasoning(600, 500, traffic.HEAD),
    ),
    Case(
        "context-overflow", "context-overflow", server("dense", *SEE, "-c", "2048"), traffic.long_prompt(4000),
        severity="error",
    ),
    Case(
        "slot-context-too-small", "slot-context-too-small",
        server("dense", *SEE, "-c", "8192", "-np", "4", "--no-kv-unified"), traffic.long_prompt(4000), severity="error",
    ),
    Case(
        "context-shift", "context-shift", server("dense", *SEE, "-c", "3072", "--context-shift"), traffic.long_replies,
        severity="note",
    ),
]  # fmt: skip
