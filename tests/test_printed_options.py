"""Every option and variable that is printed is one of the server's own, by its --help or its source.

Build by build and version by version (fixtures/options), in every launcher's form. Of the corpus of llama-server
``tests/test_fix.py`` asks the same, where its reports are made.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import real_options
import yaml
from conftest import CASES, FIXTURES, MEASURED, ROOT, case_of, content_of, given_of, prompts_of, report_of
from jsonschema import ValidationError
from printed_commands import (
    as_command,
    compose_reads,
    in_rows,
    in_step,
    is_read,
    kubernetes_reads,
    ours_read,
    pod,
    servers_take,
    shell_reads,
)
from test_fix_patches import COMPOSE, SERVICE, edited

import cachedoctor
from cachedoctor.doctor.fixing.fixes import StartInfo, fixes
from cachedoctor.engines.sglang.tracker import Tracker
from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.server_options import Option
from cachedoctor.model import Launcher, OptionChange, Session, as_typed
from cachedoctor.redaction import sanitize
from cachedoctor.report.launchers.forms import LaunchRequest, form, variable
from cachedoctor.report.wire import report_v1, stored

LAUNCHERS = get_args(Launcher)
BUILDS = real_options.versions("llama.cpp")

# ---- the parsers themselves


@pytest.mark.parametrize(
    ("engine", "version", "option", "why"),
    [
        ("llama.cpp", 8672, "--cache-ram 256", None),
        ("llama.cpp", 8672, "--cache-ram", "needs a value"),
        ("llama.cpp", 8672, "--cache-ram much", "no number"),
        ("llama.cpp", 8672, "--swa-full 1", "takes no value"),
        ("llama.cpp", 8672, "--flash-attn maybe", "none of"),
        ("llama.cpp", 8672, "--flash-attn on", None),
        ("llama.cpp", 8672, "--cache-idle-slots", "no option"),
        ("llama.cpp", 8929, "--cache-idle-slots", None),
        ("llama.cpp", 9538, "--checkpoint-every-n-tokens 512", "no option"),
        ("llama.cpp", 6301, "LLAMA_SERVER_SLOTS_DEBUG=1", "no variable"),
        ("llama.cpp", 11549, "LLAMA_SERVER_SLOTS_N_DIFF=32", None),
        ("vllm", "0.32.0", "--prefix-match-unit 16", None),
        ("vllm", "0.22.0", "--prefix-match-unit 16", "no option"),
        ("vllm", "0.32.0", "--no-enable-prefix-caching", None),
        ("vllm", "0.9.2", "--enable-log-requests", "no option"),
        ("vllm", "0.30.0", "VLLM_PREFIX_CACHE_RETENTION_INTERVAL=0", "no variable"),
        ("sglang", "0.5.13", "--mamba-scheduler-strategy extra_buffer", None),
        ("sglang", "0.5.13", "--mamba-radix-cache-strategy extra_buffer", "no option"),
        ("sglang", "0.5.14", "--mamba-radix-cache-strategy extra_buffer", None),
        ("sglang", "0.5.14", "--disable-radix-cache yes", "takes no value"),
    ],
)
def test_the_fixtures_refuse_what_the_servers_refuse(engine: str, version: Any, option: str, why: str | None) -> None:
    (change,) = as_typed(option)
    found = real_options.real(engine, version).refuses(change.name, change.value)
    assert (found is None) == (why is None), found
    assert why is None or why in (found or "")


def test_a_version_between_two_samples_has_what_one_of_them_has() -> None:
    assert real_options.around("vllm", "0.10.0", "0.10.0") == ["0.9.2", "0.11.2"]
    assert real_options.around("sglang", "0.5.6", "0.5.8") == ["0.5.6", "0.5.7"]
    assert real_options.around("llama.cpp", 99999, None) == [11549]
    assert real_options.around("llama.cpp", None, 5000) == [5353]
    assert len(real_options.around("llama.cpp", None, None)) == len(BUILDS) > 30


def test_what_no_schema_allows_is_refused() -> None:
    with pytest.raises(ValidationError):
        compose_reads({"services": {"a": {"enviroment": {"A": "b"}}}})
    with pytest.raises(ValidationError):
        compose_reads({"services": {"a": {"command": [{"a": 1}]}}})
    with pytest.raises(ValidationError):
        kubernetes_reads(pod({"env": [{"name": "A", "value": 4}]}))
    with pytest.raises(ValidationError):
        kubernetes_reads(pod({"environment": []}))


# ---- the table of llama-server's options


def test_the_table_says_what_the_help_says() -> None:
    """Every name and variable, in each build whose help is known; a switch takes no value there, all others do."""
    wrong = []
    for build in BUILDS:
        real = real_options.real("llama.cpp", build)
        for option in server_options.TABLE:
            for name in (*option.names, *option.off, *option.env):
                has = name.text in real.takes or name.text in real.env
                if name.exists(build, build) not in (None, has):
                    wrong.append(f"b{build} {name.text}: {name.when}")
            for name in option.names:
                takes = real.takes.get(name.text, "" if option.kind != "switch" else None) is not None
                if takes != (option.kind != "switch") and not (option is server_options.LOG_COLORS and build <= 6301):
                    wrong.append(f"b{build} {name.text} takes {real.takes[name.text]}")
    assert wrong == []


def _changes(option: Option, build: int) -> Iterator[OptionChange]:
    """The option as it may be asked for: on, and off where there is a name for that."""
    value = {"number": "4", "text": "q8_0"}.get(option.kind)
    yield from (OptionChange(name.text, value) for name in option.names if name.exists(build, build))
    yield from (OptionChange(name.text) for name in option.off if name.exists(build, build))


def test_a_variable_stands_for_the_option_of_its_name() -> None:
    """In no build for another one: LLAMA_ARG_MMPROJ=0 would be a file; switched off only where the help has both."""
    asked = 0
    for build in BUILDS:
        pairs = real_options.real("llama.cpp", build).pairs
        for option in server_options.TABLE:
            for change in _changes(option, build):
                pair = variable(change, build, build)
                if pair is not None:
                    asked += 1
                    assert pair[0] in pairs[change.name], (build, change, pair)
                    if pair[1] == "0":
                        assert {n.text for n in option.names} & pairs[change.name], (build, change)
    assert asked > 1000


@pytest.mark.sample(1)
@pytest.mark.parametrize("build", BUILDS)
def test_every_option_in_every_form_is_one_of_the_build(build: int) -> None:
    session = {"engine": "llama.cpp", "build": build}
    for option in server_options.TABLE:
        for change in _changes(option, build):
            if change.name == "--log-colors":  # none of a fix, and a switch in old builds
                continue
            for launcher in LAUNCHERS:
                steps, notes = form(LaunchRequest([change], low=build, high=build), launcher)
                options = [pair for step in steps for pair in in_step("llama.cpp", step)]
                assert options or notes or launcher in ("ollama", "lm-studio", "jan"), (change, launcher)
                servers_take(options, [session])


# ---- vLLM and SGLang


def _said_version(name: str) -> str:
    """The one that the log shows; empty where it says none, or several."""
    said = {session["version"] for session in _measured(name)["sessions"]}
    return next(iter(said)) or "" if len(said) == 1 else ""


@cache
def _measured(name: str, version: str | None = None) -> dict[str, Any]:
    """The report of a bundled log, as if it said another ``version``."""
    (case,) = (c for c in MEASURED if c["name"] == name)
    beside: dict[str, list[Path]] = {"metrics": [], "responses": [], "prompts": [], "kv_events": []}
    for option, path in case.get("beside", ()):
        beside["prompts" if option == "--requests" else option.removeprefix("--").replace("-", "_")].append(
            FIXTURES / path
        )
    out = io.BytesIO()
    log = FIXTURES / case["log"]
    with tempfile.TemporaryDirectory() as scratch:
        if version is not None:
            data = log.read_bytes().replace(_said_version(name).encode(), version.encode())
            log = Path(scratch) / log.name
            log.write_bytes(data)
        report_v1.render(sanitize.report(cachedoctor.analyze(log, **beside)), out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def _all_is_taken(report: dict[str, Any], *, whole: bool = True) -> int:
    """Of findings, of what would show more, and of fixes in every form; gives how many options there were.

    Not ``whole``: the options alone, no shell is asked.
    """
    engine = report["sessions"][0]["engine"]
    rows = [c for f in report["findings"] for remedy in f["remedies"] for c in remedy["commands"]]
    rows += [row for rule in report["not_evaluated"] for row in rule["enable"].split("\n")[1:]]
    if whole:
        shell_reads(map(as_command, rows))
        ours_read(rows)
    options = in_rows(engine, rows)
    found = stored.read(json.dumps(report).encode(), "report")
    for launcher in LAUNCHERS:
        for fix in fixes(found.findings, found.sessions, found.inputs, StartInfo(launcher)):
            for step in fix.steps:
                if whole:
                    is_read(step, launcher)
                options += in_step(engine, step)
    servers_take(options, report["sessions"])
    return len(options)


def _of_each_rule(engine: str) -> list[str]:
    """Logs that each have a finding that none before had."""
    seen: set[str] = set()
    found = []
    for case in MEASURED:
        codes = {entry.split()[0] for entry in case["expect"]}
        if case["engine"] == engine and not codes <= seen:
            found.append(case["name"])
            seen |= codes
    return found


ENGINES = [case["name"] for case in MEASURED if case["engine"] in ("vllm", "sglang")]


@pytest.mark.spread(9)
@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.sample(3)
def test_every_option_of_a_log_without_requests_is_one_of_its_version(name: str) -> None:
    report = _measured(name)
    if report["sessions"]:
        _all_is_taken(report)


@pytest.mark.sweep
@pytest.mark.parametrize("version", real_options.versions("vllm"))
def test_no_version_of_vllm_is_given_what_it_does_not_have(version: str) -> None:
    """The same findings in a log that says another version; several API servers are of 0.9 and newer."""
    options = 0
    for name in _of_each_rule("vllm"):
        several = name.startswith("dp2-default") and version in ("0.7.3", "0.8.5")
        if _said_version(name) and not several:
            report = _measured(name, version)
            assert {s["version"] for s in report["sessions"]} == {version}, name
            options += _all_is_taken(report, whole=False)
    assert options > 10


@pytest.mark.sweep
@pytest.mark.parametrize("version", [v for v in real_options.versions("sglang") if v != "0.4.3"])
def test_no_version_of_sglang_is_given_what_it_does_not_have(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log of SGLang names its version: the tracker is told. None can be told to be of 0.4.3 and not of 0.4.4.

    Models with states came with 0.5.2.
    """

    def narrow(_: Tracker, session: Session, __: object) -> None:
        session.version_min = session.version_max = version

    monkeypatch.setattr(Tracker, "_narrow", narrow)
    options = 0
    for name in _of_each_rule("sglang"):
        if not ("mamba" in name and version.startswith("0.4.")):
            report = _measured.__wrapped__(name)
            assert {s["version_min"] for s in report["sessions"]} == {version}, name
            options += _all_is_taken(report, whole=False)
    assert options > 10


