"""Words of a request as they may be shown and recorded: those of the APIs stay, all else becomes a hash.

A client may put a key where a word is expected: into the path, the name of the model, a role. Names of models have no
list: one stays where nothing in it can be a key, which is checked more strictly than in other texts.
"""

from __future__ import annotations

import re

from cachedoctor.knowledge.late_patterns import late
from cachedoctor.redaction.secrets import hidden

_WORDS = {
    "role": "user assistant system developer tool function",
    "type": "text message function custom tool image image_url input_text output_text input_image input_file"
    " input_audio audio audio_url video video_url input_video document file file_url refusal tool_use"
    " tool_result server_tool_use mcp_tool_use mcp_tool_result web_search_tool_result thinking"
    " redacted_thinking reasoning reasoning_text summary_text function_call function_call_output"
    " custom_tool_call custom_tool_call_output computer_call computer_call_output local_shell"
    " local_shell_call local_shell_call_output shell apply_patch item_reference json_object"
    " json_schema structural_tag grammar regex ephemeral enabled disabled adaptive base64 url content"
    " auto any none required allowed_tools web_search web_search_preview web_fetch file_search"
    " code_interpreter code_execution computer computer_use_preview image_generation mcp bash"
    " text_editor memory search_result approximate object array string number integer boolean null",
    "tool_choice": "auto none required any",
    "reasoning_effort": "none minimal low medium high xhigh max default",
    "finish_reason": "stop length tool_calls function_call content_filter end_turn max_tokens stop_sequence tool_use"
    " pause_turn refusal",
    "object": "list response chat.completion chat.completion.chunk text_completion embedding model thread",
    "method": "GET HEAD POST PUT PATCH DELETE OPTIONS",
    "coding": "gzip x-gzip deflate br zstd compress identity",
    "path": "v1 v1beta v2 v3 api openai openai_compat anthropic deployments engines models chat completions"
    " completion messages count_tokens responses input_tokens compact cancel input_items embeddings"
    " embedding embed rerank reranking rerankings score classify pooling infill tokenize detokenize"
    " apply-template props slots health metrics ping version lora-adapters generate generate_stream"
    " tags show ps pull push copy create delete blobs realtime audio transcriptions translations"
    " speech images generations edits moderations files batches invocations load unload get_model_info"
    " get_server_info server_info model_info flush_cache encode v0 lmstudio ui favicon.ico index.html",
}
"""API words of each place; anything else there is the client's own."""
_KNOWN = {place: frozenset(words.split()) for place, words in _WORDS.items()}
PLACES = frozenset(_KNOWN) - {"method", "coding", "path"}
"""Keys of a body whose strings are words of the APIs."""
_DATED = late(r"_20\d{6}\Z", re.ASCII)
"""Ends tools of Anthropic: ``bash_20250124``."""
_HASH = late(r"#[0-9a-f]{8}")
_SEGMENTS = 24
_MODEL = late(r"/?[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,119}", re.ASCII)
_FIELD = late(r"[A-Za-z][A-Za-z0-9_]{0,47}", re.ASCII)
_PIECE = late(r"[A-Za-z0-9]+")
_NAME = late(r"[A-Z]?[a-z]{1,20}\d{0,3}|(?:[A-Z][a-z]{2,12}){2,3}(?:[A-Z]{1,2})?\d?|[A-Z]{1,5}\d?", re.ASCII)
"""A part of a model name that does not look random: ``Qwen3``, ``DeepSeek``, ``GGUF``."""
_SHORT, _SHORTS = 5, 14
"""Maximum characters of any other piece, ``A3B``, ``8x7B``, and of all such pieces together."""
_NUMBER = late(r"20\d{6}|\d{1,6}", re.ASCII)
"""A day, or a version."""
_DIGITS = 12
"""Digits of all numbers together."""


def hashed(text: str) -> str:
    """Return a hash that distinguishes texts; a hash is returned unchanged."""
    if _HASH.fullmatch(text):
        return text
    import hashlib  # takes longer to import than a short log to read

    return f"#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def word(text: str, place: str) -> str:
    """Return a word of the APIs as it is, anything else as a hash: ``word("user", "role")`` is ``user``."""
    known = _KNOWN[place]
    is_known = text in known or (place == "type" and _DATED.sub("", text) in known)
    return text if is_known else hashed(text)


def path(text: str) -> str:
    """Return a path with a hash for each segment that is not of an API: ``/v1/models/#2d711642``."""
    first, *more = text.split("/")
    if len(more) > _SEGMENTS:
        more = [*more[:2], "/".join(more[2:-_SEGMENTS]), *more[-_SEGMENTS:]]
    return "/".join(part and word(part, "path") for part in (first, *more))


def model(text: str) -> str:
    """Return the name of a model, or its hash where a part of it could be a key."""
    return text if _MODEL.fullmatch(text) and _is_name(text) else hashed(text)


def field(text: str) -> str:
    """Return the name of a field of a request, or its hash."""
    return text if _FIELD.fullmatch(text) and _is_name(text) else hashed(text)


def _is_name(text: str) -> bool:
    if hidden(text) != text:
        return False
    others = [piece for piece in _PIECE.findall(text) if _NAME.fullmatch(piece) is None]
    numbers = [piece for piece in others if piece.isdigit()]
    shorts = [piece for piece in others if not piece.isdigit()]
    return (
        all(map(_NUMBER.fullmatch, numbers))
        and sum(map(len, numbers)) <= _DIGITS
        and all(len(piece) <= _SHORT for piece in shorts)
        and sum(map(len, shorts)) <= _SHORTS
    )
