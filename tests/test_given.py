"""The command line beside a log: what its options become, which of them are named, and that the log comes first."""

from __future__ import annotations

from typing import Any

import made
import pytest
from conftest import CASES, log_of, report_of

from cachedoctor.diagnosis.rules import advice
from cachedoctor.diagnosis.rules.lifetime import cd406_option_unknown, cd407_option_without_effect
from cachedoctor.doctor.analysis.sessions import PeakConversations
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import Judged, Mark, Session, Setting, Sizes

LOADED = "0.00.006.179 I srv    load_model: loading model '/models/x.gguf'\n"
TRACE = "0.00.043.101 I srv    load_model: context checkpoints enabled, max = 32, min spacing = 8192\n"
RAM = "0.00.045.925 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"


def server(line: str, **facts: Any) -> Session:
    """A session that was given a command line, and what a log would have told of it."""
    settings = facts.pop("settings", {})
    found = Session(0, "server.log", given=parse(line), **facts)
    for name, value in settings.items():
        found.settings[name] = Setting(value, 7, b"the line") if not isinstance(value, Setting) else value
    return found


def unknown(line: str, build: int | None = 11549, **facts: Any) -> list[str]:
    return [note.words.claim for note in cd406_option_unknown.inspect(server(line, build=build, **facts))]


def idle(line: str, fired: frozenset[str] = frozenset(), **facts: Any) -> list[str]:
    """Claims of what is said where these codes fired in the input."""
    found = cd407_option_without_effect.inspect(server(line, **facts))
    return [note.words.claim for note in found if fired.isdisjoint(note.unless)]


# ---- CD406


@pytest.mark.parametrize(
    ("build", "option", "fix"),
    [
        (6628, "--ctx-checkpoints 8", "--swa-checkpoints 8"),
        (6628, "--cache-ram 512", None),
        (7964, "-ctxcp 16", "--ctx-checkpoints 16"),
        (9294, "--clear-idle", "--cache-idle-slots"),
        (9294, "--no-clear-idle", "--no-cache-idle-slots"),
        (9538, "--checkpoint-every-n-tokens 512", None),
        (9294, "--checkpoint-every-nb 512", "says --checkpoint-every-n-tokens"),
        (11549, "--checkpoint-every-nb 512", None),
        (7376, "--no-kv-unified", None),
        (9713, "--reasoning-preserve", None),
    ],
)
def test_an_option_of_another_build_and_its_name_here(build: int, option: str, fix: str | None) -> None:
    """The right name with the value that was given, or the words that there is none."""
    (note,) = cd406_option_unknown.inspect(server(f"llama-server {option}", build=build))
    commands = [command for remedy in note.words.remedies for command in remedy.commands]
    if fix is not None and fix.startswith("says "):
        assert commands == []  # a number of another unit
        assert fix.removeprefix("says ") in note.words.remedies[0].text
    else:
        assert commands == ([fix] if fix else [])
    assert option.split()[0] in note.words.claim
    if fix is None:
        assert "Remove the option" in note.words.remedies[0].text


@pytest.mark.parametrize("build", [9294, None])
def test_a_draft_that_counted_otherwise_is_not_called_the_same(build: int | None) -> None:
    """Three batches are not three tokens: neither its number is passed on nor its unit kept silent."""
    (note,) = cd406_option_unknown.inspect(server("llama-server --checkpoint-every-nb 3", build=build))
    (remedy,) = note.words.remedies
    assert "a number of tokens" in remedy.text
    assert "calls it" not in remedy.text
    assert not any(command.endswith(" 3") for command in remedy.commands)


@pytest.mark.parametrize("option", ["--no-kv-unified", "--no-cache-prompt", "--no-clear-idle"])
def test_a_switch_off_is_not_replaced_by_what_switches_on(option: str) -> None:
    """b6900 has none of them; --kv-unified would do the opposite."""
    (note,) = cd406_option_unknown.inspect(server(f"llama-server {option}", build=6900))
    (remedy,) = note.words.remedies
    assert "--no-" in remedy.text
    assert "--kv-unified" not in remedy.text
    assert "--cache-prompt" not in remedy.text


