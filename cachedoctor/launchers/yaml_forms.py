"""The forms of files in YAML: docker compose, Kubernetes, llama-swap. Every value is written as a quoted string."""

from __future__ import annotations

import json
import re

from cachedoctor.launchers.asked_options import Asked, Divided, divided
from cachedoctor.model import FixStep, OptionChange, option_rows

_BARE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WORDS = frozenset({"false", "n", "no", "null", "off", "on", "true", "y", "yes"})


def compose(asked: Asked) -> list[FixStep]:
    """Write variables of a service, and what to do then."""
    parts, service = divided(asked), asked.place
    where = f"compose.yaml, service {service} (its name in the log)" if service else "compose.yaml, at the service"
    steps = []
    if parts.variables:
        rows = ["environment:", *(f"  {name}: {quoted(value)}" for name, value in parts.variables.items())]
        if service:
            rows = ["services:", f"  {_key(service)}:", *(f"    {row}" for row in rows)]
        steps.append(FixStep("server", where, rows, "yaml"))
    steps += _others(parts, f"{where}: {asked.adding} command", "environment")
    then = f"docker compose up -d {service}" if service else "docker compose up -d"
    return [*steps, FixStep("server", "then", [then])] if steps else []


def kubernetes(asked: Asked) -> list[FixStep]:
    """Write variables and arguments of a container."""
    parts = divided(asked)
    where = f"the container that the log names {asked.place}" if asked.place else "the container of the server"
    steps = []
    if parts.variables:
        rows = ["env:"]
        for name, value in parts.variables.items():
            rows += [f"  - name: {name}", f"    value: {quoted(value)}"]
        steps.append(FixStep("server", f"{where}: add", rows, "yaml"))
    words = [word for change in parts.options for word in change.words]
    if words:
        rows = ["args:", *(f"  - {quoted(word)}" for word in words)]
        steps.append(FixStep("server", f"{where}: {asked.adding} its args, at their end", rows, "yaml"))
    return [*steps, *_gone(parts, "env and args")]


def llama_swap(asked: Asked) -> list[FixStep]:
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
    return [FixStep("server", f"leave out of {where}: {', '.join(gone)}")] if gone else []


def _removed(options: list[OptionChange]) -> list[OptionChange]:
    return [change for change in options if change.remove]


def _key(name: str) -> str:
    """Write a name as a key: bare where YAML reads it as a string."""
    return name if _BARE.fullmatch(name) and name.lower() not in _WORDS else quoted(name)


def quoted(text: str) -> str:
    """Write a string so that YAML reads it as one, whatever it holds: JSON's strings are YAML's."""
    return json.dumps(text)
