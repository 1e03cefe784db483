"""The tokenizer and the chat template given beside prompts: untrusted files, or a running llama-server."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from cachedoctor.knowledge.texts import sound
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.chat import Style, convert
from cachedoctor.prompts.confined.child import Child
from cachedoctor.prompts.confined.pipe_messages import bytes_text, text_bytes
from cachedoctor.prompts.prompt import CHAT, PlacedSpan, Prompt
from cachedoctor.prompts.render import marks
from cachedoctor.prompts.tokenizers import base
from cachedoctor.prompts.tokenizers.base import TokenArrays, Tokenizer
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
            raise CacheDoctorError(f"{self._url} answered without a prompt", "check that this is a llama-server")
        text = sound(found)
        spans = marks.search(text, [(span.place, prompt.text[span.start : span.end]) for span in prompt.spans])
        return msgspec.structs.replace(prompt, text=text, spans=spans, rendered=True)


class ConfinedTokenizer:
    """The tokenizer of a file."""

    exact = True

    def __init__(self, child: Child, path: str) -> None:
        """Have it loaded.

        Raises:
            CacheDoctorError: it cannot be used.
        """
        self._child, self._subject = child, f"the tokenizer {path}"
        about: dict[str, Any] = child.ask(self._subject, {"op": "tokenizer", "path": path}).head
        self.name: str = about["name"]
        self.local: bool = about["local"]
        self.chat_template: str | None = about["template"]
        self._bos: str | None = about["bos"]

    def encode(self, text: str) -> TokenArrays:
        """Tokenise; the text of a special token becomes that token, and no BOS is added."""
        data = memoryview(self._child.ask(self._subject, {"op": "encode"}, text_bytes(text), len(text)).data)
        ids, starts = array("i"), array("i")
        ids.frombytes(data[: len(data) // 2])
        starts.frombytes(data[len(data) // 2 :])
        return TokenArrays(ids, starts)

    def leading(self, text: str) -> int:
        """Tokens that the server puts before this prompt: 1 for a BOS that the text does not show, else 0."""
        return int(self._bos is not None and not text.startswith(self._bos))


class ModelFiles:
    """What was given, and the one process that it runs in; none is started before it is needed."""

    def __init__(self, tokenizer: str | None = None, template: str | None = None, server: str | None = None) -> None:
        """Load the tokenizer; the template is read when there is something to render.

        Args:
            tokenizer: a ``tokenizer.json``, a ``.gguf``, a directory, or ``http://host:port`` of a llama-server.
            template: a ``.jinja`` file, ``/props``, ``tokenizer_config.json``, or a ``.gguf``.
            server: ``http://host:port`` of a llama-server that renders, and tokenises unless there is a ``tokenizer``.

        Raises:
            CacheDoctorError: the tokenizer cannot be used.
        """
        self._server = None if server is None else ServedTemplate(server)
        self._child = Child()
        self._template = template
        self._subject: str | None = None
        self.cutter = self._cutter(server if tokenizer is None else tokenizer)

    def rendered(self, prompt: Prompt, mask_cch: bool) -> Prompt:
        """Render a chat body with the template that was given, or that the tokenizer's source holds.

        ``mask_cch``: as builds from b8929 do with the billing header of /v1/messages.

        Raises:
            CacheDoctorError: the template cannot be used.
        """
        if prompt.kind not in CHAT or prompt.body is None:
            return prompt
        if self._server is not None:
            return self._server.rendered(prompt, mask_cch)
        if self._template is None and self.cutter.chat_template is None:
            return prompt
        if self._subject is None:
            self._subject = self._load()
        fields = {name: getattr(prompt, name) for name in ("path", "kind", "body", "images", "slot")}
        head = {"op": "render", "prompt": fields | {"spans": msgspec.to_builtins(prompt.spans)}, "mask_cch": mask_cch}
        answer = self._child.ask(self._subject, head, text_bytes(prompt.text), len(prompt.text))
        spans = [PlacedSpan(*span) for span in answer.head["spans"]]
        return msgspec.structs.replace(prompt, text=bytes_text(answer.data), spans=spans, rendered=True)

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _cutter(self, spec: str | None) -> Tokenizer:
        if spec is None:
            return base.pieces()
        if spec.startswith(("http://", "https://")):
            from cachedoctor.prompts.tokenizers.server_calls import ServerTokenizer

            return ServerTokenizer(spec)
        return ConfinedTokenizer(self._child, spec)

    def _load(self) -> str:
        subject = f"the chat template of {self._template or self.cutter.name}"
        text = None if self._template is not None else self.cutter.chat_template
        self._child.ask(subject, {"op": "template", "path": self._template, "text": text})
        return subject