@pytest.mark.parametrize(
    "option", ["--ctx-checkpoints 8", "--swa-checkpoints 8", "--cache-ram 0", "--cache-idle-slots", "-np 4", "--temp 1"]
)
def test_an_option_of_this_build_is_not_called_unknown(option: str) -> None:
    """Nor one that is not a business of a cache."""
    assert unknown(f"llama-server {option} --frobnicate") == []


def test_where_the_build_is_a_range_or_unknown_nothing_is_claimed() -> None:
    """b9400 is after the last sample that has --checkpoint-every-n-tokens, and before the first that has it not."""
    line = "llama-server --checkpoint-every-n-tokens 512"
    assert unknown(line, 9400) == []
    assert unknown(line, None) == []
    assert unknown(line, None, build_min=9094) == []
    assert len(unknown(line, None, build_min=9538)) == 1
    assert len(unknown("llama-server --checkpoint-every-nb 1", None)) == 1  # whatever the build


def test_a_variable_is_ignored_and_has_another_name() -> None:
    """The server does not refuse it."""
    session = server("LLAMA_CHAT_TEMPLATE_KWARGS={} llama-server", build=9538)
    (note,) = cd406_option_unknown.inspect(session)
    assert "ignores" in note.words.why
    assert "LLAMA_ARG_CHAT_TEMPLATE_KWARGS" in note.words.remedies[0].text
    assert unknown("LLAMA_CHAT_TEMPLATE_KWARGS={} llama-server", 9294) == []


def test_what_the_server_refused_needs_no_command_line() -> None:
    """Its own line is the evidence; hostile words in it stay words."""
    report = report_of("Nov 20 08:11:02 host llama-server[1]: error: invalid argument: --checkpoint-every-nb\n")
    (finding,) = report["findings"]
    assert finding["code"] == "CD406"
    assert finding["evidence"][0]["line"] == 1
    assert finding["cost"]["tokens"] == 0
    (other,) = report_of("error: invalid argument: [bold]\x1b[31m\n")["findings"]
    assert other["code"] in ("CD406", "CD903")


# ---- CD407


