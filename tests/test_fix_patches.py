"""Patches of files that start servers: only what has to change is rewritten, and what is unsafe is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given as drawn
from hypothesis import strategies as st

from cachedoctor.doctor.fixing import patches
from cachedoctor.doctor.fixing.patches import patch
from cachedoctor.knowledge.cmdline import parse
from cachedoctor.model import CacheDoctorError, Fix, Launcher, OptionChange, Session, as_typed, left_out
from cachedoctor.report.launchers import text_files, yaml_file
from cachedoctor.report.launchers.command_words import changed, words
from cachedoctor.report.launchers.forms import LaunchRequest
from cachedoctor.report.launchers.started_commands import commands

CHANGES = as_typed("--parallel 4 --cache-ram 256")


def edited(text: str, launcher: Launcher, changes: list[OptionChange] = CHANGES, **fields: str) -> str:
    return yaml_file.edited(text, launcher, LaunchRequest(changes, low=8672, high=8672, **fields))  # type: ignore[arg-type]


# ---- command lines


@pytest.mark.parametrize(
    ("line", "options", "wanted"),
    [
        ("llama-server -m ~/m.gguf -np 1", "--parallel 4", "llama-server -m ~/m.gguf --parallel 4"),
        ("llama-server -m x 2>&1 | tee log", "--cache-ram 1", "llama-server -m x --cache-ram 1 2>&1 | tee log"),
        ("llama-server -m x>log", "--cache-ram 1", "llama-server -m x --cache-ram 1 >log"),
        ("llama-server -np '1'>log", "--parallel 2", "llama-server --parallel 2 >log"),
        ("./server -m x; echo -np 1", "--parallel 2", "./server -m x --parallel 2; echo -np 1"),
        ("llama-server -cram 0 -m x --cache_ram 5", "--cache-ram 1", "llama-server --cache-ram 1 -m x"),
        ("llama-server --no-kv-unified -c 1", "--kv-unified", "llama-server --kv-unified -c 1"),
        ("llama-server \\\n  -m x \\\n  -c 1\n", "--swa-full", "llama-server \\\n  -m x \\\n  -c 1 \\\n  --swa-full\n"),
        ("vllm serve m --kv-cache-dtype=auto -tp 2", "--kv-cache-dtype fp8", "vllm serve m --kv-cache-dtype fp8 -tp 2"),
        ("vllm serve m --no-enable-prefix-caching", "--enable-prefix-caching", "vllm serve m --enable-prefix-caching"),
        ("A=1 llama-server -m x", "B=2", "B=2 A=1 llama-server -m x"),
        ("docker run -c 512 img:server -c 1", "--ctx-size 9", "docker run -c 512 img:server --ctx-size 9"),
        ("docker run -e A=1 img -m x", "A=2 B=3", "docker run -e A=2 -e B=3 img -m x"),
        ("llama-server -m 'a b' # -np 1", "--parallel 2", "llama-server -m 'a b' --parallel 2 # -np 1"),
    ],
)
def test_a_command_line_keeps_what_it_does_not_change(line: str, options: str, wanted: str) -> None:
    """Quotes, ``~``, comments, pipes, and options of the program in front."""
    assert changed(line, as_typed(options)) == wanted
    assert changed(wanted, as_typed(options)) == wanted


@pytest.mark.parametrize(
    ("line", "gone", "wanted"),
    [
        ("llama-server -m x --cache-reuse 256 -np 1", "--cache-reuse", "llama-server -m x -np 1"),
        ("llama-server \\\n  -m x \\\n  --swa-full \\\n  -np 1", "--swa-full", "llama-server \\\n  -m x \\\n  -np 1"),
        ("LLAMA_ARG_CACHE_REUSE=1 llama-server -m x", "LLAMA_ARG_CACHE_REUSE", "llama-server -m x"),
        ("docker run -e A=1 img -m x", "A", "docker run img -m x"),
        ("llama-server -m x", "--cache-reuse", "llama-server -m x"),
    ],
)
def test_what_is_left_out_is_gone_with_its_value(line: str, gone: str, wanted: str) -> None:
    assert changed(line, left_out(gone)) == wanted


@drawn(
    st.lists(st.sampled_from(["-m x", "-np 1", "--cache-ram 0", "-c 8192", "--swa-full", "'a b'", "--jinja"])),
    st.sampled_from(["--parallel 7", "--cache-ram -1", "--ctx-size 9", "--swa-full"]),
)
def test_the_server_reads_what_was_set(parts: list[str], option: str) -> None:
    """By the reader of command lines: exactly once, and every other option as before."""
    before = " ".join(["llama-server", *parts])
    (change,) = as_typed(option)
    after = changed(before, [change])
    key = parse(f"llama-server {option}")[0].option
    own = [g.value for g in parse(after) if g.option == key]
    assert own == [g.value for g in parse(f"llama-server {option}")]
    others = [(g.option, g.value) for g in parse(before) if g.option != key]
    assert [(g.option, g.value) for g in parse(after) if g.option != key] == others


def test_a_row_that_ends_in_two_backslashes_is_the_last_one() -> None:
    assert text_files.script("llama-server -m a\\\\\n--jinja\n", as_typed("--parallel 2")) == (
        "llama-server -m a\\\\ --parallel 2\n--jinja\n"
    )


def test_an_open_quote_is_not_an_error() -> None:
    assert words("a 'b c")[0].text == "a"


# ---- YAML

COMPOSE = """\
# my stack
services:
  webui:
    image: ghcr.io/open-webui/open-webui
  llama:   # the server
    image: ghcr.io/ggml-org/llama.cpp:server
    command: -m /m/q.gguf -c 8192 --host 0.0.0.0   # keep
    environment:
      - LLAMA_ARG_CACHE_RAM=0   # off
    ports: ["8080:8080"]

