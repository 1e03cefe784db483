"""Start-up lines of llama-server: settings, model, kind of memory, build. Knows no request."""

from __future__ import annotations

import re
from typing import Any

from cachedoctor.engines.base import Event
from cachedoctor.model import Session, Setting

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
    {"load_model", "model_name", "build_line", "build_info", "new_slot", "kv_size", "listening", "kv_base"}
)

STARTUP = frozenset(_SETTINGS) | _OTHERS

RESTART_MARKS = frozenset({"load_model", "build_line", "build_info", "init_slots"})
"""A line of these after requests, or twice, opens a new session."""

# general.architecture -> kind of memory, where the name decides it
# (llama-arch.cpp, llama_model_is_recurrent and llama_model_is_hybrid)
_HYBRID = re.compile(
    r"qwen35|qwen3next|jamba|falcon-h1|granitehybrid|nemotron_h|plamo2|lfm2|bamba|kimi-linear|olmo-hybrid"
)
_RECURRENT = re.compile(r"^(mamba2?|rwkv\w*|arwkv7)$")


class Startup:
    """Collects start-up facts of one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._recurrent = self._attention = self._windowed = False

    def apply(self, event: Event) -> None:
        """Take what a start-up line says into the session."""
        session, fields = self.session, event.fields
        for name, source in _SETTINGS.get(event.message, ()):
            value: Any = fields.get(source) if isinstance(source, str) else source
            if value is not None:
                session.settings[name] = Setting(
                    {"true": True, "false": False}.get(value, value), event.line, event.text
                )
        if event.message == "pc_enabled" and "limit" in fields:
            session.settings["cache_ram_mib"] = Setting(-1, event.line)
        elif event.message == "load_model":
            session.model = re.split(r"[/\\]", fields["name"])[-1] or None
        elif event.message == "model_name" and session.model is None:
            session.model = fields["general.name"]
        elif event.message in ("build_line", "build_info"):
            self._build(fields)
        elif event.message == "init_slots":
            session.n_slots = fields["n_slots"]
            session.n_ctx_slot = fields.get("n_ctx_slot", session.n_ctx_slot)
        elif event.message == "new_slot":
            session.n_ctx_slot = fields.get("n_ctx_slot", fields.get("n_ctx"))
            session.n_slots = max(session.n_slots or 0, event.slot + 1)
        elif event.message == "idle_slots_disabled" and b"--cache-ram" in event.text:
            session.settings["cache_ram_mib"] = Setting(0, event.line)  # visible where the cache's own line is not
        self._memory(event)

    def _build(self, fields: dict[str, Any]) -> None:
        number = fields.get("build")
        if number is None:
            found = re.match(r"b(\d{1,9})(?!\d)", fields.get("build_info", ""))
            number = int(found.group(1)) if found else 0
        if number and self.session.build_source != "option":  # wrappers and distributions print 0
            self.session.build, self.session.build_source = number, "line"

    def _memory(self, event: Event) -> None:
        session, message = self.session, event.message
        if message == "kv_size":
            if b"llama_memory_recurrent" in event.text or b" R (" in event.text:
                self._recurrent = True
            else:
                self._attention = True
        elif (
            message == "kv_swa"
            or (message == "is_swa_any" and event.fields["is_swa_any"])
            or (message == "n_swa" and event.fields["n_swa"] > 0)
        ):
            self._windowed = True
        elif message == "model_arch":
            arch = event.fields["arch"]
            self._recurrent |= bool(_HYBRID.search(arch) or _RECURRENT.match(arch))
            self._attention |= bool(_HYBRID.search(arch))
        else:
            return
        if self._recurrent:
            session.memory = "hybrid" if self._attention else "recurrent"
        elif self._windowed:
            session.memory = "swa"
        elif self._attention:
            session.memory = "attention"
