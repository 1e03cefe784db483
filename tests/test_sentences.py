"""Sentences that are certain by themselves: each has one meaning, in any log, and none is read out of a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import FIXTURES, json_of
from loops import each

from cachedoctor import analyze
from cachedoctor.doctor.explain.explain import explain
from cachedoctor.engines import sentences
from cachedoctor.engines.detect import ELSEWHERE, EVERYWHERE
from cachedoctor.engines.sentences import TABLE, Sentence

LOGS = sorted(path for path in FIXTURES.rglob("*.log") if path.parent.name != "measured" or "ollama-" not in path.name)
OURS = ("out-of-memory-kill-b9713", "disk-cache-lost-b9294")
PASTED = (
    "decode-failed-2024",
    "shift-2024",
    "truncated-2024",
    "ollama-truncated",
    "cache-unasked-2023",
    "python-overflow",
)
KILL = "Out of memory: Killed process 4242 (llama-server) total-vm:61234567kB, anon-rss:30123456kB\n"


def findings(log: str) -> list[dict[str, object]]:
    return list(json.loads(json_of([log.encode()]))["findings"])


@each("row", TABLE, ids=lambda row: row.id)
def test_a_sample_is_recognised_by_its_row_alone(row: Sentence) -> None:
    fitting = [one.id for one in TABLE if sentences._PATTERNS[one.id].search(row.sample)]
    assert fitting == [row.id]
    found = sentences.recognise(row.sample.encode())
    assert found is not None
    assert found[0] is row
    assert set(found[1].groupdict()) <= set(sentences.FIELDS)


def test_every_literal_is_searched_for() -> None:
    """The table is imported only where a block has one of them."""
    assert {row.literal for row in TABLE if row.id not in sentences.AROUND} == {*EVERYWHERE, *ELSEWHERE}


@pytest.mark.sample(7)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_sentence_in_a_text_says_nothing(row: Sentence) -> None:
    """A user may paste such a line into a prompt, which a log prints as a string."""
    quoted = json.dumps({"role": "user", "content": f"I see: {row.sample}"})
    for line in (quoted, f"INFO 11-20 10:00:00 Received request a: prompt: {quoted}", f"'{row.sample}'"):
        assert sentences.recognise(line.encode()) is None


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.id)
def test_a_line_is_explained(row: Sentence) -> None:
    (line,) = explain(row.sample.encode() + b"\n")
    assert [found.message for found in line.explanations] == [row.id]
    assert line.explanations[0].meaning == row.meaning


NAMELESS = "srv  update_slots: all slots are idle\nslot launch_slot_: id  0 | task 9 | processing task, is_child = 0\n"
"""Lines of a server, before one of the system that names no process."""


def test_a_kill_of_nothing_that_is_named_is_about_the_server_around_it() -> None:
    line = "A process of this unit has been killed by the OOM killer.\n"
    assert [found["code"] for found in findings(NAMELESS + line) if found["code"] == "CD409"] == ["CD409"]
    assert [found["code"] for found in findings(line) if found["code"] == "CD409"] == []
    quoted = NAMELESS + f"my log says {line}"
    assert [found["code"] for found in findings(quoted) if found["code"] == "CD409"] == []


@pytest.mark.parametrize(
    "row", [row for row in TABLE if row.incident and row.id != "oom_alone" and not row.behind], ids=lambda row: row.id
)
def test_a_line_alone_is_a_finding(row: Sentence) -> None:
    """No certain line ends in an all-clear or as an unknown format."""
    codes = [found["code"] for found in findings(row.sample + "\n")]
    assert codes
    assert not {"CD902", "CD903"}.intersection(codes)


def test_no_bundled_log_of_another_kind_has_one() -> None:
    """What is certain must never be seen where it is not."""
    seen = {
        path.parent.name
        for path in LOGS
        if path.stem not in PASTED
        for _, row, _, _ in sentences.read(path.read_bytes(), [*EVERYWHERE, *ELSEWHERE])
        if row.incident is not None
    }
    assert seen == set(OURS)


def test_another_program_that_is_ended_says_nothing() -> None:
    log = (FIXTURES / "cases/healthy-dense-b6301/server.log").read_text("utf-8")
    assert findings(log + KILL.replace("llama-server", "firefox")) == []
    assert [found["code"] for found in findings(log + KILL)] == ["CD409"]


@pytest.mark.parametrize(
    "case", ["cache-ram-evicts-b9294", "context-overflow-b9713", "slot-contention-dense-b8672", "kv-purged-b8353"]
)
def test_no_limit_is_raised_in_a_log_that_shows_a_kill(case: str) -> None:
    """Before, the remedies have options that take more memory; with the kernel's line they have none."""
    raises = ("--cache-ram", "--ctx-size", "--parallel", "--ctx-checkpoints", "--swa-full")
    log = (FIXTURES / "cases" / case / "server.log").read_text("utf-8")

    def commands(text: str) -> str:
        return json.dumps([remedy for found in findings(text) for remedy in found["remedies"]])  # type: ignore[attr-defined]

    assert any(f"{name} " in commands(log) for name in raises)
    killed = json.loads(commands(log + KILL))
    assert not [name for remedy in killed for command in remedy["commands"] for name in raises if name in command]
    assert any(remedy["text"].startswith("Do not raise") for remedy in killed)


