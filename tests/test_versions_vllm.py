"""The version of vLLM by the number of the line that prints the statistics."""

from __future__ import annotations

from itertools import pairwise

import pytest
from conftest import FIXTURES

from cachedoctor.engines.vllm.versions import by_line, narrow, of_line
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


@pytest.mark.parametrize(("version", "line"), printed())
def test_a_line_is_of_a_version_within_its_range(version: str, line: str) -> None:
    """The true version, which the line itself does not say."""
    found = of_line(line.encode())
    assert found is not None
    oldest, newest = map(release, found)
    assert oldest <= release(version) <= newest


def test_ranges_follow_each_other() -> None:
    """None goes backwards, and only 0.15 (not looked at) is in two of them."""
    ranges = [found for number in range(1, 1000) if (found := by_line(number)) is not None]
    assert len(ranges) == 21
    for (_, newest), (oldest, _) in pairwise(ranges):
        assert release(newest) < release(oldest) or (newest, oldest) == ("0.15.1", "0.15.0")
    assert all(release(oldest) <= release(newest) for oldest, newest in ranges)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (b"INFO [v1/metrics/loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s", ("0.15.0", "0.19.1")),
        (b"INFO [loggers.py:236] 2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s", ("0.11.1", "0.12.0")),
        (b"INFO [loggers.py:122] Engine 000: Avg prompt throughput: 0.0 tokens/s", ("0.10.0", "0.10.0")),
        (b"INFO [loggers.py:1386] AsyncLLM created with api_server_count more than 1", None),
        (b"INFO [loggers.py:127] Prefix cache hit rate: GPU: 1.00%, CPU: 0.00%", None),
        (b"INFO [metrics.py:455] Avg prompt throughput: 0.0 tokens/s", None),
        (b"INFO [loggers.py:999] Engine 000: Avg prompt throughput: 0.0 tokens/s", None),
        (b"Engine 000: Avg prompt throughput: 0.0 tokens/s", None),
        (b"", None),
    ],
)
def test_other_places_say_nothing(line: bytes, want: tuple[str, str] | None) -> None:
    """Only the statistics of V1 have numbers that tell versions apart."""
    assert of_line(line) == want


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
