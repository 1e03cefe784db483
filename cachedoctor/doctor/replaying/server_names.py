"""Settings of the replay under the names of the server's own options, checked for the build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.knowledge import builds, cmdline, server_options
from cachedoctor.knowledge.server_options import Option, Value, by_build, lacking, name_for
from cachedoctor.model import CacheDoctorError

FIELDS: dict[str, str] = {
    "parallel": "slots",
    "ctx_size": "context",
    "kv_unified": "kv_unified",
    "cache_ram": "cache_ram_mib",
    "cache_idle_slots": "cache_idle_slots",
    "ctx_checkpoints": "ctx_checkpoints",
    "checkpoint_every": "checkpoint_min_step",
    "checkpoint_min_step": "checkpoint_min_step",
    "swa_full": "swa_full",
    "slot_prompt_similarity": "slot_prompt_similarity",
    "cache_reuse": "cache_reuse",
    "batch": "batch",
    "ubatch": "ubatch",
}
"""Key of an option -> what the replay calls it."""
MODEL = ("memory", "window")
"""What no option sets: properties of the model, for request bodies without a log."""
_MEMORIES = ("attention", "swa", "hybrid", "recurrent")
_BOUNDS: dict[str, tuple[float, float]] = {
    "parallel": (-1, 256),
    "ctx_size": (1, 1 << 30),
    "cache_ram": (-1, 1 << 30),
    "ctx_checkpoints": (0, 1 << 16),
    "checkpoint_every": (-1, 1 << 30),
    "checkpoint_min_step": (0, 1 << 30),
    "slot_prompt_similarity": (0, 1),
    "cache_reuse": (0, 1 << 30),
    "batch": (1, 1 << 20),
    "ubatch": (1, 1 << 20),
}
_FRACTIONS = frozenset({"slot_prompt_similarity"})


def changed(base: ServerSettings, words: Sequence[str], *, model_open: bool = False) -> ServerSettings:
    """Give the settings that ``words``, each NAME=VALUE, make of ``base``.

    ``model_open``: memory and window of the model are not known, and may be said.

    Raises:
        CacheDoctorError: a name that nobody knows or that the build does not have, or no such value.
    """
    pairs = [_pair(word) for word in words]
    builds = [value for name, value in pairs if name == "build"]
    found = replace(base, build=_build(builds[-1])) if builds else base
    for name, value in pairs:
        if name == "build":
            continue
        field, read = _model(name, value, model_open) if name in MODEL else _option(name, value, found.build)
        found = replace(found, **{field: read})
    return found


def _pair(word: str) -> tuple[str, str | None]:
    name, equals, value = word.partition("=")
    return name.strip().lstrip("-").replace("_", "-"), value.strip() if equals else None


def _build(value: str | None) -> int:
    number = builds.number(value or "")
    if number is None:
        what = "the build of that release is unknown" if builds.is_release(value or "") else "not a build of llama.cpp"
        raise CacheDoctorError(f"build={value or ''}: {what}", "give the build's number: build=9713")
    return number


def _model(name: str, value: str | None, is_open: bool) -> tuple[str, Any]:
    if not is_open:
        raise CacheDoctorError(
            f"{name}: this value depends on the model and is already in the log", "remove the option"
        )
    if name == "memory":
        if value not in _MEMORIES:
            raise CacheDoctorError(
                f"memory={value or ''}: not a kind of memory", f"choose one of {', '.join(_MEMORIES)}"
            )
        return name, value
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 9:
        raise CacheDoctorError(f"window={value or ''}: not a number of tokens", "e.g. window=1024")
    return name, int(value)


def _option(name: str, value: str | None, build: int) -> tuple[str, Any]:
    written = next((text for text in (f"--{name}", f"-{name}") if text in server_options.BY_NAME), None)
    if written is None:
        known = ", ".join(sorted({_name(server_options.BY_KEY[key]) for key in FIELDS}))
        raise CacheDoctorError(f"{name}: not a known option of llama-server", f"known options are build, {known}")
    option, spelt, on = server_options.BY_NAME[written]
    if option.key not in FIELDS:
        raise CacheDoctorError(f"{name}: the replay does not support this option", "remove the option")
    if spelt.exists(build, build) is False:
        other = None if lacking(option, build, build) else name_for(option, build, build)
        hint = (
            f"the name of the option in build b{build} is {other}"
            if other
            else f"the option exists as {by_build(option)}"
        )
        raise CacheDoctorError(f"{name}: b{build} has no {written}", hint)
    read = _value(option, value, on)
    if read is None:
        kind = "on or off" if option.kind == "switch" else "a number" + _between(option)
        raise CacheDoctorError(f"{name}={value or ''}: is not {kind}", _example(option))
    return FIELDS[option.key], None if option.key == "parallel" and read == -1 else read


def _value(option: Option, value: str | None, on: bool) -> Value:
    if option.kind == "switch":
        if value is None:
            return on
        read = cmdline.read_value(option, value)
        return None if read is None else bool(read) == on
    read = None if value is None else cmdline.read_value(option, value)
    if read is None or isinstance(read, str):
        return None
    low, high = _BOUNDS[option.key]
    if not low <= read <= high or (option.key == "parallel" and read == 0):
        return None
    return read if isinstance(read, int) or option.key in _FRACTIONS else None


def _between(option: Option) -> str:
    low, high = _BOUNDS[option.key]
    return f" from {low:,.0f} to {high:,.0f}"


def _example(option: Option) -> str:
    if option.kind == "switch":
        return f"e.g. {_name(option)}=on"
    examples = {"slot_prompt_similarity": "0.1", "parallel": "4", "checkpoint_min_step": "256", "ctx_checkpoints": "32"}
    return f"e.g. {_name(option)}={examples.get(option.key, '8192')}"


def _name(option: Option) -> str:
    return option.names[0].text.lstrip("-")


def listed(settings: ServerSettings) -> dict[str, int | float | bool | str]:
    """Give what settings are when the build has put its defaults in, by the names of its options."""
    whole = settings.resolved()
    found: dict[str, int | float | bool | str] = {"build": whole.build, "memory": whole.memory}
    if whole.memory == "swa":
        found["window"] = whole.window
    for key, field in FIELDS.items():
        option = server_options.BY_KEY[key]
        if not lacking(option, whole.build, whole.build):
            name = name_for(option, whole.build, whole.build) or option.names[0].text
            found[name.lstrip("-")] = getattr(whole, field)
    return found


def command_line(base: ServerSettings, wanted: ServerSettings) -> str:
    """Give the options in which ``wanted`` differs from ``base``, as the build of ``wanted`` spells them.

    A number of slots that is given takes back the memory that all slots share where the build chose it: it is said
    again.
    """
    build = wanted.build
    words = [f"(build b{build})"] if build != base.build else []
    more_slots = wanted.slots != base.slots
    for key, field in FIELDS.items():
        option, value = server_options.BY_KEY[key], getattr(wanted, field)
        repeated = key == "kv_unified" and more_slots and value
        if (value == getattr(base, field) and not repeated) or lacking(option, build, build):
            continue
        name = name_for(option, build, build, off=value is False)
        if name is not None:
            words.append(name if isinstance(value, bool) else f"{name} {-1 if value is None else value}")
    return " ".join(words)
