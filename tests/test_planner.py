"""No option is printed that the replay of the log does not confirm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import FIXTURES
from e2e import models
from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.doctor.fixing import planner
from cachedoctor.doctor.replaying.trials import Trial, compare
from cachedoctor.model import Finding, OptionReplay, Remedy, as_typed


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
        "--cache-ram 8192 does not help here: in a replay of this log the option saves 0 of 13,310 recomputed tokens."
    )
    assert (found.remedies[-1].options, found.remedies[-1].purpose) == ([], "depends")


def test_an_option_that_makes_a_conversation_worse_is_not_advice() -> None:
    """Two sessions with a head of 1,779 tokens: apart, the second computes the head that it had shared.

    Another value is found by replay, as tune finds it.
    """
    found = findings("cases/shared-prefix-steal-b8672")["CD308"]
    assert commands(found) == ["--slot-prompt-similarity 0.8"]
    assert found.remedies[0].replay is not None
    assert found.remedies[0].replay.saved_tokens == 1_851
    assert found.remedies[-1].text.endswith(
        "these options save 72 of 2,238 recomputed tokens, and one conversation would reuse 1,009 fewer tokens."
    )
    (fix,) = cachedoctor.analyze(FIXTURES / "cases/shared-prefix-steal-b8672" / "server.log").fix
    assert [change.words for change in fix.options] == [["--slot-prompt-similarity", "0.8"]]


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
    assert not any("not help here" in remedy.text for remedy in found.remedies)


def test_jobs_reject_the_same(tmp_path: Any) -> None:
    """Parts of a log are replayed together."""
    import command

    log = FIXTURES / "cases/shared-prefix-steal-b8672" / "server.log"
    both = [log, FIXTURES / "cases/cache-ram-off-hybrid" / "server.log"]
    one, two = (json.loads(command.run("analyze", *both, "-f", "json", "-j", n).stdout) for n in ("1", "2"))
    assert one["findings"] == two["findings"]
    assert any("not help here" in remedy["text"] for f in one["findings"] for remedy in f["remedies"])


def test_the_cheapest_option_that_saves_as_much_stands_first() -> None:
    """Four chats on two slots: main memory holds their prompts as well as two more slots do, which take KV memory."""
    found = findings("cases/slot-contention-dense-b8672")["CD302"]
    assert commands(found)[:2] == ["--cache-ram 8192", "--parallel 4 --ctx-size 65536"]
    ram, slots = (one.replay for one in found.remedies[:2])
    assert ram is not None
    assert slots is not None
    assert ram.claimed_tokens == slots.claimed_tokens == found.cost.tokens == 11_692
    assert min(ram.saved_tokens or 0, slots.saved_tokens or 0) >= found.cost.tokens


def test_one_option_fixes_both_findings_of_a_server() -> None:
    (fix,) = cachedoctor.analyze(FIXTURES / "cases/slot-contention-dense-b8672" / "server.log").fix
    assert [change.words for change in fix.options] == [["--cache-ram", "8192"]]
    assert fix.codes == ["CD302", "CD303"]
    assert fix.replay is not None
    assert fix.replay.claimed_tokens == 11_692 + 1_837


@pytest.mark.parametrize(
    ("replay", "words"),
    [
        (
            OptionReplay(13_529, 13_529, 12, 12),
            "In a replay this saves 13,529 of 13,529 recomputed tokens.",
        ),
        (
            OptionReplay(2_411, 13_360, 32, 32, 6),
            "In a replay this saves about 2,411 of 2,411 recomputed tokens.",
        ),
        (
            OptionReplay(2_411, None, 15, 24),
            "Saving not confirmed: the replay agrees with the server in 15 of 24 requests.",
        ),
        (
            OptionReplay(2_411, None, 24, 24),
            "Saving not confirmed: this log does not show that the recomputed tokens had been sent before.",
        ),
    ],
)
def test_an_option_says_what_the_replay_says_of_it(replay: OptionReplay, words: str) -> None:
    assert replay.words == words


def test_nine_of_ten_requests_have_to_be_explained() -> None:
    assert OptionReplay(1, 1, 9, 10).is_explained
    assert not OptionReplay(1, 1, 89, 100).is_explained
    assert not OptionReplay(1, 1, 0, 0).is_explained


def test_every_format_says_what_an_option_saves() -> None:
    import command

    log = FIXTURES / "cases/slot-contention-dense-b8672" / "server.log"
    words = "In a replay this saves about 11,692 of 11,692 recomputed tokens."
    for form in ("text", "markdown", "html"):
        shown = command.run("analyze", log, "-f", form).stdout.decode()
        assert words in " ".join(shown.split()), form
    told = json.loads(command.run("analyze", log, "-f", "json").stdout)["findings"][0]["remedies"][0]["replay"]
    assert (told["claimed_tokens"], told["saved_tokens"]) == (11_692, 13_529)
    assert (
        "# In a replay this saves about 13,529 of 13,529 recomputed tokens." in command.run("fix", log).stdout.decode()
    )


def test_where_the_replay_does_not_explain_the_log_options_stay_and_say_so() -> None:
    found = findings("days/dense-kv_too_small-b9713-default")["CD306"]
    replays = [one.replay for one in found.remedies if one.options and one.purpose == "fix"]
    assert replays
    assert all(one is not None and one.saved_tokens is None and not one.is_explained for one in replays)


def option(words: str) -> Remedy:
    return Remedy(words, options=as_typed(words))


def test_a_client_comes_before_memory_memory_before_slots_and_slots_before_context() -> None:
    ladder = [
        "--slot-prompt-similarity 0.5", "--cache-ram 8192", "--parallel 4 --kv-unified", "--parallel 4 --ctx-size 9",
    ]  # fmt: skip
    assert [planner._price(option(words)) for words in ladder] == [0, 1, 2, 3]
    assert planner._price(Remedy("Freeze the clock.")) == 0


def test_a_cheaper_option_that_saves_less_does_not_come_first() -> None:
    """An option as good as the best one is within 1 %."""
    tried = [
        replace(option(words), replay=OptionReplay(10_000, saved, 9, 9))
        for words, saved in (("--parallel 4 --ctx-size 9", 10_000), ("--cache-ram 8192", 9_800), ("-sps 0.5", 9_950))
    ]
    assert [one.text for one in planner._cheapest_first(tried)] == [
        "-sps 0.5", "--parallel 4 --ctx-size 9", "--cache-ram 8192",
    ]  # fmt: skip


def served(*reused: int) -> list[Served]:
    return [Served(tokens, 0, "lru", False, 0, 0) for tokens in reused]


def test_a_setting_is_worse_when_one_conversation_loses_though_all_together_gain() -> None:
    """A loss of 16 tokens a turn is the end of a prefix, not a loss."""
    assert compare([0, 0, 1], served(0, 0, 900), served(500, 900, 400)) == Trial(900, 500)
    assert compare([0, 0, 1], served(0, 0, 900), served(500, 900, 884)) == Trial(1384, 0)
    assert compare([0, 0], served(900, 900), served(884, 884)) == Trial(-32, 0)


def test_tune_and_fix_name_the_same_setting() -> None:
    from cachedoctor.doctor.whatif.evidence import Asking, gather
    from cachedoctor.doctor.whatif.tuning import tune

    log = FIXTURES / "cases/shared-prefix-steal-b8672" / "server.log"
    told = tune(gather(Asking([str(log)])), [str(log)])
    (fix,) = cachedoctor.analyze(log).fix
    assert told.best is not None
    assert told.best.options == " ".join(word for change in fix.options for word in change.words)
    assert fix.replay is not None
    assert fix.replay.saved_tokens == told.best.saved_tokens == 1_851


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


@pytest.mark.usefixtures("child_here")
def test_with_the_prompts_given_the_replay_goes_by_their_text(tmp_path: Path) -> None:
    """Nine tickets share a slot. By the log alone a threshold cannot be tried; played with -sps 0.8 the server reused
    1,539 tokens less, so by the bodies it is not a fix."""
    models.KINDS["dense"]().save(tmp_path / "dense.gguf")
    day = FIXTURES / "days" / "dense-support_queue-b8672-default"
    given: dict[str, Any] = {"prompts": [day / "requests.jsonl"], "tokenizer": str(tmp_path / "dense.gguf")}
    stolen = next(f for f in cachedoctor.analyze(day / "server.log", **given).findings if f.code == "CD308")
    assert stolen.confidence == "high"
    assert not [remedy for remedy in stolen.remedies if remedy.options]
    assert "saves 0 of 5,232 recomputed tokens, and one conversation would reuse" in stolen.remedies[-1].text
