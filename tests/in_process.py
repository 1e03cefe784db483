"""Chat templates rendered in the process of the tests: a child per test would take most of their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts import model_files
from cachedoctor.prompts.confined.child import FailedError
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
