"""The catalogue: every row recognises its sample and nothing else's; every known message of llama-server is one row."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from conftest import FIXTURES
from loops import each

from cachedoctor.engines.catalogue.base import Catalogue, Message, as_pairs
from cachedoctor.engines.catalogue.scanner import Scanner, ScanPlan
from cachedoctor.engines.llamacpp import fused
from cachedoctor.engines.llamacpp.messages import ROWS
from cachedoctor.model import Segment

MESSAGES: list[dict[str, Any]] = json.loads((FIXTURES / "messages.json").read_text("utf-8"))

NO_HEAD = {
    "decode_err": "begins with the error in words of its own",
    "img_processed": "begins with the kind of the chunk",
    "img_slice": "begins with the name of the slice",
}
"""Rows that begin with a free word: the scanner looks for literal heads and cannot see them. Nobody listens to them."""

OTHER_ROW = {
    "ckpt_abort": "the wording without file and line reads the same line",
    "idle_slots_disabled": "the wording with a function name inside the text reads the same line",
    "idle_slots_mode": "the wording with a function name inside the text reads the same line",
    "pc_enabled": "`no limit` and `8192 MiB` are printed by one format, and the number comes first",
}
"""Rows whose sample the scanner gives to another wording of the same message."""

SAME_LINE = {
    "pc_enabled.v2": "prints the line of v1, which reads the limit as a number",
    "listening.v1": "prints the line of v2, with the function name in front",
    "sampler_params": "the values stand in the following lines",
}
"""Messages whose fields have other names in the row that reads them, or stand elsewhere."""

MORE_FIELDS = {
    "img_slice.v1": {"name"},
    "img_slice.v3": {"name"},
}
"""One row stands for several formats that differ in a word: that word is a field."""


@lru_cache(maxsize=1)
def catalogue() -> Catalogue:
    return Catalogue(ROWS)


def name_of(row: Message) -> str:
    return f"{row.id}-{row.first}-{ROWS.index(row)}"


@each("row", ROWS, ids=name_of)
def test_a_sample_is_recognised_by_its_row_alone(row: Message) -> None:
    """Two rows that match one line would make the reading a matter of luck."""
    found = [event.row for event in catalogue().recognise(row.sample.encode())]
    if row.id == "pc_enabled" and found != [row]:
        assert [other.id for other in found if other] == ["pc_enabled"]
    else:
        assert found == [row]


def scanned(row: Message) -> list[Message]:
    """The rows that the scanner finds in the sample of ``row``."""
    scanner = Scanner(catalogue(), ScanPlan(frozenset(r.id for r in ROWS)))
    events = scanner.scan(Segment(None, row.sample.encode() + b"\n", 1))
    return [event.row for event in events if event.row is not None]


@each("row", ROWS, ids=name_of)
def test_the_scanner_finds_what_the_catalogue_recognises(row: Message) -> None:
    """The one big pattern sees every sample, but for rows without a literal head."""
    found = scanned(row)
    if row.id in NO_HEAD:
        assert found in ([], [row])
    elif row.id in OTHER_ROW:
        assert [other.id for other in found] == [row.id]
    else:
        assert found == [row]


def test_the_exceptions_are_needed() -> None:
    """An exception that is none any more must go."""
    exceptional = {row.id for row in ROWS if scanned(row) != [row]}
    assert exceptional == set(NO_HEAD) | set(OTHER_ROW)
    assert set(SAME_LINE) | set(MORE_FIELDS) <= {m["id"] for m in MESSAGES}


@each("message", MESSAGES, ids=lambda message: message["id"])
def test_every_known_message_is_one_row_with_its_fields(message: dict[str, Any]) -> None:
    """The examples, line by line: one row each, and together the fields."""
    fields: set[str] = set()
    for line in filter(str.strip, message["example"].split("\n")):
        events = catalogue().recognise(line.encode())
        assert len(events) == 1, line
        fields |= set(events[0].fields)
    if message["id"] not in SAME_LINE:
        assert fields == set(message["fields"]) | MORE_FIELDS.get(message["id"], set())


def test_rows_are_in_order() -> None:
    """Builds of a row run forward, and its levels are known for its first build."""
    for row in ROWS:
        assert row.first <= row.last, row.template
        assert row.levels, row.template
        assert row.level_at(row.last) in "IWEDTLOP", row.template


def test_a_level_follows_the_build() -> None:
    """``I6751 T9873``: INFO from b6751 on, TRACE from b9873 on."""
    row = Message("x", "slot", 6751, 11549, "I6751 T9873", "x {n:d}", "x 1")
    assert [row.level_at(build) for build in (6751, 9713, 9873, 11549)] == ["I", "I", "T", "T"]


def test_padding_is_optional() -> None:
    """Text pasted into an issue loses its columns, a missing prefix and a missing function name included."""
    want = {"pos_min": 2038, "pos_max": 2038, "pos_min_thold": 1966}
    for line in (
        "0.01.699.427 I slot update_slots: id  0 | task 46 | Checking checkpoint with [2038, 2038] against 1966...",
        "slot update_slots: id 0 | task 46 | Checking checkpoint with [2038, 2038] against 1966...",
        "id 0 | task 46 | Checking checkpoint with [2038, 2038] against 1966...",
    ):
        (event,) = catalogue().recognise(line.encode())
        assert (event.message, event.fields, event.slot, event.task) == ("ckpt_check", want, 0, 46)


def test_numbers_that_are_none() -> None:
    """A division by zero prints nan or inf, in each platform's spelling."""
    text = "prompt eval time = 0.00 ms / 0 tokens ({} ms per token, {} tokens per second)"
    for bad in ("nan", "-nan", "inf", "-nan(ind)"):
        (event,) = catalogue().recognise(text.format(bad, bad).encode())
        assert event.row is not None


