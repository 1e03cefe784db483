"""What is printed to be copied: commands of remedies and fixes in every launcher's form, read by real parsers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, get_args

import answered
import msgspec
import pytest
import yaml
from command import run as run_command
from conftest import FIXTURES, ROOT, case_of, content_of, every_case, given_of, log_of, prompts_of, report_of
from printed_commands import BLANK, as_command, in_rows, in_step, is_read, ours_read, servers_take, shell_reads
from reports import written

import cachedoctor
from cachedoctor.diagnosis.rules.registry import load
from cachedoctor.doctor.fixing.fixes import StartInfo, Wish, chosen, fixes, merged
from cachedoctor.engines.llamacpp.pasted_issue import read_issue
from cachedoctor.inputs.envelope.unwrapper import delivered_by
from cachedoctor.knowledge import clients, cmdline, server_options
from cachedoctor.model import (
    Cost,
    Finding,
    Fix,
    Launcher,
    OptionChange,
    Remedy,
    Report,
    Session,
    Setting,
    as_typed,
    left_out,
)
from cachedoctor.report.launchers.forms import LaunchRequest, form
from cachedoctor.report.wire import stored

LAUNCHERS = get_args(Launcher)


def options_exist(options: list[dict[str, Any]], low: int | None, high: int | None) -> None:
    """Every option of llama-server that is set is one that some of the builds have."""
    for option in options:
        if option["remove"]:
            continue
        known, name, _ = server_options.entry(option["name"])
        if option["name"].startswith("-"):
            assert name.exists(low, high) is not False, option
        assert (option["value"] is None) == (known.kind == "switch" and option["name"].startswith("-")), option


def engine_of(report: dict[str, Any]) -> str:
    """The engine of a report with one kind of server."""
    return next((s["engine"] for s in report["sessions"]), "llama.cpp")


@cache
def report_of_case(case: Path) -> dict[str, Any]:
    """The report of a case, which nobody changes."""
    return report_of(content_of(case), prompts_of(case), given_of(case))


@pytest.mark.sample(24)
@pytest.mark.spread(9)
@every_case
def test_every_command_of_a_case_can_be_pasted(case: Path) -> None:
    """In the findings, and in what would show more: by a shell, and by the server of that build."""
    report = report_of_case(case)
    rows = [c for f in report["findings"] for remedy in f["remedies"] for c in remedy["commands"]]
    rows += [row for rule in report["not_evaluated"] for row in rule["enable"].split("\n")[1:]]
    rows += (report["restart"] or {"command": ""})["command"].split("\n")
    assert not [row for row in rows if BLANK.search(row)]
    shell_reads(map(as_command, rows))
    ours_read(rows)
    servers_take(in_rows(engine_of(report), rows), report["sessions"])


@pytest.mark.sample(24)
@pytest.mark.spread(9)
@every_case
def test_every_fix_of_a_case_in_every_form(case: Path) -> None:
    """Shell, YAML and units are read by their parsers; what is set exists in the build, and the build says so."""
    report = report_of_case(case)
    found = stored.read(json.dumps(report).encode(), "report")
    line = case_of(case).get("cmdline")
    for one in report["fix"]:
        session = next(s for s in report["sessions"] if (s["path"], s["origin"]) == (one["path"], one["origin"]))
        span = (session["build"] or session["build_min"], session["build"] or session["build_max"])
        if session["engine"] == "llama.cpp" and not session.get("program"):
            options_exist(one["options"], *span)
    for launcher in LAUNCHERS:
        for fix in fixes(found.findings, found.sessions, found.inputs, StartInfo(launcher, line)):
            for step in [*fix.steps, *(step for other in fix.others for step in other.steps)]:
                is_read(step, launcher)
                servers_take(in_step(engine_of(report), step), report["sessions"], line)


def test_no_rule_holds_a_blank() -> None:
    """In the source of every rule, and in what its page shows to be copied."""
    rules, broken = load()
    assert not broken
    assert len(rules) > 50
    for path in (ROOT / "cachedoctor" / "diagnosis" / "rules").rglob("cd*.py"):
        assert not re.search(r"(?:llama-server|vllm serve|launch_server) \.\.\.", path.read_text("utf-8")), path
    for path in (ROOT / "cachedoctor" / "diagnosis" / "rules").rglob("cd*.md"):
        fix = path.read_text("utf-8").partition("\n## Fix\n")[2].partition("\n## ")[0]
        rows = [row.strip() for row in fix.splitlines() if row.startswith("      ") and row.strip()]
        commands = [row for row in rows if re.match(r"--|export |[a-z-]+ -", row)]
        assert not [row for row in commands if BLANK.search(row)], path
        shell_reads(map(as_command, commands))


def test_settings_of_clients_say_what_their_commands_do() -> None:
    """The variable and its value are in the command; a setting without a command has no habit."""
    known = [clients.KnownHabit(client, habit) for client in clients.table() for habit in client.habit]
    for one in known:
        text = " ".join(one.habit.commands)
        for setting in one.habit.settings:
            if setting.variable is None or one.client.name == "aider":
                continue
            said = f"{setting.variable}={setting.value}" if setting.value is not None else f"unset {setting.variable}"
            assert said in text
            assert setting.key is None or setting.key.endswith(setting.variable)
        assert bool(one.habit.settings) == bool(one.habit.commands), one.handle


# ---- merging


def finding(code: str, *remedies: Remedy, confidence: str = "high") -> Finding:
    return Finding(
        code, f"cause-{code.lower()}", "warning", confidence, "", [], 1, [], Cost(1, None), "", [], None,  # type: ignore[arg-type]
        list(remedies), [], "server.log",
    )  # fmt: skip


def wish(code: str, options: str) -> Wish:
    remedy = Remedy("", options=as_typed(options))
    return Wish(finding(code, remedy), remedy)


def server(unified: bool | None = None, **fields: Any) -> Session:
    settings = {} if unified is None else {"kv_unified": Setting(unified, 1)}
    return Session(0, "server.log", build=8672, n_requests=1, settings=settings, **fields)  # type: ignore[arg-type]


def words(options: list[OptionChange]) -> str:
    return " ".join(word for change in options for word in change.words)


def test_the_larger_cache_serves_both() -> None:
    one = merged([wish("CD301", "--cache-ram 512"), wish("CD304", "--cache-ram 2048")], server())
    assert (words(one.options), one.notes) == ("--cache-ram 2048", [])
    one = merged([wish("CD301", "--cache-ram -1"), wish("CD304", "--cache-ram 2048")], server())
    assert words(one.options) == "--cache-ram -1"


def test_a_divided_context_grows_with_the_slots() -> None:
    """CD402 wants 32,768 for one slot, CD302 three slots of 16,384: 3 x 32,768. Shared, the larger sum is enough."""
    wishes = [wish("CD302", "--parallel 3 --ctx-size 49152"), wish("CD402", "--ctx-size 32768")]
    divided = merged(wishes, server(unified=False, n_slots=1, n_ctx_slot=16384))
    assert words(divided.options) == "--parallel 3 --ctx-size 98304"
    shared = merged(wishes, server(unified=True, n_slots=1, n_ctx_slot=16384))
    assert words(shared.options) == "--parallel 3 --ctx-size 49152"


def test_what_excludes_each_other_is_said() -> None:
    """The first finding is the costliest; fewer slots for one, more for the other cannot both be."""
    wishes = [wish("CD302", "--parallel 4 --ctx-size 65536"), wish("CD403", "--parallel 1")]
    one = merged(wishes, server(unified=False, n_slots=2, n_ctx_slot=16384))
    assert words(one.options) == "--parallel 4 --ctx-size 65536"
    assert [w.finding.code for w in one.served] == ["CD302"]
    (note,) = one.notes
    assert "CD403" in note
    assert "--parallel 1" in note
    one = merged([wish("CD310", "--no-kv-unified"), wish("CD403", "--kv-unified")], server())
    assert words(one.options) == "--no-kv-unified"
    assert "CD403" in one.notes[0]


def test_what_is_set_replaces_what_is_left_out() -> None:
    gone = Remedy("", options=left_out("--cache-reuse", "-cram"))
    one = merged([Wish(finding("CD210", gone), gone), wish("CD303", "--cache-ram 512")], server())
    assert [(c.name, c.remove) for c in one.options] == [("--cache-reuse", True), ("--cache-ram", False)]


def test_only_what_fixes_is_merged() -> None:
    """Not what shows more, not what depends on something, not what is a suspicion."""
    look = Remedy("", options=as_typed("LLAMA_SERVER_SLOTS_DEBUG=1"), purpose="look")
    depends = Remedy("", options=as_typed("--no-mmproj"), purpose="depends")
    mends = Remedy("", options=as_typed("--cache-ram 512"))
    found = chosen([finding("CD301", look, depends, mends), finding("CD302", mends, confidence="low")])
    assert [(one.finding.code, words(one.remedy.options)) for one in found] == [("CD301", "--cache-ram 512")]
    assert Remedy("", ["cachedoctor diff a b"]).purpose == "look"


def test_the_cheapest_test_comes_first() -> None:
    """A variable of a client needs no restart of the server."""
    settings = clients.known("claude-code/billing-header").settings
    wanted = [finding("CD303", Remedy("", options=as_typed("--cache-ram 512")))]
    wanted.append(finding("CD101", Remedy("", ["export X=0"], settings=settings)))
    (fix,) = fixes(wanted, [server()], [])
    assert [step.where for step in fix.steps] == ["client", "server"]
    assert fix.steps[0].commands == ["export CLAUDE_CODE_ATTRIBUTION_HEADER=0"]
    assert "env.CLAUDE_CODE_ATTRIBUTION_HEADER in ~/.claude/settings.json" in fix.steps[0].text
    assert fix.server == "llama-server b8672"
    assert fix.costs == ["--cache-ram needs up to 512 MiB of main memory, and no VRAM"]


def test_other_programs_are_not_given_options_of_llama_server() -> None:
    """KoboldCpp has its own; a fork's builds say nothing of variables."""
    wanted = [finding("CD303", Remedy("", options=as_typed("--cache-ram 512")))]
    (fix,) = fixes(wanted, [server(program="KoboldCpp")], [], StartInfo("compose"))
    assert (fix.options, fix.steps) == ([], [])
    assert "KoboldCpp has its own options" in fix.notes[0]
    (fix,) = fixes(wanted, [server(program="ik_llama.cpp")], [], StartInfo("compose"))
    assert [step.commands for step in fix.steps] == [["--cache-ram 512"], ["docker compose up -d"]]


