"""The version of vLLM by the number of the line that prints the statistics."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from conftest import FIXTURES, json_of
from loops import each

from cachedoctor.engines.vllm.facts import by_line, narrow
from cachedoctor.model import Session
from cachedoctor.model.session import release


def printed() -> list[tuple[str, str]]:
    """Lines that the formatting code of 29 versions printed, each with its version."""
    version, out = "", []
    for line in (FIXTURES / "lines" / "vllm_stats_lines_29_versions.txt").read_text("utf-8").split("\n"):
        if line.startswith("## "):
            version = line.removeprefix("## ")
        elif line:
            out.append((version, line))
    return out


@each(("version", "line"), printed())
def test_a_line_is_of_a_version_within_its_range(version: str, line: str) -> None:
    """The true version, which the line itself does not say."""
    (session,) = json.loads(json_of([line.encode() + b"\n"]))["sessions"]
    assert session["version"] is None
    oldest, newest = release(session["version_min"]), release(session["version_max"])
    assert oldest <= release(version) <= newest


def test_ranges_follow_each_other() -> None:
    """None goes backwards, and only 0.15 (not checked) is in two of them."""
    ranges = [found for number in range(1, 1000) if (found := by_line(number)) is not None]
    assert len(ranges) == 21
    for (_, newest), (oldest, _) in pairwise(ranges):
        assert release(newest) < release(oldest) or (newest, oldest) == ("0.15.1", "0.15.0")
    assert all(release(oldest) <= release(newest) for oldest, newest in ranges)


@pytest.mark.parametrize("number", [0, 1, 455, 999, 1386])
def test_other_lines_show_nothing(number: int) -> None:
    """Of the same file, or of another one."""
    assert by_line(number) is None


def test_a_version_that_is_known_stays() -> None:
    """The number of a line is asked last, and only that of loggers.py."""
    session = Session(0, "a.log", version="0.32.0")
    narrow(session, 259, "loggers.py")
    assert (session.version, session.version_min, session.version_max) == ("0.32.0", None, None)
    session = Session(0, "a.log")
    narrow(session, 259, "metrics.py")
    narrow(session, 7, "loggers.py")
    assert session.version_min is None
    narrow(session, 271, "v1/metrics/loggers.py")
    assert (session.version_min, session.version_max, session.build_source) == ("0.20.0", "0.23.0", "source")
    assert session.since("0.16") is True
    assert session.since("0.21") is None
    assert session.since("0.24") is False
