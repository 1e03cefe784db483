"""Remedies that several rules give, valid for the build of the session and sized by its log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from cachedoctor.knowledge import clients, cmdline, log_levels, server_options
from cachedoctor.knowledge.server_options import Option, by_build, lacking, name_for
from cachedoctor.model import Advice, OptionChange, Remedy, Session, as_typed, option_rows

_STEP = 256
"""MiB to whose multiples a size is rounded up: sizes of saved states are estimates for the next conversation."""


_TAKES_MEMORY = (server_options.CACHE_RAM, server_options.CTX_CHECKPOINTS, server_options.SWA_FULL)
"""Options that take more memory when they are set."""


def span(session: Session) -> tuple[int | None, int | None]:
    """Oldest and newest build that the server may have."""
    if session.build is not None:
        return session.build, session.build
    return session.build_min, session.build_max


def update(session: Session, what: str, commands: Sequence[str] = ()) -> Remedy:
    """Advise a newer build, for the reason ``what``.

    A fork has builds of its own; llama.cpp's builds are only a hint for it.
    """
    if session.program is None:
        return Remedy(f"Update llama.cpp: {what}", list(commands))
    return Remedy(f"Update {session.program}, which has its own builds. In llama.cpp: {what}")


def option(
    session: Session, known: Option, value: str, what: str, *, off: bool = False, also: Sequence[OptionChange] = ()
) -> Remedy:
    """Advise an option by the name that the user's build has.

    Args:
        session: the server.
        known: the option.
        value: as it is typed; empty for a switch.
        what: the reason.
        off: advise the name that switches it off.
        also: further options that it needs.
    """
    if known in _TAKES_MEMORY and not off and (short := memory_short(session, known.names[0].text)):
        return short
    low, high = span(session)
    names = known.off if off else known.names
    name = name_for(known, low, high, off=off)
    if name is None and session.program is None and lacking(known, low, high, off=off):
        return Remedy(f"{what} This build does not have the option. Use a build that has {by_build(known, off=off)}.")
    changes = [OptionChange(name or names[0].text, value or None), *also]
    if session.program is not None:
        what = f"{what} {session.program} has its own options; its --help shows the name of this option."
    elif name is None:
        what = f"{what} The name depends on the build: {by_build(known, off=off)}."
    return Remedy(what, options=changes)


def client(handle: str, what: str = "", *, sure: bool = True) -> Remedy:
    """Advise how to stop a habit of a client, by its row in the table: ``claude-code/billing-header``.

    Args:
        handle: of the habit.
        what: the reason, instead of the words of the table.
        sure: this client certainly has the habit.
    """
    known = clients.known(handle)
    purpose: Literal["fix", "depends"] = "fix" if sure else "depends"
    return Remedy(what or known.habit.stop, known.habit.commands, settings=known.settings, purpose=purpose)


def billing_header() -> Remedy:
    """Advise how to turn off Claude Code's header; created on demand, because it reads the table of clients."""
    return client("claude-code/billing-header", "With Claude Code, first rule out its billing header.", sure=False)


def of_difference(known: Advice) -> Remedy:
    """Return the advice on a difference of two prompts as a remedy, with settings if a client is known for it."""
    return Remedy(known.text, known.commands, settings=clients.settings_by_commands(known.commands))


def side_requests() -> Remedy:
    """Advise the settings of clients that send titles and summaries elsewhere."""
    settings = clients.ways_to_stop("side-requests")
    return Remedy(f"Or let the client send them to a separate small model ({settings}), or switch them off.")


# ---- sizes


def memory_short(session: Session, what: str = "") -> Remedy | None:
    """Advise memory instead of a higher limit if the system ended a server of this input for lack of memory.

    Args:
        session: the server.
        what: the limit that would otherwise be raised; empty if the advice would not be a limit.
    """
    killed = session.incidents.get("killed") or session.incidents.get("memory_short")
    if killed is None:
        return None
    line = killed.mark.line
    why = f"the system killed a server because memory ran out (line {line})"
    if b"code 137" in killed.mark.text:
        why = f"a server was killed (line {line}), most likely because memory ran out"
    said = f"Do not raise {what}: {why}. Free" if what else f"{why[0].upper()}{why[1:]}. Free"
    return Remedy(
        f"{said} memory first: a smaller model or context, fewer slots, or fewer programs on this machine.",
        purpose="look",
    )


