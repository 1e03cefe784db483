"""What other settings would have reused: traffic made by hand with known answers, and real days against fixed ones."""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from loops import each

from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.doctor.findings.history import PromptSpeed
from cachedoctor.doctor.replaying.from_log import recorded
from cachedoctor.doctor.replaying.server_names import changed, command_line, listed
from cachedoctor.doctor.whatif.accounts import account, replay_base, span_ms
from cachedoctor.doctor.whatif.evidence import Asking, ServerTraffic, gather, is_bodies
from cachedoctor.doctor.whatif.more_memory import more_memory
from cachedoctor.doctor.whatif.simulation import simulate
from cachedoctor.doctor.whatif.trace import BLOCK, rows
from cachedoctor.doctor.whatif.tuning import tune
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import CacheDoctorError, Session
from cachedoctor.model.session import Sizes
from cachedoctor.model.whatif import Placed
from cachedoctor.report.forms import whatif_forms

sys.path.insert(0, str(ROOT / "benchmarks"))
import days
import runs

pytestmark = pytest.mark.usefixtures("child_here")
DAYS = ROOT / "fixtures" / "days"
MENDED = runs.truth(DAYS / "dense-six_on_four_mended-b11549-default")
ONE = ServerSettings(build=9713, slots=1, context=8192, cache_ram_mib=0, kv_unified=False)
GROWTH, REPLY = 100, 10


def in_turn(conversations: int, turns: int) -> Traffic:
    """Conversations that share nothing and speak in turn; each turn continues all of the one before."""
    tree, asked = PromptTree(), list[TimedRequest]()
    for turn in range(turns):
        for number in range(conversations):
            text = [number * 100_000 + at for at in range((turn + 1) * GROWTH + REPLY)]
            at = 2 * len(asked)
            prompt, content = tree.add(text[:-REPLY]), tree.add(text)
            asked.append(TimedRequest(prompt, content, at, at + 1, conversation=number))
    return Traffic(tree, asked)


def evidence(traffic: Traffic, settings: ServerSettings = ONE, **fields: Any) -> ServerTraffic:
    """The evidence of a log in which the server did as the replay says."""
    reused: list[int | None] = [one.reused for one in serve(traffic, settings)]
    count, nothing = len(reused), [None] * len(reused)
    numbers = [one.conversation for one in traffic.asked]
    found = ServerTraffic(
        traffic, settings, frozenset(), reused, [*nothing], numbers, [*nothing], [*nothing], Placed(count, count, True),
        PromptSpeed(), True,
    )  # fmt: skip
    for name, value in fields.items():
        setattr(found, name, value)
    return found


# ---- simulate


def test_what_a_slot_lost_comes_back_with_a_slot_for_each() -> None:
    """Turn t has 100 (t + 1) tokens, of which 100 t + 10 were there before, the reply included."""
    found = simulate(evidence(in_turn(2, 3)), ["parallel=2", "ctx-size=16384"], ["made"])
    assert (found.fit is not None, found.replay.prompt_tokens, found.replay.reused_tokens) == (True, 1200, 0)
    # The reply is sent back: 110 and 210 tokens of each conversation had been there before.
    assert found.replay.lost_tokens == {"RAM cache off": 2 * (110 + 210)}
    assert (found.changed.reused_tokens, found.changed.lost_tokens) == (2 * (110 + 210), {})
    assert [row.changed_reused_tokens for row in found.conversations] == [320, 320]
    assert {row.name: row.changed for row in found.settings if row.recorded != row.changed} == {
        "parallel": 2,
        "ctx-size": 16384,
    }


@pytest.mark.parametrize("words", [[], ["cache-ram=8192"], ["parallel=3"], ["kv-unified", "parallel=2"]])
@pytest.mark.parametrize("conversations", [1, 3])
def test_an_account_adds_up(conversations: int, words: list[str]) -> None:
    traffic = in_turn(conversations, 4)
    settings = changed(ONE, words)
    found = account(evidence(traffic), serve(traffic, settings), settings)
    assert found.lost_tokens is not None
    assert found.reused_tokens + (found.new_tokens or 0) + sum(found.lost_tokens.values()) == found.prompt_tokens
    assert found.computed_tokens == found.prompt_tokens - found.reused_tokens


