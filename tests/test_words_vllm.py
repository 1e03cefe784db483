"""What is said of vLLM's messages and their fields: complete, with units, and nothing besides."""

from __future__ import annotations

import re

import pytest
from loops import each

from cachedoctor.engines.catalogue.base import HOLE, Message
from cachedoctor.engines.vllm.fields import FIELDS, MEANINGS, PAIRS, field, pair
from cachedoctor.engines.vllm.messages import ROWS
from cachedoctor.engines.vllm.tracker import READER
from cachedoctor.redaction.holes import PLAIN

MORE = (
    "[x.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.5 tokens/s, Running: 3 "
    "reqs, Waiting: 4 reqs, Deferred: 2 reqs, KV fetch: 1 waiting to start, 2 in progress, 3 completed waiting, "
    "Preemptions: 4, GPU KV cache usage: 37.2%, Prefix cache hit rate: 53.3%, Corrupted: 1 reqs, "
    "External prefix cache hit rate: 12.5%, MM cache hit rate: 80.0%",
    "[x.py:1] SpecDecoding metrics: Draft acceptance rate: 53.7%, Mean acceptance length: 2.61, Accepted: 513 tokens, "
    "Drafted: 956 tokens, Per-position acceptance rate: 0.862, 0.747",
)
"""Lines with all pairs that no sample has."""


def name_of(row: Message) -> str:
    return f"{row.id}-{row.first}-{ROWS.index(row)}"


def test_every_message_has_a_meaning() -> None:
    """One that nothing prints any more must go; sentences end."""
    assert set(MEANINGS) == {row.id for row in ROWS}
    assert all(re.fullmatch(r"[A-Z].*[.]", meaning) for meaning in MEANINGS.values())


@each("row", ROWS, ids=name_of)
def test_every_field_has_words_and_every_number_a_unit(row: Message) -> None:
    """Of all wordings."""
    for name, kind in HOLE.findall(row.template):
        known = field(row.id, name)
        assert known is not None, name
        assert known.meaning, name
        assert known.unit or kind not in PLAIN, name


def test_every_pair_has_words() -> None:
    """Those in samples and in lines with all of them; other names have none."""
    seen = []
    for line in [*(row.sample for row in ROWS), *MORE]:
        (event,) = READER.catalogue.recognise(line.encode())
        for name in event.fields["more"] if isinstance(event.fields.get("more"), dict) else ():
            known = pair(event.message, name)
            assert known is not None, (event.message, name)
            seen.append(known)
    assert all(known in seen for known in PAIRS.values())
    assert pair("stats", "Something new") is None
    assert pair("speculation", "GPU KV cache usage") is None


def test_the_tables_hold_nothing_else() -> None:
    """A description that nothing has any more must go."""
    used = {
        f"{row.id}.{name}" if f"{row.id}.{name}" in FIELDS else name
        for row in ROWS
        for name, _ in HOLE.findall(row.template)
    }
    assert used == set(FIELDS)


@pytest.mark.parametrize("name", ["total", "stored", "mode", "path", "version", "more", "prompt_rate", "url"])
def test_names_with_several_meanings_have_no_general_one(name: str) -> None:
    """A new message with such a name must say what it means there."""
    assert name not in FIELDS


def test_what_is_easily_misread() -> None:
    """A rate that rolls, a usage that counts no cached blocks, a throughput that changed its meaning."""
    rate, usage = pair("stats", "Prefix cache hit rate"), pair("stats", "XPU KV cache usage")
    throughput, all_tokens = field("stats", "prompt_rate"), field("stats_v0", "prompt_rate")
    assert rate is not None
    assert "not the interval" in rate.meaning
    assert "prefix caching off" in rate.special[0.0]
    assert usage is not None
    assert "count as free" in usage.meaning
    assert throughput is not None
    assert "from 0.16 on only computed ones" in throughput.meaning
    assert all_tokens is not None
    assert "including reused ones" in all_tokens.meaning
    assert "does not mean a hit rate of 0" in MEANINGS["stats_off"]
