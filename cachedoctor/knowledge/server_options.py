"""Options of llama-server: names, variables, builds, defaults, and how to look one up for a build."""

from __future__ import annotations

from typing import Literal

import msgspec

from cachedoctor.knowledge import builds

Value = bool | int | float | str | None


class Name(msgspec.Struct, frozen=True):
    """A name and the sampled builds between which it was seen; None is open-ended."""

    text: str
    first: int | None = None
    last: int | None = None

    def exists(self, low: int | None, high: int | None) -> bool | None:
        """Whether the builds from ``low`` to ``high`` have it: all, none, or None if that is open.

        Between the last sample without a name and the first one with it nothing is known.
        """
        if self.first is not None and high is not None and high < (builds.oldest(self.first) or 0):
            return False
        gone = None if self.last is None else builds.newest(self.last)
        if gone is not None and low is not None and low > gone:
            return False
        begun = self.first is None or (low is not None and low >= self.first)
        kept = self.last is None or (high is not None and high <= self.last)
        return True if begun and kept else None

    @property
    def when(self) -> str:
        """Words for the builds that have it."""
        if self.first is None:
            return "every build" if self.last is None else f"b{self.last} and older"
        if self.last is None:
            return f"b{self.first} and newer"
        return f"b{self.first}" if self.first == self.last else f"b{self.first} to b{self.last}"


class Option(msgspec.Struct, frozen=True):
    """An option with all its names."""

    key: str
    names: tuple[Name, ...]
    """Spellings on the command line, the preferred one first; those that switch off are in ``off``."""
    kind: Literal["switch", "number", "text"] = "switch"
    off: tuple[Name, ...] = ()
    env: tuple[Name, ...] = ()
    defaults: tuple[tuple[int | None, Value], ...] = ()
    """(first build, value) in the order of builds; a value of None is one that is not known or decided elsewhere."""

    def default_at(self, low: int | None, high: int | None) -> Value:
        """Return the default of all builds from ``low`` to ``high``; None when they differ or it is not known."""
        found: set[Value] = set()
        for at, (first, value) in enumerate(self.defaults):
            then = self.defaults[at + 1][0] if at + 1 < len(self.defaults) else None
            begins = None if first is None else builds.oldest(first)
            if high is not None and begins is not None and high < begins:
                continue
            if low is not None and then is not None and low >= then:
                continue
            found.add(value)
            if first is not None and (low is None or low < first) and at == 0:
                found.add(None)  # the range begins before the option does
        return found.pop() if len(found) == 1 else None


def name_for(option: Option, low: int | None, high: int | None, *, off: bool = False) -> str | None:
    """Return the name that all builds from ``low`` to ``high`` have, or None; ``off``: of the switch-off."""
    return next((n.text for n in (option.off if off else option.names) if n.exists(low, high)), None)


def lacking(option: Option, low: int | None, high: int | None, *, off: bool = False) -> bool:
    """Whether no build from ``low`` to ``high`` has the option (``off``: its switch-off) under any name."""
    return all(name.exists(low, high) is False for name in (option.off if off else option.names))


def by_build(option: Option, *, off: bool = False) -> str:
    """Words for the names of an option with the builds of each; one-dash aliases are left out."""
    names = option.off if off else option.names
    long = [name for name in names if name.text.startswith("--")] or names
    return " or ".join(f"{name.text} ({name.when})" for name in long)


def _names(first: int | None, *texts: str, last: int | None = None) -> tuple[Name, ...]:
    return tuple(Name(text, first, last) for text in texts)


def _log(key: str, *names: Name, kind: str = "text", env: str, env_first: int | None = None) -> Option:
    """Return a log option, whose variable LLAMA_LOG_X became LLAMA_ARG_LOG_X between b9294 and b9538."""
    old, new = Name(f"LLAMA_LOG_{env}", env_first, 9294), Name(f"LLAMA_ARG_LOG_{env}", 9538)
    return Option(key, names, "number" if kind == "number" else "text", env=(new, old))


# ---- what is reused

