"""What chat templates of thirteen families do with the scripted conversations; each verdict is worked out by hand."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from in_process import render_here

from cachedoctor.doctor.linting import template_trial
from cachedoctor.doctor.linting.lint_bodies import LintAsk
from cachedoctor.model import CacheDoctorError, TrialAnswer
from cachedoctor.prompts.render.render import with_template
from cachedoctor.prompts.render.templates import chat_template
from cachedoctor.prompts.request_bodies import prompts_of

FIXTURES = Path(__file__).parent.parent / "fixtures"
NAMES = ("plain", "tools", "reasoning-kept", "reasoning-preserved", "reasoning-dropped", "mid-system", "day")
SHORT = {"y": "yes", "n": "no", "r": "refused", "-": "unknown"}
FAMILIES = {
    "chatml": "y y y y n y y",  # shows all reasoning that it is sent
    "qwen3": "y y n n y y y",  # shows reasoning after the last user message only
    "qwen3.5": "n n n n y r y",  # opens with <think>, shows it after the last user only; no later system message
    "qwen3.6": "n n n y y r y",  # the same, unless preserve_thinking is set
    "glm-4.6": "y y n n y y y",
    "deepseek-v3.1": "y y - - y n y",  # opens and shows replies with </think>; joins all system messages at the front
    "minimax-m2": "n n n n y n y",  # opens with <think>, shows none; leaves later system messages out
    "mistral-small-3.2": "y n - - y r n",  # tools come before the last user message; a date without system prompt
    "kimi-k2": "y y - - y y y",
    "phi-4-mini": "y y - - y - y",  # leaves later system messages out
    "llama-3.1": "y y - - y y n",  # the date of today in the head
    "gemma-4": "y y n n y y y",  # shows reasoning with calls, after the last user message only
    "gpt-oss": "y y n n y - n",  # shows the reasoning of a call until there is a final answer
}


def path_of(family: str) -> Path:
    return FIXTURES / ("prompts/template.jinja" if family == "chatml" else f"templates/{family}.jinja")


def answers(family: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, TrialAnswer]:
    render_here(monkeypatch, path_of(family))
    found = template_trial.try_template(LintAsk(template="unused"))
    assert found.append_only == all(answer.verdict != "no" for answer in found.template)
    return {answer.name: answer for answer in found.template}


def test_every_family_is_listed() -> None:
    assert {path.stem for path in (FIXTURES / "templates").glob("*.jinja")} | {"chatml"} == set(FAMILIES)


def test_what_is_published_is_unchanged() -> None:
    rows = re.findall(r"^\| (\S+\.jinja) \|.* ([0-9a-f]{64}) \|$", (FIXTURES / "templates/README.md").read_text(), re.M)
    assert len(rows) == 9
    for name, digest in rows:
        assert sha256((FIXTURES / "templates" / name).read_bytes()).hexdigest() == digest


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_is_answered_for_question_by_question(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers(family, monkeypatch)
    assert tuple(found) == NAMES
    wanted = [SHORT[letter] for letter in FAMILIES[family].split()]
    assert {name: answer.verdict for name, answer in found.items()} == dict(zip(NAMES, wanted, strict=True))
    for answer in found.values():
        assert answer.words
        assert (answer.char is not None) == (answer.verdict == "no")


@pytest.mark.parametrize(
    ("family", "name", "place", "a", "b"),
    [
        ("qwen3", "reasoning-kept", "messages[2]", "hink>\nTwo ships", "ool_call>\n"),
        ("deepseek-v3.1", "mid-system", "messages[3]", "<｜User｜>", "\n\nFrom here on"),
        ("qwen3.5", "plain", None, "<think>\n", "The barge"),
        ("mistral-small-3.2", "tools", "messages[1]", "AVAILABLE_TOOLS]", "INST]"),
        ("llama-3.1", "day", None, "ember 2023\nToday Date: 01 Jan 2026", ""),
    ],
)
def test_an_answer_says_where_the_renderings_part(
    family: str, name: str, place: str | None, a: str, b: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = answers(family, monkeypatch)[name]
    assert answer.a.startswith(a)
    assert answer.b.startswith(b)
    assert (answer.place or "").startswith(place or "")
    assert (answer.place is None) == (place is None)


@pytest.mark.parametrize(
    ("family", "shown"),
    [
        ("mistral-small-3.2", '[ARGS]{"page": 7}'),
        ("minimax-m2", '<parameter name="page">7</parameter>'),
        ("glm-4.6", "<arg_key>page</arg_key>\n<arg_value>7</arg_value>"),
        ("gpt-oss", "<|channel|>analysis<|message|>Two ships"),
    ],
)
def test_calls_are_shown_as_llama_server_shows_them(family: str, shown: str) -> None:
    messages = [
        template_trial._ASKED,
        {**template_trial._CALL, "reasoning_content": "Two ships"},
        template_trial._RESULT,
    ]
    (prompt,) = prompts_of({"messages": messages}, "openai-chat", "x")
    assert shown in with_template(prompt, chat_template(str(path_of(family))), mask_cch=False).text


def test_what_is_left_out_is_said_beside_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = answers("minimax-m2", monkeypatch)
    assert "From here on" in found["mid-system"].words
    assert "<think>" in found["plain"].words


def test_a_template_that_refuses_everything_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jinja"
    path.write_text("{{ raise_exception('no such model') }}")
    render_here(monkeypatch, path)
    with pytest.raises(CacheDoctorError, match="no such model"):
        template_trial.try_template(LintAsk(template=str(path)))