volumes: {}
"""


def test_compose_keeps_comments_and_order() -> None:
    new = edited(COMPOSE, "compose", [*CHANGES, *as_typed("--ctx-size 9")])
    assert new == COMPOSE.replace("-c 8192", "--ctx-size 9").replace(
        "- LLAMA_ARG_CACHE_RAM=0   # off\n", '- "LLAMA_ARG_CACHE_RAM=256"   # off\n      - "LLAMA_ARG_N_PARALLEL=4"\n'
    )


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ('["-m", "x", "-np", "1"]', ["-m", "x", "--parallel", "4"]),
        ('["-np", "1"]', ["--parallel", "4"]),
        ("\n      - -m\n      - x\n      - -np\n      - '1'", ["-m", "x", "--parallel", "4"]),
        ("[]", []),
        ('sh -c "llama-server -np 1"', 'sh -c "llama-server -np 1"'),
        ("-m x -np 1", "-m x --parallel 4"),
        ("'-m x -np 1'", "-m x --parallel 4"),
        ("|\n      -m x\n      -np 1", "-m x\n--parallel 4\n"),
        (">-\n      -m x\n      -np 1", "-m x --parallel 4"),
        ('["sh", "-c", "exec llama-server -np 1"]', ["sh", "-c", "exec llama-server --parallel 4"]),
    ],
)
def test_every_way_to_write_a_command(command: str, wanted: object) -> None:
    """Lists, scalars, blocks, and a shell's line in a list; what does not hold the option gets a variable."""
    text = f"services:\n  llama:\n    image: llama.cpp:server\n    command: {command}\n"
    service = yaml.safe_load(edited(text, "compose", CHANGES[:1]))["services"]["llama"]
    if str(wanted).count("parallel"):
        assert service["command"] == wanted
        assert "environment" not in service
    else:
        assert service["environment"] == {"LLAMA_ARG_N_PARALLEL": "4"}


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ("{A: b}", {"A": "b", "LLAMA_ARG_N_PARALLEL": "4"}),
        ("{}", {"LLAMA_ARG_N_PARALLEL": "4"}),
        ("\n      A: b  # c\n      LLAMA_ARG_N_PARALLEL: 1", {"A": "b", "LLAMA_ARG_N_PARALLEL": "4"}),
        ("\n      - A=b\n      - LLAMA_ARG_N_PARALLEL=1", ["A=b", "LLAMA_ARG_N_PARALLEL=4"]),
        ("\n      - A", ["A", "LLAMA_ARG_N_PARALLEL=4"]),
    ],
)
def test_every_way_to_write_an_environment(environment: str, wanted: object) -> None:
    text = f"services:\n  llama:\n    image: llama.cpp:server\n    environment: {environment}"
    for tail in ("", "\n", "\n    ports: []\n", "\n\n# end\n"):
        new = yaml.safe_load(edited(text + tail, "compose", CHANGES[:1]))
        assert new["services"]["llama"]["environment"] == wanted


