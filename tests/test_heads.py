"""A pattern with few heads finds what the pattern with all of them finds, however a log is cut."""

from __future__ import annotations

import re

import pytest
from conftest import FIXTURES

from cachedoctor.engines.catalogue.base import Catalogue
from cachedoctor.engines.catalogue.heads import HeadPattern, trie_pattern
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.messages import ROWS

HEADS = {"one": {"alpha beta", "gamma"}, "two": {"delta"}}
ALL = {"one": trie_pattern(["alpha beta", "gamma"]), "two": b"delta"}


def few(built: list[dict[str, bytes]]) -> HeadPattern:
    def build(groups: dict[str, bytes], whole: bool) -> re.Pattern[bytes]:
        assert whole == (groups == ALL)
        built.append(groups)
        return re.compile(rb"\n(?:a(" + groups["one"] + rb")|b(" + groups["two"] + rb"))")

    return HeadPattern(HEADS, build)


def found(heads: HeadPattern, data: bytes) -> list[bytes]:
    return [match[0] for match in heads.finditer(data)]


def test_only_heads_that_are_there_are_compiled() -> None:
    built: list[dict[str, bytes]] = []
    heads = few(built)
    assert found(heads, b"\naalpha \t beta\nbdelt") == [b"\naalpha \t beta"]
    assert found(heads, b"\naalpha beta 2") == [b"\naalpha beta"]
    assert built == [{"one": trie_pattern(["alpha beta"]), "two": b"(?!)"}]


def test_a_log_that_continues_others_has_all_of_them() -> None:
    built: list[dict[str, bytes]] = []
    heads = few(built)
    assert found(heads, b"\nnothing") == []
    assert found(heads, b"\nbdelta\nagamma") == [b"\nbdelta", b"\nagamma"]
    assert built[-1] == ALL
    assert found(heads, b"\naalpha beta") == [b"\naalpha beta"]
    assert len(built) == 2


def test_a_long_log_has_all_of_them_at_once() -> None:
    built: list[dict[str, bytes]] = []
    assert found(few(built), b"\n" * 70_000 + b"\nagamma") == [b"\nagamma"]
    assert len(built) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["billing-header-hybrid", "cancelled", "parallel-agents-b6301", "coloured-b11549"])
def test_a_log_is_read_the_same_in_pieces(name: str) -> None:
    lines = (FIXTURES / "cases" / name / "server.log").read_bytes().splitlines(keepends=True)
    catalogue = Catalogue(ROWS)
    pieces = [b"\n" + b"".join(lines[at : at + 40]) for at in range(0, len(lines), 40)]
    whole = catalogue.pattern.whole()
    for piece in pieces:
        assert [m.regs for m in catalogue.pattern.finditer(piece)] == [m.regs for m in whole.finditer(piece)]


def test_lines_are_read_together_in_a_long_log() -> None:
    catalogue = Catalogue(ROWS, fused.PATTERN, fused.GROUPS)
    line = b"\nslot launch_slot_: id  0 | task 7 | processing task, is_child = 0"
    (single,) = catalogue.pattern.finditer(line + b"\n")
    assert single.groups() == (b"0", b"7", *(None,) * fused.GROUPS, b"processing task, is_child =", None, None)
    *_, together = catalogue.pattern.finditer(b"\n" * 70_000 + line + b"\n")
    groups = together.groups()
    assert (together.lastindex, groups[fused.LAUNCHED]) == (fused.LAUNCHED + 1, b"0")
