"""Reads start-up lines of llama-server: settings, model, kind of memory, build.

``initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'`` sets three facts.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cachedoctor.knowledge import builds
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import Facts, Memory, Setting
from cachedoctor.model.bounds import POSITIVE

# message id -> (setting, field of the message or a constant value)
_SETTINGS: dict[str, list[tuple[str, str | bool | int]]] = {
    "pc_disabled": [("cache_ram_mib", 0)],
    "pc_enabled": [("cache_ram_mib", "limit_mib")],
    "ckpt_enabled": [("ctx_checkpoints", "max"), ("checkpoint_min_step", "min_step")],
    "ckpt_disabled": [("ctx_checkpoints", 0)],
    "slots_debug": [("slots_debug", "debug"), ("slots_debug", "LLAMA_SERVER_SLOTS_DEBUG")],
    "slots_n_diff": [("slots_n_diff", "LLAMA_SERVER_SLOTS_N_DIFF")],
    "verbosity_line": [("verbosity", "verbosity")],
    "ctx_n_batch": [("n_batch", "n_batch")],
    "ctx_n_ubatch": [("n_ubatch", "n_ubatch")],
    "ctx_n_ctx": [("n_ctx", "n_ctx")],
    "ctx_kv_unified": [("kv_unified", "kv_unified")],
    "n_parallel_auto": [("n_parallel_auto", True), ("kv_unified", True)],
    "n_ctx_train": [("n_ctx_train", "n_ctx_train")],
    "n_swa": [("n_swa", "n_swa")],
    "mtmd_loaded": [("mmproj", True)],
    "swa_full": [("swa_full", True)],
    "swa_full_off": [("swa_full", False)],
    "cache_reuse_off": [("cache_reuse_supported", False)],
    "cache_reuse_off_mm": [("cache_reuse_supported", False), ("mmproj", True)],
    "ctx_shift_off": [("context_shift_supported", False)],
    "idle_slots_mode": [("cache_idle_slots", True)],
    "idle_slots_disabled": [("cache_idle_slots", False)],
    "reasoning_preserved": [("reasoning_preserve", True)],
    "reasoning_unsupported": [("reasoning_preserve", False)],
    "spec_on": [("speculative", True)],
    "spec_ckpt": [("speculative_checkpoints", True)],
    "model_arch": [("arch", "arch")],
    "is_swa_any": [("is_swa_any", "is_swa_any")],
    "ssm_d_inner": [("ssm_d_inner", "ssm_d_inner")],
    "kv_swa": [("swa_cells", "size")],
    "seq_rm_probe": [("partial_removal", False)],
    "init_slots": [("kv_unified", "kv_unified")],
    "arg_invalid": [("refused_option", "arg")],
}

_OTHERS = frozenset(
    {"load_model", "model_name", "build_line", "build_info", "new_slot", "kv_size", "listening", "kv_base", "kv_dsv4"}
)

STARTUP = frozenset(_SETTINGS) | _OTHERS

RESTART_MARKS = frozenset({"load_model", "build_line", "build_info", "init_slots"})
"""A line of these after requests, or twice, begins a new session."""

# general.architecture -> kind of memory, where the name decides it
# (llama-arch.cpp, llama_model_is_recurrent and llama_model_is_hybrid)
_HYBRID = late(r"qwen35|qwen3next|jamba|falcon-h1|granitehybrid|nemotron_h|plamo2|lfm2|bamba|kimi-linear|olmo-hybrid")
_RECURRENT = late(r"^(mamba2?|rwkv\w*|arwkv7)$")


_BUILD = late(r"b(\d{1,9})(?!\d)|v?\d[\w.-]{0,30} \(build (\d{1,7}),")
_RELEASE = late(r"v?\d{1,3}\.\d{1,3}\.\d{1,4}(?=-[0-9a-f]{7,12}\b|[ (]|$)")
"""A release alone, with or without its commit; ``0.9.1-dev`` names no build."""


class StartupLine(msgspec.Struct, frozen=True):
    """A start-up line."""

    message: str
    fields: dict[str, Any]
    slot: int
    number: int
    text: bytes


class Startup:
    """Finds which facts a start-up line changes; it combines several lines about the memory."""

    def __init__(self) -> None:
        self._recurrent = self._attention = self._windowed = False

    def changes(self, facts: Facts, line: StartupLine) -> dict[str, Any]:
        """Fields of ``facts`` that this line gives other values."""
        message, fields = line.message, line.fields
        settings = {}
        for name, source in _SETTINGS.get(message, ()):
            value: Any = fields.get(source) if isinstance(source, str) else source
            if value is not None:
                settings[name] = Setting({"true": True, "false": False}.get(value, value), line.number, line.text)
        changed: dict[str, Any] = {}
        if message == "pc_enabled" and "limit" in fields:
            settings["cache_ram_mib"] = Setting(-1, line.number, line.text)
        elif message == "load_model":
            changed["model"] = re.split(r"[/\\]", fields["name"])[-1] or None
        elif message == "model_name" and facts.model is None:
            changed["model"] = fields["general.name"]
        elif message in ("build_line", "build_info"):
            changed |= _build(facts, fields)
        elif message == "init_slots":
            changed["n_slots"] = POSITIVE.of(fields["n_slots"])
            changed["n_ctx_slot"] = POSITIVE.of(fields.get("n_ctx_slot", facts.n_ctx_slot))
        elif message == "new_slot":
            changed["n_ctx_slot"] = POSITIVE.of(fields.get("n_ctx_slot", fields.get("n_ctx")))
            changed["n_slots"] = max(facts.n_slots or 0, line.slot + 1)
        elif message == "idle_slots_disabled" and b"--cache-ram" in line.text:
            settings["cache_ram_mib"] = Setting(0, line.number, line.text)  # visible where the cache's own line is not
        memory = self._memory(line)
        if memory is not None:
            changed["memory"] = memory
        if message in ("init_slots", "load_model"):
            changed["starts_cold"] = True
        told = {name: new for name, new in settings.items() if not _said(facts.settings.get(name), new)}
        if told:
            changed["settings"] = {**facts.settings, **told}
        return changed

    def _memory(self, line: StartupLine) -> Memory | None:
        """Kind of memory, where this line and the earlier ones tell it."""
        message, fields = line.message, line.fields
        if message == "kv_size":
            if b"llama_memory_recurrent" in line.text or b" R (" in line.text:
                self._recurrent = True
            else:
                self._attention = True
        elif (
            message in ("kv_swa", "kv_dsv4")
            or (message == "is_swa_any" and fields["is_swa_any"])
            or (message == "n_swa" and fields["n_swa"] > 0)
        ):
            self._windowed = True
        elif message == "model_arch":
            arch = fields["arch"]
            self._recurrent |= bool(_HYBRID.search(arch) or _RECURRENT.match(arch))
            self._attention |= bool(_HYBRID.search(arch))
        else:
            return None
        if self._recurrent:
            return "hybrid" if self._attention else "recurrent"
        if self._windowed:
            return "swa"
        return "attention" if self._attention else None


def _said(before: Setting | None, now: Setting) -> bool:
    """Whether an earlier line shows the same: that one is the proof, and a later line may only follow from it."""
    return before is not None and before.line is not None and before.value == now.value


def _build(facts: Facts, fields: dict[str, Any]) -> dict[str, Any]:
    number = fields.get("build")
    if number is None:
        number = build_number(fields.get("build_info", "")) or 0
    if number and facts.build_source != "option":  # wrappers and distributions print 0
        return {"build": number, "build_source": "line"}
    return {}


def build_number(text: str) -> int | None:
    """The build in ``b11549-0a1b2c3``, ``v0.9.0`` or ``0.9.1-dev (build 12150, commit 5ad1c5da0)``."""
    if found := _BUILD.match(text):
        return int(found[1] or found[2])
    version = _RELEASE.match(text)
    return builds.number(version[0]) if version else None
