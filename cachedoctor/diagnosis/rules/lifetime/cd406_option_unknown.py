"""CD406: an option that this build of the server does not know."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit
from cachedoctor.knowledge import builds, server_options
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.server_options import Name, Option, by_build, lacking, name_for

_NAME = late(r"--?[A-Za-z][\w-]{0,80}")


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Compare the command line, and what the server itself refused, with the names of this build."""
    notes = []
    for given in session.given:
        entry = server_options.BY_NAME.get(server_options.plain(given.written))
        name = None if entry is None else entry[1]
        if name is None or name.exists(*advice.span(session)) is False:
            notes.append(_note(session, given, name))
    refused = session.said("refused_option")
    if refused is not None and refused.line is not None:
        notes.append(_refused(session, str(refused.value), kit.Mark(refused.line, refused.text)))
    return notes


def _note(session: kit.Session, given: kit.GivenOption, name: Name | None) -> kit.SessionFinding:
    low, high = advice.span(session)
    why = (
        "The server ignores unknown variables without a message."
        if given.env
        else "The server does not start with an unknown option (error: invalid argument), so this log comes from another command line or another build."
    )
    build = "" if name is None else f" {builds.describe(session.build, low, high)}"
    said = kit.FindingText(
        f"llama-server{build} does not know {given.written}: {_since(name, low)}",
        why,
        [_right_name(given.written, given.value, given.env, low, high)],
    )
    return kit.SessionFinding(said, given.written, of_cmdline=True)


def _since(name: Name | None, low: int | None) -> str:
    if name is None:
        return "no build has ever had it"
    gone = name.last is not None and low is not None and low > name.last
    return (
        f"b{name.last} is the last build known to have it"
        if gone
        else f"b{name.first} is the first build known to have it"
    )


def _right_name(written: str, value: object, env: bool, low: int | None, high: int | None) -> kit.Remedy:
    """Say what this build calls it, what took its place, or that it has to be left out."""
    plain = server_options.plain(written)
    option, on, unlike = _meant(plain)
    if env:
        variable = next((n.text for n in option.env if n.exists(low, high)), None)
        if variable is not None:
            known = [] if _value_text(value) is None else [kit.OptionChange(variable, _value_text(value))]
            return kit.Remedy(f"This build reads {variable}.", options=[*kit.left_out(written), *known])
    off = not on or (env and value is False)
    right = name_for(option, low, high, off=off)
    if right is not None:
        said = f"Use {right}: {unlike}." if unlike else f"This build calls it {right}."
        number = None if option.kind == "switch" or off else _value_text(value)
        lacks = number is None and option.kind != "switch" and not off
        return kit.Remedy(
            said, options=[*kit.left_out(written), *([] if lacks or unlike else [kit.OptionChange(right, number)])]
        )
    last = option.names[0].last if option.names else None
    if option.key in server_options.INSTEAD and last is not None and low is not None and low > last:
        return kit.Remedy(f"Remove the option: {server_options.INSTEAD[option.key]}.", options=kit.left_out(written))
    names = option.off if off else option.names
    if not names:
        return kit.Remedy("Remove the option.", options=kit.left_out(written))
    if lacking(option, low, high, off=off):
        said = f"Remove the option, or use a build that has it: {names[0].text} ({names[0].when})."
        return kit.Remedy(said, options=kit.left_out(written))
    later = f" From b9538 on {server_options.INSTEAD[option.key]}." if option.key in server_options.INSTEAD else ""
    also = f"; {unlike}" if unlike else ""
    said = f"Remove the option, or use the option of your build: {by_build(option, off=off)}{also}.{later}"
    return kit.Remedy(said, options=kit.left_out(written))


def _meant(plain: str) -> tuple[Option, bool, str]:
    """Return the option that a name stands for, whether it switches on, and what differs from a draft of it."""
    if plain in server_options.NEVER:
        option, unlike = server_options.NEVER[plain]
        return option, True, unlike
    option, _, on = server_options.BY_NAME[plain]
    return option, on, ""


def _value_text(value: object) -> str | None:
    """Write a value as it was; None for what is not known, and for text, which is not repeated."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value}" if isinstance(value, int | float) else None


def _refused_option(written: str) -> list[kit.OptionChange]:
    """Leave out what the server refused, where it is the name of an option at all."""
    return kit.left_out(written) if _NAME.fullmatch(written) else []


def _refused(session: kit.Session, written: str, line: kit.Mark) -> kit.SessionFinding:
    low, high = advice.span(session)
    known = (
        server_options.plain(written) in server_options.BY_NAME or server_options.plain(written) in server_options.NEVER
    )
    remedy = (
        _right_name(written, None, False, low, high)
        if known
        else kit.Remedy(
            "Remove the option, or look for its new name in llama-server --help.", options=_refused_option(written)
        )
    )
    said = kit.FindingText(
        f"the server did not start: it does not know {written}",
        "The server exits if it does not know an option; a service manager then restarts it repeatedly.",
        [remedy],
    )
    return kit.SessionFinding(said, f"refused {written}", [(line, "the option that was rejected")])


RULE = kit.session_rule(
    __name__,
    "The command line has an option that this build does not know",
    inspect,
    needs=lambda s: None if s.setting("refused_option") else advice.needs_cmdline(s),
)
