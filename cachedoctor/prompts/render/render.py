"""A request body rendered with a chat template, in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, Any

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.chat import Mark, Style, convert, join
from cachedoctor.prompts.prompt import CHAT, PlacedSpan, Prompt
from cachedoctor.prompts.render import marks
from cachedoctor.prompts.render.templates import ChatTemplate, chat_template

__all__ = ["ChatTemplate", "chat_template", "with_template"]

if TYPE_CHECKING:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARS = 64_000_000
"""Code points a template may write, or build in one operation."""
MAX_SECONDS = 30.0
NOW = datetime(2026, 1, 1)
"""The current time given to templates, so that two renderings never differ by the clock."""

# Marks the assistant's tokens for training; no server renders it.
_GENERATION = late(r"\{%([-+]?)\s*(?:end)?generation\s*([-+]?)%\}")
_NEEDLE = "needle5150"


class _StopError(Exception):
    """The template took too long or wrote too much."""


def with_template(
    prompt: Prompt,
    template: str | ChatTemplate,
    bos: str = "",
    eos: str = "",
    kwargs: Mapping[str, Any] | None = None,
    mask_cch: bool = False,
) -> Prompt:
    """The prompt as the server renders its body; prompts without a chat body come back as they are.

    ``kwargs`` are those of ``--chat-template-kwargs``; ``mask_cch`` is what builds from b8929 do to the billing header
    of /v1/messages.
    """
    body = prompt.body
    if body is None or prompt.kind not in CHAT:
        return prompt
    if isinstance(template, str):
        template = ChatTemplate(template, bos, eos)
    engine = _engine(template.text)
    context = _context(body, template, kwargs)

    def write(mark: Mark, marker: marks.Marker | None) -> str:
        chat = convert(body, prompt.kind, mark, engine.style, mask_cch)
        return engine.write(chat.messages, chat.tools, context, marker, chat.origins)

    try:
        text = sound(write(lambda part, _: part, None))
    except CacheDoctorError as error:
        raise CacheDoctorError(f"{prompt.path}: {error.message}", error.hint) from error
    spans = _spans(prompt, text, write)
    return Prompt(prompt.path, prompt.kind, text, spans, body, prompt.images, prompt.slot, rendered=True)


def _context(body: dict[str, Any], template: ChatTemplate, kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What llama-server gives to every template; the request overrules the command line."""
    context: dict[str, Any] = {
        "bos_token": template.bos,
        "eos_token": template.eos,
        "enable_thinking": True,
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "date_string": NOW.strftime("%d %b %Y"),
    }
    if isinstance(body.get("reasoning_effort"), str):
        context["reasoning_effort"] = body["reasoning_effort"]
    context |= kwargs or {}
    if isinstance(body.get("chat_template_kwargs"), dict):
        context |= body["chat_template_kwargs"]
    return context


def _spans(prompt: Prompt, text: str, write: Callable[[Mark, marks.Marker | None], str]) -> list[PlacedSpan]:
    if marks.markable(text):
        marker = marks.Marker()
        try:
            again, spans = marks.read(sound(write(marker, marker)), marker.places)
        except CacheDoctorError:  # the template objects to the marks
            again, spans = "", []
        if again == text:
            return spans
    return marks.search(text, [(span.place, prompt.text[span.start : span.end]) for span in prompt.spans])


