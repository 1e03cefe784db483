"""Options in the form of what starts the server: shell, compose, Kubernetes, systemd, ollama, LM Studio."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Literal

import msgspec

from cachedoctor.knowledge import cmdline, server_options
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.server_options import Name, Option
from cachedoctor.model import FixStep, Launcher, OptionChange, option_rows
from cachedoctor.report.launchers.command_words import changed, given, image_at, words

_PLAIN_NAME = late(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,200}")


class LaunchRequest(msgspec.Struct, frozen=True):
    """Options for one server."""

    changes: list[OptionChange]
    engine: str = "llama.cpp"
    low: int | None = None
    """Oldest build that it may be."""
    high: int | None = None
    name: str | None = None
    """Service, unit or container, as the log's wrapper names it."""
    line: str | None = None
    """Its command line, if known."""

    @property
    def place(self) -> str | None:
        """The name, if it can be used unquoted in a command and in YAML."""
        return self.name if self.name is not None and _PLAIN_NAME.fullmatch(self.name) else None

    @property
    def adding(self) -> str:
        """What to do with options of a command: one that is on a known line is changed."""
        return "add to" if self.line is None else "change in, or add to,"

    @property
    def server(self) -> str:
        """Name of the program."""
        return self.engine if self.engine in ENGINES else "llama-server"


class Divided(msgspec.Struct, frozen=True):
    """Options as variables of the environment, and those that have none."""

    variables: dict[str, str]
    left_out: list[str]
    """Variables that must go."""
    options: list[OptionChange]


def divided(asked: LaunchRequest) -> Divided:
    """Write as many options as possible as variables, by the names that the builds have.

    A variable counts only where the command line does not have the option: what is on a known one stays an option.
    """
    found = Divided({}, [], [])
    line = [] if asked.line is None else words(asked.line)
    for change in asked.changes:
        if change.variable:
            if change.remove:
                found.left_out.append(change.name)
            else:
                found.variables[change.name] = change.value or ""
            continue
        stays = change.remove or asked.engine != "llama.cpp" or given(line, change.name)
        pair = None if stays else variable(change, asked.low, asked.high)
        if pair is None:
            found.options.append(change)
        else:
            found.variables[pair[0]] = pair[1]
    return found


def variable(change: OptionChange, low: int | None, high: int | None) -> tuple[str, str] | None:
    """(variable, value) that is equivalent to an option of llama-server; None if the builds have no certain one."""
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    if entry is None:
        return None
    option, name, on = entry
    if not on and not _read_both_ways(option, name, low, high):
        return None
    found = next((n.text for n in option.env if n.text not in server_options.UNREAD_ENV and n.exists(low, high)), None)
    if found is None:
        return None
    return found, change.value if change.value is not None else "1" if on else "0"


def _read_both_ways(option: Option, off: Name, low: int | None, high: int | None) -> bool:
    """Whether an off value of the option's variable is respected: that of a switch with a negation in new builds."""
    paired = option.kind == "switch" and low is not None and low >= server_options.READ_BOTH_WAYS
    return paired and off.exists(low, high) is True


_HANDED_ON = (
    "ollama versions that start llama-server (from mid-2026 on) pass LLAMA_ARG_* to it, except settings that "
    "ollama sets itself"
)


def _key_program_forms(change: OptionChange) -> str | None:
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    return None if entry is None or change.remove or change.value is None else entry[0].key


def ollama(asked: LaunchRequest) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there).

    A context is one request's in ollama, of all slots in llama-server.
    """
    known = {key: change for change in asked.changes if (key := _key_program_forms(change)) in cmdline.OLLAMA}
    rest = [change for change in asked.changes if change not in known.values()]
    found = []
    for key, change in known.items():
        value = change.value or ""
        if key == "ctx_size" and "parallel" in known:
            value = str(int(value) // int(known["parallel"].value or 1))
        found.append(OptionChange(cmdline.OLLAMA[key], value))
    parts = (
        divided(msgspec.structs.replace(asked, changes=rest)) if asked.engine == "llama.cpp" else Divided({}, [], rest)
    )
    found += [OptionChange(name, value) for name, value in parts.variables.items()]
    steps, notes = [], []
    if found:
        text = "in the environment of ollama serve (of a service: systemctl edit ollama, Environment=)"
        steps.append(FixStep("server", text, option_rows(found)))
    if any(name.startswith("LLAMA_ARG_") for name in parts.variables):
        notes.append(_HANDED_ON)
    cannot = [*parts.options, *(change for change in rest if change.name in parts.left_out)]
    return steps, [*notes, *([f"ollama has no setting for {_named(cannot)}"] if cannot else [])]


def lm_studio(asked: LaunchRequest) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there)."""
    known = {key: change for change in asked.changes if (key := _key_program_forms(change)) in cmdline.LM_STUDIO}
    if "parallel" in known:
        known.pop("ctx_size", None)  # how LM Studio divides its context among predictions is not documented
    rest = [change for change in asked.changes if change not in known.values() and not _divides(change, known)]
    rows = [f"{cmdline.LM_STUDIO[key]}: {change.value}" for key, change in known.items()]
    steps = []
    if rows:
        text = "in LM Studio, load the model with custom load parameters and advanced settings shown"
        steps.append(FixStep("server", text, rows, "words"))
    fields = [change for change in rest if not change.variable and not change.remove]
    if fields:
        steps.append(FixStep("server", cmdline.LM_STUDIO_FIELD, option_rows(fields), "options"))
    cannot = [change for change in rest if change not in fields]
    notes = [cmdline.LM_STUDIO_OLD.format(options=_named(fields))] if fields else []
    return steps, [*notes, *([f"LM Studio has no setting for {_named(cannot)}"] if cannot else [])]


