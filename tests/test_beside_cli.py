"""Dumps of /metrics and responses beside a log: whose they are, and what is said when they cannot be used."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from command import LOG, one_line, run

import cachedoctor
from cachedoctor.cli.counters import dumps_in
from cachedoctor.doctor.extras import extra_inputs
from cachedoctor.doctor.extras.extra_inputs import ExtraInputs, attach
from cachedoctor.inputs.metrics.responses import ResponseFile
from cachedoctor.model import Answers, CacheDoctorError, Counters, Session, Setting

REAL = Path(__file__).parent.parent / "fixtures" / "vllm"
BILLING, SHORT = REAL / "vllm032_dense_billing", REAL / "vllm032_dense_short"


def metrics(name: Path) -> Path:
    return name.with_name(f"{name.name}.metrics.txt")


def usage(name: Path) -> Path:
    return name.with_name(f"{name.name}.usage.json")


def log(name: Path) -> Path:
    return name.with_name(f"{name.name}.log")


def sessions(*args: object, **more: object) -> list[dict[str, object]]:
    done = run("analyze", "-f", "json", *args, **more)  # type: ignore[arg-type]
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)["sessions"]


# ---- the command


def test_beside_a_log():
    """The example of the manual: the server of the log, between two dumps, and what its clients were told."""
    (server,) = sessions(
        log(BILLING), "--metrics", metrics(BILLING), "--metrics", metrics(SHORT), "--responses", usage(BILLING)
    )
    assert (server["path"], server["engine"]) == (str(log(BILLING)), "vllm")
    (counted,), (answers,) = server["counters"], server["answers"]
    assert (counted["path"], counted["since"]) == (str(metrics(BILLING)), str(metrics(SHORT)))
    assert (counted["looked_up"], counted["reused"], counted["requests"]) == (54_004, 27_776, 58)
    assert (answers["path"], answers["source"]) == (str(usage(BILLING)), "responses")
    assert (answers["requests"], answers["prompt_tokens"], answers["cached_tokens"]) == (32, 30_240, 27_776)
    first = answers["each"][0]
    assert (first["prompt_tokens"], first["cached_tokens"], first["line"]) == (945, 0, 2)


@pytest.mark.sweep
def test_without_a_log():
    (server,) = sessions("--metrics", metrics(BILLING))
    assert (server["path"], server["engine"], server["model"]) == (str(metrics(BILLING)), "vllm", "tiny")
    facts = {"prefix_caching": True, "block_size": 128, "kv_tokens": 1_048_576, "mamba_mode": "none"}
    facts["retention_interval"] = 0
    assert server["settings"] == {name: {"value": value, "line": None} for name, value in facts.items()}
    assert server["answers"] == []
    (server,) = sessions("--responses", usage(BILLING), stdin=b"")  # what is piped in is not asked for
    assert (server["engine"], server["counters"], len(server["answers"])) == ("vllm", [], 1)
    (server,) = sessions("--responses", usage(BILLING), "--metrics", metrics(BILLING))
    assert (len(server["counters"]), len(server["answers"])) == (1, 1)


def test_the_library_does_the_same():
    report = cachedoctor.analyze(metrics=[metrics(BILLING), metrics(SHORT)], responses=[usage(BILLING)])
    (server,) = report.sessions
    assert [counted.reused for counted in server.counters] == [27_776]
    assert [answers.cached_tokens for answers in server.answers] == [27_776]
    assert report.inputs == []
    (server,) = cachedoctor.analyze(log(BILLING), metrics=[metrics(BILLING)]).sessions
    assert server.path == str(log(BILLING))
    assert [counted.reused for counted in server.counters] == [75_776]
    with pytest.raises(CacheDoctorError, match="is not a dump"):
        cachedoctor.analyze(metrics=[log(BILLING)])


@pytest.mark.sweep
@pytest.mark.parametrize("format", ["text", "concise", "html", "markdown", "sarif", "github", "jsonl"])
def test_every_format_can_be_written(format):
    done = run("analyze", "--metrics", metrics(BILLING), "--responses", usage(BILLING), "-f", format)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.sweep
def test_the_stream_has_them():
    done = run("analyze", log(BILLING), "--metrics", metrics(BILLING), "-f", "jsonl")
    told = [line for line in map(json.loads, done.stdout.splitlines()) if line["type"] == "session"]
    assert [counted["reused"] for counted in told[-1]["counters"]] == [75_776]


@pytest.mark.sweep
def test_processes_side_by_side(tmp_path):
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(LOG)
    files = (log(BILLING), tmp_path / "a.log", tmp_path / "b.log")
    found = sessions(*files, "--metrics", metrics(BILLING), "--jobs", "2")
    assert [len(server["counters"]) for server in found] == [1, 0, 0]


@pytest.mark.sweep
def test_packed_and_in_utf16(tmp_path):
    text = metrics(BILLING).read_text()
    (tmp_path / "m.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "r.gz").write_bytes(gzip.compress(usage(BILLING).read_bytes()))
    (tmp_path / "m16").write_bytes(text.replace("\n", "\r\n").encode("utf-16"))
    for name in ("m.gz", "m16"):
        (server,) = sessions("--metrics", tmp_path / name)
        assert server["counters"][0]["reused"] == 75_776
    (server,) = sessions("--responses", tmp_path / "r.gz")
    assert server["answers"][0]["cached_tokens"] == 27_776


@pytest.mark.sweep
def test_a_dump_may_come_through_a_pipe():
    (server,) = sessions("--metrics", "-", stdin=metrics(BILLING).read_bytes())
    assert server["counters"][0]["path"] == "-"


@pytest.mark.sweep
def test_a_dump_given_twice_is_one_dump():
    (server,) = sessions("--metrics", metrics(BILLING), "--metrics", metrics(BILLING))
    assert [counted["reused"] for counted in server["counters"]] == [75_776]


@pytest.mark.sweep
def test_secrets_in_labels_are_hidden(tmp_path):
    text = metrics(BILLING).read_text().replace("tiny", "sk-ant-REDACTED")
    (tmp_path / "m").write_text(text)
    done = run("analyze", "--metrics", tmp_path / "m", "-f", "json")
    assert done.returncode == 0
    assert b"abcdefghijklmnopqrstuvwxyz" not in done.stdout


# ---- what cannot be used


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("option", "file", "words"),
    [
        ("--metrics", log(BILLING), ("is not a dump of /metrics", "if the file is a log")),
        ("--metrics", usage(BILLING), ("contains responses", "--responses")),
        ("--responses", metrics(BILLING), ("contains a dump of /metrics", "--metrics")),
        ("--responses", log(BILLING), ("line 1 is not JSON",)),
        ("--metrics", "nowhere.txt", ("nowhere.txt: no such file",)),
        ("--responses", REAL, ("is a directory",)),
    ],
)
def test_one_line_shows_what_is_wrong(option, file, words):
    done = run("analyze", option, file)
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, *words)


@pytest.mark.sweep
@pytest.mark.parametrize("option", ["--metrics", "--responses"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \r\n", "is empty"),
        (b"\x7fELF\0\0\0", "is binary"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (gzip.compress(gzip.compress(b"vllm:prompt_tokens_total 1\n", mtime=0), mtime=0), ""),
        (b"\x1f\x8b\x08broken", ""),
        (b"llamacpp:prompt_tokens_total 5\n", ""),
        (b'{"a":' * 100_000, ""),
        (b"[" * 100_000, ""),
        (b"vllm:prompt_tokens_total{" * 10_000, ""),
    ],
)
def test_odd_files(option, content, words, tmp_path):
    (tmp_path / "odd").write_bytes(content)
    done = run("analyze", option, tmp_path / "odd")
    assert (done.returncode, done.stdout) == (2, b"")
    one_line(done, "odd", words)


@pytest.mark.sweep
def test_a_log_that_is_none_of_ours():
    done = run("analyze", usage(BILLING), "-q")
    assert done.returncode == 3
    assert f"cachedoctor analyze --responses {usage(BILLING)}" in done.stderr.decode()


def test_a_dump_in_the_place_of_a_log():
    done = run("analyze", "-f", "json", metrics(BILLING))
    assert done.returncode == 0
    assert f"note: {metrics(BILLING)}: a dump of /metrics, read as with --metrics" in done.stderr.decode()
    (server,) = json.loads(done.stdout)["sessions"]
    assert (server["path"], server["engine"]) == (str(metrics(BILLING)), "vllm")


COUNTED = "vllm:prefix_cache_queries_total 48211\nvllm:prefix_cache_hits_total 0\nvllm:prompt_tokens_total 48211\n"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (COUNTED, True),
        (f"```\n{COUNTED}```\n", True),
        (f"```text\n# TYPE vllm:prompt_tokens_total counter\n{COUNTED}```\n", True),
        (f"{COUNTED}slot update_slots: id  0 | task 9 | prompt done, n_tokens = 100\n", False),
        (f"Nothing is reused:\n{COUNTED}", False),
        ("vllm:request_params_n_count 1\n", False),
        ("# HELP llamacpp:prompt_tokens_total Number\nllamacpp:prompt_tokens_total 812\n", False),
        ("", False),
    ],
    ids=[
        "bare",
        "in a fence",
        "with a language",
        "with a log",
        "with prose",
        "nothing to read",
        "llama-server",
        "empty",
    ],
)
def test_what_is_only_a_dump(text, is_one, tmp_path):
    (tmp_path / "pasted.txt").write_text(text)
    assert bool(dumps_in([str(tmp_path / "pasted.txt"), str(tmp_path), "-"])) == is_one


@pytest.mark.sweep
def test_an_empty_log_stays_an_error(tmp_path):
    (tmp_path / "empty.log").touch()
    assert run("analyze", tmp_path / "empty.log", "--metrics", metrics(BILLING)).returncode == 3


@pytest.mark.sweep
@pytest.mark.parametrize(("option", "file"), [("--metrics", metrics(BILLING)), ("--responses", usage(BILLING))])
def test_they_are_not_overwritten(option, file, tmp_path):
    copy = tmp_path / "copy"
    shutil.copyfile(file, copy)
    done = run("analyze", log(BILLING), option, copy, "-o", copy)
    assert done.returncode == 2
    one_line(done, "would be overwritten")
    assert copy.read_bytes() == file.read_bytes()


def test_more_than_any_dump(tmp_path, monkeypatch):
    monkeypatch.setattr(extra_inputs, "MAX_DUMP", 100_000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"a 1\n" * 1_000_000))
    (tmp_path / "large").write_bytes(b"a 1\n" * 1_000_000)
    for name in ("bomb.gz", "large"):
        with pytest.raises(CacheDoctorError):
            cachedoctor.analyze(metrics=[tmp_path / name])


# ---- whose they are


def server(index: int, engine: str = "vllm", model: str | None = None, **more: object) -> Session:
    found = Session(index, f"{index}.log", engine=engine, model=model, seen={"stats"})
    for name, value in more.items():
        found.settings[name] = Setting(value, 1)
    return found


def attached(extras: ExtraInputs, *logged: Session) -> list[Session]:
    known = list(logged)

    def new(path: str, origin: str | None) -> Session:
        known.append(Session(len(known), path, origin))
        return known[-1]

    attach(extras, known, new)
    return known


def counted(model: str | None = "m", source: str = "vllm", **config: str) -> Counters:
    return Counters("dump", None, source, model=model, looked_up=10, prompt_tokens=10, config=config)


def owner(extras: ExtraInputs, *logged: Session) -> int:
    (found,) = [s.index for s in attached(extras, *logged) if s.counters or s.answers]
    return found


def test_the_only_server_of_its_engine():
    extras = ExtraInputs([[[counted()]]])
    assert owner(extras, server(0, "sglang"), server(1, model="/models/other"), server(2, "llama.cpp")) == 1
    assert owner(extras, server(0, "sglang")) == 1  # none: one of its own


def test_the_last_life_in_the_log():
    lives = [server(index) for index in range(3)]
    for life in lives:
        life.path = "one.log"
    assert owner(ExtraInputs([[[counted()]]]), *lives) == 2


def test_of_several_servers_the_one_of_its_model():
    for model, expected in (("m", 1), ("c", 2), ("x", 3), (None, 3)):
        servers = [server(0, model="/models/a"), server(1, model="/models/m"), server(2, model="c")]
        assert owner(ExtraInputs([[[counted(model)]]]), *servers) == expected
    assert owner(ExtraInputs([[[counted()]]]), server(0, model="a/m"), server(1, model="b/m")) == 2  # either: neither
    assert owner(ExtraInputs([[[counted()]]]), server(0), server(1)) == 2


def test_two_servers_dumped_and_one_logged():
    found = attached(ExtraInputs([[[counted("a")]], [[counted("m")]]]), server(0, model="/models/m"))
    assert [[c.model for c in s.counters] for s in found] == [["m"], ["a"]]


def test_a_dump_that_the_log_contradicts():
    assert owner(ExtraInputs([[[counted(enable_prefix_caching="False")]]]), server(0, prefix_caching=True)) == 1
    assert owner(ExtraInputs([[[counted(enable_prefix_caching="True")]]]), server(0, prefix_caching=True)) == 0


def test_an_earlier_life_is_not_that_of_the_log():
    earlier, last = counted(), counted()
    found = attached(ExtraInputs([[[earlier], [last]]]), server(0))
    assert [s.counters for s in found] == [[last], [earlier]]
    assert found[0].counters[0] is last


def test_responses_find_their_server():
    def given(engine: str | None = None, model: str | None = None) -> ExtraInputs:
        return ExtraInputs(given=[ResponseFile(Answers("r", "responses", 1), engine, model, [])])

    assert owner(given(), server(0)) == 0
    assert owner(given("sglang"), server(0), server(1, "sglang")) == 1
    assert owner(given(), server(0, model="x/a"), server(1, "sglang", model="b")) == 2
    assert owner(given(model="a"), server(0, model="x/a"), server(1, "sglang", model="b")) == 0
    assert attached(given("sglang"), server(0))[-1].engine == "sglang"
    assert attached(given())[-1].engine == "unknown"


def test_the_log_comes_first():
    config = {
        "block_size": "16",
        "kv_cache_size_tokens": "4096",
        "mamba_cache_mode": "None",
        "enable_prefix_caching": "True",
    }
    (found,) = attached(ExtraInputs([[[counted(**config)]]]), server(0, block_size=32))
    assert found.settings["block_size"] == Setting(32, 1)
    assert found.settings["kv_tokens"] == Setting(4096, None)
    assert found.settings["prefix_caching"] == Setting(True, None)
    assert "mamba_mode" not in found.settings


def test_engines_that_differ_say_nothing():
    (found,) = attached(ExtraInputs([[[counted(block_size="16"), counted(block_size="32")]]]), server(0))
    assert "block_size" not in found.settings


def test_what_no_prompt_was_looked_up_for_is_off():
    def caching(**more: object) -> object:
        counters = counted()
        for name, value in more.items():
            setattr(counters, name, value)
        return attached(ExtraInputs([[[counters]]]), server(0))[0].setting("prefix_caching")

    assert caching(looked_up=0) is False
    assert caching(looked_up=10) is None
    assert caching(looked_up=None) is None
    assert caching(looked_up=0, prompt_tokens=0) is None
    assert caching(looked_up=0, config={"enable_prefix_caching": "True"}) is True


@pytest.mark.sweep
@pytest.mark.parametrize("line", ["vllm serve m --max-num-seqs 4", "python3 -m sglang.launch_server --model m"])
def test_a_command_line_of_another_server_is_not_passed_over(line):
    """Nobody checks its options: silence would look like approval."""
    log = REAL / "vllm032_dense_healthy.log"
    said = run("analyze", log, "--cmdline", line).stderr.decode()
    assert said.startswith("cachedoctor: note: --cmdline: vLLM and SGLang options are not checked")
    assert said.count("\n") == 1
    assert run("analyze", log, "--cmdline", line, "-q").stderr == b""
    one_line(run("tune", "-", "--cmdline", line, "--set", "parallel=2", stdin=LOG), "llama-server")


@pytest.mark.sweep
def test_options_of_llama_server_may_name_anything():
    done = run("analyze", "-", "--cmdline", "llama-server -m /models/vllm/serve.gguf -np 1", stdin=LOG)
    assert done.returncode == 0