def test_the_groups_of_the_fused_pattern_are_counted_right() -> None:
    """What comes after its groups is found by their number."""
    assert re.compile(rb"()()" + fused.PATTERN).groups - 2 == fused.GROUPS


def test_a_wording_is_compiled_when_all_its_words_are_in_a_line() -> None:
    row = Message("a", "slot", 0, 0, "I0", "read {n:count} of {m:count} \t tokens", "")
    others = (b"read 1 of 2", b"tokens: read 1 of 2", b"read 1 tokens of 2\ntokens")
    assert [match(line, 0) for line in others for match in (row.exact_match, row.loose_match)] == [None] * 6
    assert row.exact_match == row._first_match
    assert row.loose_match == row._first_loose_match
    assert row.match(b"read 1 of 2 tokens", 0) == {"n": 1, "m": 2}
    assert row.exact_match != row._first_match
    found = row.loose_match(b"read 1 of 2 tokens, more", 0)
    assert found is not None
    assert row.convert(found) == {"n": 1, "m": 2}


def test_pairs_are_split_alike_whether_their_names_were_met_or_not() -> None:
    """A list with a name twice, a torn one, and one whose values hold blanks or commas, among those met before."""
    lists = (
        (b"a: 1, b: 2.5, c d: True, e: x%", {"a": "1", "b": "2.5", "c d": "True", "e": "x%"}),
        (b"a: 1, b: 2.5, c d: True, e: x%, ", {"a": "1", "b": "2.5", "c d": "True", "e": "x%"}),
        (b"a: 3, b: 2, c d: T, e: ", {"a": "3", "b": "2", "c d": "T", "e": ""}),
        (b"a: 3, b: 2, c d: T, e: 1 of 2", {"a": "3", "b": "2", "c d": "T", "e": "1 of 2"}),
        (b"a: 3, b: 2, 4, c d: T, e: 1", {"a": "3", "b": "2, 4", "c d": "T", "e": "1"}),
        (b"a: 3, b: 2, c d: T, a: 1, e: 1", {"a": "3", "b": "2", "c d": "T"}),
        (b"a:3,b : 2,c d:  T,e:1", {"a": "3", "b": "2", "c d": "T", "e": "1"}),
    )
    for raw, pairs in lists + lists:
        assert list(as_pairs(raw).items()) == list(pairs.items())


def test_a_wording_that_many_lines_begin_with_is_compiled() -> None:
    """Its pattern fails faster than the look at its words."""
    row = Message("a", "slot", 0, 0, "I0", "read {n:count} tokens", "")
    for _ in range(64):
        assert row.match(b"read 1", 0) is None
    assert row.exact_match == row._first_match
    assert row.match(b"read 1", 0) is None
    assert row.exact_match != row._first_match