# ---- what else is printed


def test_commands_of_the_pages_are_taken_by_some_build() -> None:
    """A page knows no build; its options are those of a newest or an older one."""
    asked = 0
    for path in (ROOT / "cachedoctor" / "diagnosis" / "rules").rglob("cd*.md"):
        engine = {"vllm": "vllm", "sglang": "sglang"}.get(path.parent.name, "llama.cpp")
        fix = path.read_text("utf-8").partition("\n## Fix\n")[2].partition("\n## ")[0]
        rows = [row.strip() for row in fix.splitlines() if row.startswith("      ")]
        commands = [row for row in rows if re.match(r"--|export |llama-server |vllm |sglang |python", row)]
        options = in_rows(engine, commands)
        asked += len(options)
        servers_take(options, [{"engine": engine}])
    assert asked > 50


def test_a_command_of_our_own_that_is_none_is_refused() -> None:
    ours_read(["cachedoctor analyze server.log --requests bodies.jsonl", "curl -s x"])
    with pytest.raises(Exception, match="No such option"):
        ours_read(["cachedoctor analyze server.log --bodies bodies.jsonl"])
    with pytest.raises(KeyError):
        ours_read(["cachedoctor shows server.log"])


@pytest.mark.sweep
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's own parser is not here")
def test_systemd_reads_every_drop_in(tmp_path: Path) -> None:
    """Of every case of the corpus, by one start of systemd-analyze."""
    units = []
    for case in CASES:
        report = report_of(content_of(case), prompts_of(case), given_of(case))
        found = stored.read(json.dumps(report).encode(), "report")
        for fix in fixes(
            found.findings, found.sessions, found.inputs, StartInfo("systemd", case_of(case).get("cmdline"))
        ):
            for step in (step for step in fix.steps if step.form == "ini"):
                own = "" if "ExecStart=" in step.commands else "ExecStart=/bin/true\n"
                unit = tmp_path / f"{len(units)}.service"
                unit.write_text("\n".join(step.commands) + "\n" + own, "utf-8")
                units.append(unit)
    assert len(units) > 20
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert [row for row in done.stderr.splitlines() if row.startswith(str(tmp_path))] == []
    assert done.returncode == 0, done.stderr


