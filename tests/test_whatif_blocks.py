"""What-if of vLLM and SGLang: real recordings of vLLM 0.32.0 with their bodies and responses, and what is refused."""

from __future__ import annotations

import io
import json
import operator
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from command import one_line, run
from conftest import ROOT
from e2e.vllm import models
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from schemas import schema_of

from cachedoctor.diagnosis.replay.block_cache import SentPrompt
from cachedoctor.doctor.whatif.agents import block_agents_fit
from cachedoctor.doctor.whatif.block_evidence import BlockAsking, BlockEvidence, from_sessions
from cachedoctor.doctor.whatif.block_replay import BlockReplay, simulate, tune
from cachedoctor.doctor.whatif.block_setup import BlockSetup, changed, command_line
from cachedoctor.doctor.whatif.block_trace import BlockTraffic
from cachedoctor.doctor.whatif.evidence import Asking, gather_any, gather_trace
from cachedoctor.doctor.whatif.trace import BLOCK, write
from cachedoctor.model import CacheDoctorError, Session, Setting
from cachedoctor.model.whatif import CacheSessions, Placed
from cachedoctor.report.forms import whatif_forms

pytestmark = pytest.mark.usefixtures("child_here")
MEASURED = ROOT / "fixtures" / "measured"
BATCH, CLOCK = "batch-beside-agent", "clock-beside-healthy"
GPU = BlockSetup("vllm", "0.32.0", 16, 16_000)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer and the template of the model that was recorded: one byte is one token."""
    folder = tmp_path_factory.mktemp("vllm") / "tiny-dense"
    models.save("tiny-dense", folder)
    return folder


def given_files(name: str, model: Path, *, responses: bool = True) -> Asking:
    """What a user has of a recording."""
    log, bodies, said = (str(MEASURED / f"vllm-{name}.{end}") for end in ("log", "requests.jsonl", "usage.jsonl"))
    template = str(model / "tokenizer_config.json")
    return Asking([log], [bodies], str(model), template, responses=[said] if responses else [])


@cache
def of(name: str, model: Path, *, responses: bool = True) -> BlockEvidence:
    found = gather_any(given_files(name, model, responses=responses))
    assert isinstance(found, BlockEvidence)
    return found


# ---- recordings


def test_a_larger_cache_keeps_the_agent_that_a_batch_job_evicted(model: Path) -> None:
    """48 blocks of 128 tokens; an endless cache has 13,696 tokens of the agent (benchmarks/README.md)."""
    found = simulate(of(BATCH, model), ["num-gpu-blocks-override=400"], [BATCH])
    assert found.fit is not None
    assert (found.fit.equal, found.fit.requests, found.fit.wrong_tokens) == (40, 40, 0)
    assert found.server is not None
    assert (found.server.reused_tokens, found.replay.reused_tokens, found.changed.reused_tokens) == (0, 0, 13_696)
    assert found.replay.lost_tokens is not None
    assert found.replay.lost_tokens["evicted"] == 13_696
    assert {row.name: (row.recorded, row.changed) for row in found.settings}["num-gpu-blocks-override"] == (48, 400)
    assert [row.changed_reused_tokens for row in found.conversations] == [13_696, 0]


def test_tune_finds_the_smallest_cache_that_is_large_enough(model: Path) -> None:
    found = tune(BlockReplay(of(BATCH, model)), [BATCH])
    assert found.best is not None
    assert found.best.options == "--num-gpu-blocks-override 72"
    assert found.best.saved_tokens >= 0.99 * 13_696
    assert found.best.memory_mib is None, "the log does not say what a token takes"
    limited = tune(BlockReplay(of(BATCH, model)), [BATCH], 1024.0)
    assert (limited.best, limited.over_limit) == (None, ["--num-gpu-blocks-override 72"])


def test_the_logs_own_rate_is_enough_to_hold_the_replay_against(model: Path) -> None:
    found = simulate(of(CLOCK, model, responses=False), ["enable-prefix-caching=off"], [CLOCK])
    assert found.fit is not None
    assert (found.fit.requests, found.fit.equal) == (0, 0), "it says sums only"
    assert 0 < found.fit.wrong_tokens < 0.02 * found.fit.prompt_tokens
    assert "(totals of the log)" in whatif_forms.fit_words(found.fit)
    assert (found.changed.reused_tokens, found.changed.computed_tokens) == (0, 101_140)


@pytest.mark.parametrize("name", [BATCH, CLOCK, "one-shots", "salted"])
def test_the_replay_is_what_the_responses_say(name: str, model: Path) -> None:
    fit = BlockReplay(of(name, model)).fit()
    assert fit.equal >= 0.97 * fit.requests
    assert fit.wrong_tokens <= 0.002 * fit.prompt_tokens


def test_a_trace_of_vllm_has_the_lengths_of_the_responses_and_one_id_for_one_beginning(model: Path) -> None:
    asking = given_files(CLOCK, model)
    trace = gather_trace(asking)
    assert isinstance(trace, BlockTraffic)
    out = io.BytesIO()
    notes = write(trace, out)
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    said = [json.loads(line) for line in Path(asking.responses[0]).read_text("utf-8").splitlines()]
    assert [row["input_length"] for row in rows] == [one["usage"]["prompt_tokens"] for one in said]
    sent = [list(one.tokens) for one in of(CLOCK, model).prompts]
    for row, tokens in zip(rows, sent, strict=True):
        whole = len(tokens) // BLOCK
        for other, others in zip(rows, sent, strict=True):
            same = sum(tokens[: end * BLOCK] == others[: end * BLOCK] for end in range(1, whole + 1))
            assert sum(map(operator.eq, row["hash_ids"][:whole], other["hash_ids"])) == same
    assert any("timestamps follow the order of requests" in note for note in notes)
    assert any("the part of the reply that the client sent back" in note for note in notes)


def test_salted_prompts_of_a_trace_share_no_id(model: Path, tmp_path: Path) -> None:
    asking, target = given_files("salted", model), tmp_path / "trace.jsonl"
    said = ("--requests", asking.prompts[0], "--tokenizer", model, "--template", asking.template)
    assert run("analyze", asking.paths[0], *said, "-f", "mooncake", "-o", target).returncode == 0
    ids = [name for line in target.read_text("utf-8").splitlines() for name in json.loads(line)["hash_ids"]]
    assert len(ids) > 20
    assert len(ids) == len(set(ids))


@pytest.mark.sweep
def test_commands_keep_their_contracts(model: Path) -> None:
    asking = given_files("salted", model)
    said = ("--requests", asking.prompts[0], "--tokenizer", model, "--template", asking.template)
    more = ("--responses", asking.responses[0], "-f", "json")
    done = run("tune", asking.paths[0], *said, *more, "--set", "block-size=16")
    assert (done.returncode, done.stderr) == (0, b"")
    schema_of("simulate").validate(json.loads(done.stdout))
    done = run("tune", asking.paths[0], *said, *more)
    assert (done.returncode, done.stderr) == (0, b"")
    schema_of("tune").validate(json.loads(done.stdout))
    assert json.loads(done.stdout)["best"] is None, "every request has a cache_salt of its own"


SGLANG = (MEASURED / "sglang-busy.log").read_text("utf-8").splitlines()[:4]
"""Its start: a pool of 440,215 tokens, pages of one."""


def sglang_chat(folder: Path, *, cached: int) -> Asking:
    """One chat of two turns whose log shows how much of the second was reused."""
    head = [{"role": "system", "content": "s" * 500}, {"role": "user", "content": "u" * 300}]
    reply = {"role": "assistant", "content": "r" * 40}
    turns = [head, [*head, reply, {"role": "user", "content": "v" * 200}]]
    bodies, log = folder / "bodies.jsonl", folder / "sglang.log"
    bodies.write_text("".join(json.dumps({"messages": turn, "max_tokens": 40}) + "\n" for turn in turns), "utf-8")
    # A frame is <|im_start|> ROLE \n ... <|im_end|> \n, each mark one token, and every letter is one.
    first = (8 + 500 + 2) + (6 + 300 + 2) + 11
    second = first + 40 + 2 + (6 + 200 + 2) + 11
    lines = [
        f"[2026-07-04 04:31:{20 + n} TP0] Prefill batch, #new-seq: 1, #new-token: {length - known}, "
        f"#cached-token: {known}, "
        "token usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
        "input throughput (token/s): 54.55"
        for n, (length, known) in enumerate([(first, 0), (second, cached)])
    ]
    log.write_text("\n".join([*SGLANG, *lines]) + "\n", "utf-8")
    return Asking([str(log)], [str(bodies)])


@pytest.mark.sweep
def test_sglang_is_held_against_its_prefill_lines(model: Path, tmp_path: Path) -> None:
    whole = (8 + 500 + 2) + (6 + 300 + 2) + 11 + 39  # the last token of a reply is never in the cache
    asking = sglang_chat(tmp_path, cached=whole)
    asking = asking._replace(tokenizer=str(model), template=str(model / "tokenizer_config.json"))
    evidence = gather_any(asking)
    assert isinstance(evidence, BlockEvidence)
    found = simulate(evidence, ["page-size=64", "max-total-tokens=100000"], ["x"])
    assert found.fit is not None
    assert (found.fit.server_reused_tokens, found.fit.wrong_tokens) == (whole, 0)
    assert found.changed.reused_tokens == whole // 64 * 64
    assert simulate(evidence, ["disable-radix-cache=on"], ["x"]).changed.reused_tokens == 0
    short = sglang_chat(tmp_path, cached=400)._replace(tokenizer=asking.tokenizer, template=asking.template)
    wrong = gather_any(short)
    assert isinstance(wrong, BlockEvidence)
    with pytest.raises(CacheDoctorError, match=r"does not reproduce the log: .* the server 400;"):
        simulate(wrong, [], ["x"])


def test_bodies_of_a_session_are_one_conversation(model: Path, tmp_path: Path) -> None:
    """Two sessions in turn, the second requests of which do not continue the first ones: their ids say it all.

    A frame is <|im_start|> ROLE \\n ... <|im_end|> \\n, each mark one token, and every letter is one.
    """
    bodies, log = tmp_path / "bodies.jsonl", tmp_path / "sglang.log"
    sent = [("a", "u"), ("b", "v"), ("a", "w"), ("b", "x")]
    bodies.write_text(
        "".join(
            json.dumps({"messages": [{"role": "user", "content": letter * 300}], "session_params": {"id": name}}) + "\n"
            for name, letter in sent
        )
    )
    length, same = (6 + 300 + 2) + 11, 6  # all prompts begin with the mark, the role and the line end
    lines = [
        f"[2026-07-04 04:31:{20 + n} TP0] Prefill batch, #new-seq: 1, #new-token: {length - known}, "
        f"#cached-token: {known}, token usage: 0.00, #running-req: 0, #queue-req: 0"
        for n, known in enumerate((0, same, same, same))
    ]
    log.write_text("\n".join([*SGLANG, *lines]) + "\n", "utf-8")
    asking = Asking([str(log)], [str(bodies)], str(model), str(model / "tokenizer_config.json"))
    given = gather_any(asking)
    assert isinstance(given, BlockEvidence)
    assert (given.sessions, given.conversations) == (["a", "b", "a", "b"], [0, 1, 0, 1])
    found = block_agents_fit(BlockReplay(given))
    assert found is not None
    assert found.sessions == CacheSessions(2, 4, 4 * length - 3 * same, 440_215)


# ---- refusals


def test_a_replay_that_does_not_explain_the_responses_ranks_nothing(model: Path) -> None:
    right = of(CLOCK, model)
    wrong = replace(right, reused=[0 if said else said for said in right.reused])
    for answer in (lambda: simulate(wrong, [], [CLOCK]), lambda: tune(BlockReplay(wrong), [CLOCK])):
        with pytest.raises(
            CacheDoctorError, match=r"does not reproduce the responses: .* the difference is 41\.9 %"
        ) as error:
            answer()
        assert error.value.exit_code == 3


@pytest.mark.sweep
def test_bodies_of_another_server_are_not_taken(model: Path) -> None:
    asking = given_files(BATCH, model, responses=False)._replace(prompts=given_files("one-shots", model).prompts)
    with pytest.raises(CacheDoctorError, match=r"the bodies have 60,760 prompt tokens, the log 90,497"):
        gather_any(asking)
    with pytest.raises(CacheDoctorError, match=r"40 responses for 20 request bodies"):
        gather_any(given_files(BATCH, model)._replace(prompts=given_files("salted", model).prompts))
    with pytest.raises(CacheDoctorError, match=r"the prompt lengths of \d+ of 40 bodies match their responses"):
        gather_any(given_files(BATCH, model)._replace(prompts=given_files("one-shots", model).prompts))


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("data_parallel", 2, "several engines"),
        ("architecture", "Gemma3ForCausalLM", "sliding windows"),
        ("architecture", "Qwen3NextForCausalLM", "recurrent layers"),
        ("kv_connector", "LMCacheConnectorV1", "a cache outside"),
        ("speculative", "mtp", "drafting"),
    ],
)
def test_another_kind_of_cache_is_not_replayed(setting: str, value: object, said: str) -> None:
    session = Session(0, "x.log", engine="vllm", settings={setting: Setting(value, 1)})
    with pytest.raises(CacheDoctorError, match=said) as error:
        from_sessions(BlockAsking("x.log", [], None, None), [session])
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], 3, "needs the request bodies"),
        (["--requests", MEASURED / "vllm-batch-beside-agent.requests.jsonl"], 3, "needs the model's tokenizer"),
    ],
)
def test_what_is_missing_is_one_line(words: Sequence[object], status: int, said: str) -> None:
    done = run("tune", MEASURED / "vllm-batch-beside-agent.log", *words, "--set", "block-size=16")
    assert (done.returncode, done.stdout) == (status, b"")
    one_line(done, said)


def test_responses_go_with_bodies_of_engines_whose_log_does_not_show_it() -> None:
    done = run("tune", ROOT / "fixtures/days/dense-eight_on_four-b9713-default/server.log", "--responses", "x.json")
    assert done.returncode == 2
    one_line(done, "--responses needs logs of vLLM and SGLang")


# ---- settings


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["num-gpu-blocks-override=2000"], (16, 32_000, True)),
        (["block-size=64"], (64, 16_000, True)),
        (["num_gpu_blocks_override=500", "--block-size=64"], (64, 32_000, True)),
        (["enable-prefix-caching=off"], (16, 16_000, False)),
        (["no-enable-prefix-caching"], (16, 16_000, False)),
    ],
)
def test_settings_have_the_servers_own_names(words: list[str], found: tuple[int, int, bool]) -> None:
    setup = changed(GPU, words)
    assert (setup.block, setup.tokens, setup.caching) == found


def test_blocks_that_were_asked_for_by_their_number_hold_what_their_size_is() -> None:
    asked = BlockSetup("vllm", "0.32.0", 128, 6144, blocks_given=48)
    assert changed(asked, ["block-size=16"]).tokens == 768


@pytest.mark.parametrize(
    ("base", "word", "said", "hint"),
    [
        (GPU, "gpu-memory-utilization=0.95", "how many tokens", "num-gpu-blocks-override=N"),
        (GPU, "cache-ram=1", "not an option of vLLM", "the replay supports block-size"),
        (GPU, "block-size=0", "not a number above 0", "block-size=4096"),
        (GPU, "block-size=٣", "not a number above 0", "e.g."),
        (GPU, "enable-prefix-caching=maybe", "not on or off", "e.g."),
        (BlockSetup("sglang", "0.4.3.post4", 1, 9), "page-size=64", "SGLang 0.4.3.post4 has no --page-size", "0.4.5"),
        (BlockSetup("sglang", "0.5.23", 1, 9), "mem-fraction-static=0.9", "how many tokens", "max-total-tokens=N"),
    ],
)
def test_a_setting_that_nobody_knows_is_one_line_with_a_hint(base: BlockSetup, word: str, said: str, hint: str) -> None:
    with pytest.raises(CacheDoctorError, match=said) as error:
        changed(base, [word])
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("base", "words", "options"),
    [
        (GPU, ["block-size=32"], "--block-size 32"),
        (GPU, ["num-gpu-blocks-override=2000"], "--num-gpu-blocks-override 2000"),
        (GPU, ["enable-prefix-caching=off"], "--no-enable-prefix-caching"),
        (BlockSetup("vllm", None, 128, 6144, blocks_given=48), ["block-size=64", "num-gpu-blocks-override=48"],
         "--block-size 64 --num-gpu-blocks-override 48"),
        (BlockSetup("sglang", None, 1, 9, caching=False), ["disable-radix-cache=off"],
         "(without --disable-radix-cache)"),
        (BlockSetup("sglang", None, 1, 9), ["max-total-tokens=99", "page-size=4"],
         "--page-size 4 --max-total-tokens 99"),
    ],
)  # fmt: skip
def test_options_are_spelt_as_the_server_reads_them(base: BlockSetup, words: list[str], options: str) -> None:
    assert command_line(base, changed(base, words)) == options


# ---- laws


TEXTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=30), min_size=1, max_size=12)


@given(TEXTS, st.sampled_from(["vllm", "sglang"]), st.integers(1, 8), st.integers(1, 20), st.booleans())
def test_rows_add_up_and_a_larger_cache_forgets_nothing_more_than_none(
    texts: list[list[int]], engine: str, block: int, blocks: int, caching: bool
) -> None:
    setup = BlockSetup(engine, None, block, block * blocks, caching)  # type: ignore[arg-type]
    prompts = [SentPrompt(text, key="ab"[len(text) % 2]) for text in texts]
    nothing = [None] * len(prompts)
    placed = Placed(len(prompts), len(prompts), True)
    evidence = BlockEvidence(setup, frozenset(), prompts, [*nothing], None, [*nothing], placed)
    account = BlockReplay(evidence).account(setup)
    lost = account.lost_tokens or {}
    assert account.prompt_tokens == account.reused_tokens + (account.new_tokens or 0) + sum(lost.values())
    assert account.computed_tokens == (account.new_tokens or 0) + sum(lost.values())
    assert account.requests + account.too_long == len(prompts)
    assert all(tokens > 0 for tokens in lost.values())
    assert (account.new_tokens or 0) >= 0
