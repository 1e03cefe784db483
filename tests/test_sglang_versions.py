"""No line of SGLang's log names its version: what bounds it."""

from __future__ import annotations

import pytest
from conftest import FIXTURES
from sglang_logs import capacity, head, prefill, read, settings, tree

from cachedoctor.engines.sglang.facts import ANY, NEW_SETTINGS, SAMPLED, VersionRange, from_settings, seen_in, text

LINES = (FIXTURES / "lines" / "sglang_batch_lines_13_versions.txt").read_text("utf-8").split("## ")[1:]

BOUNDS = {
    "0.4.3.post4": (None, "0.5.4"), "0.4.6.post5": (None, "0.5.4"), "0.4.10.post2": (None, "0.5.4"),
    "0.5.2": (None, "0.5.4"), "0.5.4.post3": ("0.5.4", None), "0.5.8.post1": ("0.5.4", None),
    "0.5.9": ("0.5.9", "0.5.10"),
    "0.5.10.post1": ("0.5.10", None), "0.5.11": ("0.5.11", None), "0.5.12.post1": ("0.5.11", None),
    "0.5.15.post1": ("0.5.11", None), "0.5.19": ("0.5.11", None), "0.5.23": ("0.5.11", None),
}  # fmt: skip
"""By the batch lines of a dense model alone: ``Prefill batch.`` is not in 0.5.4.post3, perhaps in 0.5.4, and so on."""


@pytest.mark.sample(10)
@pytest.mark.parametrize("block", LINES, ids=lambda block: block.split("\n")[0])
def test_batch_lines_bound_the_version(block: str) -> None:
    """The bounds hold the version that printed them, and are those that the wordings allow."""
    name, *lines = block.strip().split("\n")
    version, kind = name.split()
    session = read(*lines).session
    assert session.since(version.split(".post")[0]) is not False
    low, high = session.version_min, session.version_max
    if kind == "dense":
        assert (low, high) == BOUNDS[version]
    elif kind == "swa" and version in ("0.4.10.post2", "0.5.2"):
        assert (low, high) == ("0.4.9", "0.5.4")


@pytest.mark.parametrize(
    ("first", "last", "want"),
    [
        (403, 523, VersionRange(None, None)),
        (405, 405, VersionRange(404, 406)),
        (408, 410, VersionRange(407, 501)),
        (501, 503, VersionRange(500, 504)),
        (406, 501, VersionRange(406, 501)),
        (502, 502, VersionRange(502, 503)),
        (523, 523, VersionRange(523, None)),
    ],
)
def test_versions_that_were_not_read_may_have_a_wording_too(first: int, last: int, want: VersionRange) -> None:
    """0.4.4, 0.4.7, 0.4.9 and 0.5.0 were not read, nothing beyond both ends, and 0.5.4 only in its last version."""
    assert seen_in(first, last) == want


def test_settings_tell_the_version() -> None:
    """All names up to those of 0.5.9, and a hundred others: 0.5.9, or 0.5.10 before its .post1."""
    names = {f"other_{i}" for i in range(100)} | {name for first, name in NEW_SETTINGS.items() if first <= 509}
    assert from_settings(names, True) == VersionRange(509, 510)
    assert from_settings(names, False) == VersionRange(509, None)
    session = read(settings(**{name: None for name in names if name != "page_size"})).session
    assert (session.version_min, session.version_max) == ("0.5.9", "0.5.10")
    assert (session.since("0.5.9"), session.since("0.5.10"), session.since("0.5.11")) == (True, None, False)


def test_an_excerpt_of_the_settings_says_nothing_by_what_it_lacks() -> None:
    assert from_settings({"page_size", "model_path"}, True) == VersionRange(404, None)
    assert from_settings(set(), True) == ANY


def test_the_table_of_settings_is_in_order() -> None:
    """One for each version that was read, but the first, which has nothing to be compared with."""
    assert list(NEW_SETTINGS) == list(SAMPLED[1:])
    assert len(set(NEW_SETTINGS.values())) == len(NEW_SETTINGS)


def test_lines_of_a_session_narrow_it_together() -> None:
    """0.5.13 and newer; 0.5.17 and older; 0.5.13 and older, since 0.5.14 had no .post."""
    tree_of_514 = tree().replace("hicache_attached", "hierarchical") + " streaming_wrapped=False"
    off = f"{head('')}Disabling Radix Cache for FalconH1ForCausalLM as it is not yet supported."
    session = read(capacity(), tree_of_514).session
    assert (session.version_min, session.version_max) == ("0.5.13", "0.5.17")
    session = read(off, capacity(), tree_of_514).session
    assert (session.version_min, session.version_max) == ("0.5.13", "0.5.13")


def test_a_build_that_mixes_versions_has_no_bounds() -> None:
    """A fork may print lines of several: then nothing is claimed."""
    session = read(capacity(), tree(), prefill(500)).session
    assert (session.version_min, session.version_max) == (None, None)
    assert session.since("0.5.14") is None


def test_how_a_version_is_written() -> None:
    assert [text(n) for n in (403, 410, 500, 523, None)] == ["0.4.3", "0.4.10", "0.5.0", "0.5.23", None]