CACHE_PROMPT = Option(
    "cache_prompt", _names(7827, "--cache-prompt"), off=_names(7827, "--no-cache-prompt"),
    env=_names(7827, "LLAMA_ARG_CACHE_PROMPT"), defaults=((None, True),),
)  # fmt: skip
"""Before it there was only the request field, with the same default."""
CACHE_REUSE = Option(
    "cache_reuse", _names(None, "--cache-reuse"), "number", env=_names(None, "LLAMA_ARG_CACHE_REUSE"),
    defaults=((None, 0),),
)  # fmt: skip
SIMILARITY = Option(
    "slot_prompt_similarity", _names(None, "--slot-prompt-similarity", "-sps"), "number",
    defaults=((None, 0.5), (6628, 0.1)),
)  # fmt: skip
"""PR #15913; 0 switches the choice by similarity off."""

# ---- the RAM prompt cache

CACHE_RAM = Option(
    "cache_ram", _names(6751, "--cache-ram", "-cram"), "number", env=_names(6751, "LLAMA_ARG_CACHE_RAM"),
    defaults=((6751, 8192),),
)  # fmt: skip
"""MiB; -1 no limit, 0 off. PR #16391."""
CACHE_IDLE_SLOTS = Option(
    "cache_idle_slots", (Name("--cache-idle-slots", 8929), Name("--clear-idle", 8672, 8672)),
    off=(Name("--no-cache-idle-slots", 8929), Name("--no-clear-idle", 8672, 8672)),
    env=(Name("LLAMA_ARG_CACHE_IDLE_SLOTS", 8929), Name("LLAMA_ARG_CLEAR_IDLE", 8672, 8672)),
    defaults=((8672, True),),
)  # fmt: skip
"""PR #20993. Needs --cache-ram, and up to b9538 --kv-unified as well."""

# ---- checkpoints

CTX_CHECKPOINTS = Option(
    "ctx_checkpoints", (Name("--ctx-checkpoints", 6751), Name("--swa-checkpoints", 6180), Name("-ctxcp", 8352)),
    "number", env=(Name("LLAMA_ARG_CTX_CHECKPOINTS", 6751), Name("LLAMA_ARG_SWA_CHECKPOINTS", 6180, 6628)),
    defaults=((6180, 3), (6751, 8), (8352, 32)),
)  # fmt: skip
"""Per slot. PR #15293, #16382 (the old name stayed as an alias), #20087."""
CHECKPOINT_EVERY = Option(
    "checkpoint_every", _names(8352, "--checkpoint-every-n-tokens", "-cpent", last=9294), "number",
    env=_names(8352, "LLAMA_ARG_CHECKPOINT_EVERY_NT", last=9294), defaults=((8352, 8192),),
)  # fmt: skip
"""PR #20087; removed by PR #22929, between b9294 and b9538."""
CHECKPOINT_MIN_STEP = Option(
    "checkpoint_min_step", _names(9538, "--checkpoint-min-step", "-cms"), "number",
    env=_names(9538, "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"), defaults=((9538, 256), (9873, 8192)),
)  # fmt: skip
"""Least distance in tokens, 0 for none: larger means fewer. PR #22929; the variable is called so."""
SWA_FULL = Option(
    "swa_full", _names(5456, "--swa-full"), env=_names(5456, "LLAMA_ARG_SWA_FULL"), defaults=((5456, False),)
)

# ---- slots and context