def test_a_prompt_that_does_not_fit_its_slot_is_in_no_sum() -> None:
    found = simulate(evidence(in_turn(2, 3)), ["parallel=4", "ctx-size=1000"], ["made"])  # 250 tokens each
    assert (found.replay.too_long, found.changed.too_long) == (0, 2)  # those of 300 tokens
    assert found.changed.prompt_tokens == found.replay.prompt_tokens - 2 * 300
    assert [row.prompt_tokens for row in found.conversations] == [300, 300]
    said = whatif_forms.whatif_verdict(found.replay, found.changed, found.placed, found.fit)
    assert said == "2 requests no longer fit the context of a slot, so the sums cover different requests."


def test_seconds_follow_the_depth() -> None:
    """A server that takes 1 ms for a token, and as much again every 1,000 tokens of depth."""
    speed = PromptSpeed()
    for start, end in ((0, 1000), (0, 4000), (2000, 3000), (1000, 6000)):
        tokens, middle = end - start, (start + end) / 2
        ms = tokens * (1 + middle / 1000)
        speed.count += 1
        speed.weight += tokens
        speed.depth += tokens * middle
        speed.depth2 += tokens * middle * middle
        speed.per_token += ms
        speed.product += ms * middle
    assert span_ms(speed, 2000, 3000) == pytest.approx(1000 * 3.5, rel=1e-6)
    assert span_ms(speed, 0, 500) == pytest.approx(500 * 1.25, rel=1e-6)
    assert span_ms(PromptSpeed(), 0, 500) == 0


def test_a_replay_that_does_not_explain_the_log_is_refused() -> None:
    wrong = evidence(in_turn(2, 3))
    wrong.reused = [0, 0, 60, 0, 0, 0]  # 5 % of 1,200 tokens are allowed
    assert replay_base(wrong).fit is not None
    wrong.reused = [0, 0, 61, 0, 0, 0]
    with pytest.raises(
        CacheDoctorError, match=r"does not reproduce the log: 5 of 6 requests .* off by 5\.1 %"
    ) as error:
        replay_base(wrong)
    assert error.value.exit_code == 3
    wrong.reused = [0, 0, None, None, None, None]
    with pytest.raises(CacheDoctorError, match="shows reuse for 2 of 6 requests"):
        replay_base(wrong)


# ---- names


@each(
    ("word", "field", "value"),
    [
        ("cache-ram=16384", "cache_ram_mib", 16384), ("cram=-1", "cache_ram_mib", -1),
        ("--cache_ram=5", "cache_ram_mib", 5),
        ("np=4", "slots", 4), ("parallel=-1", "slots", None), ("c=4096", "context", 4096),
        ("sps=0.5", "slot_prompt_similarity", 0.5),
        ("kvu", "kv_unified", True), ("no-kv-unified", "kv_unified", False), ("kv-unified=off", "kv_unified", False),
        ("no-kv-unified=off", "kv_unified", True), ("swa-full=on", "swa_full", True), ("build=b9873", "build", 9873),
        ("checkpoint-min-step=0", "checkpoint_min_step", 0), ("swa-checkpoints=7", "ctx_checkpoints", 7),
    ],
)  # fmt: skip
def test_a_setting_is_called_as_the_server_calls_it(word: str, field: str, value: object) -> None:
    assert getattr(changed(ONE, [word]), field) == value


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cache-rum=1"], "not a known option of llama-server"),
        (["build=6000", "cache-ram=1"], "b6000 has no --cache-ram"),
        (["checkpoint-every-n-tokens=1"], "b9713 has no --checkpoint-every-n-tokens"),
        (["cache-ram=x"], "is not a number from -1"), (["cache-ram"], "is not a number"),
        (["cache-ram=1.5"], "is not a number"),
        (["parallel=0"], "is not a number"), (["parallel=257"], "is not a number"), (["sps=1.1"], "from 0 to 1"),
        (["kv-unified=maybe"], "is not on or off"), (["build=x"], "not a build of llama.cpp"),
        (["build"], "not a build"),
        (["memory=swa"], "is already in the log"), (["sleep-idle-seconds=5"], "does not support this option"),
        (["=4"], "not a known option"), (["cache-ram=\x1b[31m"], "is not a number"),
    ],
)  # fmt: skip
def test_what_is_not_setting_is_one_line_with_a_hint(words: list[str], message: str) -> None:
    with pytest.raises(CacheDoctorError, match=message) as error:
        changed(ONE, words)
    assert error.value.hint
    assert "\n" not in error.value.message + error.value.hint