@pytest.mark.parametrize(
    ("line", "facts", "part"),
    [
        ("--swa-full", {"memory": "hybrid"}, "no sliding window"),
        ("--swa-full", {"memory": "attention"}, "no sliding window"),
        ("--cache-reuse 256", {"memory": "hybrid"}, "hybrid memory cannot be shifted"),
        ("--cache-reuse 256", {"memory": "recurrent"}, "recurrent memory cannot be shifted"),
        ("--cache-reuse 256", {"memory": "attention", "settings": {"mmproj": True}}, "projector"),
        ("--cache-reuse 256", {"memory": "swa"}, "with --swa-full"),
        ("--ctx-checkpoints 64", {"memory": "attention"}, "makes no checkpoints"),
        ("--checkpoint-min-step 0", {"memory": "attention"}, "makes no checkpoints"),
        ("--ctx-checkpoints 64", {"memory": "swa", "settings": {"swa_full": True}}, "makes no checkpoints"),
        ("--cache-idle-slots", {"settings": {"cache_ram_mib": 0}}, "needs --cache-ram"),
        ("--cache-idle-slots", {"build": 9294, "settings": {"kv_unified": False}}, "needs --kv-unified"),
        ("-c 32768 -np 4", {"n_slots": 4, "settings": {"kv_unified": False}}, "has 8,192 tokens"),
        ("--no-cache-prompt --cache-reuse 9", {}, "--cache-reuse then does nothing"),
        ("--cache-ram 0", {"settings": {"cache_ram_mib": 8192}}, "the log shows 8192"),
        ("--kv-unified", {"settings": {"kv_unified": False}}, "the log shows off"),
        ("-np 4", {"n_slots": 1, "shows": frozenset({"slot_count"})}, "the log shows 1 slot;"),
    ],
)
def test_an_option_that_does_nothing_here(line: str, facts: dict[str, Any], part: str) -> None:
    """One note, with the reason."""
    (claim,) = idle(f"llama-server {line}", **facts)
    assert part in claim


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("--swa-full", {"memory": "swa"}),
        ("--swa-full", {}),  # the memory is not known
        ("--cache-reuse 256", {"memory": "attention"}),
        ("--cache-reuse 256", {"memory": "swa", "settings": {"swa_full": True}}),
        ("--cache-reuse 0", {"memory": "hybrid"}),
        ("--cache-reuse 256", {"memory": "hybrid", "fired": frozenset({"CD210"})}),  # said there already
        ("--ctx-checkpoints 64", {"memory": "hybrid"}),
        ("--ctx-checkpoints 64", {"memory": "attention", "shows": frozenset({"checkpoints"})}),
        ("--ctx-checkpoints 0", {"memory": "attention"}),
        ("--cache-idle-slots", {"settings": {"cache_ram_mib": 8192}}),
        ("--cache-idle-slots", {"build": 9713, "settings": {"kv_unified": False}}),
        ("-c 32768 -np 4 -kvu", {"n_slots": 4, "settings": {"kv_unified": True}}),
        ("-c 32768 -np 1", {"n_slots": 1, "settings": {"kv_unified": False}}),
        ("-c 32768 -np 4", {"n_slots": 4, "settings": {"kv_unified": False}, "fired": frozenset({"CD403"})}),
        ("-c 0 -np 4", {"n_slots": 4, "settings": {"kv_unified": False}}),
        ("--cache-ram 8192", {"settings": {"cache_ram_mib": 8192}}),
        ("--cache-ram 0", {"settings": {"cache_ram_mib": Setting(0, None)}}),
    ],
)
def test_an_option_that_works_is_left_alone(line: str, facts: dict[str, Any]) -> None:
    """Silence where the log proves nothing."""
    assert idle(f"llama-server {line}", **facts) == []


def test_an_option_that_is_unknown_is_not_called_idle_as_well() -> None:
    """One finding per option."""
    line = "LLAMA_ARG_CLEAR_IDLE=1 llama-server --cache_idle_slots"
    assert idle(line, build=11549, settings={"cache_ram_mib": 0}) == [
        "--cache_idle_slots has no effect: it needs --cache-ram, which is 0"
    ]
    assert idle("LLAMA_ARG_CLEAR_IDLE=1 llama-server", build=11549, settings={"cache_ram_mib": 0}) == []


def test_checkpoints_switched_off_by_the_command_line_alone() -> None:
    """The level hides setting and memory; turns that only grew were reused, and one whose end changed was not."""
    (case,) = (folder for folder in CASES if folder.name == "checkpoints-disabled-hidden")
    (log,) = (log_of(case).read_bytes(),)
    without, told = report_of(log), report_of(log, given=parse("llama-server -m x --ctx-checkpoints 0"))
    assert {f["code"] for f in without["findings"]} == {"CD901", "CD105"}
    (found,) = (f for f in told["findings"] if f["code"] == "CD202")
    assert (found["count"], found["confidence"]) == (2, "medium")
    assert "The command line switches checkpoints off." in found["why"]
    assert "CD901" not in {f["code"] for f in told["findings"]}
    for line in ("llama-server --ctx-checkpoints 8", "llama-server --cache-ram 0"):
        assert "CD202" not in {f["code"] for f in report_of(log, given=parse(line))["findings"]}


@pytest.mark.parametrize(
    "name", ["cache-prompt-off-default-verbosity", "healthy-dense-b6301", "no-checkpoint-mamba-b6301"]
)
def test_a_command_line_makes_no_loss_of_another_kind(name: str) -> None:
    """Caching that was off, a healthy log, a build without checkpoints: --ctx-checkpoints 0 is not the cause."""
    (case,) = (folder for folder in CASES if folder.name == name)
    report = report_of(log_of(case).read_bytes(), given=parse("llama-server --ctx-checkpoints 0"))
    assert "CD202" not in {f["code"] for f in report["findings"]}


