"""What-if questions to vLLM: a recording, settings that are replayed, and then a real vLLM that has each of them.

How an answer is judged: ``e2e.whatif.asked``.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.client import Message, prose, system, user
from e2e.vllm.scenario import BODIES, LOG, REPLY_TOKENS, RESPONSES, FaultNotMadeError, shares, truth
from e2e.vllm.server import Vllm
from e2e.vllm.traffic import Send, Traffic
from e2e.whatif.asked import RECORDED, Answer, NotAnsweredError

ALWAYS = ("--enable-prompt-tokens-details", "--max-model-len", "3072")
_DENSE = "tiny-dense"


@dataclass(frozen=True)
class Question:
    """A traffic, the server that it is recorded on, and the settings under which it is sent again."""

    name: str
    traffic: Traffic
    options: tuple[str, ...]
    settings: tuple[str, ...]
    """Each the NAME=VALUE words of ``--set``, separated by blanks."""

    def under(self, setting: str) -> tuple[str, ...]:
        """Options of a server with a setting."""
        options = list(self.options)
        for word in setting.split():
            name, _, value = word.partition("=")
            if f"--{name}" in options:
                at = options.index(f"--{name}")
                del options[at : at + 2]
            options += [f"--{name}", value] if value else [f"--{name}"]
        return tuple(options)


def ask(question: Question, folder: Path) -> list[Answer]:
    """Record, replay every setting, and only then run each; the first answer is the recording itself.

    Raises:
        NotAnsweredError: cachedoctor refused.
        FaultNotMadeError: the server refused a request.
        ServerDiedError: a server ended by itself.
    """
    real, bodies = _recorded(question, folder)
    said = {setting: _simulated(question, setting, folder) for setting in question.settings}
    answers = [Answer(RECORDED, real, next(iter(said.values()))["replay"]["reused_tokens"])]
    for setting, told in said.items():
        reused = _sent(question.under(setting), folder / setting.replace(" ", ","), bodies)
        answers.append(Answer(setting, reused, told["changed"]["reused_tokens"]))
    return answers


def _recorded(question: Question, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    bodies: list[dict[str, Any]] = []

    def keep(messages: list[Message], **more: Any) -> None:
        bodies.append({"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0, **more})

    question.traffic(keep)
    reused = _sent(question.options, folder, bodies)
    lines = [json.dumps(body, ensure_ascii=False) for body in bodies]
    (folder / BODIES).write_text("\n".join(lines) + "\n", "utf-8")
    return reused, bodies


def _sent(options: tuple[str, ...], folder: Path, bodies: list[dict[str, Any]]) -> int:
    """Send the bodies one after the other to a server with these options; give the tokens that it says it reused."""
    folder.mkdir(parents=True)
    responses = []
    with Vllm(_DENSE, (*ALWAYS, *options), folder / LOG) as server:
        for body in bodies:
            status, answer = server.post("/v1/chat/completions", body)
            if status != 200:
                raise FaultNotMadeError(f"a request was refused ({status}): {answer}")
            responses.append(answer)
    (folder / RESPONSES).write_text(json.dumps(responses, indent=1) + "\n", "utf-8")
    return shares(truth(responses))[0]


def _simulated(question: Question, setting: str, folder: Path) -> dict[str, Any]:
    model = folder / _DENSE
    command = [sys.executable, "-m", "cachedoctor", "tune", str(folder / LOG), "-q", "-f", "json"]
    command += ["--requests", str(folder / BODIES), "--responses", str(folder / RESPONSES)]
    command += ["--tokenizer", str(model), "--template", str(model / "tokenizer_config.json")]
    for word in setting.split():
        command += ["--set", word]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NotAnsweredError(f"{setting}: cachedoctor ended with {done.returncode}: {done.stderr.decode()[-400:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


# ---- traffic; it pauses nowhere, since no line of the log is waited for


def _agents(send: Send) -> None:
    """Six agents that only append, in any turn, and documents of any length between them."""
    dice, talks = random.Random(11), [[system(prose(60 + agent, 500))] for agent in range(6)]
    for turn in range(60):
        talk = talks[dice.randrange(6)]
        talk.append(user(prose(100 + turn, 90)))
        send(list(talk))
        talk.append({"role": "assistant", "content": prose(500 + turn, 30)})
        if dice.random() < 0.3:
            send([user(prose(3000 + turn, dice.randint(300, 1200)))])


def _in_turn(send: Send) -> None:
    """Five conversations strictly in turn below one system prompt: the worst for a cache that is a little too small."""
    talks: list[list[Message]] = [[system(prose(7, 400)), user(prose(70 + talk, 500))] for talk in range(5)]
    for turn in range(10):
        for at, talk in enumerate(talks):
            talk.append(user(prose(900 + 5 * turn + at, 70)))
            send(list(talk))
            talk.append({"role": "assistant", "content": prose(1400 + 5 * turn + at, 30)})


def _mixed(send: Send) -> None:
    """Two conversations, one of which changes its head, one that is salted, and one whose history is cut."""
    good, other, salted = [system(prose(8, 600))], [user(prose(9, 60))], [system(prose(8, 600))]
    for turn in range(16):
        for talk in (good, other, salted):
            talk.append(user(prose(2000 + turn, 80)))
        send(list(good))
        send([system(f"Now it is 10:{turn:02}. " + prose(10, 500)), *other])
        send(list(salted), cache_salt="tenant")
        send([good[0], *good[-5:]])
        for talk in (good, other, salted):
            talk.append({"role": "assistant", "content": prose(2500 + turn, 30)})


ALL = [
    Question(
        "agents-small", _agents, ("--num-gpu-blocks-override", "40"),
        ("num-gpu-blocks-override=80", "num-gpu-blocks-override=400", "num-gpu-blocks-override=128 block-size=64"),
    ),
    Question(
        "agents-block-32", _agents, ("--block-size", "32", "--num-gpu-blocks-override", "160"),
        ("block-size=64", "block-size=64 num-gpu-blocks-override=80", "num-gpu-blocks-override=1000",
         "no-enable-prefix-caching"),
    ),
    Question(
        "in-turn", _in_turn, ("--block-size", "32", "--num-gpu-blocks-override", "400"),
        ("num-gpu-blocks-override=200", "num-gpu-blocks-override=120", "block-size=128 num-gpu-blocks-override=64"),
    ),
    Question(
        "mixed", _mixed, ("--num-gpu-blocks-override", "30"),
        ("num-gpu-blocks-override=60", "block-size=32 num-gpu-blocks-override=200"),
    ),
]  # fmt: skip
