"""Logged prompts: how much each shares with an earlier one, and whether it begins with Claude Code's header.

Prompts are in the log up to 0.11.0 with request logging on (the default up to 0.10.0), later at the debug level. They
are compared and forgotten; nothing of them is kept.
"""

from __future__ import annotations

import re

from cachedoctor.engines.beginnings import Beginnings
from cachedoctor.engines.catalogue.base import Event
from cachedoctor.model import Answer, Answers, Session, Setting

_END = re.compile(r"['\"], (?:params: SamplingParams\(|prompt_token_ids: )")
_HEADER = "x-anthropic-billing-header"
_HEAD = 4096
"""Characters in which the header stands: before the system prompt."""
_MOST = 10_000
"""Answers that are kept of one server."""


def prompt_in(text: str) -> str | None:
    """Return the prompt that a line holds, as it is printed between its quotes; None where there is none."""
    if not text or text[0] not in "'\"":
        return None
    ends = [found.start() for found in _END.finditer(text)]
    return text[1 : ends[-1]] if ends else text[1:].rstrip(" \t")


class LoggedPrompts:
    """The prompts that one server logged."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._beginnings = Beginnings()
        self._answers: Answers | None = None

    def take(self, session: Session, event: Event) -> None:
        """Compare the prompt that the line holds, if it does."""
        prompt = prompt_in(event.fields.get("prompt", ""))
        if prompt is None:
            return
        if _HEADER in prompt[:_HEAD]:
            shown = b"[...] " + _HEADER.encode() + b" [...]"
            session.settings.setdefault("billing_header", Setting(True, event.line, shown))
        raw = prompt.encode()
        self._keep(session, Answer(None, None, event.line, self._beginnings.add(raw), len(raw)))

    def _keep(self, session: Session, answer: Answer) -> None:
        if self._answers is None:
            self._answers = Answers(self._path, "log")
            session.answers.append(self._answers)
        self._answers.requests += 1
        if len(self._answers.each) < _MOST:
            self._answers.each.append(answer)
