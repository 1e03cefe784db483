"""A short run of every fuzzing target, with the same inputs each time; ``sh scripts/fuzz`` continues from there."""

from __future__ import annotations

import pytest
from fuzz.targets import TARGETS, cases, shown
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

COUNTS = {
    "planted": 60,
    "log": 40,
    "messages": 40,
    "diff": 100,
    "template": 40,
    "cmdline": 60,
    "report": 60,
    "rows": 40,
}
"""Inputs of the slower targets; the others take 200."""


@pytest.mark.spread(5)
@pytest.mark.sweep
@pytest.mark.parametrize("name", TARGETS)
def test_changed_inputs(name: str) -> None:
    for data in cases(TARGETS[name], 11, COUNTS.get(name, 200)):
        TARGETS[name].check(data)


@pytest.mark.sweep
@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None, derandomize=True, max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=400))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


def test_a_target_can_fail() -> None:
    """The check of what is shown sees an escape."""
    with pytest.raises(AssertionError):
        shown("a\x1b[31m")