# ---- patched files


def test_a_patched_compose_file_is_one_still() -> None:
    compose_reads(yaml.safe_load(COMPOSE))
    for command in ('["-m", "x", "-np", "1"]', "-m x -np 1", "\n      - -m\n      - x", ">-\n      -m x\n      -np 1"):
        for environment in ("{A: b}", "\n      - A=b", "\n      A: b", "{}"):
            text = f"{SERVICE}    command: {command}\n    environment: {environment}\n"
            compose_reads(yaml.safe_load(text))
            compose_reads(yaml.safe_load(edited(text, "compose")))


def test_a_patched_deployment_is_one_still() -> None:
    text = (
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llama}\nspec:\n  selector: {matchLabels: {a: b}}\n"
        "  template:\n    metadata: {labels: {a: b}}\n    spec:\n      containers:\n      - name: llama\n"
        "        image: llama.cpp:server\n        args: [--cache-ram, '0']\n"
    )
    for more in ("", "        env:\n        - name: A\n          value: b\n"):
        kubernetes_reads(yaml.safe_load(text + more), "io.k8s.api.apps.v1.Deployment")
        new = yaml.safe_load(edited(text + more, "kubernetes", as_typed("--parallel 4 --slot-prompt-similarity 0.5")))
        kubernetes_reads(new, "io.k8s.api.apps.v1.Deployment")
        container = new["spec"]["template"]["spec"]["containers"][0]
        assert {"name": "LLAMA_ARG_N_PARALLEL", "value": "4"} in container["env"]