def more_slots(session: Session, wanted: int = 0) -> Remedy:
    """Advise as many slots as conversations were in use at once.

    Args:
        wanted: conversations if the log does not show how many were in use at once; 0 if that is unknown, too.
    """
    if short := memory_short(session, "the number of slots"):
        return short
    seen, has = session.at_once if session.at_once > 1 else wanted, session.n_slots or 1
    if 1 < seen <= has and session.at_least(6628) is True:
        return option(
            session,
            server_options.SIMILARITY,
            "0.5",
            f"Raise the similarity that a prompt needs to take a slot: {has} slots are enough for the {seen} conversations here, but one conversation got the slot of another conversation that starts the same way. "
            "A prompt below this similarity then takes the least recently used slot.",
        )
    count = max(seen, has + 1) if seen else max(4, has + 1)
    why = f"{count} slots here" if seen else f"{count} as an example"
    return slots(session, count, f"Give every conversation its own slot ({why}).")


def slots(session: Session, count: int, what: str) -> Remedy:
    """Advise ``count`` slots for the reason ``what``, with the context that they need together."""
    if short := memory_short(session, "the number of slots"):
        return short
    changes, cost = slot_options(session, count)
    return Remedy(f"{what} {cost}", options=changes)


def slot_options(session: Session, count: int) -> tuple[list[OptionChange], str]:
    """Options for ``count`` slots with the context that they need together, and a sentence on their cost.

    None if the log does not show the size of the context: more slots alone would divide it further.
    """
    each = session.n_ctx_slot
    if session.setting("kv_unified") is True:
        # A number of slots ends the sharing that the server chooses where none is given.
        keep = name_for(server_options.KV_UNIFIED, *span(session)) or "--kv-unified"
        changes = [*as_typed(f"--parallel {count}"), OptionChange(keep)]
        return changes, "The slots share the context (unified KV), so raise --ctx-size if the context gets full."
    if session.launcher in cmdline.FIXED_LOG:
        name, size = cmdline.FIXED_LOG[session.launcher], cmdline.LM_STUDIO["ctx_size"]
        changes = as_typed(f"--parallel {count}")
        return (
            changes,
            f"{name} does not show whether the slots divide its {size}; raise this size if prompts no longer fit.",
        )
    if each:
        cost = f"The context is divided among the slots, so raise --ctx-size to {count} x {each:,} tokens. A larger context costs KV memory."
        return as_typed(f"--parallel {count} --ctx-size {count * each}"), cost
    return [], (
        f"Set --parallel {count}, and --ctx-size to {count} times the size that one conversation needs: without --kv-unified the context is divided among the slots. A larger context costs KV memory."
    )


def context_size(session: Session) -> int | None:
    """Tokens of the context of all slots together; None if the log does not show it."""
    total = session.setting("n_ctx")
    if isinstance(total, int) and total > 0:
        return total
    each, count = session.n_ctx_slot, session.n_slots
    if each and (count == 1 or session.setting("kv_unified") is True):
        return each
    return each * count if each and count and session.setting("kv_unified") is False else None


