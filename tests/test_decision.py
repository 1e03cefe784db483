"""What each build could reuse: hand-computed for every build range in which the rules differ.

A checkpoint after n tokens of a recurrent memory holds position n - 1 alone; sliding-window memory reaches back by its
window and a batch. The numbers below follow from the server's own comparisons, worked out on paper.
"""

from __future__ import annotations

import pytest
from loops import each

from cachedoctor.knowledge.decision import CHANGES, Decision, HeldState, checkpoints, common_of, decide, reusable

HYBRID, SWA = "hybrid", "swa"
ERAS = (5311, *CHANGES, 11_549)


@each(
    ("build", "memory", "length", "starts", "expected"),
    [
        # none at all; then one for sliding windows, after the whole prompt
        (6123, SWA, 5000, [], []),
        (6180, SWA, 5000, [], [5000]),
        (6628, SWA, 5000, [], [5000]),
        (6628, HYBRID, 5000, [], []),
        # 64 before the end, if its last position is 64 or more
        (6751, HYBRID, 5000, [], [4936]),
        (7964, SWA, 5000, [], [4936]),
        (7964, HYBRID, 129, [], [65]),
        (7964, HYBRID, 128, [], []),
        # a batch of 512 before the end
        (8156, HYBRID, 5000, [], [4488]),
        (8156, HYBRID, 512, [], []),
        # 4 + 512 and 4 before the end, and every 8192 as long as those lie ahead
        (8352, HYBRID, 5000, [], [4484, 4996]),
        (8672, HYBRID, 300, [], [296]),
        (9093, HYBRID, 20_000, [100], [8192, 16_384, 19_484, 19_996]),
        (9294, HYBRID, 8300, [], [7784, 8296]),
        (9294, HYBRID, 60, [], []),
        # only the last message of the user, and the ends 256 after it
        (9538, HYBRID, 5000, [50, 2000], [2000, 4484, 4996]),
        (9713, HYBRID, 5000, [50, 4400], [4400, 4996]),
        (9713, HYBRID, 5000, [50, 4800], [4800]),
        (9713, HYBRID, 5000, [], [4484, 4996]),
        # every message of the user and the ends, 8192 apart, but for the last message
        (9873, HYBRID, 5000, [50, 2000, 4400], [50, 4400]),
        (9873, HYBRID, 30_000, [50, 8242, 8243, 20_000], [50, 8243, 20_000, 29_484]),
        (9873, HYBRID, 5000, [], [4484]),
        # the ends are kept as well, however near
        (10_068, HYBRID, 5000, [50, 2000, 4400], [50, 4400, 4484, 4996]),
        (11_549, HYBRID, 30_000, [50, 9000, 20_000], [50, 9000, 20_000, 29_484, 29_996]),
        (11_549, SWA, 2000, [], [1484, 1996]),
        (11_549, HYBRID, 31, [26], [26, 27]),
        (11_549, HYBRID, 3, [], []),
        (11_549, "attention", 5000, [50], []),
    ],
)
def test_checkpoints_of_a_build(build: int, memory: str, length: int, starts: list[int], expected: list[int]) -> None:
    """Tokens covered, in rising order."""
    assert checkpoints(length, starts, build, memory) == expected


@pytest.mark.parametrize("build", [5311, 6751, 9294, 11_549])
def test_attention_memory_is_cut_anywhere(build: int) -> None:
    """The common prefix, less the one token that must be computed when nothing is new."""
    assert reusable("attention", 1000, 5000, [], build) == 1000
    assert reusable("attention", 5000, 5000, [], build, new=6000) == 5000
    assert reusable("attention", 1000, 5000, [], build, new=1000) == 999
    assert reusable("attention", 0, 5000, [], build) == 0


@pytest.mark.parametrize(
    ("build", "exactly_at", "appended", "again"),
    [
        (6628, 0, 5000, 0),  # no checkpoints: everything from the start
        (6751, 900, 5000, 4999),  # the one exactly at the prefix was refused
        (7079, 900, 5000, 0),  # not even one token can be cut off, and none is searched for
        (8353, 900, 5000, 0),
        (8672, 1000, 5000, 0),  # now it is taken
        (9093, 1000, 5000, 0),
        (9294, 900, 4996, 4996),  # refused again, and even a mere continuation goes back
        (9538, 1000, 5000, 4996),  # only a prompt without anything new goes back
        (11_549, 1000, 5000, 4996),
    ],
)
def test_hybrid_memory(build: int, exactly_at: int, appended: int, again: int) -> None:
    """Held are 5000 tokens with checkpoints after 900, 1000 and 4996."""
    covered = [900, 1000, 4996]
    assert reusable(HYBRID, 1000, 5000, covered, build, new=6000) == exactly_at
    assert reusable(HYBRID, 5000, 5000, covered, build, new=6000) == appended
    assert reusable(HYBRID, 5000, 5000, covered, build, new=5000) == again
    assert reusable(HYBRID, 800, 5000, covered, build, new=6000) == 0
    assert reusable(HYBRID, 0, 5000, covered, build, new=6000) == 0


