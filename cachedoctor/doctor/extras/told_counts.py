"""What the answer to a recorded request says of its prompt: tokens, and those that were reused."""

from __future__ import annotations

from typing import NamedTuple

from cachedoctor.metrics import responses
from cachedoctor.prompts.prompt import Prompt


class Counts(NamedTuple):
    """Counts of the server; None is unknown."""

    prompt_tokens: int | None
    cached_tokens: int | None


_UNKNOWN = Counts(None, None)


def of_prompt(prompt: Prompt) -> Counts:
    """Read the answer that was recorded with a prompt."""
    if prompt.recorded is None or not prompt.recorded.answer:
        return _UNKNOWN
    found = responses.of_answer(prompt.recorded.answer)
    return _UNKNOWN if found is None else Counts(found.prompt_tokens, found.cached_tokens)