def more_context(
    session: Session, what: str, needed: int | None = None, *, pool: bool = False, writer: str = ""
) -> Remedy:
    """Advise twice the context, or more if a prompt needs it, but not more than the model was trained for.

    Args:
        session: the server.
        what: the reason.
        needed: tokens that all slots together must contain; None if unknown.
        pool: several conversations fill it, each of which may be as long as the model was trained for.
        writer: the program that reports the limit and starts the server.
    """
    if short := memory_short(session, "the context"):
        return short
    if "ollama" in (session.engine, writer):
        return _ollama_context(needed)
    if "llama-cpp-python" in (session.engine, writer):
        return Remedy(f"{what} Set n_ctx in Llama(...), or --n_ctx of the llama-cpp-python server.")
    has, trained = context_size(session), session.setting("n_ctx_train")
    if has is None and session.launcher == "ollama":
        return _ollama_context(needed)
    if has is None:
        return Remedy(f"{what} The option is --ctx-size, in tokens; this log does not show its current value.")
    value = 2 * has
    while needed is not None and value <= needed:
        value *= 2
    if isinstance(trained, int) and trained > 0:
        shared = session.setting("kv_unified") is True and not pool
        value = min(value, trained * (1 if shared else session.n_slots or 1))
    if value <= max(has, needed or 0):
        return Remedy(f"{what} The context has {has:,} tokens now, and the model was trained with at most {trained:,}.")
    return Remedy(f"{what} The context has {has:,} tokens now.", options=as_typed(f"--ctx-size {value}"))


def _ollama_context(needed: int | None) -> Remedy:
    """ollama's own settings of the context; ``needed`` tokens must fit."""
    size = 8192
    while needed is not None and size <= needed:
        size *= 2
    return Remedy(
        f"Set num_ctx to {size} in the request options or in the Modelfile, or set OLLAMA_CONTEXT_LENGTH={size} for the server. "
        "A larger context costs KV memory."
    )


def cache_ram(session: Session) -> Remedy:
    """Advise the RAM prompt cache, with the size that the conversations of this log need."""
    if short := memory_short(session, "the limit of the RAM prompt cache"):
        return short
    mib, why = _needed_mib(session)
    if session.setting("mmproj") is True and session.at_least(7965) is False:
        return Remedy(
            f"Update to b8156 or newer, where --cache-ram {mib} keeps a RAM copy of prompts that lose their slot. Up to "
            f"b7964 the RAM prompt cache is not used while a multimodal projector is loaded. {why}"
        )
    return option(
        session,
        server_options.CACHE_RAM,
        str(mib),
        f"Keep a RAM copy of prompts that lose their slot (up to {mib:,} MiB, no VRAM). {why}",
    )


def _needed_mib(session: Session) -> tuple[int, str]:
    """(limit to advise in MiB, where it comes from); never less than the server has, and more than what it found full."""
    sizes, limit = session.sizes, session.setting("cache_ram_mib")
    default = server_options.CACHE_RAM.default_at(*span(session))
    default = default if isinstance(default, int) else 8192
    has = limit if isinstance(limit, int) and limit >= 0 else default
    full = bool(session.setting("ram_evictions"))
    largest = max([sizes.entry or 0.0, *sizes.conversations.values()])
    count = session.at_once or len(sizes.conversations)
    if not largest or not count:
        mib = max(default, 2 * has if full else has)
        why = "the default" if mib == default else "twice the current limit" if full else "the current limit"
        return mib, f"This limit is {why}; this log does not show how much memory one prompt needs."
    printed = sorted(sizes.conversations.values(), reverse=True)[:count]
    total = sum(printed) + largest * (count - len(printed))  # for those whose size was not printed
    mib = max(_rounded(total), _rounded(has + largest) if full else has)
    return (
        mib,
        f"The {count} conversations here take about {math.ceil(total):,} MiB; the largest takes {_mib(largest)}."
        if count > 1
        else (f"The largest prompt here takes {_mib(largest)}."),
    )


def _rounded(mib: float) -> int:
    return _STEP * max(1, math.ceil(mib / _STEP))


def memory_size(mib: float) -> str:
    """Write a size in the unit that fits it."""
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else _mib(mib)


def _mib(size: float) -> str:
    """Words for a size; small models have states of less than one MiB."""
    return f"{size:,.0f} MiB" if size >= 10 else f"{size:.1f} MiB"