def test_the_model_can_be_described_where_no_log_does() -> None:
    found = changed(ONE, ["memory=swa", "window=1024"], model_open=True)
    assert (found.memory, found.window) == ("swa", 1024)
    for word in ("memory=ram", "window=-1", "window"):
        with pytest.raises(CacheDoctorError):
            changed(ONE, [word], model_open=True)


def test_what_a_server_derived_comes_back_with_what_it_needs() -> None:
    """The log shows "--cache-idle-slots requires --cache-ram, disabling": with a RAM cache it is on again."""
    found = gather(Asking([str(ROOT / "fixtures" / "cases" / "kv-purged-b11549" / "server.log")]))
    assert found.settings.cache_ram_mib == 0
    assert found.settings.resolved().cache_idle_slots is False
    assert "cache_idle_slots" not in found.assumed
    assert changed(found.settings, ["cache-ram=8192"]).resolved().cache_idle_slots is True


def test_options_are_spelt_as_the_build_spells_them() -> None:
    old = ServerSettings(build=9294, slots=1, context=4096, kv_unified=True)
    wanted = changed(old, ["parallel=2", "checkpoint-every-n-tokens=1024"])
    assert command_line(old, wanted) == "--parallel 2 --kv-unified --checkpoint-every-n-tokens 1024"
    assert "checkpoint-min-step" not in listed(wanted)
    newer = changed(old, ["build=9713", "checkpoint-min-step=1024", "no-kv-unified"])
    assert command_line(old, newer) == "(build b9713) --no-kv-unified --checkpoint-min-step 1024"


# ---- tune


def test_one_slot_too_few_is_found_and_what_it_costs() -> None:
    sized = ServerSettings(build=9713, slots=1, context=8192, cache_ram_mib=0, kv_unified=False, token_bytes=65536.0)
    found = tune(evidence(in_turn(2, 3), sized), ["made"])
    assert [(one.options, one.saved_tokens, one.memory_mib) for one in found.singles] == [
        ("--parallel 2 --ctx-size 16384", 640, 8192 * 65536 / (1 << 20)),  # 512 MiB
        ("--cache-ram 1024", 640, 1024.0),
    ]
    assert found.best == found.singles[0]
    small = tune(evidence(in_turn(2, 3), sized), ["made"], limit_mib=600)
    assert (small.best == found.best, small.over_limit) == (True, ["--cache-ram 1024"])
    none = tune(evidence(in_turn(2, 3), sized), ["made"], limit_mib=100)
    assert (none.best, none.singles, len(none.over_limit)) == (None, [], 2)


def test_sizes_that_no_line_prints_are_unknown_and_within_no_limit() -> None:
    found = tune(evidence(in_turn(2, 3)), ["made"])
    assert [(one.options, one.memory_mib) for one in found.singles] == [
        ("--cache-ram 8192", 8192.0),
        ("--parallel 2 --ctx-size 16384", None),
    ]
    assert found.singles[1].memory_why == "the log does not show the memory per token of context"
    limited = tune(evidence(in_turn(2, 3)), ["made"], limit_mib=1e6)
    assert limited.over_limit == ["--parallel 2 --ctx-size 16384"]