class _CompiledTemplate:
    """A compiled template and what it can render."""

    def __init__(self, template: str) -> None:
        self.marker: marks.Marker | None = None
        self.origins: dict[int, str] = {}
        self.deadline = 0.0
        env = _environment(self)
        self.template = self._guard(lambda: env.from_string(_GENERATION.sub(r"{#\1 \2#}", template)))
        self.developer = "developer" in template
        self.thinking = ".thinking" in template and "reasoning_content" not in template
        self.style = self._probe()

    def write(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        context: dict[str, Any],
        marker: marks.Marker | None = None,
        origins: dict[int, str] | None = None,
    ) -> str:
        """Render; a last message of the assistant is continued rather than closed, as llama-server does."""
        self.marker, self.origins = marker, origins or {}
        if not self.developer:
            messages = [{**m, "role": "system"} if m.get("role") == "developer" else m for m in messages]
        if self.thinking:  # gpt-oss: llama-server gives it the reasoning of calls under this name (common/chat.cpp)
            messages = [
                {**m, "thinking": m["reasoning_content"]} if m.get("reasoning_content") and m.get("tool_calls") else m
                for m in messages
            ]
        tail = ""
        if len(messages) > 1 and messages[-1].get("role") == "assistant" and not messages[-1].get("tool_calls"):
            last = messages[-1].get("content")
            tail = last if isinstance(last, str) else join([(False, part["text"]) for part in last or []])
            messages = messages[:-1]
        context = {**context, "messages": messages}
        if tools is not None:  # else the name is not defined, as llama-server leaves it (common/chat.cpp)
            context["tools"] = tools
        text: str = self._guard(lambda: self._collect(context))
        return text + tail

    def tick(self) -> None:
        """Stop a template that runs too long."""
        if monotonic() > self.deadline:
            raise _StopError(f"ran for more than {MAX_SECONDS:.0f} s")

    def tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        """The filter as Hugging Face and llama.cpp have it: nothing escaped for HTML, keys in their order."""
        if self.marker is not None and not (ensure_ascii or indent or separators or sort_keys):
            return self.marker.dump(value, self.origins)
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def _collect(self, context: dict[str, Any]) -> str:
        pieces: list[str] = []
        length = 0
        for piece in self.template.generate(context):
            self.tick()
            pieces.append(piece)
            length += len(piece)
            if length > MAX_CHARS:
                raise _StopError(f"writes more than {MAX_CHARS} characters")
        return "".join(pieces)

    def _guard(self, work: Callable[[], Any]) -> Any:
        self.deadline = monotonic() + MAX_SECONDS
        try:
            return work()
        except MemoryError:  # the child's own end, see confined_worker
            raise
        except Exception as error:  # a template is a foreign program: it may fail with anything
            first = (sound(str(error)).splitlines() or [type(error).__name__])[0][:200]
            line = getattr(error, "lineno", None)
            at = f" (line {line})" if line else ""
            hint = "check that the template belongs to this model; without --template, bodies are compared by structure"
            raise CacheDoctorError(f"chat template failed{at}: {first}", hint) from error

    def _probe(self) -> Style:
        """Try how the template renders content and arguments, in the way of llama-server."""
        arguments = {_NEEDLE: "value"}

        def shows(content: Any, calls: Any, wanted: tuple[str, ...], unwanted: str = "\0") -> bool:
            messages: list[dict[str, Any]] = [{"role": "user", "content": content}]
            if calls is None:
                return written(messages, wanted, unwanted)
            function = {"name": "probe", "arguments": calls}
            call = {"type": "function", "id": "call00001", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            # Some (Mistral) refuse a user who speaks before a result is there.
            result = {"role": "tool", "name": "probe", "tool_call_id": "call00001", "content": "x"}
            behind = {"role": "user", "content": "x"}, result
            return any(written([*messages, last], wanted, unwanted) for last in behind)

        def written(messages: list[dict[str, Any]], wanted: tuple[str, ...], unwanted: str) -> bool:
            try:
                text = self.write(messages, None, {"bos_token": "", "eos_token": "", "add_generation_prompt": False})
            except CacheDoctorError:
                return False
            return any(part in text for part in wanted) and unwanted not in text

        found = (f'"{_NEEDLE}":', f"'{_NEEDLE}':", f"<parameter={_NEEDLE}>", f">{_NEEDLE}<")
        typed = shows([{"type": "text", "text": _NEEDLE}], None, (_NEEDLE,), "'type'")
        return Style(
            typed=typed,
            # A template that refuses both probes objects to something else; strings are what all have in common.
            strings=not typed or shows(_NEEDLE, None, (_NEEDLE,)),
            # Where text is refused or shown in no such way, an object that is shown in any way is what it takes. One
            # that writes objects as JSON is given objects also where it takes text, and writes their spaces itself.
            objects=shows("x", arguments, (f'"{_NEEDLE}": "value"',))
            or (not shows("x", json.dumps(arguments), found) and shows("x", arguments, (*found, _NEEDLE))),
        )


@lru_cache(maxsize=4)
def _engine(template: str) -> _CompiledTemplate:
    return _CompiledTemplate(template)


def _environment(engine: _CompiledTemplate) -> ImmutableSandboxedEnvironment:
    from jinja2.exceptions import TemplateError
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["+", "*", "**", "%"])

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            engine.tick()
            if operator == "**" or (operator == "%" and isinstance(left, str)):
                raise _StopError(f"uses the operator {operator}, which no chat template needs")
            if operator == "*" and isinstance(left, int) and not isinstance(right, int | float):
                left, right = right, left
            if operator == "*" and hasattr(left, "__len__") and len(left) * max(int(right), 0) > MAX_CHARS:
                raise _StopError("builds a text that is too long")
            return super().call_binop(context, operator, left, right)

        def getattr(self, obj: Any, attribute: str) -> Any:
            engine.tick()
            return super().getattr(obj, attribute)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    env = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = engine.tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    for name in ("center", "indent", "format"):  # a width can be a gigabyte
        env.filters[name] = _bounded(env.filters[name])
    return env


def _bounded(work: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses widths no chat template needs."""

    def bounded(*args: Any, **kwargs: Any) -> Any:
        numbers = [n for n in (*args, *kwargs.values()) if isinstance(n, int)]
        if any(abs(n) > 1000 for n in numbers) or re.search(r"%[^%a-z]*[\d*]{4}", str(args[0])[:10000]):
            raise _StopError("formats a text that is too wide")
        return work(*args, **kwargs)

    return bounded
