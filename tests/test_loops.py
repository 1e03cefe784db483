"""A test that asks about many names all that fail."""

from __future__ import annotations

import pytest
from loops import each


def test_all_that_fail_are_named() -> None:
    @each("number", [1, 2, 3, 4])
    def is_odd(number: int) -> None:
        assert number % 2

    with pytest.raises(AssertionError, match=r"2 of 4 fail:\n2: .*\n4: "):
        is_odd()


def test_of_pairs_both_are_given() -> None:
    @each(("a", "b"), [(1, 1), (2, 3)], ids=str)
    def are_equal(a: int, b: int) -> None:
        assert a == b

    with pytest.raises(AssertionError, match=r"1 of 2 fail:\n2-3: "):
        are_equal()


def test_nothing_to_ask_about_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="nothing to ask about"):
        each("number", [])