@pytest.mark.parametrize(("conversations", "slots"), [(1, 1), (2, 2), (3, 4)])
def test_there_is_nothing_to_gain_where_nothing_is_lost(conversations: int, slots: int) -> None:
    settings = changed(ONE, [f"parallel={slots}", "ctx-size=32768"])
    found = tune(evidence(in_turn(conversations, 4), settings), ["made"])
    assert (found.best, found.singles, found.over_limit) == (None, [], [])


def test_a_gain_below_the_error_of_the_replay_is_none() -> None:
    traffic = in_turn(2, 3)
    found = evidence(traffic)
    found.reused = [0, 0, 0, 0, 0, 60]
    assert tune(found, ["made"]).least_tokens == 61


@pytest.mark.parametrize(
    ("word", "mib"),
    [
        ("kv-unified", 0.0), ("sps=0.5", 0.0), ("cache-ram=100", 100.0), ("cache-ram=-1", None),
        ("ctx-size=16384", 8.0),
        ("ctx-checkpoints=16", 8.0), ("parallel=2", 17.0), ("swa-full", None),
    ],
)  # fmt: skip
def test_memory_is_counted_as_far_as_sizes_are_known(word: str, mib: float | None) -> None:
    mebi = float(1 << 20)
    memory = "swa" if word == "swa-full" else "attention" if word in ("kv-unified", "sps=0.5") else "hybrid"
    base = ServerSettings(
        build=9713, memory=memory, slots=1, context=8192, cache_ram_mib=0, ctx_checkpoints=8, token_bytes=1024.0,
        state_bytes=9 * mebi, checkpoint_bytes=mebi, kv_unified=False,
    )  # fmt: skip
    assert more_memory(base, changed(base, [word])).mib == mib


# ---- a trace for simulators


def test_blocks_are_the_same_exactly_where_all_before_them_is() -> None:
    tree, chance, texts = PromptTree(), random.Random(1), [[7] * 1300, [7] * 1300, [7] * 1024, [7] * 700]
    for _ in range(40):
        old = chance.choice(texts)
        texts.append(old[: chance.randint(0, len(old))] + [len(texts)] * chance.randint(1, 1500))
    asked = [TimedRequest(tree.add(text), tree.add(text), 2 * at, 2 * at + 1) for at, text in enumerate(texts)]
    found = rows(Traffic(tree, asked), list(range(len(texts))), [1] * len(texts))
    known: dict[tuple[int, ...], int] = {}
    for text, row in zip(texts, found, strict=True):
        assert (row.input_length, len(row.hash_ids)) == (len(text), -(-len(text) // BLOCK))
        for at, number in enumerate(row.hash_ids):
            assert known.setdefault(tuple(text[: (at + 1) * BLOCK]), number) == number
    assert sorted(known.values()) == list(range(len(known)))
    assert found[0].hash_ids == [0, 1, 2]


# ---- real days


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return days.models_in(tmp_path_factory.mktemp("models"))


def of_day(name: str, models: Path) -> ServerTraffic:
    """A day of the fixtures as the commands see it."""
    run, truth = DAYS / name, runs.truth(DAYS / name)
    model = str(models / f"{truth['memory']}.gguf")
    given = parse("llama-server " + " ".join(truth["options"]))
    return gather(Asking([str(run / "server.log")], [str(run / "requests.jsonl")], model, None, truth["build"], given))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "wanted", "option"),
    [
        ("dense-six_on_four-b11549-lv4", MENDED["total"]["reused"], "--cache-ram 1024"),
        # as the server of that build said with --cache-ram 8192
        ("dense-eight_on_four-b9713-default", 56_841, "--cache-ram 8192"),
    ],
)  # fmt: skip
def test_more_people_than_slots_reuse_what_the_real_server_did_with_a_ram_cache(
    name: str, wanted: int, option: str, models: Path
) -> None:
    found = simulate(of_day(name, models), ["cache-ram=8192"], [name])
    assert found.fit is not None
    assert found.fit.equal == found.fit.requests > 25
    assert found.changed.reused_tokens == pytest.approx(wanted, rel=0.02)
    best = tune(of_day(name, models), [name]).best
    assert best is not None
    assert best.options == option