def more_checkpoints(session: Session, held: int | None) -> Remedy | None:
    """Advise a longer list of checkpoints, or None if the list was not full: then its length was not the cause.

    Args:
        held: checkpoints that the slot had when the request came, as far as the log shows.
    """
    limit = session.setting("ctx_checkpoints")
    if not isinstance(limit, int):
        default = server_options.CTX_CHECKPOINTS.default_at(*span(session))
        limit = default if isinstance(default, int) else None
    if held is not None and limit is not None and held < limit:
        return None
    value = 2 * limit if limit else 64
    return option(
        session,
        server_options.CTX_CHECKPOINTS,
        str(value),
        f"Keep more{f' than {limit}' if limit else ''} checkpoints per slot. {checkpoint_cost(session, value)}",
    )


def checkpoint_cost(session: Session, count: int) -> str:
    """The main memory that checkpoints need, by the sizes that the log prints."""
    size = session.sizes.checkpoint
    if size is None:
        return "Each checkpoint costs main memory: tens to hundreds of MiB on large models."
    return f"Each checkpoint takes {_mib(size)} of main memory here; {count} take up to {_mib(count * size)} per slot."


# ---- what this log cannot show


def needs_cmdline(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads the command line was not checked, or None if the command line is known."""
    if session.given:
        return None
    missing = "no server command line was given"
    if session.launcher in cmdline.FIXED_LOG:
        name = cmdline.FIXED_LOG[session.launcher]
        return missing, f"{name} does not show the command line; see the llama.cpp parameters in the load parameters"
    return (
        missing,
        "pass the command line as well\ncachedoctor analyze server.log --cmdline 'llama-server -m model.gguf -c 32768'",
    )


def show_text(session: Session, *, compared: bool = True) -> Remedy:
    """How to see the text where two prompts diverge: in the log of this build, or with its launcher.

    Args:
        compared: the prompts were compared; if only other prompts were given, these are the shortest way.
    """
    if session.setting("prompts_given") and not compared:
        words = "To see the text that changed, add the missing bodies of these requests."
        return Remedy(words, purpose="look")
    if "text" in session.shows and session.at_least(10809) is False:
        return Remedy("The log has the text that changed: see the old: and new: lines of these requests.")
    if session.launcher in cmdline.FIXED_LOG:
        return Remedy(f"To see the text that changed: {_PROMPTS_SHOWN}", cmdline.LM_STUDIO_PROMPTS, purpose="look")
    words, changes = _show_text(session)
    return Remedy(f"To see the text that changed: {words}", options=changes, purpose="look")


_PROMPTS_SHOWN = "LM Studio prints every prompt as the model receives it; compare two consecutive prompts."


def _show_text(session: Session) -> tuple[str, list[OptionChange]]:
    words, changes = log_levels.show_text(*span(session))
    return _of_launcher(session, words), changes


def _of_launcher(session: Session, words: str) -> str:
    """Name what is to be started again."""
    starts = cmdline.HANDS_ON.get(session.launcher) if session.launcher is not None else None
    return words if starts is None else words.replace("restart llama-server", f"restart {starts}")


def show_accounting(session: Session) -> tuple[str, list[OptionChange]]:
    """Words and options with which this build logs prompt length, reuse and checkpoints."""
    if session.launcher in cmdline.FIXED_LOG:
        return f"{cmdline.FIXED_LOG[session.launcher]} has no setting for the log level of llama.cpp", []
    words, changes = log_levels.show_accounting(*span(session))
    return _of_launcher(session, words), changes


def see_more(session: Session) -> Remedy:
    """How to see more in the next log."""
    if session.launcher in cmdline.FIXED_LOG:
        return Remedy(f"To see what changed: {_PROMPTS_SHOWN}", cmdline.LM_STUDIO_PROMPTS, purpose="look")
    found = restart(session, {"accounting", "text", "prompts"})
    if found.options:
        return Remedy(f"The next log then shows more. {found.text}", options=found.options, purpose="look")
    if _writes_prompts(session):
        return Remedy(
            "The server writes its prompts to files: pass the folder set with --log-prompts-dir.",
            ["cachedoctor analyze server.log --prompts prompts"],
            purpose="look",
        )
    return Remedy(
        "This log already shows all that this build can print. Only the client's request bodies can show the cause.",
        ["cachedoctor analyze server.log --requests bodies.jsonl"],
        purpose="look",
    )


def cheapest_first(session: Session, remedies: Sequence[Remedy]) -> list[Remedy]:
    """Put client settings first if the server's log cannot show more."""
    if session.launcher not in cmdline.FIXED_LOG:
        return list(remedies)
    return sorted(remedies, key=lambda remedy: not remedy.settings)


def _rows(found: tuple[str, list[OptionChange]]) -> str:
    """Words, and below them what can be copied."""
    words, changes = found
    return "\n".join([words, *option_rows(changes)])


def needs_text(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads the diverging text was not checked, or None when such text was logged or given."""
    if "text" in session.shows or session.setting("prompts_given"):
        return None
    missing = "the log shows no text of the prompts (no old: / new: lines)"
    if session.launcher in cmdline.FIXED_LOG:
        return missing, "\n".join([_PROMPTS_SHOWN.rstrip("."), *cmdline.LM_STUDIO_PROMPTS])
    return missing, _rows(_show_text(session))


def needs_accounting(session: Session) -> tuple[str, str] | None:
    """Why a rule that needs prompt length and reuse lines was not checked, or None."""
    if "accounting" in session.shows:
        return None
    return "this log level hides prompt length and reuse", _rows(show_accounting(session))


def needs_adapters(session: Session) -> tuple[str, str] | None:
    """Why a change of adapters was not searched for, or None: from b9294 on its line is printed at trace level."""
    if session.at_least(9294) is not True or "adapters" in session.shows:
        return None
    return "this log level hides adapter changes", _rows(show_accounting(session))


def needs_prompts(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads the prompts themselves was not checked, or None when they were given."""
    if session.setting("prompts_given"):
        return None
    words = "pass the client's request bodies or prompt dumps as well"
    return "no prompts were given", f"{words}\ncachedoctor analyze server.log --requests bodies.jsonl"


def needs_prompts_for_more(session: Session) -> tuple[str, str] | None:
    """Why a rule that sees only some cases in the log was not checked, or None if the prompts were given."""
    return needs_prompts(session)


def needs_bodies(session: Session) -> tuple[str, str] | None:
    """Why a rule that reads images was not checked, or None: dumps of the server contain only the text of a prompt."""
    if session.setting("prompts_given"):
        return None
    words = "pass the client's request bodies as well"
    return "no request bodies were given", f"{words}\ncachedoctor analyze server.log --requests bodies.jsonl"


WANTS: dict[object, log_levels.Want] = {
    needs_accounting: "accounting",
    needs_adapters: "accounting",
    needs_text: "text",
    needs_prompts: "prompts",
    needs_prompts_for_more: "prompts",
}
"""What the log lacks for a rule that has one of these as its ``needs``."""


def restart(session: Session, wants: set[log_levels.Want]) -> log_levels.LevelRestart:
    """One restart after which the next log shows most of ``wants``; without options if none can be set."""
    if session.launcher in cmdline.FIXED_LOG:
        return log_levels.LevelRestart([], [], "")
    return log_levels.restart(wants - _followed(session), *span(session))


def _followed(session: Session) -> set[log_levels.Want]:
    """What the log shows to be set already: advice that was followed is not repeated."""
    done: set[log_levels.Want] = set()
    if "accounting" in session.shows:
        done.add("accounting")
    if session.setting("slots_debug") == 1 and session.at_least(9713) is not True:
        done.add("text")
    if session.setting("prompts_given") or _writes_prompts(session):
        done |= {"text", "prompts"}
    return done


def _writes_prompts(session: Session) -> bool:
    """Whether the command line has the server write its prompts to files."""
    return session.cmdline is not None and "--log-prompts-dir" in session.cmdline
