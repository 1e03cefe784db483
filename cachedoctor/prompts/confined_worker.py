"""What runs in the child: reads tokenizers and chat templates, and uses them. See ``confined.child`` for the parent.

A process of its own, so that a file made to take all time or memory takes only its own. Imports a tokenizer or the
template engine when it is asked for one.
"""

from __future__ import annotations

import signal
import sys
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.confined import pipe_messages
from cachedoctor.prompts.confined.pipe_messages import Message, bytes_text, read, text_bytes, write

if TYPE_CHECKING:
    from cachedoctor.prompts.render.templates import ChatTemplate
    from cachedoctor.prompts.tokenizers.bpe import Pipeline

MAX_TOKENS = 16
"""Tokens per character of a text; one more than the bytes of any character, and that is rare."""
_FEW = 1_000
"""Tokens that a tokenizer may add to a short text."""
_OURS = "give the tokenizer and the template of the model that the server runs"


class Worker:
    """The tokenizer and the template that were loaded, and what can be asked of them."""

    def __init__(self) -> None:
        self._tokenizer: Pipeline | None = None
        self._template: ChatTemplate | None = None
        self._chars = 0
        self._answers: dict[str, Callable[[Message], Message]] = {
            "tokenizer": self._load_tokenizer,
            "encode": self._encode,
            "template": self._load_template,
            "render": self._render,
        }

    def answer(self, request: Message) -> Message:
        """Give the answer, or the fault in its place; whatever a stranger's file does is one."""
        head = request.head
        self._chars += int(head["chars"])
        pipe_messages.allow(self._chars)
        try:
            return self._answers[head["op"]](request)
        except CacheDoctorError as error:
            failed = head["op"] in ("encode", "render")
            return Message({"error": error.message, "hint": error.hint, "failed": failed})
        except MemoryError:
            return Message({"limit": "memory"})
        except Exception as error:
            what = f"{head['subject']}: failed: {type(error).__name__}"
            return Message({"error": what, "hint": _OURS, "failed": True})

    def _load_tokenizer(self, request: Message) -> Message:
        from cachedoctor.prompts.tokenizers.from_path import from_path

        made = self._tokenizer = from_path(request.head["path"])
        about = {"name": made.name, "local": made.local, "bos": made.bos, "template": made.chat_template}
        return Message(about)

    def _encode(self, request: Message) -> Message:
        assert self._tokenizer is not None  # noqa: S101 - the parent loads before it asks
        text = bytes_text(request.data)
        tokens = self._tokenizer.encode(text)
        if len(tokens) > MAX_TOKENS * len(text) + _FEW:
            what = f"{request.head['subject']}: makes {len(tokens):,} tokens of {len(text):,} characters"
            raise CacheDoctorError(what, _OURS)
        return Message({}, array("i", tokens.ids).tobytes() + array("i", tokens.starts).tobytes())

    def _load_template(self, request: Message) -> Message:
        from cachedoctor.prompts.render.render import ChatTemplate, chat_template

        path, text = request.head["path"], request.head["text"]
        self._template = ChatTemplate(text) if path is None else chat_template(path)
        return Message({})

    def _render(self, request: Message) -> Message:
        import msgspec

        from cachedoctor.prompts.prompt import Prompt
        from cachedoctor.prompts.render.render import with_template

        assert self._template is not None  # noqa: S101 - the parent loads before it asks
        fields = {**request.head["prompt"], "text": bytes_text(request.data)}
        done = with_template(msgspec.convert(fields, Prompt), self._template, mask_cch=request.head["mask_cch"])
        spans = [(span.start, span.end, span.place) for span in done.spans]
        return Message({"spans": spans}, text_bytes(done.text))


def main() -> None:
    """Answer requests from the standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    source, out = sys.stdin.buffer, sys.stdout.buffer
    pipe_messages.confine()
    worker = Worker()
    while (request := read(source)) is not None:
        try:
            write(out, worker.answer(request))
        except MemoryError:
            write(out, Message({"limit": "memory"}))