def test_a_healthy_day_has_nothing_to_gain(models: Path) -> None:
    assert tune(of_day("dense-six_on_four_mended-b11549-default", models), ["day"]).best is None


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["dense-sibling_entry-b11549-lv4", "dense-cold_burst-b11549-lv4"])
def test_a_token_takes_what_the_list_of_saved_prompts_says(name: str, models: Path) -> None:
    """Prompts of idle slots are saved as well: the largest of all is held against its own length."""
    listed = re.findall(
        r"- prompt 0x\w+: +(\d+) tokens, checkpoints: +0, +([\d.]+) MiB", (DAYS / name / "server.log").read_text()
    )
    tokens, mib = max((int(tokens), float(mib)) for tokens, mib in listed)
    assert of_day(name, models).settings.token_bytes == pytest.approx(mib * (1 << 20) / tokens, rel=0.005)


def test_the_largest_entry_may_be_longer_than_any_prompt_whose_request_saved_it() -> None:
    """An idle slot is saved, or a prompt is evicted, of which no line of a request says the length."""
    session = Session(0, "server.log", sizes=Sizes(entry=2.0, state=1.0, state_tokens=4096))
    assert recorded(session).settings.token_bytes == (1 << 20) / 4096


def test_a_log_alone_does_not_say_what_its_cold_prompts_share() -> None:
    run = DAYS / "dense-one_shots_four-b11549-default"
    found = gather(Asking([str(run / "server.log")]))
    assert found.placed.open_tokens > 0.9 * sum(found.traffic.tree.length(one.prompt) for one in found.traffic.asked)


def test_bodies_of_another_server_are_not_placed(models: Path) -> None:
    log, bodies = (
        DAYS / "dense-six_on_four-b11549-lv4/server.log",
        DAYS / "dense-branches-b11549-default/requests.jsonl",
    )
    with pytest.raises(CacheDoctorError, match=r"of 17 request bodies match .* 30 requests") as error:
        gather(Asking([str(log)], [str(bodies)], str(models / "dense.gguf")))
    assert error.value.exit_code == 3


@pytest.mark.sweep
def test_missing_and_double_bodies_are_said(models: Path, tmp_path: Path) -> None:
    run = DAYS / "dense-six_on_four-b11549-lv4"
    lines = (run / "requests.jsonl").read_text("utf-8").splitlines(keepends=True)
    bodies = tmp_path / "bodies.jsonl"
    bodies.write_text(
        "".join([*lines[:3], lines[2], *lines[4:]]), "utf-8"
    )  # the fourth is lost, the third is there twice
    found = gather(Asking([str(run / "server.log")], [str(bodies)], str(models / "dense.gguf")))
    assert (found.placed.bodies, found.placed.bodies_left_out, found.placed.requests_without_body) == (30, 1, 1)
    assert found.placed.open_tokens == 1858  # the fourth request: nothing is known of its text


