"""Remedies that several rules give, true for the build of the session. Knows options; knows no cause."""

from __future__ import annotations

from cachedoctor.knowledge import flags
from cachedoctor.model import Remedy, Session


def span(session: Session) -> tuple[int | None, int | None]:
    """Oldest and newest build that the server may be."""
    if session.build is not None:
        return session.build, session.build
    return session.build_min, session.build_max


def show_text(session: Session) -> Remedy:
    """How to make this build show the text where two prompts part."""
    words, commands = flags.show_text(*span(session))
    return Remedy(f"To see the text that changed: {words}", commands)


def show_accounting(session: Session) -> tuple[str, str]:
    """Words and option that make this build log prompt length, reuse and checkpoints."""
    return flags.show_accounting(*span(session))


def option(session: Session, known: list[flags.Flag], value: str, what: str) -> Remedy:
    """Advise an option by the name that the user's build has."""
    low, high = span(session)
    name = flags.name_for(known, low, high)
    if name is not None:
        return Remedy(what, [f"llama-server ... {name} {value}".rstrip()])
    if high is not None and all(f.first is not None and high < f.first for f in known):
        return Remedy(f"{what} This build does not have the option: {flags.by_build(known)}. Update llama.cpp first.")
    return Remedy(
        f"{what} The name depends on the build: {flags.by_build(known)}.",
        [f"llama-server ... {known[-1].name} {value}".rstrip()],
    )


MORE_SLOTS = Remedy(
    "Give every conversation a slot of its own, 4 in this example. Without --kv-unified the context is divided by the number of slots, so raise -c "
    "with it; each slot costs KV memory.",
    ["llama-server ... -np 4 -c <4 x the context one conversation needs>"],
)


def cache_ram(session: Session, mib: int = 8192) -> Remedy:
    """Advise the RAM prompt cache with at least ``mib`` MiB."""
    return option(
        session,
        flags.CACHE_RAM,
        str(mib),
        f"Let prompts whose slot was taken wait in main memory: up to {mib:,} MiB of it, no VRAM.",
    )


def needs_text(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads the diverging text was not evaluated, or None when such text was logged or given."""
    if session.seen & {"diff_old", "diff_new"} or session.setting("prompts_given"):
        return None
    words, commands = flags.show_text(*span(session))
    return "the log shows no text of the prompts (no old: / new: lines)", "\n".join([words, *commands])


def needs_accounting(session: Session) -> tuple[str, str] | None:
    """Why a rule that needs prompt length and reuse lines was not evaluated, or None."""
    if session.seen & {"seq_rm", "new_prompt"}:
        return None
    words, command = show_accounting(session)
    return "prompt length, reuse and checkpoints are hidden at this level", f"{words}\n{command}" if command else words


def needs_prompts(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads the prompts themselves was not evaluated, or None when they were given."""
    if session.setting("prompts_given"):
        return None
    words = "give the client's request bodies, or dumps of the prompts, beside the log"
    return "the prompts themselves were not given", f"{words}\ncachedoctor analyze server.log --requests bodies.jsonl"
