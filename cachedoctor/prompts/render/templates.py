"""Where a chat template comes from: a .jinja file, /props, tokenizer_config.json, a GGUF."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import CacheDoctorError
from cachedoctor.prompts.regular_files import MIB, open_file, read_file
from cachedoctor.prompts.tokenizers.from_gguf import MAGIC, read_metadata
from cachedoctor.prompts.tokenizers.from_gguf import chat_template as gguf_template

MAX_MIB = 16
"""Maximum MiB of a file that holds a template; tokenizer_config.json has up to 2."""
_HINT = "give a .jinja file, /props, tokenizer_config.json, or a GGUF"


class ChatTemplate(msgspec.Struct, frozen=True):
    """A chat template and the tokens it may write."""

    text: str
    bos: str = ""
    eos: str = ""


def chat_template(source: str) -> ChatTemplate:
    """Read a chat template from a .jinja file, /props JSON, tokenizer_config.json, or a GGUF."""
    try:
        with open_file(source, _HINT) as file:
            if file.read(len(MAGIC)) == MAGIC:
                return _from_gguf(source)
        text = read_file(source, MAX_MIB * MIB, _HINT).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CacheDoctorError(f"{source}: is not a chat template", _HINT) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise CacheDoctorError(
            f"{source}: cannot be read: {reason}", "give a chat template: .jinja, .gguf, /props JSON"
        ) from error
    try:
        data = json.loads(sound_json(text))
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        return _from_json(data, source)
    if "{{" not in text and "{%" not in text:
        raise CacheDoctorError(f"{source}: is not a chat template", "a chat template contains {{ ... }} or {% ... %}")
    return ChatTemplate(text)


def _from_json(data: dict[str, Any], source: str) -> ChatTemplate:
    found = data.get("chat_template")
    if isinstance(found, list):  # tokenizer_config.json may hold several, by name
        named = {str(item.get("name")): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default", next(iter(named.values()), None))
    if not isinstance(found, str) or not found:
        hint = "GET /props and tokenizer_config.json have chat_template"
        raise CacheDoctorError(f"{source}: this JSON has no chat template", hint)
    return ChatTemplate(found, _token(data.get("bos_token")), _token(data.get("eos_token")))


def _token(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _from_gguf(source: str) -> ChatTemplate:
    data = read_metadata(source)
    text = gguf_template(data, source)
    if text is None:
        raise CacheDoctorError(f"{source}: this GGUF has no chat template", "give a chat template with --template")
    tokens = data.get("tokenizer.ggml.tokens")

    def token(name: str) -> str:
        number = data.get(f"tokenizer.ggml.{name}_token_id")
        if not isinstance(tokens, list) or not isinstance(number, int) or not 0 <= number < len(tokens):
            return ""
        found = tokens[number]
        return found.decode("utf-8", "replace") if isinstance(found, bytes) else str(found)

    return ChatTemplate(text, token("bos"), token("eos"))
