"""The forms of programs that start llama.cpp by themselves: variables of ollama, settings of LM Studio and Jan."""

from __future__ import annotations

from cachedoctor.knowledge import flags, launchers
from cachedoctor.launchers.asked_options import Asked, Divided, divided
from cachedoctor.model import FixStep, OptionChange, option_rows

_HANDED_ON = (
    "an ollama that starts llama-server hands LLAMA_ARG_* on to it (since mid-2026); what it sets itself stays as it is"
)


def _key(change: OptionChange) -> str | None:
    entry = flags.BY_NAME.get(flags.plain(change.name))
    return None if entry is None or change.remove or change.value is None else entry[0].key


def ollama(asked: Asked) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there). A context is one request's in ollama, of all slots in llama-server."""
    known = {key: change for change in asked.changes if (key := _key(change)) in launchers.OLLAMA}
    rest = [change for change in asked.changes if change not in known.values()]
    found = []
    for key, change in known.items():
        value = change.value or ""
        if key == "ctx_size" and "parallel" in known:
            value = str(int(value) // int(known["parallel"].value or 1))
        found.append(OptionChange(launchers.OLLAMA[key], value))
    parts = divided(asked._replace(changes=rest)) if asked.engine == "llama.cpp" else Divided({}, [], rest)
    found += [OptionChange(name, value) for name, value in parts.variables.items()]
    steps, notes = [], []
    if found:
        text = "in the environment of ollama serve (of a service: systemctl edit ollama, Environment=)"
        steps.append(FixStep("server", text, option_rows(found)))
    if any(name.startswith("LLAMA_ARG_") for name in parts.variables):
        notes.append(_HANDED_ON)
    cannot = [*parts.options, *(change for change in rest if change.name in parts.left_out)]
    return steps, [*notes, *([f"ollama has no setting for {_named(cannot)}"] if cannot else [])]


def lm_studio(asked: Asked) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there)."""
    known = {key: change for change in asked.changes if (key := _key(change)) in launchers.LM_STUDIO}
    if "parallel" in known:
        known.pop("ctx_size", None)  # how LM Studio divides its context among predictions is not documented
    rest = [change for change in asked.changes if change not in known.values() and not _divides(change, known)]
    rows = [f"{launchers.LM_STUDIO[key]}: {change.value}" for key, change in known.items()]
    steps = []
    if rows:
        text = "in LM Studio, load the model with chosen load parameters, advanced settings shown"
        steps.append(FixStep("server", text, rows, "words"))
    fields = [change for change in rest if not change.variable and not change.remove]
    if fields:
        steps.append(FixStep("server", launchers.LM_STUDIO_FIELD, option_rows(fields), "options"))
    cannot = [change for change in rest if change not in fields]
    notes = [launchers.LM_STUDIO_OLD.format(options=_named(fields))] if fields else []
    return steps, [*notes, *([f"LM Studio has no setting for {_named(cannot)}"] if cannot else [])]


def jan(asked: Asked) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there): what has no setting is a variable in the field for them."""
    known = {key: change for change in asked.changes if (key := _key(change)) in launchers.JAN}
    rest = [change for change in asked.changes if change not in known.values()]
    rows = [f"{launchers.JAN[key]}: {change.value}" for key, change in known.items()]
    parts = divided(asked._replace(changes=rest))
    if parts.variables:
        field = ";".join(f"{name}={value}" for name, value in parts.variables.items())
        rows.append(f"{launchers.JAN_VARIABLES}: {field}")
    steps = [FixStep("server", launchers.JAN_SETTINGS, rows, "words")] if rows else []
    later = [change for key, change in known.items() if key in launchers.JAN_LATER]
    older = divided(asked._replace(changes=later)).variables
    notes = []
    if older:
        taken = ";".join(f"{name}={value}" for name, value in older.items())
        notes.append(f"older versions of Jan take {taken} as {launchers.JAN_VARIABLES} instead")
    cannot = [*parts.options, *(change for change in rest if change.name in parts.left_out)]
    return steps, [*notes, *([f"Jan has no setting for {_named(cannot)}"] if cannot else [])]


def _divides(change: OptionChange, known: dict[str, OptionChange]) -> bool:
    return "parallel" in known and _key(change) == "ctx_size"


def _named(changes: list[OptionChange]) -> str:
    return ", ".join(" ".join(change.words) or f"leaving out {change.name}" for change in changes)