def test_bodies_alone_have_a_server_with_room_and_defaults(tmp_path: Path) -> None:
    bodies = tmp_path / "bodies.jsonl"
    turn = {"role": "user", "content": "one two three " * 3000}
    lines = [json.dumps({"messages": [turn, *([{"role": "assistant", "content": "yes"}, turn] * at)]}) for at in (0, 1)]
    bodies.write_text("\n".join([*lines, json.dumps({"input": 7})]), "utf-8")
    found = gather(Asking([str(bodies)]))
    longest = max(found.traffic.tree.length(one.prompt) for one in found.traffic.asked)
    assert found.settings.resolved().slots == 4
    assert found.settings.context >= 4 * longest > 0
    assert (found.from_log, found.placed.exact, found.placed.bodies, found.placed.bodies_left_out) == (
        False,
        False,
        2,
        1,
    )
    answer = simulate(found, ["memory=recurrent", "parallel=1"], [str(bodies)])
    assert (answer.fit, answer.server, answer.replay.prompt_ms) == (None, None, None)
    assert {row.name: row.changed for row in answer.settings}["memory"] == "recurrent"


def recorded_day(name: str, folder: Path, more: int = 0) -> Path:
    """Bodies of a day, each with the answer of the real server; ``more`` is added to its count of prompt tokens."""
    bodies, answers = (
        [json.loads(line) for line in (DAYS / name / f"{kind}.jsonl").read_text("utf-8").splitlines()]
        for kind in ("requests", "responses")
    )
    for one in answers:
        one["usage"]["prompt_tokens"] += more
    path = folder / "recorded.jsonl"
    rows = [
        {"request": one["body"], "response": {"usage": answer["usage"]}}
        for one, answer in zip(bodies, answers, strict=True)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return path


def test_counts_that_were_recorded_with_bodies_are_held_against_the_replay(models: Path, tmp_path: Path) -> None:
    """The day ran with settings of its own: with the defaults the replay is another server's, with them it is exact."""
    name = "dense-six_on_four-b11549-lv4"
    truth, path = runs.truth(DAYS / name), recorded_day(name, tmp_path)
    asking = Asking([str(path)], [], str(models / "dense.gguf"), None, truth["build"])
    unlike = simulate(gather(asking), ["cache-ram=0"], [str(path)])
    assert unlike.server is not None
    assert unlike.server.reused_tokens == truth["total"]["reused"]
    assert unlike.fit is not None
    assert unlike.fit.wrong_tokens > unlike.fit.prompt_tokens / 2
    assert "is not llama-server, so the effect of a change is unknown" in whatif_forms.fit_words(unlike.fit)
    said = whatif_forms.whatif_verdict(unlike.replay, unlike.changed, unlike.placed, unlike.fit)
    assert said.startswith("In the replay, which differs from the server's behaviour: ")
    given = parse("llama-server " + " ".join(truth["options"]))
    found = simulate(gather(asking._replace(given=given)), ["cache-ram=8192"], [str(path)])
    assert found.fit is not None
    assert (found.fit.equal, found.fit.wrong_tokens, found.fit.requests) == (30, 0, 30)
    assert "no llama-server" not in whatif_forms.fit_words(found.fit)
    assert {row.name for row in found.settings if not row.assumed} >= {"parallel", "ctx-size", "cache-ram"}


def test_counts_of_another_tokenizer_say_nothing_of_reuse(models: Path, tmp_path: Path) -> None:
    path = recorded_day("dense-six_on_four-b11549-lv4", tmp_path, more=7)
    found = gather(Asking([str(path)], [], str(models / "dense.gguf")))
    answer = simulate(found, ["parallel=1"], [str(path)])
    assert (answer.fit, answer.server, answer.placed.answers_unlike) == (None, None, 30)
    (note,) = [one for one in whatif_forms.notes(answer.placed, answer.settings) if "recorded answer" in one]
    assert note.startswith("30 recorded answers counted a different length")


def test_logs_and_bodies_are_told_apart(tmp_path: Path) -> None:
    run = DAYS / "dense-six_on_four-b11549-lv4"
    assert is_bodies(str(run / "requests.jsonl"))
    assert not is_bodies(str(run / "server.log"))
    assert not is_bodies(str(tmp_path / "missing"))
    wrapped = tmp_path / "docker.log"
    wrapped.write_text('{"log":"srv  init: listening\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}\n', "utf-8")
    assert not is_bodies(str(wrapped))
