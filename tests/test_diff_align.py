"""Edit scripts: right for any input, the same both ways, readable for the usual changes, and never quadratic."""

import random
from itertools import pairwise

import pytest
from hostile_inputs import SEQUENCES, tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import each
from rapidfuzz.distance import Levenshtein

from cachedoctor.model import Edit
from cachedoctor.prompts.align import anchors
from cachedoctor.prompts.align.align import SMALL, apply, common_prefix, common_suffix, edit_script, equal_runs, summary

# Few different tokens repeat a lot, many hardly ever: both ends of what anchors see.
FEW = st.lists(st.integers(0, 3), max_size=60)
MANY = st.lists(st.integers(0, 10_000), max_size=60)
PIECES = st.lists(st.text("ab \n\0é", max_size=2), max_size=40)
DRAWN = 4 * settings().max_examples
"""A sequence is drawn in no time."""
BLOCKS = st.lists(st.integers(0, 9), max_size=12)


def block(n):
    return random.Random(n).choices(range(500), k=20 + 7 * n)


def spread(numbers):
    return [token for n in numbers for token in block(n)]


PAIRS = st.one_of(
    st.tuples(FEW, FEW),
    st.tuples(MANY, MANY),
    st.tuples(PIECES, PIECES),
    st.tuples(BLOCKS, BLOCKS).map(lambda pair: (spread(pair[0]), spread(pair[1]))),
    st.permutations(range(10)).map(lambda order: (spread(range(10)), spread(order))),
)


def numbers(found):
    return found.equal, found.inserted, found.deleted, found.moved


@settings(deadline=None, max_examples=DRAWN)
@given(PAIRS)
def test_applying_the_script_to_a_gives_b(pair):
    a, b = pair
    assert apply(a, edit_script(a, b), b) == b


@settings(deadline=None, max_examples=DRAWN)
@given(PAIRS)
def test_ranges_cover_both_sequences_without_gap_or_overlap(pair):
    a, b = pair
    edits = edit_script(a, b)
    for side, size in (([e.b for e in edits], len(b)), (sorted(e.a for e in edits if e.a[0] < e.a[1]), len(a))):
        assert [x[1] for x in side[:-1]] == [x[0] for x in side[1:]]
        assert (side[0][0], side[-1][1]) == (0, size) if side else size == 0
    assert all(0 <= e.a[0] <= e.a[1] <= len(a) for e in edits)


@settings(deadline=None, max_examples=DRAWN)
@given(PAIRS)
def test_every_edit_is_what_its_name_says(pair):
    a, b = pair
    edits = edit_script(a, b)
    for e in edits:
        there, here = a[slice(*e.a)], b[slice(*e.b)]
        if e.op in ("equal", "move"):
            assert there == here != []
        else:
            assert (bool(there), bool(here)) == (e.op != "insert", e.op != "delete")
        if e.op == "move":
            assert len(here) >= anchors.LEAST_MOVE
    mergeable = ("equal", "insert", "delete")
    assert not [e for e, f in pairwise(edits) if e.op == f.op in mergeable and e.a[1] == f.a[0]]


@settings(deadline=None, max_examples=DRAWN)
@given(PAIRS)
def test_swapping_mirrors_the_numbers(pair):
    a, b = pair
    there, back = summary(edit_script(a, b)), summary(edit_script(b, a))
    assert numbers(there) == (back.equal, back.deleted, back.inserted, back.moved)
    assert there.at == back.at == common_prefix(a, b)
    assert there.places == back.places
    assert there.equal + there.deleted + there.moved == len(a)
    assert there.equal + there.inserted + there.moved == len(b)


@given(PAIRS, FEW)
def test_common_ends_equal_the_naive_ones(pair, shared):
    a, b = ([*shared, *side, *shared] for side in pair)
    naive = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    assert common_prefix(a, b) == naive
    assert common_suffix(a[::-1], b[::-1], len(a)) == naive
    assert common_suffix(a[::-1], b[::-1], naive // 2) == naive // 2


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100, 1000])
def test_common_prefix_at_every_length_around_the_slices(n):
    assert common_prefix([1] * n + [2], [1] * n + [3, 1]) == n
    assert common_prefix([1] * n, [1] * n) == n


A = tokens(3_000)


