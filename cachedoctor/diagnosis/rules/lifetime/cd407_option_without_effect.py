"""CD407: an option that does nothing on this server, or not what it seems to do."""

from __future__ import annotations

from collections.abc import Iterator

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import cmdline, server_options

_MEMORY = {
    "attention": "full attention",
    "hybrid": "hybrid memory",
    "recurrent": "recurrent memory",
    "swa": "sliding-window memory",
}


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Look at every option of the command line together with what the log shows of the server."""
    looks = (_swa_full, _checkpoints, _idle_slots, _disagreement, _cache_reuse, _divided, _cache_prompt)
    return [found for look in looks for found in look(session)]


def _given(session: kit.Session, *keys: str) -> kit.GivenOption | None:
    """Return the option as it was written last; what comes after counts, the environment is in front.

    A name that the build does not know is the business of CD406.
    """
    known = (g for g in reversed(session.given) if g.option in keys)
    return next(
        (g for g in known if server_options.entry(g.written)[1].exists(*advice.span(session)) is not False), None
    )


def _line(session: kit.Session, setting: kit.SettingName, value: object, label: str) -> list[kit.Line]:
    """The line of the log that says so, if there is one."""
    found = session.said(setting)
    if found is None or found.line is None or found.value is not value or not found.text:
        return []
    return [(kit.Mark(found.line, found.text), label)]


def _swa_full(session: kit.Session) -> Iterator[kit.SessionFinding]:
    given, said = _given(session, "swa_full"), session.said("swa_full")
    off = said is not None and said.value is False and said.line is not None
    by_memory = session.memory in ("attention", "hybrid", "recurrent") and not session.setting("n_swa")
    if off or (given is not None and given.value is True and by_memory):
        name = given.written if given is not None else "--swa-full"
        yield kit.finding(
            f"{name} has no effect: the model has no sliding window",
            "The option keeps all tokens of sliding-window layers, and this model has no such layers. It does not help recurrent "
            "memory.",
            [kit.Remedy("Remove the option.", options=kit.left_out(name))],
            key="swa_full",
            evidence=_line(session, "swa_full", False, "the server switches the option off"),
            of_cmdline=True,
        )


def _cache_reuse(session: kit.Session) -> Iterator[kit.SessionFinding]:
    given = _given(session, "cache_reuse")
    if given is None or not isinstance(given.value, int | float) or given.value <= 0:
        return
    off = session.setting("cache_reuse_supported") is False
    if session.setting("mmproj") is True:
        why = "a multimodal projector is loaded, and the server cannot shift prompts with images"
    elif session.memory in ("hybrid", "recurrent"):
        why = f"{_MEMORY[session.memory]} cannot be shifted in parts"
    elif session.memory == "swa" and session.setting("swa_full") is not True:
        why = "sliding-window memory can only be shifted with --swa-full"
    elif off:
        why = "the memory of this model cannot be shifted"
    else:
        return
    yield kit.finding(
        f"{given.written} {kit.n(given.value)} has no effect: {why}",
        "The option shifts the cached text after a removed part of the history to its new position. Reuse of the common "
        "prefix does not depend on it.",
        [kit.Remedy("Remove the option.", options=kit.left_out(given.written))],
        key="cache_reuse",
        evidence=_line(session, "cache_reuse_supported", False, "the server switches the option off"),
        unless=("CD210",),
        of_cmdline=True,
    )


def _checkpoints(session: kit.Session) -> Iterator[kit.SessionFinding]:
    given = _given(session, "ctx_checkpoints", "checkpoint_min_step", "checkpoint_every")
    if given is None or "checkpoints" in session.shows:
        return
    if given.option == "ctx_checkpoints" and given.value == 0:
        return
    if session.memory == "attention":
        why = "full attention can go back to any token and makes no checkpoints"
    elif session.memory == "swa" and session.setting("swa_full") is True:
        why = "with --swa-full the memory can go back to any token and makes no checkpoints"
    else:
        return
    yield kit.finding(
        f"{given.written} has no effect: {why}",
        "Checkpoints are saved states of memory that cannot be rewound: recurrent, hybrid, sliding-window.",
        [
            kit.Remedy(
                "Remove the option. If this model recomputes its prompts, the cause is different.",
                options=kit.left_out(given.written),
            )
        ],
        key="checkpoints",
        of_cmdline=True,
    )


def _idle_slots(session: kit.Session) -> Iterator[kit.SessionFinding]:
    given = _given(session, "cache_idle_slots")
    if given is None or given.value is not True:
        return
    if session.setting("cache_ram_mib") == 0:
        need = "--cache-ram, which is 0"
    elif session.setting("kv_unified") is False and session.at_least(9539) is False:
        need = "--kv-unified up to b9538"
    else:
        return
    yield kit.finding(
        f"{given.written} has no effect: it needs {need}",
        "The option saves the prompts of idle slots into the RAM prompt cache.",
        [kit.Remedy("Remove the option, or set the option that it needs.", options=kit.left_out(given.written))],
        key="idle_slots",
        evidence=_line(session, "cache_idle_slots", False, "the server switches the option off"),
        of_cmdline=True,
    )


def _divided(session: kit.Session) -> Iterator[kit.SessionFinding]:
    context, slots = _given(session, "ctx_size"), _given(session, "parallel")
    if context is None or slots is None or not isinstance(context.value, int) or not isinstance(slots.value, int):
        return
    if context.value <= 0 or slots.value < 2 or session.setting("kv_unified") is not False:
        return
    each = context.value // slots.value
    if session.n_slots != slots.value or (session.n_ctx_slot or 0) >= context.value:
        return  # the log shows otherwise
    yield kit.finding(
        f"{context.written} {kit.n(context.value)} is divided by {slots.written} {slots.value}: each slot has {kit.n(each)} tokens for a prompt and its reply",
        "Without unified KV memory every slot gets an equal share of the context.",
        [
            kit.Remedy(
                "If one conversation needs more, let the slots share the context, or raise the context.",
                options=kit.as_typed(f"--parallel {slots.value} --ctx-size {context.value * slots.value}"),
                purpose="depends",
            )
        ],
        key="divided",
        unless=("CD403",),
        of_cmdline=True,
    )


def _cache_prompt(session: kit.Session) -> Iterator[kit.SessionFinding]:
    given = _given(session, "cache_prompt")
    if given is None or given.value is not False:
        return
    others = [g.written for g in session.given if g.option in ("cache_reuse", "ctx_checkpoints", "checkpoint_min_step")]
    also = (
        f"; {' and '.join(dict.fromkeys(others))} then {'do' if len(set(others)) > 1 else 'does'} nothing"
        if others
        else ""
    )
    yield kit.finding(
        f"{given.written} switches reuse off for every request that does not turn it on{also}",
        'A request reuses the content of its slot only with "cache_prompt": true in its body.',
        [kit.Remedy(f"Remove {given.written}.", options=kit.left_out(given.written))],
        key="cache_prompt",
        unless=("CD109",),
        of_cmdline=True,
    )


_COMPARED: dict[kit.SettingName, str] = {
    "cache_ram_mib": "cache_ram",
    "ctx_checkpoints": "ctx_checkpoints",
    "kv_unified": "kv_unified",
}
"""Settings that start-up lines show exactly, and their options."""


def _disagreement(session: kit.Session) -> Iterator[kit.SessionFinding]:
    """The log shows otherwise than the command line: the command line is not the one that made it."""
    told = cmdline.settings(session.given)
    if "slot_count" in session.shows and told.get("n_slots", session.n_slots) != session.n_slots:
        yield _disagrees(session, "parallel", "1 slot" if session.n_slots == 1 else f"{session.n_slots} slots")
    for setting, option in _COMPARED.items():
        found = session.said(setting)
        given = _given(session, option)
        if given is None or given.value is None or found is None or found.line is None or setting not in told:
            continue
        if found.value != told[setting]:
            shown = [(kit.Mark(found.line, found.text), "the value in the log")] if found.text else []
            yield _disagrees(session, option, _with_unit(setting, found.value), shown)


def _disagrees(session: kit.Session, option: str, says: str, shown: list[kit.Line] | None = None) -> kit.SessionFinding:
    given = _given(session, option)
    written = _with_value(given) if given is not None else option
    return kit.finding(
        f"the command line has {written}, but the log shows {says}; this report uses the log",
        "Either this command line did not start this server, or a later option or a preset overrides the value, or this build does not know the option.",
        [kit.Remedy("Pass the command line of the process that wrote this log.")],
        key=f"disagrees {option}",
        evidence=shown or [],
        of_cmdline=True,
    )


def _with_value(given: kit.GivenOption) -> str:
    joint = "=" if given.env else " "
    return (
        given.written if given.value is True and not given.env else f"{given.written}{joint}{_value_text(given.value)}"
    )


def _with_unit(setting: str, value: object) -> str:
    return f"{_value_text(value)} MiB" if setting.endswith("_mib") else _value_text(value)


def _value_text(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


RULE = kit.session_rule(__name__, "An option has no effect, or a different effect than expected", inspect)
