"""No option is printed that the replay of the log does not confirm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES

import cachedoctor
from cachedoctor.model import Finding


def findings(name: str) -> dict[str, Finding]:
    return {one.code: one for one in cachedoctor.analyze(FIXTURES / name / "server.log").findings}


def commands(finding: Finding) -> list[str]:
    return [command for remedy in finding.remedies for command in remedy.commands]


def test_a_ram_cache_that_takes_no_embeddings_is_not_advice() -> None:
    """Embeddings go past the RAM cache: what they displaced is gone, and a second slot alone keeps it."""
    found = findings("days/dense-embeddings_between-b11549-lv4")["CD307"]
    assert not any("--cache-ram" in command for command in commands(found))
    assert commands(found)[0].startswith("--parallel 2")
    assert found.remedies[-1].text == (
        "--cache-ram 8192 does not help here: in a replay of this log it saves 0 of 13,310 tokens."
    )
    assert (found.remedies[-1].options, found.remedies[-1].purpose) == ([], "depends")


def test_an_option_that_makes_a_conversation_worse_is_not_advice() -> None:
    """Two sessions with a head of 1,779 tokens: apart, the second computes the head that it had shared."""
    found = findings("cases/shared-prefix-steal-b8672")["CD308"]
    assert commands(found) == []
    assert found.remedies[-1].text.endswith(
        "saves 72 of 2,238 tokens, and a conversation would reuse 1,009 tokens less."
    )
    assert not cachedoctor.analyze(FIXTURES / "cases/shared-prefix-steal-b8672" / "server.log").fix


@pytest.mark.parametrize(
    ("name", "code", "first"),
    [
        ("cases/slot-contention-dense-b8672", "CD302", "--parallel 4 --ctx-size 65536"),
        ("cases/cache-ram-off-hybrid", "CD303", "--cache-ram 8192"),
        ("cases/ram-entry-consumed", "CD311", "--parallel 3 --ctx-size 36864"),
        ("cases/lora-changed-b9713", "CD111", "--parallel 2 --ctx-size 32768"),
        ("days/dense-kv_too_small-b9713-default", "CD306", "--cache-ram 8192"),
    ],
    ids=["confirmed", "confirmed with a RAM cache", "with id_slot", "adapters", "not explained"],
)
def test_what_is_confirmed_or_cannot_be_tried_stays(name: str, code: str, first: str) -> None:
    """A replay that does not explain the log, or does not know what an option needs beside it, rejects nothing."""
    found = findings(name)[code]
    assert any(command.startswith(first) for command in commands(found))
    assert not any("no advice" in remedy.text for remedy in found.remedies)


def test_jobs_reject_the_same(tmp_path: Any) -> None:
    """Parts of a log are replayed together."""
    import command

    log = FIXTURES / "cases/shared-prefix-steal-b8672" / "server.log"
    both = [log, FIXTURES / "cases/cache-ram-off-hybrid" / "server.log"]
    one, two = (json.loads(command.run("analyze", *both, "-f", "json", "-j", n).stdout) for n in ("1", "2"))
    assert one["findings"] == two["findings"]
    assert any("does not help here" in remedy["text"] for f in one["findings"] for remedy in f["remedies"])


def killed(tmp_path: Path, name: str) -> Finding:
    """The finding of a log to whose end the kernel's line is added."""
    line = b"Out of memory: Killed process 4242 (llama-server) total-vm:61234567kB, anon-rss:30123456kB\n"
    log = tmp_path / "server.log"
    log.write_bytes((FIXTURES / name / "server.log").read_bytes() + line)
    return next(one for one in cachedoctor.analyze(log).findings if one.code == "CD409")


def test_after_a_kill_the_smallest_ram_cache_that_is_enough_comes_first(tmp_path: Path) -> None:
    """Each conversation kept its slot: what the RAM cache held, 31 MiB, was never used."""
    found = killed(tmp_path, "days/swa-compaction-b11549-lv4")
    assert commands(found)[0] == "--cache-ram 0"
    assert "99 % of the 28,469 tokens reused here" in found.remedies[0].text
    assert "held 31 MiB at the last count (limit 8,192 MiB)" in found.why


def test_after_a_kill_a_limit_that_frees_nothing_is_not_advised(tmp_path: Path) -> None:
    """The RAM cache never held more than 1.9 MiB, all of it of use."""
    assert commands(killed(tmp_path, "days/dense-sibling_entry-b11549-lv4")) == []