# ---- forms

CHANGES = as_typed("--parallel 4 --ctx-size 65536 --cache-ram 256 --slot-prompt-similarity 0.5")


def rows(launcher: Launcher, changes: list[OptionChange] = CHANGES, **fields: Any) -> list[str]:
    steps, _ = form(LaunchRequest(changes, low=8672, high=8672, **fields), launcher)
    return [row for step in steps for row in step.commands]


def test_compose_has_variables_and_the_service_of_the_log() -> None:
    """What has no variable in this build is said apart; a switch off is a variable where the build reads it so."""
    found = rows("compose", name="llama")
    service = yaml.safe_load("\n".join(found[:6]))["services"]["llama"]
    assert service == {
        "environment": {"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_CTX_SIZE": "65536", "LLAMA_ARG_CACHE_RAM": "256"}
    }
    assert found[6:] == ["--slot-prompt-similarity 0.5", "docker compose up -d llama"]
    off = rows("compose", as_typed("--no-kv-unified"), name="llama")
    assert '      LLAMA_ARG_KV_UNIFIED: "0"' in off


def test_a_hostile_name_reaches_no_command() -> None:
    """It is the wrapper's, which anybody may have written."""
    for launcher in LAUNCHERS:
        found = rows(launcher, name="x; rm -rf /\n$(id)")
        assert not any("rm -rf" in row or "$(" in row for row in found)
    assert rows("docker", [OptionChange("--chat-template-kwargs", "'; id")], line=None) == [
        "-e 'LLAMA_CHAT_TEMPLATE_KWARGS='\"'\"'; id'"
    ]


