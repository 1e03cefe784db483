"""Has a running llama-server render request bodies. Knows its ``/apply-template``, from January 2025 on (PR #11489)."""

from __future__ import annotations

from typing import Any

import msgspec

from cachedoctor.knowledge.texts import sound
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.chat import Style, convert
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.render import marks
from cachedoctor.prompts.tokenizers.server_calls import post

_KEPT = ("chat_template_kwargs", "reasoning_effort", "add_generation_prompt", "tool_choice")
"""Fields of a body, beside messages and tools, that change what a template writes."""


class ServedTemplate:
    """The chat template of the model that a llama-server has loaded."""

    def __init__(self, url: str) -> None:
        self._url = f"{url.rstrip('/')}/apply-template"

    def rendered(self, prompt: Prompt, mask_cch: bool) -> Prompt:
        """Give the prompt as the server renders its body; its places are found by searching its texts.

        Raises:
            CacheDoctorError: the server cannot be asked, or refuses the body.
        """
        body = prompt.body or {}
        chat = convert(body, prompt.kind, lambda text, _: text, Style(), mask_cch)
        asked: dict[str, Any] = {"messages": chat.messages} | {name: body[name] for name in _KEPT if name in body}
        if chat.tools:
            asked["tools"] = chat.tools
        try:
            answer = post(self._url, asked)
        except CacheDoctorError as error:
            raise CacheDoctorError(f"{prompt.path}: {error.message}", error.hint) from error
        found = answer.get("prompt") if isinstance(answer, dict) else None
        if not isinstance(found, str):
            raise CacheDoctorError(f"{self._url} answered without a prompt", "is this a llama-server?")
        text = sound(found)
        spans = marks.search(text, [(span.place, prompt.text[span.start : span.end]) for span in prompt.spans])
        return msgspec.structs.replace(prompt, text=text, spans=spans, rendered=True)
