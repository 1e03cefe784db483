"""A vLLM or SGLang as far as the replay knows it, and its settings under the names of the server's own options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from cachedoctor.knowledge.engines import title
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.session import release

_MOST = 1 << 40


class BlockSetup(msgspec.Struct, frozen=True):
    """A server whose cache is made of blocks (vLLM) or pages (SGLang)."""

    engine: str
    version: str | None
    block: int
    """Tokens of a block, or of a page."""
    tokens: int | None
    """Tokens that the cache holds; None if nothing shows it: room for everything."""
    caching: bool = True
    blocks_given: int | None = None
    """Blocks that the command line asks for (--num-gpu-blocks-override): with another size they hold other tokens."""


class _Option(NamedTuple):
    """An option of the server that the replay knows."""

    name: str
    """Name without its dashes."""
    read: Callable[[str | None], int | bool | None]
    """Value of what was typed; None if it is not valid."""
    value: Callable[[BlockSetup], int | bool | None]
    """Value in a setup; None if it is not known."""
    apply: Callable[[BlockSetup, Any], BlockSetup]
    since: str = "0"
    """First version that has it."""
    listed: bool = True


def _number(text: str | None) -> int | None:
    plain = (text or "").replace("_", "")
    if not plain.isascii() or not plain.isdigit() or len(plain) > 13:
        return None
    return int(plain) if 0 < int(plain) <= _MOST else None


def _switch(text: str | None) -> bool | None:
    return {None: True, "on": True, "true": True, "1": True, "off": False, "false": False, "0": False}.get(
        text if text is None else text.lower()
    )


def _blocks(setup: BlockSetup, number: int) -> BlockSetup:
    return replace(setup, tokens=number * setup.block, blocks_given=number)


def _block(setup: BlockSetup, size: int) -> BlockSetup:
    """Another size in the same memory; blocks that were asked for by their number then hold other tokens."""
    tokens = setup.tokens if setup.blocks_given is None else setup.blocks_given * size
    return replace(setup, block=size, tokens=tokens)


_VLLM = (
    _Option("block-size", _number, lambda one: one.block, _block),
    _Option(
        "num-gpu-blocks-override", _number, lambda one: None if one.tokens is None else one.tokens // one.block, _blocks
    ),
    _Option("enable-prefix-caching", _switch, lambda one: one.caching, lambda one, on: replace(one, caching=on)),
    _Option(
        "no-enable-prefix-caching", _switch, lambda one: not one.caching, lambda one, on: replace(one, caching=not on),
        listed=False,
    ),
)  # fmt: skip
_SGLANG = (
    # 0.4.3 has no such option, 0.4.5 has it (server_args.py).
    _Option("page-size", _number, lambda one: one.block, _block, since="0.4.5"),
    _Option("max-total-tokens", _number, lambda one: one.tokens, lambda one, number: replace(one, tokens=number)),
    _Option(
        "disable-radix-cache", _switch, lambda one: not one.caching, lambda one, on: replace(one, caching=not on)
    ),
)  # fmt: skip
OPTIONS: dict[str, tuple[_Option, ...]] = {"vllm": _VLLM, "sglang": _SGLANG}
"""In the order in which they are applied: a number of blocks refers to the block size set by then."""
_BYTES: dict[str, tuple[str, ...]] = {
    "vllm": ("gpu-memory-utilization", "kv-cache-memory-bytes", "kv-cache-dtype"),
    "sglang": ("mem-fraction-static", "kv-cache-dtype"),
}
"""Options that set the cache size as memory: no line shows the size in tokens."""


def changed(base: BlockSetup, words: Sequence[str]) -> BlockSetup:
    """Give the setup that ``words``, each NAME=VALUE, make of ``base``.

    Raises:
        CacheDoctorError: a name that the engine or its version does not have, or no such value.
    """
    given = dict(_read(base, word) for word in words)
    found = base
    for option in OPTIONS[base.engine]:
        if option.name in given:
            found = option.apply(found, given[option.name])
    return found


def _read(base: BlockSetup, word: str) -> tuple[str, int | bool]:
    name, equals, text = word.partition("=")
    name = name.strip().lstrip("-").replace("_", "-")
    option = next((one for one in OPTIONS[base.engine] if one.name == name), None)
    if option is None:
        raise _unknown(base, name)
    if base.version is not None and release(base.version) < release(option.since):
        raise CacheDoctorError(
            f"{name}: {title(base.engine)} {base.version} has no --{name}",
            f"this option is available from {option.since} on",
        )
    value = option.read(text.strip() if equals else None)
    if value is None:
        kind, example = ("on or off", "on") if option.read is _switch else ("a number above 0", "4096")
        raise CacheDoctorError(f"{name}={text.strip()}: is not {kind}", f"e.g. {name}={example}")
    return name, value


def _unknown(base: BlockSetup, name: str) -> CacheDoctorError:
    known = ", ".join(one.name for one in OPTIONS[base.engine])
    if name in _BYTES[base.engine]:
        size = OPTIONS[base.engine][1].name
        return CacheDoctorError(
            f"{name}: the log does not show how many tokens fit into this size", f"give the number of tokens: {size}=N"
        )
    return CacheDoctorError(
        f"{name}: not an option of {title(base.engine)} that the replay supports", f"the replay supports {known}"
    )


def listed(setup: BlockSetup) -> dict[str, int | float | bool | str]:
    """Give what a setup is by the names of the server's options."""
    found: dict[str, int | float | bool | str] = {"version": setup.version or "unknown"}
    for option in OPTIONS[setup.engine]:
        value = option.value(setup)
        if option.listed:
            found[option.name] = "unknown" if value is None else value
    return found


def command_line(base: BlockSetup, wanted: BlockSetup) -> str:
    """Give the options in which ``wanted`` differs from ``base``, as the server spells them."""
    words = []
    for option in OPTIONS[base.engine]:
        value, old = option.value(wanted), option.value(base)
        again = option.name == "num-gpu-blocks-override" and wanted.blocks_given and wanted.block != base.block
        if not option.listed or value is None or (value == old and not again):
            continue
        if isinstance(value, bool):
            words += [f"--{option.name}" if value else _off(option.name)]
        elif option.name != "num-gpu-blocks-override" or wanted.blocks_given is not None:
            words += [f"--{option.name} {value}"]
    return " ".join(words)


def _off(name: str) -> str:
    """How a switch that is on by the command line is turned off: --disable-... has no opposite."""
    return f"(without --{name})" if name.startswith("disable-") else f"--no-{name}"