@pytest.mark.parametrize("name", ["null", "on", "123", "1e3"])
def test_a_service_whose_name_is_a_word_of_yaml_stays_a_string(name: str) -> None:
    steps, _ = form(LaunchRequest(as_typed("--cache-ram 1"), low=10566, high=10566, name=name), "compose")
    assert list(yaml.safe_load("\n".join(steps[0].commands))["services"]) == [name]


def test_a_unit_gets_a_drop_in() -> None:
    assert rows("systemd", name="llama") == [
        "[Service]", "Environment=LLAMA_ARG_N_PARALLEL=4", "Environment=LLAMA_ARG_CTX_SIZE=65536",
        "Environment=LLAMA_ARG_CACHE_RAM=256", "--slot-prompt-similarity 0.5", "systemctl restart llama",
    ]  # fmt: skip
    whole = rows("systemd", line="/usr/bin/llama-server -m /m.gguf -np 1")
    assert whole[1:5] == [
        "Environment=LLAMA_ARG_CTX_SIZE=65536",
        "Environment=LLAMA_ARG_CACHE_RAM=256",
        "ExecStart=",
        "ExecStart=/usr/bin/llama-server -m /m.gguf --parallel 4 --ctx-size 65536 --cache-ram 256 "
        "--slot-prompt-similarity 0.5",
    ]
    (quoted, _) = rows("systemd", [OptionChange("--chat-template-kwargs", '{"a": "50%"}')])[1:]
    assert quoted == r'Environment="LLAMA_CHAT_TEMPLATE_KWARGS={\"a\": \"50%%\"}"'


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's own parser is not here")
def test_systemd_reads_the_drop_in(tmp_path: Path) -> None:
    """One start of systemd-analyze, about 0.1 s."""
    found = rows("systemd", line="/bin/true -m '/a b.gguf' -np 1")
    unit = tmp_path / "x.service"
    unit.write_text("\n".join(found[:-1]) + "\n", "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    own = [row for row in done.stderr.splitlines() if row.startswith(str(unit))]
    assert own == []
    assert done.returncode == 0, done.stderr


def test_kubernetes_and_llama_swap() -> None:
    env = yaml.safe_load("\n".join(rows("kubernetes", CHANGES[:1])))
    assert env == {"env": [{"name": "LLAMA_ARG_N_PARALLEL", "value": "4"}]}
    args = yaml.safe_load("\n".join(rows("kubernetes", as_typed("--kv-cache-dtype fp8"), engine="vllm")))
    assert args == {"args": ["--kv-cache-dtype", "fp8"]}
    swap = yaml.safe_load("\n".join(rows("llama-swap", CHANGES[:1], name="tiny")))
    assert swap == {"models": {"tiny": {"env": ["LLAMA_ARG_N_PARALLEL=4"]}}}


def test_ollama_and_lm_studio_say_what_they_cannot() -> None:
    """In ollama a context is that of one request; LM Studio's division of its own is not documented."""
    steps, notes = form(LaunchRequest(CHANGES, "ollama"), "ollama")
    assert steps[0].commands == ["export OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=16384"]
    assert notes == ["ollama has no setting for --cache-ram 256, --slot-prompt-similarity 0.5"]
    steps, notes = form(LaunchRequest(CHANGES[:3]), "lm-studio")
    assert [step.commands for step in steps] == [["Max Concurrent Predictions: 4"], ["--cache-ram 256"]]
    assert "from September 2026 on" in steps[1].text
    assert notes == ["LM Studio before September 2026 has no setting for --cache-ram 256"]
    assert form(LaunchRequest(as_typed("LLAMA_SERVER_SLOTS_DEBUG=1")), "lm-studio") == (
        [], ["LM Studio has no setting for LLAMA_SERVER_SLOTS_DEBUG=1"],
    )  # fmt: skip


def test_jan_has_settings_and_a_field_for_variables() -> None:
    """Older versions have fewer settings; what has no variable either is said."""
    steps, notes = form(LaunchRequest(CHANGES, low=10566, high=10566), "jan")
    assert steps[0].commands == [
        "Parallel Sequences: 4", "Context Size (of the model): 65536", "Prompt Cache RAM (MiB): 256",
    ]  # fmt: skip
    assert notes == [
        "in older versions of Jan, write LLAMA_ARG_CACHE_RAM=256 into Environmental variables instead",
        "Jan has no setting for --slot-prompt-similarity 0.5",
    ]
    asked = as_typed("LLAMA_SERVER_SLOTS_DEBUG=1 --ctx-checkpoints 64")
    (step,), notes = form(LaunchRequest(asked, low=10566, high=10566), "jan")
    rows = ["Environmental variables: LLAMA_SERVER_SLOTS_DEBUG=1;LLAMA_ARG_CTX_CHECKPOINTS=64"]
    assert (step.commands, notes) == (rows, [])


def test_ollama_hands_its_environment_on_to_llama_server() -> None:
    """Its own runners know none of these variables; an option without one cannot be set."""
    steps, notes = form(LaunchRequest(CHANGES, low=8672, high=8672), "ollama")
    assert steps[0].commands == ["export OLLAMA_NUM_PARALLEL=4 OLLAMA_CONTEXT_LENGTH=16384 LLAMA_ARG_CACHE_RAM=256"]
    assert "pass LLAMA_ARG_* to it" in notes[0]
    assert notes[1:] == ["ollama has no setting for --slot-prompt-similarity 0.5"]


# ---- where it is known from


@pytest.mark.parametrize(
    ("case", "launcher"),
    [
        ("wrapped-compose-two-services", "compose"),
        ("wrapped-journald-short", "systemd"),
        ("wrapped-docker-json", "docker"),
        ("wrapped-llama-swap", "llama-swap"),
        ("billing-header-hybrid", None),
    ],
)
def test_the_wrapper_shows_the_launcher(case: str, launcher: Launcher | None) -> None:
    data = content_of(FIXTURES / "cases" / case)
    assert delivered_by(data[: 1 << 14]) == launcher
    assert report_of(data)["inputs"][0]["launcher"] == launcher


def test_wrappers_that_disagree_tell_nothing() -> None:
    line = b"srv  update_slots: all slots are idle\n"
    assert delivered_by(b"llama-1  | " + line) == "compose"
    assert delivered_by(b"[pod/llama-0/main] " + line) == "kubernetes"
    assert delivered_by(b"llama-1  | " + line + b"[pod/llama-0/main] " + line) is None
    assert delivered_by(b"some  | thing else\n") is None


def test_what_no_reader_sees_hides_no_wrapper() -> None:
    """NUL bytes of a log that was cut, and colours: the lines after them are read as if there were none."""
    header = b"[2026-11-20 12:00:00][DEBUG][model]\r\n old: ...\n"
    for unseen in (b"", b"\0", b"\0" * 99, b"\x1b[32m"):
        assert delivered_by(unseen + header) == "lm-studio", unseen


def test_records_of_pods_are_of_kubernetes() -> None:
    """Whatever collected them; what the text of a record quotes is none."""
    text = '"log": "srv  update_slots: all slots are idle", "stream": "stderr"'
    for added in (
        '"kubernetes": {"pod_name": "a"}', '"kubernetes.pod_name":"a"', '"podName":"a"',
        '"resource": {"type":"k8s_container"}',
    ):  # fmt: skip
        assert delivered_by(f"{{{text}, {added}}}\n".encode()) == "kubernetes"
    assert delivered_by(b'{"log":"{\\"kubernetes\\": {}}","stream":"stderr"}\n') == "docker"


def test_ollama_is_told_by_its_own_lines() -> None:
    """In a container or a unit as well; a line of another program in Go is none of them."""
    line = b'time=2026-09-05T11:40:02.065+02:00 level=INFO source=llama_server.go:1274 msg="starting llama-server"\n'
    assert delivered_by(line) == "ollama"
    assert delivered_by(b"Sep 11 00:03:06 host ollama[77]: " + line) == "ollama"
    assert delivered_by(b"Sep 11 00:03:06 host ollama[77]: srv  update_slots: all slots are idle\n") == "ollama"
    assert delivered_by(line.replace(b"llama_server", b"proxy")) is None


# ---- the command


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = run_command("fix", *arguments)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_log_and_its_report_have_one_fix(tmp_path: Path) -> None:
    log = log_of(FIXTURES / "cases" / "slot-contention-dense-b8672")
    asked = run(log, "--launcher", "compose", "-f", "json")
    assert asked.returncode == 0, asked.stderr
    report = tmp_path / "report.json"
    assert run_command("analyze", log, "-f", "json", "-o", report).returncode == 0
    again = run(report, "--launcher", "compose", "-f", "json")
    assert again.stdout == asked.stdout
    (fix,) = msgspec.json.decode(asked.stdout, type=list[Fix])
    assert (fix.launcher, fix.codes) == ("compose", ["CD302", "CD303"])
    text = run(report).stdout
    assert [row for row in text.splitlines() if not row.startswith("#")] == ["--cache-ram 8192"]
    assert "# In a replay this saves about 13,529 of 13,529 recomputed tokens." in text


def test_the_command_line_that_was_given_comes_back_changed() -> None:
    log = log_of(FIXTURES / "cases" / "slot-contention-dense-b8672")
    found = run(log, "--cmdline", "LLAMA_ARG_X=1 llama-server -m ~/m.gguf -np 2 -c 32768 --cache-ram 0").stdout
    assert [row for row in found.splitlines() if not row.startswith("#")] == [
        "LLAMA_ARG_X=1 llama-server -m ~/m.gguf -np 2 -c 32768 --cache-ram 8192"
    ]


@pytest.mark.parametrize(
    ("log", "line", "fixed"),
    [
        ("vllm-v0-preemption", "vllm serve m -tp 2", "vllm serve m -tp 2 --gpu-memory-utilization 0.95"),
        ("vllm-v0-preemption", "llama-server -m q.gguf", None),
        ("vllm-v0-preemption", "docker run lmsysorg/sglang --model-path m", None),
        ("sglang-retraction", "python3 -m sglang.launch_server --model-path m",
         "python3 -m sglang.launch_server --model-path m --schedule-conservativeness 1.3"),
        ("sglang-retraction", "python -m vllm.entrypoints.openai.api_server --model m", None),
    ],
)  # fmt: skip
def test_a_line_that_starts_another_server_is_left_out(log: str, line: str, fixed: str | None) -> None:
    report = cachedoctor.analyze(FIXTURES / "measured" / f"{log}.log")
    (fix,) = fixes(report.findings, report.sessions, report.inputs, StartInfo(None, line))
    text = " ".join(" ".join(step.commands) for step in fix.steps)
    if fixed is None:
        assert line not in text
        assert "the given command line starts a different server and was ignored" in fix.notes
    else:
        assert text.startswith(fixed)
        assert not any("another server" in note for note in fix.notes)


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("sudo /opt/vllm/bin/vllm serve m", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.9 --model m", "vllm"),
        ("python -m sglang.launch_server --model-path m", "sglang"),
        ("docker run lmsysorg/sglang:latest python3 -m sglang.launch_server", "sglang"),
        ("llama-server -m /models/vllm/serve.gguf", "llama.cpp"),
        ("docker run -v /vllm:/models ghcr.io/ggml-org/llama.cpp:server -m q.gguf", "llama.cpp"),
        ("-c 4096 -np 2", None),
        ("docker run mine --model sglang", None),
        ("llama-server 'unclosed", None),
    ],
)
def test_which_server_a_line_starts(line: str, engine: str | None) -> None:
    assert cmdline.engine_of(line) == engine
    assert cmdline.is_for(line, "ik_llama.cpp") == (engine in (None, "llama.cpp"))
    assert cmdline.is_for(line, "sglang") == (engine in (None, "sglang"))