@pytest.mark.parametrize(
    ("build", "near", "just", "far", "short"),
    [
        # held 10,000, window 1024, so cells 8464 to 9999. just: the window before the prefix begins where they do.
        (5353, 9800, 9488, 5000, 500),  # nothing was checked
        (6123, 9800, 9488, 0, 0),
        (6628, 9800, 9488, 5000, 0),  # the checkpoint after 5500 reaches back to 3964 <= 5000 - 1024
        (6751, 9800, 9488, 5000, 0),
        (8353, 9800, 9488, 5000, 0),
        (8672, 9800, 5499, 5000, 0),  # equal is no longer enough: back to the newest checkpoint that fits
        (9538, 9800, 5499, 5000, 0),
        (9713, 9800, 5499, 4499, 0),  # a checkpoint after the prefix does not count any more
        (11_549, 9800, 5499, 4499, 0),
    ],
)
def test_sliding_window_memory(build: int, near: int, just: int, far: int, short: int) -> None:
    """Checkpoints after 4500 and 5500 of 10,000 tokens; a restored one is used up to its last position."""
    covered = [4500, 5500]
    found = [reusable(SWA, common, 10_000, covered, build, 1024, 12_000) for common in (9800, 9488, 5000, 500)]
    assert found == [near, just, far, short]


def test_a_prefix_within_the_window_needs_a_checkpoint_from_the_start() -> None:
    """From b8672 on; from b8929 on a checkpoint that reaches back to the first token is one."""
    held, common, covered = 1400, 300, [200]
    assert reusable(SWA, common, held, covered, 8353, 1024, 2000) == 300
    assert reusable(SWA, common, held, covered, 8672, 1024, 2000) == 0
    assert reusable(SWA, common, held, covered, 8929, 1024, 2000) == 199
    assert reusable(SWA, common, held, [], 11_549, 1024, 2000) == 0


