"""Keys of a command line: variables of the shell are in their place, and it is still one command."""

from __future__ import annotations

import shlex

import pytest
from conftest import FIXTURES
from typer.testing import CliRunner

from cachedoctor.cli import make_app
from cachedoctor.doctor.fixing.fixes import masked

KEY = "9f3c07ab51d24e8860c1"


@pytest.mark.parametrize(
    ("line", "shown", "names"),
    [
        (f"llama-server -m x --api-key {KEY} -np 1", 'llama-server -m x --api-key "$API_KEY" -np 1', ["API_KEY"]),
        ("llama-server --api-key short", 'llama-server --api-key "$API_KEY"', ["API_KEY"]),
        ("llama-server --api_key='a b'", 'llama-server --api_key="$API_KEY"', ["API_KEY"]),
        ("llama-server -hft abc -m x", 'llama-server -hft "$HF_TOKEN" -m x', ["HF_TOKEN"]),
        ("HF_TOKEN=abc llama-server", 'HF_TOKEN="$HF_TOKEN" llama-server', ["HF_TOKEN"]),
        (
            "vllm serve m --api-key k1 k2 --port 80",
            'vllm serve m --api-key "$API_KEY" "$API_KEY_2" --port 80',
            ["API_KEY", "API_KEY_2"],
        ),
        (
            "python -m sglang.launch_server --admin-api-key=a --api-key 12345",
            'python -m sglang.launch_server --admin-api-key="$ADMIN_API_KEY" --api-key "$API_KEY"',
            ["ADMIN_API_KEY", "API_KEY"],
        ),
        (
            "docker run -e HF_TOKEN=q -e A=1 img:server -m x",
            'docker run -e HF_TOKEN="$HF_TOKEN" -e A=1 img:server -m x',
            ["HF_TOKEN"],
        ),
        ("llama-server --model-url https://u:pass1234@h/x", 'llama-server --model-url "$SECRET"', ["SECRET"]),
    ],
)
def test_a_variable_stands_for_a_key(line: str, shown: str, names: list[str]) -> None:
    assert masked(line) == (shown, names)
    assert masked(shown) == (shown, [])
    assert len(shlex.split(shown)) == len(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "llama-server -m /opt/models/x.gguf --ssl-key-file /etc/k.pem --api-key-file /k --slot-save-path /s -np 1",
        "LLAMA_ARG_THREADS=4 llama-server --hf-repo org/model-GGUF:Q4_K_M --max-tokens 5",
        "vllm serve Qwen/Qwen3-8B --max-num-batched-tokens 8192 --ssl-keyfile /k",
    ],
)
def test_what_is_not_a_key_stays(line: str) -> None:
    assert masked(line) == (line, [])


@pytest.mark.parametrize("form", ["text", "json"])
def test_fix_prints_a_command_without_its_keys(form: str) -> None:
    log = FIXTURES / "cases" / "checkpoints-disabled-hybrid" / "server.log"
    line = f"HF_TOKEN={KEY}a llama-server -m /models/x.gguf --api-key {KEY}b -hft {KEY}c"
    done = CliRunner().invoke(make_app(), ["fix", str(log), "--cmdline", line, "--format", form])
    assert done.exit_code == 0
    assert KEY[:8] not in done.output
    assert "$API_KEY" in done.output
    said = " ".join(done.output.replace("\n#  ", "").split())
    assert "set $HF_TOKEN $API_KEY $HF_TOKEN_2, or write the keys instead" in said