def test_a_pasted_command_line_is_one_command() -> None:
    """Rows of cmd and PowerShell, and of a paste, end nothing; those of a shell stay."""
    for end in ("\n", " ^\n  ", " `\r\n", " \n"):
        assert rows("shell", CHANGES[:1], line=f"llama-server -m x{end}-c 1") == ["llama-server -m x -c 1 --parallel 4"]
    kept = rows("shell", CHANGES[:1], line="llama-server \\\n  -c 1")
    assert kept == ["llama-server \\", "  -c 1 \\", "  --parallel 4"]


def test_a_report_repeats_no_secret_of_the_command_line() -> None:
    """What is hidden could not be pasted: the options alone are given then."""
    log = log_of(FIXTURES / "cases" / "slot-contention-dense-b8672")
    line = "llama-server -m q.gguf --api-key sk-abcdefghijklmnopqrstuvwxyz123456 -np 2"
    done = run_command("analyze", log, "-f", "json", "--cmdline", line)
    assert done.returncode == 0
    (fix,) = json.loads(done.stdout)["fix"]
    assert "api-key" not in json.dumps(fix)
    assert fix["steps"][0]["commands"] == ["--cache-ram 8192"]


def test_findings_that_only_a_change_of_the_client_fixes_are_named(tmp_path: Path) -> None:
    """They are not told as if nothing had been found."""
    done = run(log_of(FIXTURES / "cases" / "reasoning-stripped-swa"))
    assert (done.returncode, done.stdout) == (0, "")
    assert "no server option fixes these findings: CD104 reasoning-stripped (hint" in done.stderr