@each(
    ("a", "b", "pattern", "at", "size", "appended"),
    [
        ([], [], "equal", 0, 0, 0),
        (A, A, "equal", 3_000, 0, 0),
        ([], A, "appended", 0, 3_000, 3_000),
        (A[:1_000], A, "appended", 1_000, 2_000, 2_000),
        (A, A[700:], "front-dropped", 0, 700, 0),
        (A, A[700:] + tokens(90, 1), "front-dropped", 0, 700, 90),
        (A, [-1, -2, *A[700:]], "front-dropped", 0, 700, 0),
        (A, A[:900] + tokens(200, 1) + A[900:], "inserted-block", 900, 200, 0),
        (A, tokens(200, 1) + A, "inserted-block", 0, 200, 0),
        (A, A[:900] + tokens(200, 1) + A[901:], "inserted-block", 900, 200, 0),
        (A, A[:900] + A[1_000:], "removed-block", 900, 100, 0),
        (A, A[:900], "removed-block", 900, 2_100, 0),
        (A, [], "removed-block", 0, 3_000, 0),
        (A, A[:300] + tokens(2_500, 1), "tail-replaced", 300, 2_700, 0),
        ([*A[:-3], 7, 8, 9], A[:300] + tokens(2_500, 1) + [7, 8, 9], "tail-replaced", 300, 2_697, 0),
        (A, A[:-1] + tokens(200, 1), "tail-replaced", 2_999, 1, 0),
        (A, [*A[:900], -1, *A[901:]], "scattered", 900, 0, 0),
        (A, [-1 if i % 100 == 50 else t for i, t in enumerate(A)], "scattered", 50, 0, 0),
        (A, tokens(2_000, 1), "unrelated", 0, 0, 0),
    ],
)
def test_patterns(a, b, pattern, at, size, appended):
    found = summary(edit_script(a, b))
    assert (found.pattern, found.at, found.block, found.appended) == (pattern, at, size, appended)


def test_front_truncation_is_a_delete_followed_by_equal():
    a = tokens(60_000)
    gone, rest = Edit("delete", (0, 8_214), (0, 0)), Edit("equal", (8_214, 60_000), (0, 51_786))
    assert edit_script(a, a[8_214:]) == [gone, rest]


def test_scattered_edits_are_found_one_by_one():
    a = tokens(20_000)
    b = [-1 if i % 100 == 50 else t for i, t in enumerate(a)]
    found = summary(edit_script(a, b))
    assert (*numbers(found), found.places) == (19_800, 200, 200, 0, 200)


def test_a_moved_block_is_named_once_where_it_is_now():
    head, one, two, tail = (tokens(n, n) for n in (50, 300, 500, 51))
    edits = edit_script([*head, *one, *two, *tail], [*head, *two, *one, *tail])
    assert edits == [
        Edit("equal", (0, 50), (0, 50)),
        Edit("equal", (350, 850), (50, 550)),
        Edit("move", (50, 350), (550, 850)),
        Edit("equal", (850, 901), (850, 901)),
    ]
    assert numbers(summary(edits)) == (601, 0, 0, 300)


def test_a_block_that_moved_into_an_edited_place_keeps_the_edits_around_it():
    head, block, mid, tail = tokens(100, 1), tokens(64, 2), tokens(400, 3), tokens(100, 4)
    a = [*head, -1, -2, *block, -3, *mid, -4, *tail]
    b = [*head, *mid, -5, *block, -6, *tail]
    edits = edit_script(a, b)
    assert [e.op for e in edits] == ["equal", "delete", "delete", "equal", "replace", "move", "insert", "equal"]
    assert apply(a, edits, b) == b
    assert numbers(summary(edits)) == (600, 2, 4, 64)


def test_chance_matches_do_not_cut_a_replaced_text_into_crumbs():
    words, weights = ["the", " ", *map(str, range(900))], [90, 90, *[1] * 900]
    a, b = (random.Random(seed).choices(words, weights, k=2_000) for seed in (1, 2))
    found = summary(edit_script(["start", *a], ["start", *b]))
    assert found.pattern == "unrelated"
    assert found.places < 30


def test_a_large_gap_without_anchors_is_one_replaced_block():
    a, b = [1, 2] * SMALL, [2, 3] * SMALL
    assert [e.op for e in edit_script([0, *a, 9], [0, *b, 9])] == ["equal", "replace", "equal"]


def judged(a, b):
    """The same by a library."""
    return [(block.a, block.b, block.size) for block in Levenshtein.editops(a, b).as_matching_blocks() if block.size]


@settings(deadline=None, max_examples=DRAWN)
@given(PAIRS)
def test_a_small_gap_is_aligned_as_a_library_does_it(pair):
    numbered = anchors.IdPair(*pair)
    assert equal_runs(*pair) == judged(numbered.a, numbered.b)


@pytest.mark.parametrize("different", [3, 500])
def test_so_is_the_largest(different):
    a, b = (random.Random(seed).choices(range(different), k=SMALL) for seed in (1, 2))
    assert equal_runs(a, b) == judged(a, b)
    assert equal_runs(a, b[: SMALL // 3]) == judged(a, b[: SMALL // 3])


@pytest.mark.sweep
@pytest.mark.parametrize("case", SEQUENCES)
def test_no_input_takes_quadratic_time(case, monkeypatch):
    """The tokens looked at for anchors stay within the rounds allowed (the seconds: benchmarks/hostile.py)."""
    looked_at = []
    unique = anchors._unique
    monkeypatch.setattr(anchors, "_unique", lambda grams, at: looked_at.append(len(at)) or unique(grams, at))
    a, b = SEQUENCES[case](40_000)
    edits = edit_script(a, b)
    assert sum(looked_at) <= 3 * (anchors.MOST_ROUNDS + 1) * (len(a) + len(b))
    assert apply(a, edits, b) == b