def test_a_command_line_does_not_hide_that_no_checkpoint_was_made() -> None:
    """b8672 prints each creation, and printed none: the command line with 64 is not the one of this server."""
    (case,) = (folder for folder in CASES if folder.name == "checkpoints-disabled-swa-b8672")
    report = report_of(log_of(case).read_bytes(), given=parse("llama-server --ctx-checkpoints 64"))
    (off,) = (f for f in report["findings"] if f["code"] == "CD202")
    assert off["confidence"] == "medium"
    assert "this log has no such line" in off["why"]


def test_a_finding_needs_no_lost_token() -> None:
    """The start-up lines and the command line are enough."""
    report = report_of(LOADED + RAM, given=parse("llama-server --cache-ram 64 --checkpoint-every-nb 3"))
    assert {f["code"] for f in report["findings"]} == {"CD406", "CD407"}
    assert report["totals"]["requests"] == 0
    (contradicted,) = (f for f in report["findings"] if f["code"] == "CD407")
    assert contradicted["evidence"][0]["line"] == 2


def test_the_log_comes_before_the_command_line() -> None:
    """A fact of the command line has no line; a line of the log replaces it."""
    given = parse("llama-server --cache-ram 64 --ctx-checkpoints 5 -np 2")
    settings = report_of(LOADED + RAM, given=given)["sessions"][0]["settings"]
    assert settings["cache_ram_mib"] == {"value": 8192, "line": 2}
    assert settings["ctx_checkpoints"] == {"value": 5, "line": None}
    assert report_of(LOADED, given=given)["sessions"][0]["n_slots"] == 2
    assert "cache_ram_mib" not in report_of(LOADED)["sessions"][0]["settings"]


# ---- sizes


def test_as_many_slots_as_conversations_in_use_at_once() -> None:
    """A B A: two. A B C A: three. A conversation that never returns costs no slot."""
    for order, at_once in [("AAAA", 0), ("ABC", 0), ("ABA", 2), ("ABCA", 3), ("ABABCD", 2), ("ABCABC", 3)]:
        session, returns = Session(0, "x"), PeakConversations()
        for index, name in enumerate(order):
            returns.take([Judged(made.request(index=index, thread=ord(name)))], [session])
        assert session.at_once == at_once, order


def test_the_ram_cache_is_sized_by_the_conversations() -> None:
    """600 + 500 MiB, and one more that is taken for as large as the largest: 1,700, rounded up to 1,792."""
    session = Session(0, "x", build=9294, at_once=3, sizes=Sizes(None, 600.0, conversations={1: 600.0, 2: 500.0}))
    session.settings["cache_ram_mib"] = Setting(1024, 1)
    session.settings["ram_evictions"] = Setting(3, 9)
    remedy = advice.cache_ram(session)
    assert remedy.commands == ["--cache-ram 1792"]
    assert "about 1,700 MiB; the largest takes 600 MiB" in remedy.text


def test_the_ram_cache_is_never_advised_smaller_than_it_is() -> None:
    """Where it is on and nothing was evicted, its size is not a remedy; an evicting one grows by the largest prompt."""
    small = Sizes(None, 300.0, conversations={1: 300.0})
    session = Session(0, "x", build=9294, at_once=2, sizes=small)
    assert advice.cache_ram(session).commands == ["--cache-ram 8192"]
    session.settings["cache_ram_mib"] = Setting(8192, 1)
    session.settings["ram_evictions"] = Setting(1, 9)
    assert advice.cache_ram(session).commands == ["--cache-ram 8704"]  # 8192 + 300, in steps of 256
    off = Session(0, "x", build=9294, settings={"cache_ram_mib": Setting(0, 1)})
    assert advice.cache_ram(off).commands == ["--cache-ram 8192"]
    assert "the default" in advice.cache_ram(off).text


