"""The catalogue of SGLang: every row reads its sample alone, and every batch line of 13 versions is read in full."""

from __future__ import annotations

import re

import pytest
from conftest import FIXTURES
from loops import each

from cachedoctor.engines.catalogue.base import HOLE, Event, Message
from cachedoctor.engines.catalogue.scanner import Scanner
from cachedoctor.engines.sglang.fields import FIELDS, MEANINGS, PAIRS, field
from cachedoctor.engines.sglang.messages import ROWS
from cachedoctor.engines.sglang.tracker import READER
from cachedoctor.model import Segment
from cachedoctor.redaction.holes import PLAIN

LINES = (FIXTURES / "lines" / "sglang_batch_lines_13_versions.txt").read_text("utf-8").splitlines()
BATCHES = [line for line in LINES if line.startswith("[")]
PAIR = re.compile(r"([#A-Za-z][^,:]*): ([^,]+)")
"""A name and a value as a person reads them in a batch line."""

STAMP = "[2026-07-04 04:31:24"
PREFILL = "Prefill batch, #new-seq: 1, #new-token: 310, #cached-token: 9344, token usage: 0.07"


def name_of(row: Message) -> str:
    return f"{row.id}-{row.first}-{ROWS.index(row)}"


def events(text: str) -> list[Event]:
    return list(Scanner(READER.catalogue, READER.plan).scan(Segment(None, text.encode() + b"\n", 1)))


@each("row", ROWS, ids=name_of)
def test_a_sample_is_recognised_by_its_row_alone(row: Message) -> None:
    """Two rows that match one line would make the reading a matter of luck."""
    assert [event.row for event in READER.catalogue.recognise(row.sample.encode())] == [row]


@each("row", ROWS, ids=name_of)
def test_the_scanner_finds_what_the_catalogue_recognises(row: Message) -> None:
    (event,) = events(row.sample)
    assert event.row is row
    assert event.text.decode() == row.sample


def test_rows_are_in_order() -> None:
    """Versions of a row run forward, and its level is known for its first one."""
    for row in ROWS:
        assert 403 <= row.first <= row.last <= 523, row.template
        assert row.levels[1:].isdigit(), row.template
        assert int(row.levels[1:].split()[0]) == row.first, row.template
        assert row.levels[0] in "IWDP", row.template


def test_the_lines_are_there() -> None:
    """13 versions, 3 kinds of model, 3 prefill lines each; the decode line is there for 9 versions."""
    assert len([line for line in BATCHES if "Prefill" in line]) == 13 * 3 * 3
    assert len([line for line in BATCHES if "Decode" in line]) == 9 * 3


@each("number", range(len(BATCHES)))
def test_a_batch_line_is_read_with_all_its_fields(number: int) -> None:
    line = BATCHES[number]
    (event,) = events(line)
    assert event.message == ("prefill" if "Prefill" in line else "decode")
    want = {name.strip(): value.strip() for name, value in PAIR.findall(line.split(" batch")[1])}
    assert len(want) >= 6
    assert event.fields["more"] == want


def test_the_numbers_of_a_batch_line() -> None:
    """By hand, for the third prefill line of the newest version with a hybrid model."""
    start = LINES.index("## 0.5.23 mamba")
    (event,) = events(LINES[start + 3])
    assert event.fields["more"] == {
        "#new-seq": "1",
        "#new-token": "310",
        "#cached-token": "9344",
        "full token usage": "0.07",
        "mamba usage": "0.21",
        "#running-req": "0",
        "#queue-req": "0",
        "#pending-token": "0",
        "cuda graph": "False",
        "input throughput (token/s)": "1661414.45",
    }


@pytest.mark.parametrize(
    "prefix",
    [
        "[2026-07-04 04:31:24] ",
        "[2026-07-04 04:31:24 TP0] ",
        "[2026-07-04 04:31:24.998 DP3 TP0] ",
        "[2026-07-04 04:31:24 DP0 PP1 ATTN_CP0 MOE_DP1 TP12 EP3] ",
        "[16:43:29 TP0] ",
        "[16:43:29] ",
        "",
        "Loading checkpoint shards: 100% Completed | 4/4 [00:02<00:00,  1.52it/s][2026-07-04 04:31:24 TP0] ",
        "Capturing batches (bs=1): 100%|####| 23/23 [00:05<00:00,  4.2it/s] [2026-07-04 04:31:24 TP0] ",
    ],
)
def test_what_may_come_before_a_message(prefix: str) -> None:
    (event,) = events(prefix + PREFILL)
    assert event.message == "prefill"
    assert event.fields["more"]["#cached-token"] == "9344"


@pytest.mark.parametrize(
    "line",
    [
        f"Receive: obj=GenerateReqInput(rid='1', text='why {STAMP}] {PREFILL}')",
        f"{STAMP}] Receive: obj=GenerateReqInput(rid='1', text='why {STAMP}] {PREFILL}')",
        f'{{"timestamp": "2026-07-04", "event": "request.received", "obj": {{"text": "{STAMP}] {PREFILL}"}}}}',
        f"Finish: obj=GenerateReqInput(rid='1', text='why {STAMP}] {PREFILL}'), out={{'meta_info': {{}}}}",
    ],
)
def test_a_log_in_a_prompt_is_not_a_log(line: str) -> None:
    (event,) = events(line)
    assert event.message in ("received", "finished")


def test_text_of_others_is_not_taken_for_a_message() -> None:
    """A quoted message, one in the middle of a sentence, and one after the prefix of another logger."""
    assert events(f"app got '{STAMP}] {PREFILL}'") == []
    assert events(f"{STAMP}] the log says Cache flushed successfully!") == []
    assert events("INFO:root:Cache flushed successfully!") == []


def test_a_message_that_has_become_longer_is_read() -> None:
    """Newer versions append; the pairs need no row of their own."""
    (event,) = events(f"{STAMP} TP0] Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
                      "hybrid_ssm=True hicache_attached=False shards=4")  # fmt: skip
    assert (event.message, event.fields["impl"]) == ("tree_cache", "UnifiedRadixCache")
    (event,) = events(f"{STAMP}] {PREFILL}, #new-thing: 7")
    assert event.fields["more"]["#new-thing"] == "7"


# ---- words for people


def test_every_message_and_every_field_has_words() -> None:
    """And a description that nothing has any more must go."""
    used = {
        f"{row.id}.{name}" if f"{row.id}.{name}" in FIELDS else name
        for row in ROWS
        for name, _ in HOLE.findall(row.template)
    }
    assert used == set(FIELDS)
    assert set(MEANINGS) == {row.id for row in ROWS}
    assert all(meaning.endswith(".") for meaning in MEANINGS.values())


@pytest.mark.sample(15)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_every_amount_has_a_unit(row: Message) -> None:
    for name, kind in HOLE.findall(row.template):
        known = field(row.id, name)
        assert known is not None, name
        assert known.meaning, name
        assert known.unit or kind not in PLAIN or name in ("status", "node"), name


def test_every_name_in_a_batch_line_has_words() -> None:
    """Those of 13 versions, and those that only a server in two halves, a draft or an estimate adds."""
    names = {name for line in BATCHES for event in events(line) for name in event.fields["more"]}
    assert len(names) >= 15
    assert names <= set(PAIRS)
    assert all(pair.meaning for pair in PAIRS.values())
    assert all(pair.unit for name, pair in PAIRS.items() if not name.endswith(" graph"))
