"""What memory held against what it saved: peaks and smallest limits of traffic whose sizes are known by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest
from conftest import ROOT
from msgspec.structs import replace
from test_whatif import ONE, evidence, in_turn

from cachedoctor.diagnosis.replay.llamacpp.memory_use import first, measured, reused_tokens, smallest_ram, steps
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor.whatif.evidence import Asking, ServerTraffic, gather
from cachedoctor.doctor.whatif.memory_bill import MeasuredMemory, memory_bill
from cachedoctor.doctor.whatif.tuning import tune
from cachedoctor.model.whatif import MemoryBill, MemoryHeld
from cachedoctor.report.forms import memory_forms
from cachedoctor.report.words.numbers import memory

MIB = 1 << 20
RAM = replace(ONE, cache_ram_mib=8192, token_bytes=float(MIB))
"""One slot and a RAM cache in which a token takes a MiB."""


def bill_of(given: ServerTraffic) -> MeasuredMemory:
    return memory_bill(given, *measured(given.traffic, given.settings))


def row(found: MemoryBill, what: str) -> MemoryHeld:
    return next(one for one in found.held if one.what == what)


def test_the_peak_counts_the_copy_that_is_being_saved() -> None:
    """Three conversations on one slot, the last turns hold 410 tokens.

    When the last one comes, 410 + 310 MiB are in RAM and 410 are saved: 1,130, of which its own 310 then leave.
    """
    served, use = measured(in_turn(3, 4), RAM)
    assert served == serve(in_turn(3, 4), RAM)
    assert (use.saving_bytes / MIB, use.ram_bytes / MIB, use.ram_entries) == (1130, 820, 2)
    assert use.saved == 11  # at every request but the first
    assert (use.slot_tokens, use.checkpoints) == (410, 0)


@pytest.mark.parametrize(
    ("build", "needed"),
    [
        (9713, 720),  # the last turn of the third still needs its 310 MiB beside the 410 of the first
        (11549, 1130),  # room for the 410 of the second is made before the own 310 leave: else these would go
    ],
)
def test_the_smallest_limit_keeps_all_and_the_next_smaller_one_loses(build: int, needed: int) -> None:
    traffic, settings = in_turn(3, 4), replace(RAM, build=build)
    served, use = measured(traffic, settings)
    assert reused_tokens(served) == 3 * (110 + 210 + 310)
    found = smallest_ram(traffic, settings, reused_tokens(served), use)
    assert found is not None
    values = steps(1130)
    below = values[values.index(found) - 1]
    assert below < needed <= found
    assert reused_tokens(serve(traffic, replace(settings, cache_ram_mib=found))) == reused_tokens(served)
    assert reused_tokens(serve(traffic, replace(settings, cache_ram_mib=below))) < 0.99 * reused_tokens(served)


def test_limits_that_are_tried_lie_close_together() -> None:
    values = steps(20_000)
    assert values[:4] == [0, 1, 2, 3]
    assert values[-1] == 20_000
    assert all(0 < after - before <= max(1, before / 16) for before, after in pairwise(values))
    assert (steps(0), steps(1)) == ([0], [0, 1])


def test_first_finds_the_border_or_nothing() -> None:
    assert [first([1, 2, 3, 4, 5], lambda value, least=least: value >= least) for least in (0, 3, 5, 6)] == [
        1,
        3,
        5,
        None,
    ]


def test_a_bill_names_what_each_kind_of_memory_saved() -> None:
    found, changes = bill_of(evidence(in_turn(3, 4), RAM))
    ram, slots = row(found, "ram"), row(found, "slots")
    assert (ram.requests, ram.tokens, ram.entries, ram.made) == (9, 1890, 2, 11)
    assert (ram.held_mib, ram.limit_mib, ram.options, ram.enough_mib) == (820, 8192, "--cache-ram 736", 736)
    # 410 tokens are the longest: the slot of 8,192 could have 512.
    assert (slots.requests, slots.held_mib, slots.limit_mib, slots.options) == (0, 410, 8192, "--ctx-size 512")
    assert found.saving_mib == 1130
    assert changes == [{"context": 512}, {"cache_ram_mib": 736}]


def test_where_little_is_reused_no_smaller_cache_is_named() -> None:
    """What is enough for a traffic that reuses nothing would be a cache of size 0, and that is not advised."""
    found, changes = bill_of(evidence(in_turn(3, 1), RAM))
    assert row(found, "ram").options is None
    assert changes == [{"context": 256}]


def test_without_sizes_nothing_is_said_of_memory() -> None:
    found, _ = bill_of(evidence(in_turn(3, 4), replace(RAM, token_bytes=0.0)))
    assert found.saving_mib is None
    assert [(one.held_mib, one.limit_mib, one.enough_mib) for one in found.held] == [(None, None, None)] * 2
    assert row(found, "ram").options is None


def test_checkpoints_that_nobody_goes_back_to_are_too_many() -> None:
    settings = replace(RAM, memory="hybrid", slots=3, context=24_576, checkpoint_bytes=float(MIB), build=11549)
    found, _ = bill_of(evidence(in_turn(3, 4), settings))
    held = row(found, "checkpoints")
    assert held.limit_mib == 3 * 32
    assert held.options == "--ctx-checkpoints 0"
    assert held.enough_mib == 0
    assert held.requests == 0


def test_all_smaller_values_together_still_keep_what_was_reused() -> None:
    given = evidence(in_turn(3, 4), RAM)
    found = tune(given, ["made"]).bill
    assert found is not None
    assert found.least is not None
    assert found.least.options == "--ctx-size 512 --cache-ram 736"
    smaller = replace(RAM, context=512, cache_ram_mib=736)
    assert reused_tokens(serve(given.traffic, smaller)) == 1890
    assert found.least.memory_mib == (512 - 8192) + (736 - 8192)


def test_memory_that_is_freed_pays_for_what_helps() -> None:
    """Two answers are generated again: hybrid memory needs checkpoints, and the RAM cache has more than enough."""
    before = in_turn(3, 6)
    last = before.asked[-1]
    again = [replace(last, started=last.started + 2 * n, ended=last.ended + 2 * n) for n in (1, 2)]
    traffic = Traffic(before.tree, [*before.asked, *again])
    settings = replace(RAM, memory="hybrid", ctx_checkpoints=0, checkpoint_bytes=float(MIB))
    assert reused_tokens(serve(traffic, settings)) == 3 * (110 + 210 + 310 + 410 + 510)
    found = tune(evidence(traffic, settings), ["made"], 0.0)
    assert found.best is not None
    assert found.best.options == "--cache-ram 1152 --ctx-checkpoints 3"
    assert found.best.saved_tokens == 2 * 396  # the last checkpoint before the 600th token lies there
    assert found.best.memory_mib == 3 + 1152 - 8192
    assert "--ctx-checkpoints 3" not in found.over_limit


def test_after_a_kill_nothing_that_takes_more_memory_is_advised() -> None:
    settings = replace(ONE, token_bytes=float(MIB), context=512)
    assert tune(evidence(in_turn(2, 3), settings), ["made"]).best is not None
    found = tune(evidence(in_turn(2, 3), settings, killed=True), ["made"])
    assert (found.best, found.memory_limit_mib) == (None, 0.0)
    assert found.over_limit
    assert found.bill is not None
    assert any("no change that needs more memory is advised" in line for line in memory_forms.bill(found.bill))


def test_the_replay_holds_what_the_log_prints() -> None:
    """A real log: the RAM cache as printed at most, to which the replay adds the checkpoints of the slots."""
    log = ROOT / "fixtures" / "days" / "swa-compaction-b11549-lv4" / "server.log"
    given = gather(Asking([str(log)]))
    printed = [
        float(line.split("prompts,")[1].split("MiB")[0])
        for line in log.read_text().splitlines()
        if "cache state:" in line
    ]
    assert given.sizes.ram_most == max(printed)
    found, _ = bill_of(given)
    assert found.logged_mib == max(printed)
    assert found.saving_mib is not None
    assert max(printed) <= found.saving_mib <= 1.5 * max(printed)


def test_sizes_are_written_in_the_unit_that_fits() -> None:
    assert [memory(mib) for mib in (0, 0.25, 9.9, 10, 1023, 1024, 8300)] == [
        "0 MiB", "0.2 MiB", "9.9 MiB", "10 MiB", "1,023 MiB", "1.0 GiB", "8.1 GiB"
    ]  # fmt: skip


def test_a_bill_reads_as_sentences() -> None:
    found = MemoryBill(
        [
            MemoryHeld("slots", 41, 32_000, 5100.0, 4, 12.0, 64.0, None, "--ctx-size 8192", 32.0),
            MemoryHeld("ram", 3, 12_300, 4100.0, 27, 8294.0, 8192.0, 41, "--cache-ram 1434", 1434.0),
            MemoryHeld("checkpoints", 0, 0, None, 48),
        ],
        13_722.0, 8294.0, 13_000.0, False,
    )  # fmt: skip
    assert memory_forms.bill(found) == [
        "slots (4 slots, at most 12 MiB of 64 MiB): 41 requests reused 32,000 tokens, which saved 5.1 s; "
        "--ctx-size 8192 is enough for that (32 MiB)",
        "RAM cache (27 of 41 saved prompts at once, at most 8.1 GiB of 8.0 GiB): 3 requests reused 12,300 tokens, "
        "which saved 4.1 s; --cache-ram 1434 is enough for that (1.4 GiB)",
        "checkpoints (48 at once): nothing was reused",
        "peak while saving: at least 13.4 GiB in addition to model and slots (the log shows 12.7 GiB); memory of the "
        "whole process (RSS): unknown",
    ]


def test_without_a_saved_prompt_the_buffer_says_what_a_token_takes() -> None:
    """12 MiB of keys and values for 12,288 cells of each of 4 streams are 256 bytes a token, and 12 for its place."""
    log = ROOT / "fixtures" / "days" / "dense-six_on_four-b11549-lv4" / "server.log"
    assert "size =   12.00 MiB ( 12288 cells,   2 layers,  4/4 seqs)" in log.read_text()
    given = gather(Asking([str(log)]))
    assert given.sizes.entry is None
    assert given.settings.token_bytes == 256 + 12