def test_a_kill_is_told_of_the_run_that_ended(tmp_path: Path) -> None:
    """The run before the line, not the one after it; the restart then advises nothing that needs memory."""
    log = (FIXTURES / "cases/out-of-memory-kill-b9713/server.log").read_text("utf-8")
    report = json.loads(json_of([log.encode()]))
    kill = next(found for found in report["findings"] if found["code"] == "CD409")
    assert (kill["evidence"][0]["session"], kill["evidence"][0]["line"]) == (0, 59)
    restart = next(found for found in report["findings"] if found["code"] == "CD404")
    assert not any("keep it loaded" in remedy["text"] for remedy in restart["remedies"])
    assert restart["remedies"][0]["text"] == (
        "The system killed a server because memory ran out (line 59). Free memory first: a smaller model or context, "
        "fewer slots, or fewer programs on this machine."
    )


def test_a_container_that_was_killed_is_not_sure() -> None:
    (found,) = findings("llama-server-1 exited with code 137\n")
    assert (found["code"], found["confidence"]) == ("CD409", "medium")


def test_a_kill_while_a_prompt_is_saved_names_both_sizes(tmp_path: Path) -> None:
    """The RAM cache held 8,100 MiB when a state of 5,300 MiB was copied to it: 13,400 MiB."""
    log = tmp_path / "server.log"
    log.write_text(
        "0.00.050.000 I srv    load_model: loading model '/models/dense.gguf'\n"
        "0.00.060.000 I srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n"
        "0.00.220.361 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1\n"
        "0.00.220.365 I srv  get_availabl: updating prompt cache\n"
        "0.00.220.376 I srv        update:  - cache state: 4 prompts, 8100.000 MiB (limits: 8192.000 MiB, 16384 "
        "tokens, 8589934592 est)\n"
        "0.00.220.482 I slot launch_slot_: id  0 | task 0 | processing task, is_child = 0\n"
        "0.00.556.509 I slot      release: id  0 | task 0 | stop processing: n_tokens = 1989, truncated = 0\n"
        "0.00.634.278 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 5\n"
        "0.00.634.279 I srv  get_availabl: updating prompt cache\n"
        "0.00.634.280 I srv   prompt_save:  - saving prompt with length 53000, total state size = 5300.000 MiB (draft: "
        "0.000 MiB)\n"
        "kernel: Out of memory: Killed process 4242 (llama-server) total-vm:61234567kB, anon-rss:30123456kB\n"
    )
    found = next(one for one in analyze(log).findings if one.code == "CD409")
    assert found.why.startswith(
        "The process ended while a state of 5.2 GiB was being copied to the RAM prompt cache, which held 7.9 GiB "
        "(limit 8,192 "
        "MiB). Cache and copy together needed at least 13.1 GiB."
    )
