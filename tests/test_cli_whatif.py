"""simulate, tune and export --format mooncake as commands: what they print, their JSON, their refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from command import one_line, run
from conftest import ROOT
from schemas import schema_of

DAY = ROOT / "fixtures/days/dense-eight_on_four-b9713-default"
"""Its log prints lengths and reuse, so that it can be replayed without bodies."""
LOG = DAY / "server.log"
TRUTH = json.loads((DAY / "truth.json").read_text("utf-8"))


def test_simulate_says_its_own_error_first_and_what_changes() -> None:
    done = run("tune", LOG, "--set", "cache-ram=8192", COLUMNS="100")
    assert (done.returncode, done.stderr) == (0, b"")
    text = " ".join(done.stdout.decode().split())
    assert "server.log: 32 requests replayed, from the log only replay " in text
    assert re.search(
        r" \d\d of 32 requests have the same reuse as on the server; the replay reuses [\d,]+ tokens, "
        r"the server 37,401; the error of single requests is",
        text,
    )
    assert "changed cache-ram: 0 -> 8192 cache-idle-slots: off -> on server replay changed" in text
    assert "had been sent before" in text


def test_simulate_as_json_keeps_its_contract() -> None:
    done = run("tune", LOG, "--set", "cache-ram=8192", "--set", "parallel=2", "-f", "json")
    found = json.loads(done.stdout)
    schema_of("simulate").validate(found)
    assert found["server"]["reused_tokens"] == TRUTH["total"]["reused"] == found["fit"]["server_reused_tokens"]
    off = abs(found["replay"]["reused_tokens"] - TRUTH["total"]["reused"])
    assert off <= found["fit"]["wrong_tokens"] < 0.05 * found["fit"]["prompt_tokens"]
    assert (found["fit"]["requests"], found["placed"]["bodies"]) == (32, None)
    assert found["server"]["lost_tokens"] is None
    assert {"name": "cache-ram", "recorded": 0, "assumed": False, "changed": 8192} in found["settings"]


def test_tune_as_json_keeps_its_contract() -> None:
    done = run("tune", LOG, "-f", "json", "--memory", "16GiB")
    found = json.loads(done.stdout)
    schema_of("tune").validate(found)
    assert found["memory_limit_mib"] == 16384
    assert found["best"]["options"] == "--cache-ram 8192"
    assert found["best"]["saved_tokens"] > found["least_tokens"] > 0


def test_tune_prints_one_set_of_options_that_can_be_copied() -> None:
    done = run("tune", LOG)
    assert done.returncode == 0
    assert b"\n--cache-ram 8192\nsaves " in done.stdout


@pytest.mark.sample(4)
def test_tune_without_anything_to_gain_names_the_cause() -> None:
    """Three of four requests differ at token 58 from the one before, which no option of the server changes."""
    rows = run("tune", ROOT / "fixtures/cases/billing-header-hybrid/server.log").stdout.decode().splitlines()
    at = next(at for at, row in enumerate(rows) if row.startswith("cause     CD101 billing-header: Claude Code's "))
    assert "fix       export CLAUDE_CODE_ATTRIBUTION_HEADER=0" in rows[at:]


def test_tune_with_bodies_sends_a_suspicion_to_analyze() -> None:
    case = ROOT / "fixtures/cases/requests-timestamp"
    shown = run("tune", case / "server.log", "--requests", case / "requests.jsonl").stdout.decode()
    words = " ".join(shown.split())
    assert "7,389 tokens were never sent after the same beginning: new text, or text after a change by the" in words
    assert "cause CD108 prefix-diverges-early: " in words
    assert words.endswith("try Pass the same --requests to cachedoctor analyze, which compares the texts.")


def test_tune_says_that_no_setting_is_the_cause_only_where_that_is_certain() -> None:
    """The header explains 5,912 of 8,001 computed tokens for certain; without its text it is one of two suspects."""
    said = [
        run("tune", ROOT / f"fixtures/cases/billing-header-{name}/server.log").stdout
        for name in ("hybrid", "dense-b6900")
    ]
    settled = b"The cause is not a server setting:"
    assert [settled in shown for shown in said] == [True, True]
    assert settled not in run("tune", ROOT / "fixtures/cases/billing-header-without-text/server.log").stdout


def test_tune_within_a_limit_of_memory_names_no_cause() -> None:
    """What would help is above, and needs more."""
    shown = run(
        "tune", ROOT / "fixtures/cases/slot-contention-dense-b8672/server.log", "--memory", "1KiB"
    ).stdout.decode()
    assert "Nothing to gain within the memory limit: the settings above need more." in shown
    assert "cause" not in shown


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["tune", LOG, "--set", "cache-rum=1"], 2, "not a known option of llama-server"),
        (["tune", LOG, "--set", "parallel=\x1b[2J"], 2, "is not a number"),
        (["tune", ROOT / "fixtures/vllm/vllm032_dense_billing.log"], 3, "vLLM: a what-if needs the request bodies"),
        (["tune", ROOT / "fixtures/measured/sglang-busy.log"], 3, "SGLang: a what-if needs the request bodies"),
        (["tune", LOG, "--ran", "cache-ram=512"], 2, "the log contradicts"),
        (["tune", ROOT / "README.md"], 3, "no llama-server request"),
        (["tune", "missing.log"], 2, "no such file"),
        (["tune", DAY / "requests.jsonl", LOG], 2, "a log was given as well"),
        (
            ["analyze", ROOT / "fixtures/measured/sglang-busy.log", "-f", "mooncake", "-o", "-"],
            3,
            "SGLang: a trace needs the request bodies",
        ),
        (["analyze", ROOT / "README.md", "-f", "mooncake", "-o", "-"], 3, "no llama-server request"),
    ],
    ids=lambda words: str(words)[-30:],
)
def test_what_cannot_be_answered_is_one_line(words: list[object], status: int, said: str) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (status, b"")
    one_line(done, said)
    assert b"\x1b" not in done.stderr


def test_a_replay_that_does_not_explain_the_log_is_refused() -> None:
    """Eight people on four slots: at this level the log alone does not tell who is who."""
    done = run("tune", ROOT / "fixtures/days/dense-eight_auto_ram_small-b11549-default/server.log")
    assert (done.returncode, done.stdout) == (3, b"")
    one_line(done, "does not reproduce the log", "the limit is 5 %")


def test_export_as_a_trace(tmp_path: Path) -> None:
    target = tmp_path / "trace.jsonl"
    done = run("analyze", LOG, "-f", "mooncake", "-o", target)
    assert done.returncode == 0
    assert b"hash_ids are invented" in done.stderr
    assert b"timestamps follow the order of requests" in done.stderr
    rows = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert [list(row) for row in rows] == [["timestamp", "input_length", "output_length", "hash_ids"]] * 32
    assert [row["input_length"] for row in rows] == [one["prompt"] for one in TRUTH["requests"]]
    assert all(len(row["hash_ids"]) == -(-row["input_length"] // 512) for row in rows)
    assert run("analyze", LOG, "-f", "mooncake", "-o", target, "-q").stderr == b""


def test_options_of_a_trace_go_with_a_trace() -> None:
    done = run("analyze", LOG, "-o", "x.csv", "--requests", DAY / "requests.jsonl")
    assert done.returncode == 2
    assert b"--requests: cannot be combined with a table (csv)" in done.stderr
    assert not Path("x.csv").exists()
