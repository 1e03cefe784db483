"""What each build could reuse: hand-computed for every build range in which the rules differ.

A checkpoint after n tokens of a recurrent memory holds position n - 1 alone; sliding-window memory reaches back by its
window and a batch. The numbers below follow from the server's own comparisons, worked out on paper.
"""

from __future__ import annotations

import pytest

from cachedoctor.knowledge.decision import checkpoints, reusable

HYBRID, SWA = "hybrid", "swa"


@pytest.mark.parametrize(
    ("build", "memory", "length", "starts", "expected"),
    [
        # none at all; then one for sliding windows, after the whole prompt
        (6123, SWA, 5000, [], []),
        (6180, SWA, 5000, [], [5000]),
        (6628, SWA, 5000, [], [5000]),
        (6628, HYBRID, 5000, [], []),
        # 64 in front of the end, if its last position is 64 or more
        (6751, HYBRID, 5000, [], [4936]),
        (7964, SWA, 5000, [], [4936]),
        (7964, HYBRID, 129, [], [65]),
        (7964, HYBRID, 128, [], []),
        # a batch of 512 in front of the end
        (8156, HYBRID, 5000, [], [4488]),
        (8156, HYBRID, 512, [], []),
        # 4 + 512 and 4 in front of the end, and every 8192 as long as those lie ahead
        (8352, HYBRID, 5000, [], [4484, 4996]),
        (8672, HYBRID, 300, [], [296]),
        (9093, HYBRID, 20_000, [100], [8192, 16_384, 19_484, 19_996]),
        (9294, HYBRID, 8300, [], [7784, 8296]),
        (9294, HYBRID, 60, [], []),
        # only the last message of the user, and the ends 256 behind it
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
        (6628, 0, 5000, 4999),  # no checkpoints: everything from the start
        (6751, 900, 5000, 4999),  # the one exactly at the prefix was refused
        (8353, 900, 5000, 4999),
        (8672, 1000, 5000, 4999),  # now it is taken
        (9093, 1000, 5000, 4999),
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
        (9713, 9800, 5499, 4499, 0),  # a checkpoint behind the prefix does not count any more
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
            for common in {0, 1, min(held, new) // 2, min(held, new)}:
                attention = reusable("attention", common, held, [], build, 0, new)
                for memory in (HYBRID, SWA):
                    covered = checkpoints(held, [5, held // 2], build, memory)
                    assert covered == sorted(set(covered))
                    assert 0 <= reusable(memory, common, held, covered, build, 1024, new) <= attention <= new - 1 or (
                        common == 0
                    )
