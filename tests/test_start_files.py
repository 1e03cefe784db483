"""``--cmdline FILE``: the command line of the one server that a file starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachedoctor.doctor.fixing.patches import start_of
from cachedoctor.knowledge.cmdline import parse, settings
from cachedoctor.model import CacheDoctorError, Launcher, as_typed
from cachedoctor.report.launchers.forms import LaunchRequest, form

COMPOSE = """
x-all: &image {image: "ghcr.io/ggml-org/llama.cpp:server-cuda"}
services:
  llama:
    <<: *image
    command: -m q.gguf -c 32768 -np 2 --api-key $$KEY
    environment: {LLAMA_ARG_CACHE_RAM: 0, HF_TOKEN: hf_1234567890, LLAMA_ARG_SWA_FULL: true, LLAMA_ARG_PORT: }
  webui:
    image: ghcr.io/open-webui/open-webui:main
    environment: ["OPENAI_API_BASE_URL=http://llama-server:8080/v1"]
"""
POD = """
kind: Pod
spec:
  containers:
    - name: proxy
      image: nginx
    - name: llama
      image: registry/llama.cpp:b8672
      command: ["/app/llama-server"]
      args: ["-m", "/m/q q.gguf", "-c", "32768", "-np", "2"]
      env:
        - {name: LLAMA_ARG_CACHE_RAM, value: "0"}
        - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
"""
SWAP = """
models:
  q:
    cmd: |
      llama-server --port ${PORT} -m q.gguf
      -c 32768 -np 2
    env: ["LLAMA_ARG_CACHE_RAM=0"]
"""
UNIT = """[Service]
Environment="LLAMA_ARG_CACHE_RAM=0" TOKEN=x
ExecStart=/usr/bin/llama-server -m /m/q.gguf \\
    -c 32768 -np 2
"""
SCRIPT = """#!/bin/sh
export LLAMA_ARG_CACHE_RAM=0
export TOKEN=x
exec nice ./llama-server -m q.gguf \\
  -c 32768 -np 2 "$@"
"""


@pytest.mark.parametrize(
    ("name", "text", "launcher", "line"),
    [
        (
            "compose.yaml", COMPOSE, "compose",
            "LLAMA_ARG_CACHE_RAM=0 LLAMA_ARG_SWA_FULL=true llama-server -m q.gguf -c 32768 -np 2 --api-key '$KEY'",
        ),
        ("pod.yml", POD, "kubernetes", "LLAMA_ARG_CACHE_RAM=0 /app/llama-server -m '/m/q q.gguf' -c 32768 -np 2"),
        ("swap.yaml", SWAP, "llama-swap", "LLAMA_ARG_CACHE_RAM=0 llama-server --port ${PORT} -m q.gguf -c 32768 -np 2"),
        ("llama.service", UNIT, "systemd", "LLAMA_ARG_CACHE_RAM=0 /usr/bin/llama-server -m /m/q.gguf -c 32768 -np 2"),
        ("start.sh", SCRIPT, "shell", "LLAMA_ARG_CACHE_RAM=0 nice ./llama-server -m q.gguf -c 32768 -np 2"),
    ],
)  # fmt: skip
def test_the_command_of_a_file(name: str, text: str, launcher: str, line: str, tmp_path: Path) -> None:
    """With the variables that llama-server reads, no others, and nothing that a paste would run beside it."""
    (tmp_path / name).write_text(text)
    found = start_of(str(tmp_path / name))
    assert found is not None
    assert (found.line, found.launcher) == (line, launcher)
    said = settings(parse(found.line))
    assert (said["n_ctx"], said["n_slots"], said["cache_ram_mib"]) == (32768, 2, 0)


def test_a_shell_within_a_container(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text('services: {llama: {image: mine, entrypoint: [sh, -c, "exec /app/llama-server -m q.gguf -np 2"]}}')
    found = start_of(str(path))
    assert found is not None
    assert settings(parse(found.line))["n_slots"] == 2


@pytest.mark.parametrize(
    ("image", "line"),
    [
        ("vllm/vllm-openai:v0.9", "vllm serve --model m"),
        ("lmsysorg/sglang:v0.5.9", "sglang serve --model m"),
    ],
)
def test_other_engines(image: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(f'services: {{a: {{image: "{image}", command: "--model m"}}}}')
    found = start_of(str(path))
    assert found is not None
    assert found.line == line


def test_of_several_servers_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    one = '{image: "ghcr.io/ggml-org/llama.cpp:server", command: "-m %s.gguf"}'
    path.write_text(f"services: {{chat: {one % 'a'}, embed: {one % 'b'}}}")
    found = start_of(f"{path}:embed")
    assert found is not None
    assert (found.line, found.file) == ("llama-server -m b.gguf", f"{path} --service embed")
    for given, words in (
        (str(path), "the file starts several servers: chat, embed"),
        (f"{path}:x", "does not have exactly one server x"),
    ):
        with pytest.raises(CacheDoctorError, match=words) as caught:
            start_of(given)
        assert caught.value.hint == f"select one server: --cmdline {path}:chat"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "services: {a: {image: nginx}}", "nothing in the file starts"),
        ("a.yaml", 'services: {a: {image: llama.cpp, command: "\'"}}', "a command in the file cannot be read"),
        ("a.yaml", "services: [", "not valid YAML"),
        ("a.yaml", "[1, 2]", "is not a compose, Kubernetes"),
        ("a.service", "[Service]\nExecStart=/bin/true\n", "starts no server"),
        ("server.log", "slot release: id 0\n", "no command in the file starts a server"),
        ("a.sh", "llama-server -m a\nllama-server -m b\n", "several commands"),
    ],
)
def test_files_that_say_nothing(name: str, text: str, words: str, tmp_path: Path) -> None:
    """One row that names the option and the file."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CacheDoctorError, match=words) as caught:
        start_of(str(path))
    assert caught.value.message.startswith(f"--cmdline: {path}: ")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("given", ["llama-server -m a:b", "compose.yaml", "nowhere.yaml:llama", "/tmp"])
def test_what_is_not_a_file(given: str) -> None:
    assert start_of(given) is None


@pytest.mark.parametrize("launcher", ["compose", "kubernetes", "llama-swap", "systemd"])
def test_an_option_on_the_known_line_is_changed_there(launcher: Launcher) -> None:
    """A variable would not count beside it."""
    wanted = as_typed("--parallel 4 --cache-ram 8192")
    steps, _ = form(LaunchRequest(wanted, low=8672, high=8672, line="llama-server -m q.gguf -np 2"), launcher)
    rows = "\n".join(row for step in steps for row in step.commands)
    assert [name in rows for name in ("LLAMA_ARG_N_PARALLEL", "LLAMA_ARG_CACHE_RAM", "--parallel")] == [
        False,
        True,
        True,
    ]
    assert any("change in, or add to," in step.text for step in steps)
