"""Words of requests that the proxy shows and records: those of the APIs stay, what may be a key is a hash."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import msgspec
import pytest
from conftest import ROOT
from loops import each

from cachedoctor.live.proxy import passed_requests, record_file
from cachedoctor.live.proxy.exchange import Exchange, ProxyOptions
from cachedoctor.live.proxy.looking import Looking
from cachedoctor.live.proxy.passed_requests import PassedRequests
from cachedoctor.redaction.harmless_words import field, hashed, model, path, word

sys.path.insert(0, str(ROOT / "benchmarks"))
import leaks
import leaks_seams

KEY = "Zq8vN2xLr5TbW9kJcY4mHd7PfGs3"


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o-mini", "gpt-oss-120b-mxfp4", "claude-sonnet-4-20250514", "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "m",
        "unsloth/Qwen3-Next-80B-A3B-Instruct-GGUF:UD-Q4_K_XL", "deepseek-ai/DeepSeek-V3.2-Exp", "gemma3:27b",
        "mistralai/Mixtral-8x7B-Instruct-v0.1", "/models/gemma-3-27b-it-Q4_K_M.gguf",
    ],
)  # fmt: skip
def test_a_name_of_a_model_stays(name: str) -> None:
    assert model(name) == name


@pytest.mark.parametrize(
    "name",
    [
        KEY, f"org/{KEY}", "sk-abcDEF123456", "550e8400-e29b-41d4-a716-446655440000", "9f3c07ab51d24e88", "a\nb", "",
        "12345678901234", "x" * 500, "AKIAQ7RT2ZLM4NB6VXK", "https://u:secret@host/m", "me@example.com",
    ],
)  # fmt: skip
def test_what_may_be_a_key_is_not_a_name_of_a_model(name: str) -> None:
    assert model(name) == hashed(name)
    assert model(model(name)) == model(name)
    assert len(model(name)) == 9


@each("kind", leaks.KINDS[::8], ids=lambda kind: kind.name)
def test_no_credential_is_a_name(kind: leaks.Kind) -> None:
    source = random.Random(kind.name)
    for _ in range(20):
        text, parts = kind.draw(source)
        for name in (text, f"org/{text}", text[: len(text) // 2]):
            shown = leaks.Output(f"{model(name)} {field(name)} {path(f'/v1/{name}')} {word(name, 'role')}", set())
            assert not any(shown.shows(part) for part in parts if len(part) >= leaks.SHORTEST)


def test_paths() -> None:
    assert path("/v1/chat/completions") == "/v1/chat/completions"
    assert path(f"/{KEY}/v1/messages") == f"/{hashed(KEY)}/v1/messages"
    assert path(path(f"/{KEY}/v1//messages/")) == f"/{hashed(KEY)}/v1//messages/"
    assert len(path("/a" * 10_000)) < 300
    assert hashed("x") == "#2d711642"  # sha256 of one x


def test_words_of_the_api_stay() -> None:
    assert word("developer", "role") == "developer"
    assert word("text_editor_20250728", "type") == "text_editor_20250728"
    assert word(f"{KEY}_20250728", "type") == hashed(f"{KEY}_20250728")
    assert word("required", "tool_choice") == "required"
    assert word("User", "role") == hashed("User")


def test_a_recorded_body_has_no_word_of_a_client() -> None:
    body = {
        "model": KEY, "tool_choice": KEY, "max_tokens": 9, KEY: True, "reasoning_effort": "low",
        "messages": [{"role": KEY, "content": [{"type": KEY, "text": "a"}, {"type": "text", "text": "b"}]}],
    }  # fmt: skip
    found = record_file.without_texts(body)
    assert KEY not in json.dumps(found)
    assert found["model"] == found["tool_choice"] == found["messages"][0]["role"] == hashed(KEY)
    assert found[hashed(KEY)] is True
    assert (found["max_tokens"], found["reasoning_effort"]) == (9, "low")
    assert [part["type"] for part in found["messages"][0]["content"]] == [hashed(KEY), "text"]


def test_method_and_coding_are_words_of_the_client_as_well(tmp_path: Path) -> None:
    looking = Looking(ProxyOptions(record=str(tmp_path / "r")))
    seen = looking.at(Exchange(0.0, KEY, f"/{KEY}", 200, 0.1, None, b"{}", KEY))
    looking.close()
    assert KEY[:8] not in json.dumps(msgspec.to_builtins(seen)) + passed_requests.line(seen)


def test_records_of_older_versions_are_hidden_when_they_are_read() -> None:
    line = {"sent": 1.0, "path": f"/{KEY}/v1", "status": 200, "seconds": 1.0, "model": KEY, "conversation": 1}
    passed = PassedRequests("x")
    (seen,) = passed.take(json.dumps(line).encode() + b"\n")
    assert (seen.path, seen.model) == (f"/{hashed(KEY)}/v1", hashed(KEY))
    assert passed.view().conversations[0].model == hashed(KEY)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["OpenAI project", "Mistral, bare", "Shopify"])
def test_nothing_that_passes_shows_a_key(name: str) -> None:
    kind = next(kind for kind in leaks.KINDS if kind.name == name)
    source = random.Random(name)
    (text, parts), (other, more) = kind.draw(source), kind.draw(source)
    outputs = set()
    for where, output, said in leaks_seams.passed(text, other):
        outputs.add(output)
        assert not any(leaks.Output(said, set()).shows(part) for part in (*parts, *more)), (where, output, said)
    assert {"proxy row", "proxy line", "proxy record", "watch", "lint", "diff of bodies"} <= outputs


@pytest.mark.parametrize("role", [KEY, "hunter2", f"x ` {KEY}", f"x\n{KEY}"], ids=["key", "word", "quote", "lines"])
@pytest.mark.parametrize("before", [None, "user"], ids=["the same role", "another role"])
def test_a_role_of_the_client_is_in_no_record_and_no_hashed_text(role: str, before: str | None, tmp_path: Path) -> None:
    """The explanation of an edited message named its role."""
    looking = Looking(ProxyOptions(record=str(tmp_path / "r")))
    said = [{"role": "user", "content": "hello to you, and how is it going today? " * 9}]
    shown = ""
    for turn, edited in enumerate(({"role": before or role, "content": "be short"}, {"role": role, "content": "long"})):
        raw = json.dumps({"messages": [*said, edited, *said * (turn + 1)]}).encode()
        seen = looking.at(Exchange(float(turn), "POST", "/v1/chat/completions", 200, 0.1, None, raw))
        shown += passed_requests.line(seen) + json.dumps(msgspec.to_builtins(seen))
    looking.close()
    recorded = (tmp_path / "r").read_text()
    change = json.loads(recorded.splitlines()[1])["change"]
    assert change["kind"] == "message-edited"
    assert change["explanation"] == (
        f"message 2 has the role {hashed(role)} instead of user"
        if before
        else f"a message of role {hashed(role)} changed: number 2 of 3"
    )
    assert change["explanation"] in shown
    for secret in (KEY[:4], "hunter2"):
        assert secret not in recorded + shown