def jan(asked: LaunchRequest) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there): options without a setting become variables in Jan's field for them."""
    known = {key: change for change in asked.changes if (key := _key_program_forms(change)) in cmdline.JAN}
    rest = [change for change in asked.changes if change not in known.values()]
    rows = [f"{cmdline.JAN[key]}: {change.value}" for key, change in known.items()]
    parts = divided(msgspec.structs.replace(asked, changes=rest))
    if parts.variables:
        field = ";".join(f"{name}={value}" for name, value in parts.variables.items())
        rows.append(f"{cmdline.JAN_VARIABLES}: {field}")
    steps = [FixStep("server", cmdline.JAN_SETTINGS, rows, "words")] if rows else []
    later = [change for key, change in known.items() if key in cmdline.JAN_LATER]
    older = divided(msgspec.structs.replace(asked, changes=later)).variables
    notes = []
    if older:
        taken = ";".join(f"{name}={value}" for name, value in older.items())
        notes.append(f"in older versions of Jan, write {taken} into {cmdline.JAN_VARIABLES} instead")
    cannot = [*parts.options, *(change for change in rest if change.name in parts.left_out)]
    return steps, [*notes, *([f"Jan has no setting for {_named(cannot)}"] if cannot else [])]


def _divides(change: OptionChange, known: dict[str, OptionChange]) -> bool:
    return "parallel" in known and _key_program_forms(change) == "ctx_size"


def _named(changes: list[OptionChange]) -> str:
    return ", ".join(" ".join(change.words) or f"removing {change.name}" for change in changes)


_ROW_ENDS = late(r"(?:(?<![ \t])[ \t]++)?(?:[\^`]\r?\n|(?<!\\)\r?\n)\s*")
"""Line endings that no POSIX shell treats as a continuation: cmd's, PowerShell's, and those of a paste."""


def one_command(line: str) -> str:
    """Write a command line in a form that a shell takes as one command."""
    return _ROW_ENDS.sub(" ", line.strip())


def shell(asked: LaunchRequest) -> list[FixStep]:
    """Write the command line that is known, or rows of variables and options for the one that is not."""
    if asked.line is not None:
        rows = changed(one_command(asked.line), asked.changes).split("\n")
        return [FixStep("server", f"start {asked.server} with", rows)]
    gone = [change.name for change in asked.changes if change.remove]
    steps = []
    rows = option_rows([change for change in asked.changes if change.variable])
    if rows:
        steps.append(FixStep("server", f"in the shell that starts {asked.server}, before the start", rows))
    rows = option_rows([change for change in asked.changes if not change.variable])
    if rows:
        steps.append(FixStep("server", f"add at the end of the {asked.server} command line", rows, "options"))
    if gone:
        steps.append(FixStep("server", f"remove from the command line and environment: {', '.join(gone)}"))
    return steps


def docker(asked: LaunchRequest) -> list[FixStep]:
    """Write the ``docker run`` that is known, or variables for before the image and options for after it."""
    if asked.line is not None and image_at(words(asked.line)) is not None:
        return [
            FixStep("server", "start the container with", changed(one_command(asked.line), asked.changes).split("\n"))
        ]
    parts = divided(asked)
    steps = []
    if parts.variables:
        row = " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in parts.variables.items())
        steps.append(FixStep("server", "add to docker run, before the image", [row], "options"))
    rows = option_rows(parts.options)
    if rows:
        steps.append(FixStep("server", "add to docker run, after the image and its arguments", rows, "options"))
    gone = [*parts.left_out, *(change.name for change in parts.options if change.remove)]
    if gone:
        steps.append(FixStep("server", f"remove from docker run: {', '.join(gone)}"))
    return steps


def systemd(asked: LaunchRequest) -> list[FixStep]:
    """Write a drop-in with variables; with the whole command if that is known and an option has no variable."""
    parts = divided(asked)
    gone = [*parts.left_out, *(change.name for change in parts.options if change.remove)]
    own = [change for change in parts.options if not change.remove]
    rows = [f"Environment={setting(f'{name}={value}')}" for name, value in parts.variables.items()]
    steps, unit = [], asked.place or asked.server
    if (own or gone) and asked.line is not None and "\n" not in asked.line.strip() and asked.line.lstrip()[:1] == "/":
        rows += ["ExecStart=", f"ExecStart={changed(asked.line.strip(), asked.changes)}"]
        own, gone = [], []
    if rows:
        named = f"systemctl edit {unit}" + (" (its name in the log)" if asked.place else "")
        steps.append(FixStep("server", f"{named}: write this into the file that opens", ["[Service]", *rows], "ini"))
    if own:
        steps.append(FixStep("server", f"{asked.adding} ExecStart of the unit", option_rows(own), "options"))
    if gone:
        steps.append(FixStep("server", f"remove from the unit: {', '.join(gone)}"))
    return [*steps, FixStep("server", "then", [f"systemctl restart {unit}"])] if steps else []