def test_what_is_left_out_goes_from_lists() -> None:
    text = "services:\n  llama:\n    command: [-m, x, --cache-reuse, '9']\n    environment:\n      - A=1\n      - B=2\n"
    changes = left_out("--cache-reuse", "A")
    service = yaml.safe_load(edited(text, "compose", changes))["services"]["llama"]
    assert service == {"command": ["-m", "x"], "environment": ["B=2"]}
    block = "services:\n  llama:\n    command:\n      - --cache-reuse # why\n      - '9'\n      - -m\n      - x\n"
    assert edited(block, "compose", changes) == "services:\n  llama:\n    command:\n      - -m\n      - x\n"


def test_kubernetes_changes_one_container() -> None:
    text = (
        "kind: Deployment\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - name: side\n        image: envoy\n"
        "      - name: llama\n        image: llama.cpp:server\n"
        "        args: [--cache-ram, '0']\n        env:\n        - name: A\n          value: b\n---\nkind: Service\n"
    )
    new = edited(text, "kubernetes")
    documents = list(yaml.safe_load_all(new))
    container = documents[0]["spec"]["template"]["spec"]["containers"][1]
    assert container["args"] == ["--cache-ram", "256"]
    assert container["env"] == [{"name": "A", "value": "b"}, {"name": "LLAMA_ARG_N_PARALLEL", "value": "4"}]
    assert documents[1] == {"kind": "Service"}
    vllm = edited(text.replace("llama.cpp:server", "vllm/vllm"), "kubernetes", as_typed("--kv-cache-dtype fp8"),
                  engine="vllm")  # fmt: skip
    args = next(iter(yaml.safe_load_all(vllm)))["spec"]["template"]["spec"]["containers"][1]["args"]
    assert args == ["--cache-ram", "0", "--kv-cache-dtype", "fp8"]


def test_llama_swap_changes_the_command_of_the_model() -> None:
    text = "models:\n  tiny:\n    cmd: |\n      ${bin} --port ${PORT}\n      # why\n      --cache-ram 0\n    ttl: 60\n"
    assert edited(text, "llama-swap", name="tiny") == text.replace(
        "--cache-ram 0\n", "--cache-ram 256\n      --parallel 4\n"
    )