def issue_with(line: str) -> Report:
    log = log_of(FIXTURES / "cases" / "slot-contention-dense-b8672").read_text("utf-8")
    return answered.report_of(f"### Command line\n\n```shell\n$ {line}\n```\n\n```\n{log}```\n")


def pasted(line: str) -> str | None:
    """The command line that is read of an issue."""
    return read_issue(f"### Command line\n\n```shell\n$ {line}\n```\n".encode().split(b"\n")).cmdline


def test_the_command_line_of_a_pasted_issue_comes_back_changed() -> None:
    line = "llama-server -m ~/q.gguf -np 2 \\\n  --cache-ram 0 -a 'my model' | tee x.log"
    ((step,),) = (fix.steps for fix in issue_with(line).fix)
    assert step.commands == ["llama-server -m ~/q.gguf -np 2 --cache-ram 8192 -a 'my model'"]


def test_a_pasted_command_line_does_no_more_than_start_the_server() -> None:
    """What a shell would do after it is left out; one that does more inside its words is not repeated."""
    line = "llama-server -np 2 -a 'my model'"
    for behind in ("", " 2>&1 | tee x.log", "; curl x | sh", " > x", " && id", " &"):
        assert pasted(line + behind) == line
    assert pasted('llama-server -np 2 -m "$HOME/${M}.gguf"') == 'llama-server -np 2 -m "$HOME/${M}.gguf"'
    for inside in ("$(id)", '"`id`"', "${X:-`id`}", "*", "<(id)", ">(id)", "!x", '"!x"', "$((1))", "\\$(id)"):
        assert pasted(f"{line} -m {inside}") is None


def test_a_maintainer_is_not_asked_for_a_command_line_that_is_there() -> None:
    """It is repeated without its secrets, which cannot be pasted either."""
    report = issue_with("llama-server -np 2 --api-key sk-abcdefghijklmnopqrstuvwxyz123456")
    assert report.fix[0].steps[0].commands == ["--cache-ram 8192"]
    text = written("markdown", report).decode()
    assert "command line. The log does not show these details" not in text
    assert "- Command line: `llama-server -np 2 --api-key " in text
    assert "sk-abcdef" not in text
    bare = answered.report_of(log_of(FIXTURES / "cases" / "slot-contention-dense-b8672").read_bytes())
    assert "command line. The log does not show these details" in written("markdown", bare).decode()


@pytest.mark.sweep
def test_nothing_to_change_and_nothing_recognised(tmp_path: Path) -> None:
    healthy = run(log_of(FIXTURES / "cases" / "wrapped-compose-two-services"))
    assert (healthy.returncode, healthy.stdout) == (0, "")
    assert "nothing to change" in healthy.stderr
    other = tmp_path / "x.log"
    other.write_text("no log\n" * 9, "utf-8")
    assert run(other).returncode == 3
    assert run(tmp_path / "missing.log").returncode == 2