def setting(assignment: str) -> str:
    """Quote ``NAME=value`` as Environment= reads it: ``%`` is a specifier, quotes and backslashes are escaped."""
    text = assignment.replace("%", "%%")
    if not set(text) & set(" \t\"'\\"):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_BARE = late(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS = frozenset({"false", "n", "no", "null", "off", "on", "true", "y", "yes"})


def compose(asked: LaunchRequest) -> list[FixStep]:
    """Write variables of a service, and what to do then."""
    parts, service = divided(asked), asked.place
    where = f"compose.yaml, service {service} (its name in the log)" if service else "compose.yaml, at the service"
    steps = []
    if parts.variables:
        rows = ["environment:", *(f"  {name}: {quoted(value)}" for name, value in parts.variables.items())]
        if service:
            rows = ["services:", f"  {_key_yaml_forms(service)}:", *(f"    {row}" for row in rows)]
        steps.append(FixStep("server", where, rows, "yaml"))
    steps += _others(parts, f"{where}: {asked.adding} command", "environment")
    then = f"docker compose up -d {service}" if service else "docker compose up -d"
    return [*steps, FixStep("server", "then", [then])] if steps else []


def kubernetes(asked: LaunchRequest) -> list[FixStep]:
    """Write variables and arguments of a container."""
    parts = divided(asked)
    where = f"the container called {asked.place} in the log" if asked.place else "the container of the server"
    steps = []
    if parts.variables:
        rows = ["env:"]
        for name, value in parts.variables.items():
            rows += [f"  - name: {name}", f"    value: {quoted(value)}"]
        steps.append(FixStep("server", f"{where}: add", rows, "yaml"))
    words = [word for change in parts.options for word in change.words]
    if words:
        rows = ["args:", *(f"  - {quoted(word)}" for word in words)]
        steps.append(FixStep("server", f"{where}: {asked.adding} the end of its args", rows, "yaml"))
    return [*steps, *_gone(parts, "env and args")]


def llama_swap(asked: LaunchRequest) -> list[FixStep]:
    """Write variables of a model, which llama-swap gives to its command."""
    parts = divided(asked)
    steps = []
    if parts.variables:
        rows = ["env:", *(f"  - {quoted(f'{name}={value}')}" for name, value in parts.variables.items())]
        if asked.place:
            rows = ["models:", f"  {quoted(asked.place)}:", *(f"    {row}" for row in rows)]
        steps.append(FixStep("server", "config.yaml of llama-swap, at the model", rows, "yaml"))
    return [*steps, *_others(parts, f"config.yaml of llama-swap: {asked.adding} the model's cmd", "env")]


def _others(parts: Divided, where: str, environment: str) -> list[FixStep]:
    rows = option_rows(parts.options)
    steps = [FixStep("server", where, rows, "options")] if rows else []
    return [*steps, *_gone(parts, f"{environment} and command")]


def _gone(parts: Divided, where: str) -> list[FixStep]:
    gone = [*parts.left_out, *(change.name for change in _removed(parts.options))]
    return [FixStep("server", f"remove from {where}: {', '.join(gone)}")] if gone else []


def _removed(options: list[OptionChange]) -> list[OptionChange]:
    return [change for change in options if change.remove]


def _key_yaml_forms(name: str) -> str:
    """Write a name as a key: bare where YAML reads it as a string."""
    return name if _BARE.fullmatch(name) and name.lower() not in _WORDS else quoted(name)


def quoted(text: str) -> str:
    """Write a string so that YAML reads it as one, whatever it holds: JSON's strings are YAML's."""
    return json.dumps(text)


_FORMS: dict[Launcher, Callable[[LaunchRequest], list[FixStep]]] = {
    "shell": shell,
    "docker": docker,
    "systemd": systemd,
}


def form(asked: LaunchRequest, launcher: Launcher | None) -> tuple[list[FixStep], list[str]]:
    """(steps, what cannot be set there); an unknown launcher is treated as a shell."""
    if not asked.changes:
        return [], []
    if launcher == "ollama":
        return ollama(asked)
    if launcher == "lm-studio":
        return lm_studio(asked)
    if launcher == "jan":
        return jan(asked)
    if launcher in ("compose", "kubernetes", "llama-swap"):
        return _yaml(asked, launcher), []
    return _FORMS[launcher or "shell"](asked), []


def _yaml(asked: LaunchRequest, launcher: Literal["compose", "kubernetes", "llama-swap"]) -> list[FixStep]:

    if launcher == "compose":
        return compose(asked)
    return kubernetes(asked) if launcher == "kubernetes" else llama_swap(asked)
