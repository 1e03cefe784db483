"""Facts about the server in single lines of vLLM: version, start-up configuration, settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from cachedoctor.engines.catalogue.base import Event
from cachedoctor.knowledge.builds import is_hybrid
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Incident, Mark, Session, Setting
from cachedoctor.model.session import release

_BY_LINE = {
    69: ("0.7.1", "0.7.1"),
    72: ("0.7.2", "0.7.2"),
    78: ("0.7.3", "0.7.3"),
    80: ("0.8.0", "0.8.2"),
    87: ("0.8.3", "0.8.4"),
    111: ("0.8.5", "0.8.5"),
    116: ("0.9.0", "0.9.0.1"),
    118: ("0.9.1", "0.9.2"),
    122: ("0.10.0", "0.10.0"),
    123: ("0.10.1", "0.10.2"),
    127: ("0.11.0", "0.11.0"),
    236: ("0.11.1", "0.12.0"),
    248: ("0.13.0", "0.13.0"),
    257: ("0.14.0", "0.15.1"),
    259: ("0.15.0", "0.19.1"),
    271: ("0.20.0", "0.23.0"),
    273: ("0.24.0", "0.25.1"),
    310: ("0.26.0", "0.29.0"),
    315: ("0.30.0", "0.30.0"),
    320: ("0.31.0", "0.31.0"),
    335: ("0.32.0", "0.33.0"),
}
"""Line number in ``loggers.py`` of the call that prints it: oldest and newest version. Forks keep the numbers."""


def by_line(number: int) -> tuple[str, str] | None:
    """Return the oldest and the newest version that print their statistics at line ``number``; None if unknown."""
    return _BY_LINE.get(number)


def narrow(session: Session, number: int | None, file: str | None) -> None:
    """Narrow the versions by the source line that printed the statistics, unless the version is known."""
    found = by_line(number) if number is not None and file is not None and file.endswith("loggers.py") else None
    if session.version is None and session.version_min is None and found is not None:
        session.version_min, session.version_max = found
        session.learn(build_source="source")


_QUOTED = late(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_SPECULATIVE = late(r"speculative_config=(?:None|SpeculativeConfig\((?P<config>[^)]*)\)|(?P<other>\{[^}]*\}))")
_METHOD = late(r"['\"]?method['\"]?[=:] ?['\"](\w{1,40})['\"]")
_MODEL = late(r"\bmodel='((?:[^'\\]|\\.){1,512})'")


class Resolved(NamedTuple):
    """The line ``Initializing a V1 LLM engine (v0.32.0) with config: ...``; values that it lacks are None."""

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
    """Read the resolved configuration."""
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
    """The text without its quoted parts, which a user chose."""
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


CPU_BLOCK = 128
"""Default tokens of a block on a CPU, from 0.11.1 on; before, 16 without Intel's extension."""
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
    """Record the facts that the line shows."""
    known = _READERS.get(event.message)
    if known is not None:
        known(session, event)


def put(session: Session, event: Event, name: str, value: Any, part: str | None = None) -> None:
    """Record a setting with its line; from a line with many settings, only the ``part`` that shows it."""
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
        session.learn(build_source="line")


def _named(session: Session, event: Event) -> None:
    _version(session, event.fields["version"])
    if "model" in event.fields:
        session.learn(model=event.fields["model"])


def _model(session: Session, event: Event) -> None:
    session.learn(model=event.fields["model"])


def _args(session: Session, event: Event) -> None:
    for name, value in asked(event.fields["args"]).items():
        if value is not False or name == "enable_prefix_caching":
            put(session, event, _ASKED_AS[name], value, f"'{name}': {value!r}")
    put(session, event, "arguments", True)
    _adapters(session, event, _ADAPTER.findall(event.fields["args"]))


_ADAPTER = late(r"LoRAModulePath\(name='([^']{1,200})'")
_MOST_ADAPTERS = 256


def _adapters(session: Session, event: Event, names: list[str]) -> None:
    """Note the names under which requests ask for adapters."""
    known = session.incidents.get("adapters")
    every = [*dict.fromkeys([*(known.field.split("\n") if known else ()), *names])][:_MOST_ADAPTERS]
    if names:
        mark = known.mark if known else Mark(event.line, event.text[:LONGEST])
        session.incidents["adapters"] = Incident(mark, field="\n".join(every))


def _resolved(session: Session, event: Event) -> None:
    found = resolved(event.fields["config"])
    _version(session, event.fields["version"])
    session.learn(model=session.model or found.model)
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
        session.learn(memory="hybrid")


def _value(name: str, field: str, *, hybrid: bool = False) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, event.fields[field])
        if hybrid:
            session.learn(memory="hybrid")

    return reader


def _value_of_word(name: str, field: str) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, event.fields[field])

    return reader


def _fact(name: str, value: Any = True, *, hybrid: bool = False) -> Callable[[Session, Event], None]:
    def reader(session: Session, event: Event) -> None:
        put(session, event, name, value)
        if hybrid:
            session.learn(memory="hybrid")

    return reader


def _disabled(session: Session, event: Event) -> None:
    """A line that switches the cache off and names the reason."""
    put(session, event, "caching_disabled_because", event.message)


def _mode(session: Session, event: Event) -> None:
    put(session, event, "mamba_mode", event.fields["mode"])
    session.learn(memory="hybrid")


def _speculating(session: Session, event: Event) -> None:
    session.settings.setdefault("speculative", Setting("unknown", event.line, event.text[:LONGEST]))


_OFF = (
    "off_attention", "off_encoder_only", "off_batch_invariant", "off_encoder_decoder", "off_cpu", "off_mla", "off_amx",
    "off_ocr", "off_multimodal", "off_prompt_embeds", "off_context_parallel", "off_tpu",
)  # fmt: skip
"""Lines that switch the cache off and name the reason."""

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
    "lora_loaded": lambda session, event: _adapters(session, event, [event.fields["name"]]),
    "preemption": _value("preemptions", "preemptions"),
    **dict.fromkeys(_OFF, _disabled),
}
