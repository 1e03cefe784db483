"""Requests in the log of SGLang (``--log-requests``), in both of its forms, with what each reused.

``Receive: obj=GenerateReqInput(rid='1', text='...', session_params={'id': 's'})``, then ``Finish: obj=..., out={...}``;
or JSON lines with ``"event": "request.finished"`` (python/sglang/srt/utils/request_logger.py). Levels 0 and 1 print no
prompt; 2, the default, 1,024 characters of each end of one of more than 2,048; 3 all. The text is the prompt as the
model saw it.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

from cachedoctor.inputs.captures.captured import Capture, Captured, counts, object_of
from cachedoctor.knowledge import literals
from cachedoctor.knowledge.late_patterns import late

LOOKS = late(r'(?:Receive|Finish): obj=GenerateReqInput\(|"event": "request\.(?:received|finished)"')
_LINE = late(
    r"^(?:[^'\"\n]*?(?:Receive|Finish): obj=(?P<printed>GenerateReqInput\([^\n]*)"
    r'|[^\n{]*(?P<json>\{"timestamp": "[^"\n]*", "event": "request\.(?:received|finished)"[^\n]*\}))',
    re.M,
)
_HEALTH = "HEALTH_CHECK"
"""Names of requests that the server sends to itself begin with it."""
_CUT, _HALF = 2048, 1024
"""--log-requests-level 2 prints 1,024 characters of each end of a text that is longer than 2,048."""
_BESIDE = ("session_params", "session_id", "extra_key", "cache_salt", "lora_path", "user")
"""Fields that say whose request it is, or keep it apart from others."""


class _Request(msgspec.Struct):
    prompt: Any = None
    is_cut: bool = False
    beside: dict[str, Any] = {}
    answer: bytes = b""


def read(text: str) -> Capture | None:
    """Read the requests of a log; None if it has none."""
    found: dict[str, _Request] = {}
    for line in _LINE.finditer(text):
        fields, out = _printed(line["printed"]) if line["printed"] is not None else _of_json(line["json"])
        rid = fields.get("rid")
        if not isinstance(rid, str) or rid.startswith(_HEALTH):
            continue
        request = found.setdefault(rid, _Request())
        prompt, is_cut = _prompt(fields)
        if request.prompt is None:
            request.prompt, request.is_cut = prompt, is_cut or request.is_cut
        request.beside = request.beside or {name: fields[name] for name in _BESIDE if fields.get(name) is not None}
        request.answer = request.answer or counts(out.get("prompt_tokens"), out.get("cached_tokens"))
    if not found:
        return None
    capture = Capture("SGLang log", [], hint="--log-requests-level 3 logs complete prompts")
    for request in found.values():
        body = None if request.prompt is None else {"prompt": request.prompt, **request.beside}
        capture.requests.append(Captured(body, "", request.answer))
    cut = sum(one.is_cut and one.prompt is None for one in found.values())
    silent = sum(not one.is_cut and one.prompt is None for one in found.values())
    for number, words in (
        (cut, "are truncated (--log-requests-level 2) and are left out"),
        (silent, "are not printed"),
    ):
        if number:
            capture.notes.append(f"{number:,} of its {len(found):,} prompts {words}")
    return capture


def _prompt(fields: dict[str, Any]) -> tuple[Any, bool]:
    """The prompt, None if it is not there as a whole; and whether it was cut."""
    for name in ("text", "input_ids"):
        value = fields.get(name)
        if value is _TORN:
            return None, True
        if isinstance(value, str | list) and value:
            is_cut = "..." in value if isinstance(value, list) else _is_cut(value)
            return (None, True) if is_cut else (value, False)
    return None, False


def uncut(text: str) -> str:
    """Return the first half of a text that the JSON form has cut in the middle; it does not say which are."""
    cut = len(text) == _CUT + 3 and text[_HALF : _HALF + 3] == "..."
    return text[:_HALF] if cut else text


def _is_cut(text: str) -> bool:
    """Whether the JSON form has cut a text in the middle, which it does not mark otherwise."""
    return uncut(text) != text


def _of_json(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    record = object_of(text) or {}
    obj, out = record.get("obj"), record.get("out")
    fields = dict(obj) if isinstance(obj, dict) else {}
    fields["rid"] = record.get("rid", fields.get("rid"))
    meta = out.get("meta_info") if isinstance(out, dict) else None
    return fields, meta if isinstance(meta, dict) else {}


# ---- as Python prints it

_TORN = object()
"""Stands for a value that was cut."""
_PLAIN = late(r"\[(?:[-\d, ]*|(?:'[^'\\\n]*(?:\\.[^'\\\n]*)*'|\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|, )*)\]")
"""A list of numbers or strings alone."""


def _printed(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields and counts of ``GenerateReqInput(...), out={...}``; nothing of a line that is torn."""
    parts = dict(literals.entries(text + ")"))
    if ")" not in parts:
        return {}, {}
    fields = {name: _value(value) for name, value in literals.entries(literals.inside(parts.get("", "")))}
    out = dict(literals.entries(literals.inside(parts.get("out", ""))))
    meta = dict(literals.entries(literals.inside(out.get("meta_info", ""))))
    return fields, {name: literals.value(value) for name, value in meta.items()}


def _value(text: str) -> Any:
    """A value of a field; ``_TORN`` for what is cut, None for what is not read."""
    if text[:1] in "'\"":
        return literals.string(text) if _whole(text) else _TORN
    if text.startswith("["):
        if _PLAIN.fullmatch(text):
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return None
        return _TORN if " ... " in text else None
    if text.startswith("{"):
        return {name: literals.value(value) for name, value in literals.entries(text[1:]) if name != ")"}
    return literals.value(text)


def _whole(text: str) -> bool:
    """Whether a printed string is one string, with nothing after it."""
    try:
        return isinstance(ast.literal_eval(text), str)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
