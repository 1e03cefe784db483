"""The settings that a llama-server ran with, as its log and its command line say them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cachedoctor.diagnosis.replay.llamacpp.server_settings import Memory, Settings
from cachedoctor.knowledge.builds import NEWEST
from cachedoctor.model import Request, Server, Session
from cachedoctor.model.terms import SettingName

_MIB = 1 << 20
_LONG = 1024
"""Tokens of a prompt for which every build with checkpoints makes one, where the memory needs them."""

_SAID: tuple[SettingName, ...] = (
    "cache_ram_mib",
    "ctx_checkpoints",
    "checkpoint_min_step",
    "cache_idle_slots",
    "kv_unified",
)


class Recorded(NamedTuple):
    """Settings for the replay."""

    settings: Settings
    assumed: tuple[str, ...]
    """Fields of them that nothing says: the replay takes the default of the build, of ``build`` the newest that may be
    and of ``memory`` attention."""


def recorded(facts: Server, requests: Sequence[Request] = ()) -> Recorded:
    """Give the settings of a run, and which of them are assumed; with a session and its requests, sizes as well."""
    said: dict[str, Any] = {name: facts.setting(name) for name in _SAID if facts.setting(name) is not None}
    if facts.setting("cache_ram_mib") is None and facts.setting("ram_evictions") is None and _ram_off(facts):
        said["cache_ram_mib"] = 0
    if "ctx_checkpoints" not in said and requests and _no_checkpoints(requests):
        said["ctx_checkpoints"] = 0
    assumed: list[str] = [name for name in _SAID if name not in said]
    build = facts.build
    if build is None:
        assumed.append("build")
        build = NEWEST if facts.build_max is None else facts.build_max
    window = facts.window or facts.setting("n_swa") or 0
    memory = facts.memory
    if memory is None and "rewinding" in facts.shows:
        memory = "swa" if window > 1 else "hybrid"
    if memory is None:
        assumed.append("memory")
    sizes = _sizes(facts, requests, memory)
    slots = facts.n_slots
    if facts.n_slots is None:
        assumed.append("slots")
    return Recorded(
        Settings(
            build=build,
            memory=memory or "attention",
            window=window,
            slots=slots,
            context=_context(facts),
            swa_full=facts.setting("swa_full") is True,
            batch=facts.setting("n_batch") or 2048,
            ubatch=facts.setting("n_ubatch") or 512,
            projector=facts.setting("mmproj") is True,
            token_bytes=sizes.token,
            state_bytes=sizes.state,
            checkpoint_bytes=sizes.checkpoint,
            **said,
        ),
        tuple(assumed),
    )


class _Sizes(NamedTuple):
    """Bytes of a saved state."""

    token: float = 0.0
    state: float = 0.0
    checkpoint: float = 0.0


def _sizes(facts: Server, requests: Sequence[Request], memory: Memory | None) -> _Sizes:
    """What the largest saved state and the largest checkpoint say; zeros where no size is printed.

    The part of a state with recurrent memory that has no length is what a checkpoint holds.
    """
    if not isinstance(facts, Session) or not facts.sizes.entry:
        return _Sizes()
    if facts.sizes.state and facts.sizes.state_tokens:
        checkpoint = (facts.sizes.checkpoint or 0.0) * _MIB
        state = checkpoint if memory in ("hybrid", "recurrent") else 0.0
        return _Sizes(max(0.0, facts.sizes.state * _MIB - state) / facts.sizes.state_tokens, state, checkpoint)
    longest = max(requests, key=lambda one: one.seen.choice.saved or 0, default=None)
    tokens = 0 if longest is None else longest.seen.choice.saved
    if longest is None or not tokens:
        tokens, held = max((one.seen.released_tokens or 0 for one in requests), default=0), 0
    else:
        held = longest.seen.held_checkpoints or 0
    checkpoint = (facts.sizes.checkpoint or 0.0) * _MIB
    state = checkpoint if memory in ("hybrid", "recurrent") else 0.0
    rest = facts.sizes.entry * _MIB - state - held * checkpoint
    return _Sizes(max(0.0, rest) / tokens, state, checkpoint) if tokens else _Sizes()


def _no_checkpoints(requests: Sequence[Request]) -> bool:
    """None was made for any prompt, though lines would say so."""
    long = [one.created for one in requests if (one.processed_tokens or 0) >= _LONG]
    return "rewinding" in requests[-1].facts.shows and bool(long) and all(made == 0 for made in long)


def _ram_off(facts: Server) -> bool:
    """Lines about the RAM cache would have been printed, and were not."""
    return "accounting" in facts.shows and "ram_cache" not in facts.shows and facts.several


def _context(facts: Server) -> int:
    whole: int | None = facts.setting("n_ctx")
    if whole is not None:
        return whole
    each = facts.n_ctx_slot or 1 << 20
    return each if facts.setting("kv_unified") else each * (facts.n_slots or 1)
