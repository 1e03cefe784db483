"""Reads what the start-up of vLLM prints of its settings: the resolved configuration, and the arguments given.

The first is what counts; the second says what was asked for.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_SPECULATIVE = re.compile(r"speculative_config=(?:None|SpeculativeConfig\((?P<config>[^)]*)\)|(?P<other>\{[^}]*\}))")
_METHOD = re.compile(r"['\"]?method['\"]?[=:] ?['\"](\w{1,40})['\"]")
_MODEL = re.compile(r"\bmodel='((?:[^'\\]|\\.){1,512})'")


class Resolved(NamedTuple):
    """The line ``Initializing a V1 LLM engine (v0.32.0) with config: ...``; what it does not say is None."""

    model: str | None
    prefix_caching: bool | None
    chunked_prefill: bool | None
    max_model_len: int | None
    device: str | None
    speculative: str | None
    """Method of speculative decoding; empty when there is none."""
    data_parallel: int | None
    tensor_parallel: int | None
    pooling: bool | None
    """The model makes embeddings or scores, no text."""


def resolved(text: str) -> Resolved:
    """Read the configuration as it was resolved."""
    bare = _bare(text)
    model = _MODEL.search(text)
    chunked = _flag(bare, "enable_chunked_prefill")  # up to 0.9 it had another name
    return Resolved(
        model=model[1] if model else None,
        prefix_caching=_flag(bare, "enable_prefix_caching"),
        chunked_prefill=_flag(bare, "chunked_prefill_enabled") if chunked is None else chunked,
        max_model_len=_number(bare, "max_seq_len"),
        device=_word(bare, "device_config"),
        speculative=_speculative(text),
        data_parallel=_number(bare, "data_parallel_size"),
        tensor_parallel=_number(bare, "tensor_parallel_size"),
        pooling=None if (pooler := _word(bare, "pooler_config")) is None else pooler != "None",
    )


_ASKED: dict[str, type[bool] | type[int] | type[str]] = {
    "enable_prefix_caching": bool,
    "block_size": int,
    "max_num_batched_tokens": int,
    "data_parallel_size": int,
    "api_server_count": int,
    "disable_log_stats": bool,
    "mamba_cache_mode": str,
    "prefix_match_unit": int,
    "max_model_len": int,
    "num_gpu_blocks_override": int,
}


def asked(text: str) -> dict[str, Any]:
    """Read ``non-default args: {...}``: the arguments above that were given, with their values."""
    found: dict[str, Any] = {}
    for name, kind in _ASKED.items():
        match = re.search(rf"'{name}': (True|False|\d{{1,12}}|'\w{{1,40}}')(?=[,}}])", text)
        if match is None:
            continue
        raw = match[1]
        value = {"True": True, "False": False}.get(raw, raw.strip("'"))
        if kind is int and isinstance(value, str) and value.isdigit():
            value = int(value)
        if type(value) is kind:
            found[name] = value
    if "'speculative_config': {" in text or "'speculative_config': '" in text:
        method = _METHOD.search(text)
        found["speculative_config"] = method[1] if method else "unknown"
    connector = re.search(r"kv_connector['\"]?[=:] ?['\"](\w{1,60})['\"]", text)
    if connector is not None:
        found["kv_connector"] = connector[1]
    if "'chat_template': " in text:
        found["chat_template"] = True
    return found


def _bare(text: str) -> str:
    """The text without what stands in quotes, which a user chose."""
    return _QUOTED.sub("''", text)


def _flag(text: str, name: str) -> bool | None:
    found = re.search(rf"\b{name}=(True|False)\b", text)
    return None if found is None else found[1] == "True"


def _number(text: str, name: str) -> int | None:
    found = re.search(rf"\b{name}=(\d{{1,12}})\b", text)
    return None if found is None else int(found[1])


def _word(text: str, name: str) -> str | None:
    found = re.search(rf"\b{name}=(\w{{1,20}})", text)
    return None if found is None else found[1]


def _speculative(text: str) -> str | None:
    found = _SPECULATIVE.search(text)
    if found is None:
        return None
    config = found["config"] or found["other"]
    if config is None:
        return ""
    method = _METHOD.search(config)
    return method[1] if method else "unknown"