PARALLEL = Option(
    "parallel", _names(None, "--parallel", "-np"), "number", env=_names(None, "LLAMA_ARG_N_PARALLEL"),
    defaults=((None, 1), (7551, -1)),
)  # fmt: skip
"""-1 means 4 slots with unified KV; b7079 to b7376 treat 1 without -kvu the same way."""
CTX_SIZE = Option(
    "ctx_size", _names(None, "--ctx-size", "-c"), "number", env=_names(None, "LLAMA_ARG_CTX_SIZE"),
    defaults=((None, 4096), (7551, None), (7710, 0)),
)  # fmt: skip
"""Tokens; 0 is what the model was trained with."""
KV_UNIFIED = Option(
    "kv_unified", _names(5937, "--kv-unified", "-kvu"), off=_names(7964, "--no-kv-unified", "-no-kvu"),
    env=(Name("LLAMA_ARG_KV_UNIFIED", 7376), Name("LLAMA_ARG_KV_SPLIT", 5937, 7079)), defaults=((5937, False),),
)  # fmt: skip
"""Forced on if the server chooses the number of slots (b7079 and newer)."""
KV_UNIFIED_PER_SLOT = Option(
    "kv_unified_per_slot", _names(10809, "--kv-unified-per-slot"), "number",
    env=_names(10809, "LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
)  # fmt: skip
CONTEXT_SHIFT = Option(
    "context_shift", _names(6301, "--context-shift"), off=_names(None, "--no-context-shift"),
    env=(Name("LLAMA_ARG_CONTEXT_SHIFT", 6301), Name("LLAMA_ARG_NO_CONTEXT_SHIFT", None, 7079)),
    defaults=((None, True), (6301, False)),
)  # fmt: skip
KEEP = Option("keep", _names(None, "--keep"), "number", defaults=((None, 0),))
BATCH = Option(
    "batch", _names(None, "--batch-size", "-b"), "number", env=_names(None, "LLAMA_ARG_BATCH"), defaults=((None, 2048),)
)
UBATCH = Option(
    "ubatch", _names(None, "--ubatch-size", "-ub"), "number", env=_names(None, "LLAMA_ARG_UBATCH"),
    defaults=((None, 512),),
)  # fmt: skip
CACHE_TYPE_K = Option(
    "cache_type_k", _names(None, "--cache-type-k", "-ctk"), "text", env=_names(None, "LLAMA_ARG_CACHE_TYPE_K"),
    defaults=((None, "f16"),),
)  # fmt: skip
CACHE_TYPE_V = Option(
    "cache_type_v", _names(None, "--cache-type-v", "-ctv"), "text", env=_names(None, "LLAMA_ARG_CACHE_TYPE_V"),
    defaults=((None, "f16"),),
)  # fmt: skip
SLOT_SAVE_PATH = Option(
    "slot_save_path", _names(None, "--slot-save-path"), "text", env=_names(11549, "LLAMA_ARG_SLOT_SAVE_PATH")
)
SLEEP = Option(
    "sleep_idle_seconds", _names(7551, "--sleep-idle-seconds"), "number", defaults=((7551, -1),)
)  # sleeping destroys the context, and every cache with it

# ---- the model and its template

MMPROJ = Option(
    "mmproj", (Name("--mmproj"), Name("-mm", 7376)), "text", off=_names(None, "--no-mmproj"),
    env=_names(5353, "LLAMA_ARG_MMPROJ"),
)  # fmt: skip
JINJA = Option(
    "jinja", _names(None, "--jinja"), env=_names(None, "LLAMA_ARG_JINJA"), defaults=((None, False), (7376, True))
)
REASONING = Option(
    "reasoning_preserve", _names(9873, "--reasoning-preserve"), off=_names(9873, "--no-reasoning-preserve"),
    env=_names(9873, "LLAMA_ARG_REASONING_PRESERVE"), defaults=((9873, None), (10809, True)),
)  # fmt: skip
"""PR #25105; on by default since PR #28174, before that the template decided."""
TEMPLATE_KWARGS = Option(
    "chat_template_kwargs", _names(5833, "--chat-template-kwargs"), "text",
    env=(Name("LLAMA_ARG_CHAT_TEMPLATE_KWARGS", 9538), Name("LLAMA_CHAT_TEMPLATE_KWARGS", 5833, 9294)),
)  # fmt: skip

# ---- what can be seen

SLOTS = Option(
    "slots", _names(None, "--slots"), off=_names(None, "--no-slots"),
    env=(Name("LLAMA_ARG_ENDPOINT_SLOTS"), Name("LLAMA_ARG_NO_ENDPOINT_SLOTS", None, 7079)),
    defaults=((None, False), (6628, True)),
)  # fmt: skip
METRICS = Option("metrics", _names(None, "--metrics"), env=_names(None, "LLAMA_ARG_ENDPOINT_METRICS"))
VERBOSITY = _log("verbosity", *_names(None, "--verbosity", "-lv"), kind="number", env="VERBOSITY")
"""b7376 to b9093: 3 is the default, 4 is debug; b9294 and newer: 4 is trace, 5 is debug."""
LOG_FILE = _log("log_file", Name("--log-file"), env="FILE", env_first=7376)
LOG_COLORS = _log("log_colors", Name("--log-colors"), env="COLORS")
"""A switch without a value up to b6301."""
LOG_JSONL = Option("log_jsonl", _names(11063, "--log-jsonl"), env=_names(11063, "LLAMA_ARG_LOG_JSONL"))
LOG_PROMPTS_DIR = Option("log_prompts_dir", _names(9713, "--log-prompts-dir"), "text")
"""One text file per rendered prompt."""
SLOTS_DEBUG = Option("slots_debug", (), "number", env=_names(6751, "LLAMA_SERVER_SLOTS_DEBUG"))
"""PR #16482. From b6900 on it also prints the text at which two prompts diverge."""
SLOTS_N_DIFF = Option(
    "slots_n_diff", (), "number", env=_names(10809, "LLAMA_SERVER_SLOTS_N_DIFF"), defaults=((10809, 0),)
)
"""Tokens of text shown on each side of that place."""

TABLE: tuple[Option, ...] = (
    CACHE_PROMPT, CACHE_REUSE, SIMILARITY, CACHE_RAM, CACHE_IDLE_SLOTS, CTX_CHECKPOINTS, CHECKPOINT_EVERY,
    CHECKPOINT_MIN_STEP, SWA_FULL, PARALLEL, CTX_SIZE, KV_UNIFIED, KV_UNIFIED_PER_SLOT, CONTEXT_SHIFT, KEEP, BATCH,
    UBATCH, CACHE_TYPE_K, CACHE_TYPE_V, SLOT_SAVE_PATH, SLEEP, MMPROJ, JINJA, REASONING, TEMPLATE_KWARGS, SLOTS,
    METRICS, VERBOSITY, LOG_FILE, LOG_COLORS, LOG_JSONL, LOG_PROMPTS_DIR, SLOTS_DEBUG, SLOTS_N_DIFF,
)  # fmt: skip

BY_KEY = {option.key: option for option in TABLE}
BY_NAME: dict[str, tuple[Option, Name, bool]] = {
    name.text: (option, name, on)
    for option in TABLE
    for names, on in ((option.names, True), (option.off, False), (option.env, True))
    for name in names
}
"""Every spelling, on the command line and in the environment: its option, the builds, whether it switches on."""


def plain(written: str) -> str:
    """Return the spelling of the table: after two dashes the server takes ``_`` for ``-``."""
    return written.replace("_", "-") if written.startswith("--") else written


def entry(written: str) -> tuple[Option, Name, bool]:
    """Option and name of a spelling, and whether it switches on.

    Raises:
        KeyError: it is not in the table.
    """
    return BY_NAME[plain(written)]


NEVER = {
    "--checkpoint-every-nb": (
        CHECKPOINT_EVERY,
        "its value is a number of tokens (default 8192), not a number of batches as in the draft of the pull request",
    )
}
"""Option names from drafts of pull requests that no build ever had, the intended option (PR #20087), and other
differences."""

INSTEAD = {
    "checkpoint_every": "llama-server places checkpoints at user messages automatically; --checkpoint-min-step "
    "N is their minimum distance in tokens, so a smaller N means more checkpoints",
}
"""What took the place of a removed option that has no other name, for the builds after it."""

READ_BOTH_WAYS = 7376
"""From here on a switch and its negation are one option; an off value of its variable is respected, too. Before, an off
value of the variable had no effect."""

UNREAD_ENV = {"LLAMA_ARG_KV_SPLIT", "LLAMA_ARG_NO_CONTEXT_SHIFT", "LLAMA_ARG_NO_ENDPOINT_SLOTS"}
"""Variables whose value inverts their option, or whose meaning is uncertain: their value is not read."""