def test_an_old_build_is_not_told_an_option_that_it_lacks() -> None:
    """b6628 has no RAM prompt cache."""
    remedy = advice.cache_ram(Session(0, "x", build=6628))
    assert remedy.commands == []
    assert "b6751" in remedy.text
    remedy = advice.cache_ram(Session(0, "x", build=7551, settings={"mmproj": Setting(True, 1)}))
    assert remedy.commands == []  # there, and not used beside a projector
    assert "b8156" in remedy.text


def test_more_checkpoints_only_where_the_list_was_full() -> None:
    """Twice the limit, with what that takes by the sizes of the log."""
    session = Session(0, "x", build=11549, sizes=Sizes(checkpoint=63.5))
    remedy = advice.more_checkpoints(session, 32)
    assert remedy is not None
    assert remedy.commands == ["--ctx-checkpoints 64"]
    assert "up to 4,064 MiB per slot" in remedy.text
    assert advice.more_checkpoints(session, 3) is None
    old = advice.more_checkpoints(Session(0, "x", build=7964), None)
    assert old is not None
    assert old.commands == ["--ctx-checkpoints 16"]


def test_slots_and_the_context_that_they_divide() -> None:
    """-c grows with the slots, unless they share it."""
    divided = Session(0, "x", at_once=3, n_ctx_slot=8192)
    assert advice.more_slots(divided).commands == ["--parallel 3 --ctx-size 24576"]
    shared = Session(0, "x", at_once=3, n_ctx_slot=8192, settings={"kv_unified": Setting(True, 1)})
    assert advice.more_slots(shared).commands == ["--parallel 3 --kv-unified"]
    enough = Session(0, "x", build=9294, at_once=2, n_slots=4, n_ctx_slot=8192)
    assert advice.more_slots(enough).commands == ["--slot-prompt-similarity 0.5"]
    old = Session(0, "x", build=6123, at_once=2, n_slots=4, n_ctx_slot=8192)  # 0.5 is the default there
    assert advice.more_slots(old).commands == ["--parallel 5 --ctx-size 40960"]
    assert advice.more_slots(Session(0, "x", n_slots=2, n_ctx_slot=100), 6).commands == ["--parallel 6 --ctx-size 600"]
    assert "4 as an example" in advice.more_slots(Session(0, "x")).text


def test_sizes_are_read_from_the_log() -> None:
    """What a checkpoint and a saved prompt take is in their lines."""
    from cachedoctor.doctor.analysis.analyzer import Analyzer

    log = (
        "0.00.1 I x\n"
        "0.00.098.735 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 5\n"
        "0.00.098.740 W srv  get_availabl: updating prompt cache\n"
        "0.00.098.750 W srv         alloc:  - saving prompt with length 1855, "
        "total state size = 12.500 MiB (draft: 0.000 MiB)\n"
        "0.00.099.000 W srv        update:  - cache size limit reached, removing oldest entry (size = 20.250 MiB)\n"
        "0.00.099.100 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
        "0.00.099.200 I slot create_check: id  0 | task 0 | created context checkpoint 1 of 32 "
        "(pos_min = 1, pos_max = 1, n_tokens = 2, size = 0.892 MiB)\n"
    )
    analyzer = Analyzer()
    analyzer.open("server.log")
    analyzer.feed(log.encode())
    (session,) = analyzer.finish().sessions
    assert session.sizes.entry == 20.25
    assert session.sizes.checkpoint == 0.892


def test_marks_of_a_note_are_lines() -> None:
    """A note without a line has no evidence, and one with a line quotes it."""
    session = server("llama-server --swa-full", memory="hybrid", settings={"swa_full": False})
    (note,) = cd407_option_without_effect.inspect(session)
    assert note.evidence == [(Mark(7, b"the line"), "the server switches the option off")]
