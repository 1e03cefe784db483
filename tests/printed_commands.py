"""What is printed to be copied, read by the parsers of those who read it: shells, compose, Kubernetes, the servers."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import jsonschema
import real_options
import yaml
from conftest import FIXTURES
from typer.main import get_command

from cachedoctor.cli import make_app
from cachedoctor.model import FixStep

COUNT: Counter[str] = Counter()
"""How much each parser has read in this process."""
BLANK = re.compile(r"(?<!\[)\.\.\.|<[a-z][^>]*>")
"""What nobody can paste."""
OURS = re.compile(r"(?:LLAMA|VLLM|SGLANG)_")
"""Variables of servers; others are of clients and of ollama."""
SERVER = re.compile(r"(?:^|/)(?:llama-server|vllm)$|sglang\.launch_server$|:server$")
POD = "io.k8s.api.core.v1.Pod"
Options = list[tuple[str, str | None]]


def shell_reads(rows: Iterable[str]) -> None:
    """Hold rows against the grammar of a POSIX shell."""
    text = "\n".join(rows)
    said = _shell_says(text)
    assert said is None, (text, said)
    COUNT["sh -n"] += len(text.splitlines())


@cache
def _shell_says(text: str) -> bytes | None:
    """What a shell has against a script; None for nothing. Cases share most of what is printed."""
    done = subprocess.run(["sh", "-n"], input=text.encode(), capture_output=True, check=False)
    return None if done.returncode == 0 else done.stderr


def as_command(row: str) -> str:
    """A row of options after a program."""
    return f"program {row}" if row.startswith("-") else row


@cache
def _commands() -> dict[str, Any]:
    found: dict[str, Any] = get_command(make_app()).commands  # type: ignore[attr-defined]
    return found


def ours_read(rows: Iterable[str]) -> None:
    """Hold commands of this program against its own command line."""
    for row in rows:
        if row.startswith("cachedoctor "):
            _, name, *words = shlex.split(row)
            _commands()[name].make_context(name, words).close()
            COUNT["cachedoctor"] += 1


@cache
def _schema(name: str, kind: str | None = None) -> Any:
    found = json.loads((FIXTURES / "schemas" / f"{name}.json").read_text("utf-8"))
    if kind is not None:
        found = {"$ref": f"#/$defs/{kind}", "$defs": found["$defs"]}
    return jsonschema.Draft202012Validator(found)


def compose_reads(document: Any) -> None:
    """Hold a compose file against the schema of the Compose Specification."""
    _schema("compose-spec").validate(document)
    COUNT["compose schema"] += 1


def kubernetes_reads(document: Any, kind: str = POD) -> None:
    """Hold a manifest against Kubernetes' own schema, which refuses unknown keys."""
    _schema("kubernetes-1.37", kind).validate(document)
    COUNT["Kubernetes schema"] += 1


def pod(container: dict[str, Any]) -> dict[str, Any]:
    """A manifest around what is printed for a container."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{"name": "a", "image": "b", **container}]}}  # fmt: skip


def is_read(step: FixStep, launcher: str | None = None) -> None:
    """Hold the rows of a step against the parser of their form."""
    text = "\n".join(step.commands) + "\n"
    assert not BLANK.search(text), text
    if step.form in ("sh", "options"):
        shell_reads(map(as_command, step.commands))
    elif step.form == "yaml":
        found = yaml.safe_load(text)
        assert isinstance(found, dict)
        if launcher == "compose":
            compose_reads(found if "services" in found else {"services": {"a": found}})
        elif launcher == "kubernetes":
            kubernetes_reads(pod(found))
        else:
            assert set(found) <= {"models", "env"}, launcher
    elif step.form == "ini":
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read_string(text)
        assert unit.sections() == ["Service"]
    else:
        assert all(": " in row for row in step.commands)


def in_rows(engine: str, rows: Iterable[str]) -> Options:
    """Options and variables of servers in rows for a shell, and in rows of options."""
    found: Options = []
    for row in rows:
        words = shlex.split(row.rstrip("\\"))
        if words[:1] == ["-e"]:  # of docker run
            assert set(words[::2]) == {"-e"}, row
            found += _assigned(words[1::2])
        elif row.lstrip().startswith("-"):
            found += real_options.read(engine, words)
        elif words[:1] == ["export"]:
            found += _assigned(words[1:])
        elif (at := next((i for i, word in enumerate(words) if SERVER.search(word)), None)) is not None:
            found += _assigned(words[:at])
            ends = next((i for i, word in enumerate(words) if word in ("|", "2>&1", "&&", ";")), len(words))
            found += real_options.read(engine, words[at + 1 : ends])
    return found


def in_step(engine: str, step: FixStep) -> Options:
    """Options and variables of servers that a step of a fix sets."""
    if step.form in ("sh", "options"):
        return in_rows(engine, step.commands)
    if step.form == "yaml":
        return _in_yaml(engine, yaml.safe_load("\n".join(step.commands)))
    if step.form == "ini":
        rows = [row.partition("=") for row in step.commands[1:]]
        found = _assigned(
            word.replace("%%", "%") for key, _, value in rows if key == "Environment" for word in shlex.split(value)
        )
        return found + in_rows(engine, [value for key, _, value in rows if key == "ExecStart" and value])
    return []


def _in_yaml(engine: str, document: dict[str, Any]) -> Options:
    for key in ("services", "models"):
        if key in document:
            (document,) = document[key].values()
    env = document.get("environment", document.get("env", {}))
    if isinstance(env, dict):
        env = [f"{name}={value}" for name, value in env.items()]
    named = [f"{item['name']}={item['value']}" if isinstance(item, dict) else item for item in env]
    return _assigned(named) + real_options.read(engine, document.get("args", []))


def _assigned(words: Iterable[str]) -> Options:
    pairs = [word.partition("=") for word in words if "=" in word]
    return [(name, value) for name, _, value in pairs if OURS.match(name)]


def servers_take(options: Options, sessions: Sequence[dict[str, Any]], own: str | None = None) -> None:
    """Hold options against the parsers of the servers' builds; what is in ``own``, a user's line, is theirs."""
    typed = set(shlex.split(own or ""))
    options = [pair for pair in options if pair[0] not in typed and f"{pair[0]}={pair[1]}" not in typed]
    asked = [s for s in sessions if s["engine"] in real_options.FILES and not s.get("program")]
    if not options or not asked:
        return
    why = [real_options.refused(s["engine"], options, *span(s)) for s in asked]
    assert not all(why), why[0]
    COUNT[f"options, {asked[0]['engine']}"] += len(options)


def span(session: dict[str, Any]) -> tuple[Any, Any]:
    """Oldest and newest build or version that a session of a report may be."""
    name = "build" if session["engine"] == "llama.cpp" else "version"
    known = session.get(name)
    return (known, known) if known is not None else (session.get(f"{name}_min"), session.get(f"{name}_max"))
