"""What runs in the confined child: reads tokenizers and chat templates, and uses them."""

from __future__ import annotations

import signal
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.confined import pipe_messages
from cachedoctor.prompts.confined.pipe_messages import PipeMessage, bytes_text, read, text_bytes, write
from cachedoctor.prompts.regular_files import open_file
from cachedoctor.prompts.tokenizers.bpe import Pipeline

if TYPE_CHECKING:
    from cachedoctor.prompts.render.templates import ChatTemplate
    from cachedoctor.prompts.tokenizers.bpe import Pipeline


_HINT = "give a tokenizer.json, a .gguf, or http://host:port of a running llama-server"


def from_path(name: str) -> Pipeline:
    """Load a ``tokenizer.json`` or the vocabulary of a ``.gguf``; for a directory, the ``tokenizer.json`` in it.

    Raises:
        CacheDoctorError: it cannot be used, with a hint.
    """
    path = Path(name)
    path = path / "tokenizer.json" if path.is_dir() else path
    try:
        with open_file(path, _HINT) as file:
            magic = file.read(4)
    except (OSError, ValueError) as error:  # ValueError: a name that holds NUL
        reason = getattr(error, "strerror", None) or error
        raise CacheDoctorError(f"cannot read the tokenizer {path}: {reason}", _HINT) from None
    if magic == b"GGUF" or path.suffix == ".gguf":
        from cachedoctor.prompts.tokenizers.from_gguf import from_gguf

        return from_gguf(path)
    from cachedoctor.prompts.tokenizers.from_json import from_json

    return from_json(path)


MAX_TOKENS = 16
"""Maximum tokens per character of a text: one more than the bytes of any character, and even that many are rare."""
_FEW = 1_000
"""Tokens that a tokenizer may add to a short text."""
_OURS = "give the tokenizer and template of the server's model"


class Worker:
    """The tokenizer and the template that were loaded, and the requests that they answer."""

    def __init__(self) -> None:
        self._tokenizer: Pipeline | None = None
        self._template: ChatTemplate | None = None
        self._chars = 0
        self._answers: dict[str, Callable[[PipeMessage], PipeMessage]] = {
            "tokenizer": self._load_tokenizer,
            "encode": self._encode,
            "template": self._load_template,
            "render": self._render,
        }

    def answer(self, request: PipeMessage) -> PipeMessage:
        """Give the answer, or the fault in its place; whatever a stranger's file does is one."""
        head = request.head
        self._chars += int(head["chars"])
        pipe_messages.allow(self._chars)
        try:
            return self._answers[head["op"]](request)
        except CacheDoctorError as error:
            failed = head["op"] in ("encode", "render")
            return PipeMessage({"error": error.message, "hint": error.hint, "failed": failed})
        except MemoryError:
            return PipeMessage({"limit": "memory"})
        except Exception as error:
            what = f"{head['subject']}: failed with {type(error).__name__}"
            return PipeMessage({"error": what, "hint": _OURS, "failed": True})

    def _load_tokenizer(self, request: PipeMessage) -> PipeMessage:

        made = self._tokenizer = from_path(request.head["path"])
        about = {"name": made.name, "local": made.local, "bos": made.bos, "template": made.chat_template}
        return PipeMessage(about)

    def _encode(self, request: PipeMessage) -> PipeMessage:
        assert self._tokenizer is not None  # noqa: S101 - the parent loads before it asks
        text = bytes_text(request.data)
        tokens = self._tokenizer.encode(text)
        if len(tokens) > MAX_TOKENS * len(text) + _FEW:
            what = f"{request.head['subject']}: turned {len(text):,} characters into {len(tokens):,} tokens"
            raise CacheDoctorError(what, _OURS)
        return PipeMessage({}, array("i", tokens.ids).tobytes() + array("i", tokens.starts).tobytes())

    def _load_template(self, request: PipeMessage) -> PipeMessage:
        from cachedoctor.prompts.render.render import ChatTemplate, chat_template

        path, text = request.head["path"], request.head["text"]
        self._template = ChatTemplate(text) if path is None else chat_template(path)
        return PipeMessage({})

    def _render(self, request: PipeMessage) -> PipeMessage:
        import msgspec

        from cachedoctor.prompts.prompt import Prompt
        from cachedoctor.prompts.render.render import with_template

        assert self._template is not None  # noqa: S101 - the parent loads before it asks
        fields = {**request.head["prompt"], "text": bytes_text(request.data)}
        done = with_template(msgspec.convert(fields, Prompt), self._template, mask_cch=request.head["mask_cch"])
        spans = [(span.start, span.end, span.place) for span in done.spans]
        return PipeMessage({"spans": spans}, text_bytes(done.text))


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
            write(out, PipeMessage({"limit": "memory"}))
