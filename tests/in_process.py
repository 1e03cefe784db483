"""Chat templates and tokenizers used in the process of the tests: a child per test would take most of their time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import model_files
from cachedoctor.prompts.confined import pipe_messages
from cachedoctor.prompts.confined.child import Child, FailedError
from cachedoctor.prompts.confined.pipe_messages import PipeMessage
from cachedoctor.prompts.confined_worker import Worker
from cachedoctor.prompts.prompt import CHAT, Prompt
from cachedoctor.prompts.render.render import chat_template, with_template


def render_here(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have every body rendered with the template in a file, without a child."""
    template = chat_template(str(path))

    def rendered(self: model_files.ModelFiles, prompt: Prompt, mask_cch: bool) -> Prompt:
        if prompt.kind not in CHAT:
            return prompt
        try:
            return with_template(prompt, template, mask_cch=mask_cch)
        except CacheDoctorError as error:  # as the child says it
            raise FailedError(error.message, error.hint) from error

    monkeypatch.setattr(model_files.ModelFiles, "rendered", rendered)


def answer_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the worker of every child answer in this process, without its limits; a message is what a pipe carries."""

    def exchange(self: Child, _: object, request: PipeMessage) -> PipeMessage:
        worker: Worker = vars(self).setdefault("worker", Worker())
        return piped(worker.answer(piped(request)))

    def piped(message: PipeMessage) -> PipeMessage:
        return PipeMessage(json.loads(json.dumps(message.head)), message.data)

    monkeypatch.setattr(pipe_messages, "allow", lambda _: None)
    monkeypatch.setattr(Child, "_started", lambda _: None)
    monkeypatch.setattr(Child, "_exchange", exchange)
