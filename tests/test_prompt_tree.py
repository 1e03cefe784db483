"""The tree of prompts against comparing them token by token."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic

TOKENS = st.lists(st.integers(-1, 2), max_size=12)


def _common(one: list[int], other: list[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(st.lists(TOKENS, min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_common_prefixes_are_those_of_the_tokens(prompts: list[list[int]]) -> None:
    tree = PromptTree()
    ids = [tree.add(prompt) for prompt in prompts]
    for one, a in zip(ids, prompts, strict=True):
        assert tree.length(one) == len(a)
        assert list(tree.tokens(one) or ()) == a
        shared = [_common(a, b) for b in prompts]
        assert [tree.common(one, other) for other in ids] == shared


@given(st.lists(TOKENS, min_size=2, max_size=8), TOKENS)
@settings(max_examples=30, deadline=None)
def test_a_prompt_that_is_added_after_a_question_changes_no_answer(prompts: list[list[int]], late: list[int]) -> None:
    tree = PromptTree()
    ids = [tree.add(prompt) for prompt in prompts]
    before = [[tree.common(one, other) for other in ids] for one in ids]
    added = tree.add(late)
    assert [[tree.common(one, other) for other in ids] for one in ids] == before
    assert [tree.common(added, one) for one in ids] == [_common(late, prompt) for prompt in prompts]


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_branches_share_what_was_said_and_nothing_else(data: st.DataObject) -> None:
    """Invented prompts are compared with token lists in which every fresh token is new."""
    tree, ids, lists, fresh = PromptTree(), list[int](), list[list[int]](), iter(range(10_000))
    for _ in range(data.draw(st.integers(1, 10))):
        of = data.draw(st.none() | st.integers(0, len(ids) - 1)) if ids else None
        length = data.draw(st.integers(0, 12))
        common = data.draw(st.integers(0, 12))
        base = [] if of is None else lists[of][: min(common, length)]
        ids.append(tree.branch(None if of is None else ids[of], common, length))
        lists.append([*base, *(next(fresh) for _ in range(length - len(base)))])
    for one, a in zip(ids, lists, strict=True):
        assert tree.length(one) == len(a)
        assert [tree.common(one, other) for other in ids] == [_common(a, b) for b in lists]


@given(st.lists(TOKENS, min_size=1, max_size=10))
@example([[0, 0, 1], [0], [0, 0, 0], [0, 0]])  # the second ends inside an edge that the third splits
@settings(max_examples=50, deadline=None)
def test_the_ideal_is_the_best_of_all_that_came_before(prompts: list[list[int]]) -> None:
    tree = PromptTree()
    asked = [TimedRequest(prompt := tree.add(p), prompt, 2 * n, 2 * n + 1) for n, p in enumerate(prompts)]
    for n, ideal in enumerate(Traffic(tree, asked).ideal):
        assert ideal.tokens == max((_common(prompts[n], before) for before in prompts[:n]), default=0)
        assert ideal.tokens == 0 or (ideal.owner is not None and ideal.owner < n)


def test_what_runs_at_the_same_time_is_together() -> None:
    tree = PromptTree()
    ids = [tree.add([1, 2, 3]), tree.add([1, 2, 4])]
    assert [
        i.together
        for i in Traffic(tree, [TimedRequest(ids[0], ids[0], 0, 5), TimedRequest(ids[1], ids[1], 1, 6)]).ideal
    ] == [
        False,
        True,
    ]
    assert not Traffic(tree, [TimedRequest(ids[0], ids[0], 0, 1), TimedRequest(ids[1], ids[1], 2, 3)]).ideal[1].together


@pytest.mark.parametrize("length", [0, 3])
def test_a_branch_of_nothing_is_alone(length: int) -> None:
    tree = PromptTree()
    one, other = tree.add([1, 2, 3]), tree.branch(None, 5, length)
    assert (tree.common(one, other), tree.length(other), tree.common(other, other)) == (0, length, length)
    assert length == 0 or tree.tokens(other) is None


def test_tokens_before_what_was_invented_are_known() -> None:
    tree = PromptTree()
    whole = tree.add([1, 2, 3, 4, 5])
    reply = tree.branch(whole, 3, 6)
    later = tree.branch(reply, 5, 9)
    tree.add([1, 2, 9])
    assert [list(tree.known(one)) for one in (whole, reply, later)] == [[1, 2, 3, 4, 5], [1, 2, 3], [1, 2, 3]]
    assert (tree.tokens(reply), list(tree.known(tree.branch(None, 0, 4)))) == (None, [])
