"""What single lines of vLLM say of the server: the settings of its session, each with its line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.engines.vllm import startup_config
from cachedoctor.knowledge.architectures import is_hybrid
from cachedoctor.model import Session, Setting
from cachedoctor.model.session import release

CPU_BLOCK = 128
"""Tokens of a block on a processor when none is asked for, from 0.11.1 on; before, 16 without Intel's extension."""
_ASKED_AS = {
    "enable_prefix_caching": "prefix_caching_asked",
    "block_size": "block_size",
    "max_num_batched_tokens": "max_batched_tokens",
    "data_parallel_size": "data_parallel",
    "api_server_count": "api_servers",
    "disable_log_stats": "stats_disabled",
    "mamba_cache_mode": "mamba_mode",
    "prefix_match_unit": "match_unit",
    "speculative_config": "speculative",
    "kv_connector": "kv_connector",
    "chat_template": "chat_template",
    "max_model_len": "max_model_len",
    "num_gpu_blocks_override": "blocks_override",
}


def note(session: Session, event: Event) -> None:
    """Take what the line says of the server, if it does."""
    known = _READERS.get(event.message)
    if known is not None:
        known(session, event)


def put(session: Session, event: Event, name: str, value: Any, part: str | None = None) -> None:
    """Write a setting down with its line; of a line with many settings only the ``part`` that says it."""
    text = event.text[:LONGEST]
    if part is not None:
        head = event.text[: event.text.find(b": ", event.text.find(b"] ")) + 2]
        text = head[:LONGEST] + b"[...] " + part.encode() + b" [...]"
    session.settings[name] = Setting(value, event.line, text)


LONGEST = 4096
"""Bytes of a line that are kept as evidence."""


def _version(session: Session, version: str) -> None:
    """Take a version; sources that were fetched without tags build any of them as ``0.1.dev14845+g57a314d15``."""
    plain = version.removeprefix("v").partition("+")[0]
    if release(plain) and not plain.startswith("0.1.dev"):
        session.version = plain
        session.build_source = "line"


def _named(session: Session, event: Event) -> None:
    _version(session, event.fields["version"])
    if "model" in event.fields:
        session.model = event.fields["model"]


def _model(session: Session, event: Event) -> None:
    session.model = event.fields["model"]


def _args(session: Session, event: Event) -> None:
    for name, value in startup_config.asked(event.fields["args"]).items():
        if value is not False or name == "enable_prefix_caching":
            put(session, event, _ASKED_AS[name], value, f"'{name}': {value!r}")
    put(session, event, "arguments", True)


def _resolved(session: Session, event: Event) -> None:
    found = startup_config.resolved(event.fields["config"])
    _version(session, event.fields["version"])
    session.model = session.model or found.model
    if found.prefix_caching is not None:
        put(session, event, "prefix_caching", found.prefix_caching, f"enable_prefix_caching={found.prefix_caching}")
    for name, value, part in (
        ("max_model_len", found.max_model_len, f"max_seq_len={found.max_model_len}"),
        ("device", found.device, f"device_config={found.device}"),
        ("pooling", found.pooling or None, "pooler_config="),
        ("speculative", found.speculative or None, f"method='{found.speculative}'"),
    ):
        if value is not None:
            put(session, event, name, value, part)
    if found.data_parallel is not None and found.data_parallel > 1:
        put(session, event, "data_parallel", found.data_parallel, f"data_parallel_size={found.data_parallel}")
    if found.device == "cpu" and session.since("0.11.1") is True and "block_size" not in session.settings:
        put(session, event, "block_size", CPU_BLOCK, "device_config=cpu")


def _architecture(session: Session, event: Event) -> None:
    name = event.fields["architecture"]
    put(session, event, "architecture", name)
    if is_hybrid(name):
        session.memory = "hybrid"


def _value(name: str, field: str, *, hybrid: bool = False) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, event.fields[field])
        if hybrid:
            session.memory = "hybrid"

    return reader


def _value_of_word(name: str, field: str) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, event.fields[field])

    return reader


def _fact(name: str, value: Any = True, *, hybrid: bool = False) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, value)
        if hybrid:
            session.memory = "hybrid"

    return reader


def _disabled(session: Session, event: Event) -> None:
    """A line that switches the cache off and says why."""
    put(session, event, "caching_disabled_because", event.message)


def _mode(session: Session, event: Event) -> None:
    put(session, event, "mamba_mode", event.fields["mode"])
    session.memory = "hybrid"


def _speculating(session: Session, event: Event) -> None:
    session.settings.setdefault("speculative", Setting("unknown", event.line, event.text[:LONGEST]))


_OFF = (
    "off_attention", "off_encoder_only", "off_batch_invariant", "off_encoder_decoder", "off_cpu", "off_mla", "off_amx",
    "off_ocr", "off_multimodal", "off_prompt_embeds", "off_context_parallel", "off_tpu",
)  # fmt: skip
"""Lines that switch the cache off and say why."""

_READERS: dict[str, Callable[[Session, Event], None]] = {
    "version": _named,
    "model": _model,
    "lmcache_start": _named,
    "args_given": _args,
    "engine_start": _resolved,
    "architecture": _architecture,
    "max_model_len": _value("max_model_len", "max_model_len"),
    "chunked_prefill": _value("max_batched_tokens", "max_batched_tokens"),
    "attention_block": _value("attention_block", "attention_block", hybrid=True),
    "block_size": _value("block_size", "block_size"),
    "lcm_block": _value("lcm_block", "lcm_block"),
    "mamba_mode": _mode,
    "mamba_align": _fact("mamba_mode", "align", hybrid=True),
    "off_hybrid": _fact("caching_unsupported", hybrid=True),
    "fine_grained_off": _fact("fine_grained_off"),
    "eagle_keeps_block": _fact("block_drop_off"),
    "system_merged": _fact("system_merged"),
    "blocks_override": _value("blocks_override", "override"),
    "kv_size": _value("kv_tokens", "kv_tokens"),
    "stats_off": _fact("stats_off"),
    "connector": _value_of_word("kv_connector", "connector"),
    "speculation": _speculating,
    "preemption": _value("preemptions", "preemptions"),
    **dict.fromkeys(_OFF, _disabled),
}