def test_no_build_reuses_more_than_there_is() -> None:
    """Bounds, for every era, memory and prefix; attention never less than the others."""
    for build in (5311, 6123, 6301, 6900, 8156, 8353, 8672, 9093, 9294, 9713, 9873, 11_549):
        for held, new in ((1, 1), (700, 900), (9000, 3000)):
            # one token alone is forced by the threshold of b9294, whatever the memory
            for common in {0, 2, min(held, new) // 2, min(held, new)} - {2 if held == 1 else -1}:
                attention = reusable("attention", common, held, [], build, 0, new)
                for memory in (HYBRID, SWA):
                    covered = checkpoints(held, [5, held // 2], build, memory)
                    assert covered == sorted(set(covered))
                    assert 0 <= reusable(memory, common, held, covered, build, 1024, new) <= attention <= new - 1 or (
                        common == 0
                    )


# ---- decide: what the server does with the checkpoints that it really held


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        # Held are 3,004 tokens of a recurrent memory (its only position is 3003), the prompt of 3,600 shares 2,936 with
        # them; checkpoints hold positions 2935 (2,936 tokens) and 2000 (2,001 tokens).
        (5353, Decision(0, 2936, False, None, cleared=True)),  # no check: the cut at 2936 fails
        (5456, Decision(0, 2936, True)),  # 3003 > 2936: forced; there are no checkpoints yet
        (6751, Decision(2001, 2935, True, (2000, 2000))),  # 2935 < 2936 - 1 fails, 2000 fits
        (8353, Decision(2001, 2935, True, (2000, 2000))),
        (8672, Decision(2936, 2936, True, (2935, 2935))),
        (9093, Decision(2936, 2936, True, (2935, 2935))),
        (9294, Decision(2001, 2935, True, (2000, 2000))),
        (9538, Decision(2936, 2936, True, (2935, 2935))),
        (11_549, Decision(2936, 2936, True, (2935, 2935))),
    ],
)
def test_a_recurrent_checkpoint_at_the_prefix(build: int, expected: Decision) -> None:
    """The comparison that changed four times: with the position before the prefix, or with the one at it."""
    held = HeldState("recurrent", 3004, 3003, [(2935, 2935), (2000, 2000)])
    assert decide(build, held, 2936, 3600) == expected


@pytest.mark.parametrize(
    ("build", "common", "expected"),
    [
        (6123, 2715, Decision(0, 2587, True)),  # none yet
        (6180, 2715, Decision(2715, 2587, True, (2520, 3159))),
        (6180, 2648, Decision(2648, 2520, True, (2520, 3159))),  # at the threshold is good enough up to b6628
        (6751, 2648, Decision(2648, 2520, True, (2075, 2714))),
        (6628, 2647, Decision(2647, 2519, True, (2075, 2714))),
        (6628, 2202, Decision(0, 2074, True)),
    ],
)
def test_checkpoints_of_a_sliding_window(build: int, common: int, expected: Decision) -> None:
    """Window 128, 3,613 tokens held from position 2973 on, three checkpoints."""
    held = HeldState(SWA, 3613, 2973, [(2968, 3607), (2520, 3159), (2075, 2714)], 128)
    assert decide(build, held, common, 3900) == expected


@pytest.mark.parametrize(
    ("build", "reused", "threshold", "searched"),
    [
        (5353, 110, 0, False),
        (6628, 110, 0, False),  # 0 > 0 is false: no search
        (8353, 110, 0, False),
        (8672, 0, 0, True),  # 0 >= 0: a search, and [0, 105] does not begin before 0
        (8929, 105, 0, True),  # position 0 is good enough from PR #21510 on
        (9294, 105, 0, True),
        (11_549, 105, 0, True),
    ],
)
def test_a_prefix_inside_the_window(build: int, reused: int, threshold: int, searched: bool) -> None:
    """Window 128, 114 tokens held from position 0 on, a checkpoint of positions 0 to 105, a prefix of 110."""
    found = decide(build, HeldState(SWA, 114, 0, [(0, 105)], 128), 110, 1510)
    assert found[:3] == (reused, threshold, searched)


def test_a_window_checkpoint_after_the_prefix() -> None:
    """[1582, 2349] reaches back far enough for a prefix of 1,783 (window 128) and ends after it: b9713 refuses it."""
    held = HeldState(SWA, 2871, 2103, [(2094, 2861), (1582, 2349)], 128)
    assert decide(8353, held, 1783, 2810) == Decision(1783, 1655, True, (1582, 2349))
    assert decide(9294, held, 1783, 2810) == Decision(1783, 1654, True, (1582, 2349))
    assert decide(9538, held, 1783, 2810) == Decision(1783, 1655, True, (1582, 2349))
    assert decide(9713, held, 1783, 2810) == Decision(0, 1655, True)


def test_a_checkpoint_that_does_not_reach_back_far_enough() -> None:
    """After a jump back a window memory holds less than its cells: [1656, 2293] begins one after 1,783 - 128."""
    for build in (8353, 8672, 9093, 9294, 11_549):
        assert decide(build, HeldState(SWA, 2815, 2047, [(2038, 2805), (1656, 2293)], 128), 1783, 2756).reused == 0


@pytest.mark.parametrize(
    ("build", "reused", "cleared"),
    [(6900, 1947, False), (7079, 0, True), (7964, 0, True), (8156, 1947, False), (8353, 1947, False)],
)
def test_a_projector_skips_the_search(build: int, reused: int, cleared: bool) -> None:
    """With --mmproj no checkpoint was searched for between b7079 and b7964, and the cut failed (PR #19849)."""
    held = HeldState("hybrid", 2042, 2041, [(1946, 1946)])
    found = decide(build, held, 1966, 2049, projector=True)
    assert (found.reused, found.cleared) == (reused, cleared)
    assert decide(build, held, 1966, 2049).reused == 1947


@pytest.mark.parametrize("build", ERAS)
def test_one_token_is_always_computed(build: int) -> None:
    """An identical prompt on a memory that can be cut."""
    assert decide(build, HeldState("attention", 2000, 0), 1800, 1800).reused == 1799


def test_a_threshold_tells_the_prefix() -> None:
    """The inverse of the threshold, for every build, memory and prompt with and without anything new."""
    for build in ERAS:
        for window in (0, 128):
            for new in (1783, 2810):
                threshold = decide(build, HeldState(SWA, 2871, 2103, [], window), 1783, new).threshold
                assert common_of(threshold, window, build, new) == 1783
    assert common_of(0, 128, 8672, 1510) is None


def test_every_change_changes_something() -> None:
    """Each build in CHANGES decides at least one of these otherwise than the build before it."""
    slots = [
        (HeldState(SWA, 2871, 2103, [(2094, 2861), (1582, 2349)], 128), 1783, 2810, False),
        (HeldState("recurrent", 3004, 3003, [(2935, 2935)]), 2936, 3600, False),
        (HeldState("recurrent", 3004, 3003, [(2000, 2000)]), 3004, 3600, False),
        (HeldState("recurrent", 3004, 3003, [(2000, 2000)]), 2936, 3600, True),
        (HeldState(SWA, 114, 0, [(0, 105)], 128), 110, 1510, False),
    ]
    for build in set(CHANGES) - {8352}:  # from b8352 on n_tokens bounds the restored part too: the same for text
        assert any(decide(build - 1, *slot) != decide(build, *slot) for slot in slots), build