@pytest.mark.parametrize(
    ("text", "words_of_it"),
    [
        ("services: [", "not valid YAML"),
        ("services: {}\n", "no service"),
        ("services:\n  a: {image: x}\n  b: {image: y}\n", "not clear which of a, b is the server"),
        ("services:\n  a: {image: llama.cpp}\n", "braces"),
        ("x: &e {A: b}\nservices:\n  a:\n    image: llama.cpp\n    environment: *e\n", "alias"),
        ("services:\n  a:\n    image: llama.cpp\n    environment:\n", "empty"),
        ("services: !!python/object/apply:os.system [id]\n", "not valid YAML"),
        ("a: " + "[" * 500, "not valid YAML"),
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text: str, words_of_it: str) -> None:
    with pytest.raises(CacheDoctorError, match=words_of_it):
        edited(text, "compose")


@pytest.mark.parametrize("shared", ["environment: {A: b}", "command: -m x -np 1"])
def test_what_is_merged_in_is_not_hidden(shared: str) -> None:
    """A mapping of the service's own would replace the one of ``<<``, and its variables would be lost."""
    text = f"x: &d\n  image: llama.cpp\n  {shared}\nservices:\n  a:\n    <<: *d\n    restart: always\n"
    with pytest.raises(CacheDoctorError, match="merged in by <<"):
        edited(text, "compose", CHANGES[:1], name="a")
    other = text.replace(shared, "labels: {A: b}")
    assert yaml.safe_load(edited(other, "compose", CHANGES[:1], name="a"))["services"]["a"]["labels"] == {"A": "b"}


SERVICE = "services:\n  llama:\n    image: llama.cpp:server\n"


@pytest.mark.parametrize(
    ("text", "words_of_it"),
    [
        (f"{SERVICE}    command: -np 1\n    command: -np 2\n", "command twice"),
        (f"{SERVICE}    environment: foo\n", "is not a list of variables"),
        (f"{SERVICE}    command: {{a: b}}\n", "not a command"),
        ("services:\n  1:\n    image: llama-server\n", "changed safely"),
    ],
)
def test_a_file_that_is_not_a_compose_file_is_refused(text: str, words_of_it: str) -> None:
    with pytest.raises(CacheDoctorError, match=words_of_it):
        edited(text, "compose")


def test_an_empty_command_is_said_to_be_empty() -> None:
    with pytest.raises(CacheDoctorError, match="is empty"):
        edited(f"{SERVICE}    command:\n", "compose", as_typed("--no-such-option 1"))


def test_options_of_the_entrypoint_are_changed_there() -> None:
    """A variable would not count beside them."""
    text = f'{SERVICE}    entrypoint: ["/app/llama-server", "-np", "1"]\n'
    new = yaml.safe_load(edited(text, "compose"))["services"]["llama"]
    assert new["entrypoint"] == ["/app/llama-server", "--parallel", "4"]
    assert list(new["environment"]) == ["LLAMA_ARG_CACHE_RAM"]


@pytest.mark.parametrize("launcher", ["compose", "kubernetes", "llama-swap"])
@pytest.mark.parametrize(
    "text",
    [
        f"a: &a [*a]\n{SERVICE}",
        f"a: &a\n  b: *a\n{SERVICE}",
        "services:\n  llama: &a\n    image: llama.cpp:server\n    x: *a\n",
        f"{SERVICE}    x: &a\n      - *a\n",
        f"{SERVICE}    command: &a [*a]\n",
    ],
)
def test_an_alias_cycle_is_refused(text: str, launcher: Launcher) -> None:
    """What reads these files refuses them as well; the search for the end of the server never came back."""
    with pytest.raises(CacheDoctorError, match=r"\*a contains itself"):
        edited(text, launcher)
    with pytest.raises(CacheDoctorError, match=r"\*a contains itself"):
        commands(text, launcher)


@pytest.mark.parametrize(
    ("first", "row"),
    [("a: &a [x]", "[{0}]"), ("a: &a {{x: 1}}", "{{<<: [{0}]}}"), ("a: &a {{x: 1}}", "{{y: [{0}]}}")],
)
def test_aliases_that_unfold_into_very_much_are_refused(first: str, row: str) -> None:
    """Nine times nine ten times over: 3.5 thousand million items when they are walked one by one."""
    pairs = zip("abcdefghi", "bcdefghij", strict=True)
    rows = [f"{c}: &{c} {row.format(', '.join([f'*{p}'] * 9))}\n" for p, c in pairs]
    for place in ("", "    command: [*j]\n", "    command: *j\n", "    image: *j\n"):
        text = f"{first.format()}\n{''.join(rows)}{SERVICE}{place}"
        with pytest.raises(CacheDoctorError, match="more than a million characters"):
            edited(text, "compose")
        with pytest.raises(CacheDoctorError, match="more than a million characters"):
            commands(text, "compose")


@pytest.mark.sweep
def test_an_alias_that_is_used_often_is_followed() -> None:
    head = "x-log: &log {driver: json-file, options: {max-size: 10m}}\n"
    more = "".join(f"  s{n}: {{image: x, logging: *log}}\n" for n in range(300))
    new = yaml.safe_load(edited(f"{head}{SERVICE}    logging: *log\n    restart: always\n{more}", "compose"))
    assert new["services"]["llama"]["environment"]["LLAMA_ARG_CACHE_RAM"] == "256"
    assert new["services"]["s299"]["logging"] == {"driver": "json-file", "options": {"max-size": "10m"}}


@pytest.mark.parametrize(
    ("text", "words_of_it"),
    [
        (f"{SERVICE}    x: !!int ''\n", "does not fit its tag"),
        (f"{SERVICE}    x: !!bool x\n", "does not fit its tag"),
        (f"{SERVICE}    x: !!timestamp x\n", "does not fit its tag"),
        (f"{SERVICE}    command: {'[' * 400}{']' * 400}\n", "list or a mapping|not text"),
        (f"{SERVICE}    command: [-np, [1]]\n", "list or a mapping|not text"),
    ],
)
def test_values_that_are_none_are_refused(text: str, words_of_it: str) -> None:
    """Each was a traceback, or a command with a list of Python in it."""
    with pytest.raises(CacheDoctorError, match=words_of_it):
        edited(text, "compose", as_typed("--no-such-option 1"))
    with pytest.raises(CacheDoctorError, match=words_of_it):
        commands(text, "compose")


def test_a_number_that_python_does_not_print_is_refused() -> None:
    with pytest.raises(CacheDoctorError, match="not text"):
        commands(f"services:\n  llama:\n    image: 0x{'f' * 9000}\n", "compose")


def test_a_value_after_an_equals_sign_stays_there() -> None:
    """What is new comes after it, never between an option and its value."""
    text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm\n"
    text += "    args:\n      - --model=x\n      - --max-num-seqs=3\n"
    changes = as_typed("--max-num-seqs 4 --enable-prefix-caching")
    new = yaml.safe_load(yaml_file.edited(text, "kubernetes", LaunchRequest(changes, "vllm")))
    assert new["spec"]["containers"][0]["args"] == ["--model=x", "--max-num-seqs=4", "--enable-prefix-caching"]


def test_a_value_that_was_missing_comes_after_its_option() -> None:
    text = f"{SERVICE}    command:\n      - -m\n      - x\n      - -np\n"
    new = yaml.safe_load(edited(text, "compose", as_typed("--parallel 4 --no-such-option 1")))
    assert new["services"]["llama"]["command"] == ["-m", "x", "--parallel", "4", "--no-such-option", "1"]


# ---- scripts and units


def test_a_script_keeps_its_rows() -> None:
    text = (
        '#!/bin/sh\n# llama-server -np 1\nM=~/m.gguf\nexec llama-server -m "$M" \\\n  --cache-ram 0 \\\n  -c 1  # all\n'
    )
    assert text_files.script(text, [*CHANGES, *as_typed("X=1")]) == text.replace(
        "--cache-ram 0", "--cache-ram 256"
    ).replace("-c 1  # all", "-c 1 \\\n  --parallel 4  # all").replace("exec", "export X=1\nexec")
    assert text_files.script("export X=0\nllama-server -m x\n", as_typed("X=1")) == "export X=1\nllama-server -m x\n"


@pytest.mark.parametrize(
    "text",
    [
        "echo hi\n",
        "llama-server -m a\nllama-server -m b\n",
        "BIN=/opt/llama-server\n",
        "docker run -e A=llama-server -m 8g > log\n",
    ],
)
def test_a_script_without_one_server_is_refused(text: str) -> None:
    with pytest.raises(CacheDoctorError, match=r"starts? a server"):
        text_files.script(text, CHANGES)


def test_a_unit_keeps_its_rows() -> None:
    head = "[Service]\nEnvironment=A=b\nEnvironment=X=0\n"
    text = f"{head}ExecStart=/usr/bin/llama-server \\\n  -m /m.gguf\nRestart=always\n"
    assert text_files.unit(text, [*as_typed("X=1"), *CHANGES[:1]]) == (
        "[Service]\nEnvironment=A=b\nEnvironment=X=1\nExecStart=/usr/bin/llama-server \\\n  -m /m.gguf \\\n"
        "  --parallel 4\nRestart=always\n"
    )
    with pytest.raises(CacheDoctorError, match="ExecStart"):
        text_files.unit("[Service]\n", CHANGES)


def test_a_unit_whose_quote_stays_open_is_refused() -> None:
    """What is added would stand inside of it."""
    unit = "[Service]\nExecStart=/usr/bin/llama-server \\\n  \"-m 'a b' -np 1\n"
    with pytest.raises(CacheDoctorError, match="cannot be read reliably"):
        patches.edited(unit, "llama.service", "systemd", LaunchRequest(CHANGES, low=8672, high=8672))


def test_a_command_that_plain_yaml_cannot_hold_is_quoted() -> None:
    """A dash and a blank begin a list."""
    text = "services:\n  a:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    command: -</s>m /m/q.gguf -np 1\n"
    new = edited(text, "compose", as_typed("--parallel 4"))
    assert '    command: "- --parallel 4 </s>m /m/q.gguf -np 1"\n' in new


# ---- the patch


def made(options: list[OptionChange] = CHANGES) -> Fix:
    return Fix("server.log", None, "llama.cpp", "llama-server", None, ["CD302"], ["x"], options, [], [], [], [])


def test_a_unit_keeps_its_other_variables() -> None:
    """Those that share a row; a row below the command counts as much as one above it."""
    text = "[Service]\nEnvironment=A=1 X=0 B=2\nExecStart=/x/llama-server -m a\nEnvironment=X=0\n"
    new = text_files.unit(text, as_typed("X=1"))
    assert new == text.replace("X=0", "X=1")
    assert text_files.unit(text, left_out("X")) == "[Service]\nEnvironment=A=1  B=2\nExecStart=/x/llama-server -m a\n"


def test_a_unit_that_runs_a_container_gives_it_the_variable() -> None:
    text = "[Service]\nExecStart=/usr/bin/docker run --rm img -m a\n"
    assert "docker run --rm -e X=1 img -m a\n" in text_files.unit(text, as_typed("X=1"))


@pytest.mark.parametrize(
    ("command", "words_of_it"),
    [
        ("/usr/bin/nginx -g x", "starts no server"),
        ("/bin/sh -c 'llama-server -m a'", "starts no server"),
        ("/x/llama-server \\\n# c\n  --cache-ram 0", "there is a comment inside"),
        ("/x/llama-server \\ \n  -m a", "has spaces after"),
    ],
)
def test_a_unit_without_a_plain_server_is_refused(command: str, words_of_it: str) -> None:
    with pytest.raises(CacheDoctorError, match=words_of_it):
        text_files.unit(f"[Service]\nExecStart={command}\n", CHANGES)


def test_a_server_after_a_change_of_folder_is_found() -> None:
    new = text_files.script("cd /srv && ./llama-server -m a > log &\n", CHANGES)
    assert new == "cd /srv && ./llama-server -m a --parallel 4 --cache-ram 256 > log &\n"


@pytest.mark.parametrize(
    ("text", "words_of_it"),
    [
        ("llama-server.exe -m a ^\n --cache-ram 0\n", "cmd or PowerShell"),
        ("llama-server -m 'a\nb' -np 1\n", "a quote"),
        ("llama-server \\\t\n  -m a\n", "has spaces after"),
    ],
)
def test_a_script_that_continues_otherwise_is_refused(text: str, words_of_it: str) -> None:
    with pytest.raises(CacheDoctorError, match=words_of_it):
        text_files.script(text, CHANGES)


def test_git_applies_the_patch_and_nothing_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last row has no end, and where rows end as on Windows."""
    monkeypatch.chdir(tmp_path)
    for name, text in [("compose.yaml", COMPOSE), ("run.sh", "llama-server -m x"), ("w.sh", "a=1\r\nllama-server\r\n")]:
        file = tmp_path / name
        file.write_bytes(text.encode())
        found, _ = patch([made()], [Session(0, "server.log", build=8672)], name, None, None)
        assert file.read_bytes() == text.encode()
        subprocess.run(["git", "apply", "-p1", "-"], input=found.encode(), check=True, cwd=tmp_path)
        again, _ = patch([made()], [Session(0, "server.log", build=8672)], name, None, None)
        assert again == ""
        assert file.read_bytes() != text.encode()


def test_a_name_with_blanks_and_a_file_above_are_applied_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that apply patches do not leave their folder."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "my run.sh").write_text("llama-server -m x\n")
    sessions = [Session(0, "server.log", build=8672)]
    monkeypatch.chdir(tmp_path / "sub")
    found, notes = patch([made()], sessions, "../my run.sh", None, None)
    assert "apply the patch in the folder of ../my run.sh" in notes
    assert found.startswith("--- a/my run.sh\t\n+++ b/my run.sh\t\n")
    subprocess.run(["git", "apply", "-p1", "-"], input=found.encode(), check=True, cwd=tmp_path)
    assert patch([made()], sessions, "../my run.sh", None, None)[0] == ""


def test_the_patch_of_a_symlink_changes_the_file_that_it_points_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither git apply nor patch change a symlink; also where a folder on the way is one."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "run.sh").write_text("llama-server -m x\n")
    (tmp_path / "link.sh").symlink_to("real/deep/run.sh")
    (tmp_path / "folder").symlink_to("real/deep")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "out.sh").symlink_to("../real/deep/run.sh")
    sessions = [Session(0, "server.log", build=8672)]
    monkeypatch.chdir(tmp_path)
    for name in ("link.sh", "folder/run.sh", str(tmp_path / "link.sh")):
        found, _ = patch([made()], sessions, name, None, None)
        assert found.startswith("--- a/real/deep/run.sh\n+++ b/real/deep/run.sh\n")
    monkeypatch.chdir(tmp_path / "work")
    found, notes = patch([made()], sessions, "out.sh", None, None)
    assert "apply the patch in the folder of ../real/deep/run.sh" in notes
    subprocess.run(["git", "apply", "-p1", "-"], input=found.encode(), check=True, cwd=tmp_path / "real" / "deep")
    assert patch([made()], sessions, "out.sh", None, None)[0] == ""
    assert (tmp_path / "link.sh").is_symlink()


@pytest.mark.parametrize(
    ("name", "data", "words_of_it"),
    [
        ("x.sh", b"llama-server \x1b[31m", "control characters"),
        ("x.sh", b"llama-server \xff", "is not UTF-8 text"),
        ("x.yaml", b"a: b\n", "is not a compose, Kubernetes"),
        ("missing.yaml", None, "is not a file"),
        ("a\nb.sh", b"llama-server -m x\n", "unprintable characters"),
        ("a.sh", b"llama-server -m a\r\nexit\n", "both CRLF and LF line ends"),
        ("a.sh", b"llama-server -m a\recho nothing\n", "control characters"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, data: bytes | None, words_of_it: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CacheDoctorError, match=words_of_it):
        patch([made()], [], str(tmp_path / name), None, None)


def test_no_file_belongs_to_ollama_and_several_servers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text("llama-server\n", "utf-8")
    with pytest.raises(CacheDoctorError, match="no file to patch"):
        patch([made()], [], str(file), "ollama", None)
    with pytest.raises(CacheDoctorError, match="several servers"):
        patch([made(), made()], [], str(file), None, None)
    assert patch([made([])], [], str(file), None, None)[0] == ""
