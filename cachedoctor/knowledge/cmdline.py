"""Reads command lines of llama-server, and the settings of ollama, LM Studio and Jan that correspond to its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from cachedoctor.knowledge import server_options
from cachedoctor.knowledge.engines import ENGINES, PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.server_options import Option, Value
from cachedoctor.model import CacheDoctorError, GivenOption, Launcher

_PROGRAM = late(r"(?:^|[/\\:=])(?:llama-server|server)(?:\.exe)?$|llama-server\.exe$", re.IGNORECASE)
_OTHERS = late(rf"(?:^|[\s/])(?:{'|'.join(f'(?P<{name}>{facts.starts})' for name, facts in ENGINES.items())})\b")
_OTHER_IMAGES = late(PATTERN, re.IGNORECASE)
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_ALONE = frozenset(
    f"--{name}"
    for name in (
        "detach",
        "init",
        "interactive",
        "no-healthcheck",
        "oom-kill-disable",
        "privileged",
        "publish-all",
        "quiet",
        "read-only",
        "rm",
        "sig-proxy",
        "tty",
    )
)
"""Options of ``docker run`` that take no value (and the letters below); all others do."""
_ALONE_LETTERS = "diPqt"
_ASSIGNMENT = late(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CONTINUED = late(r"[\\^`]\r?\n")
"""The line continues: POSIX shells, cmd, PowerShell."""
_ENDS = frozenset({"|", "||", "&&", "&", ";", "|&"})
_WHOLE, _DECIMAL = late(r"-?\d{1,18}"), late(r"-?\d{0,18}\.\d{1,18}")
_GIVE = "give the server's command: --cmdline 'llama-server -m ...'"
_TRUE, _FALSE = frozenset({"1", "true", "on", "enabled"}), frozenset({"0", "false", "off", "disabled"})
_COLOURS = _TRUE | _FALSE | {"auto", "-1"}


def parse(line: str) -> list[GivenOption]:
    """Return the options of the table (and names that never were) in the order in which the server takes them.

    Raises:
        CacheDoctorError: the quotes are not balanced, or nothing is there.
    """
    words = _words(line)
    if not words:
        raise CacheDoctorError("--cmdline: is empty", _GIVE)
    if not any(word.startswith("-") or _ASSIGNMENT.fullmatch(word) or _starts(word) for word in words):
        raise CacheDoctorError("--cmdline: has no option and no llama.cpp program", _GIVE)
    variables, arguments = _split(words)
    return [*_environment(variables), *_options(arguments)]


def is_program(word: str) -> bool:
    """Whether a word names the server, with or without its path."""
    return _PROGRAM.search(word) is not None


def engine_of(line: str) -> str | None:
    """Server that a command line starts, named as in sessions; None if the command line does not show it."""
    other = _OTHERS.search(line)
    if other is not None:
        return other.lastgroup
    try:
        words = _words(line)
    except CacheDoctorError:
        return None
    if any(map(is_program, words)):
        return "llama.cpp"
    container = container_at(words)
    if container is None:
        return None
    behind = words[container + 1 :]
    at, _ = image_at(behind)
    image = _OTHER_IMAGES.search(behind[at]) if at < len(behind) else None
    return None if image is None else image[0].lower()


def is_for(line: str, engine: str) -> bool:
    """Whether a command line may have started a server of ``engine``, forks of llama.cpp among them."""
    started = engine_of(line)
    return started in (None, engine) or (started == "llama.cpp" and engine not in ENGINES)


def _starts(word: str) -> bool:
    return is_program(word) or _file_name(word) in _CONTAINERS


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _words(line: str) -> list[str]:
    """Words as a shell reads them, or the strings of a JSON list, as ``docker inspect`` and compose files have them."""
    if line.lstrip().startswith("["):
        try:
            return msgspec.json.decode(line.encode("utf-8", "surrogateescape"), type=list[str])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            hint = 'put the words of a list in quotes: ["llama-server", "-c", "32768"]'
            raise CacheDoctorError("--cmdline: is not a JSON list of words", hint) from None
    try:
        return shlex.split(_CONTINUED.sub(" ", line))
    except ValueError as error:
        raise CacheDoctorError(
            f"--cmdline: {str(error).lower()}", "put the whole command line in quotes: --cmdline 'llama-server -m ...'"
        ) from None


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """(assignments, words after the program). Wrappers such as sudo, nohup, env and taskset come before it."""
    container = container_at(words)
    program = next((i for i, word in enumerate(words) if _PROGRAM.search(word)), None)
    if container is not None and (program is None or container < program):
        return _container(words[container + 1 :])
    if program is None:
        program = next((i for i, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
        if program < len(words) and words[program].startswith("-"):
            program -= 1  # the options alone
    return words[: max(program, 0)], _until_end(words[program + 1 :])


def _until_end(words: list[str]) -> list[str]:
    """Words up to a pipe or another command."""
    ends = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
    return words[:ends]


def image_at(words: list[str]) -> tuple[int, list[str]]:
    """(place of the image, variables) in the words after ``docker``: ``run -e A=1 ... image arguments``."""
    variables: list[str] = []
    at = words.index("run") + 1 if "run" in words else 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        alone = name in _ALONE or bool(re.fullmatch(f"-[{_ALONE_LETTERS}]+", name))
        if not equals and not alone:
            at += 1
            value = words[at] if at < len(words) else ""
        if name in ("-e", "--env"):
            variables.append(value)
        at += 1
    return at, variables


def container_at(words: list[str]) -> int | None:
    """Position of the program that runs a container; None if there is none."""
    return next((i for i, word in enumerate(words) if re.split(r"[/\\]", word)[-1] in _CONTAINERS), None)


def _container(words: list[str]) -> tuple[list[str], list[str]]:
    at, variables = image_at(words)
    arguments = _until_end(words[at + 1 :])
    if arguments and _PROGRAM.search(arguments[0]):
        arguments = arguments[1:]
    return variables, arguments


def _environment(words: list[str]) -> Iterator[GivenOption]:
    for word in words:
        found = _ASSIGNMENT.fullmatch(word)
        if found is None or found[1] not in server_options.BY_NAME:
            continue
        option, _, _ = server_options.BY_NAME[found[1]]
        value = None if found[1] in server_options.UNREAD_ENV else read_value(option, found[2])
        yield GivenOption(found[1], option.key, value, env=True)


def _options(words: list[str]) -> Iterator[GivenOption]:
    at = 0
    while at < len(words):
        word = words[at]
        name = server_options.plain(word)
        at += 1
        if name in server_options.NEVER:
            yield GivenOption(word, None, None)
        elif name in server_options.BY_NAME and not name.startswith("LLAMA_"):
            option, _, on = server_options.BY_NAME[name]
            value: Value = on
            if option is server_options.LOG_COLORS and not _COLOURS.intersection(words[at : at + 1]):
                value = True  # of old builds, a switch
            elif option.kind != "switch" and on:
                value = read_value(option, words[at]) if at < len(words) else None
                at += 1
            yield GivenOption(word, option.key, value)


def read_value(option: Option, text: str) -> Value:
    """Return the value as the server reads it; None for an invalid value (``$N`` of a script)."""
    if option.kind == "text":
        return text
    if option.kind == "switch":
        low = text.lower()
        return True if low in _TRUE else False if low in _FALSE else None
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def settings(given: list[GivenOption]) -> dict[str, bool | int | float | str]:
    """Facts about the server that the options show, under the names that the log's own lines have, too.

    Units as there: ``cache_ram_mib`` in MiB (-1: no limit), ``n_ctx`` in tokens, ``n_slots`` only where it is certain.
    """
    last = {g.option: g.value for g in given if g.option is not None and g.value is not None}
    out: dict[str, bool | int | float | str] = {}
    for key, name in _SETTINGS.items():
        value = last.get(key)
        if value is not None:
            out[name] = value
    slots, context = last.get("parallel"), last.get("ctx_size")
    if isinstance(slots, int) and slots > 1:  # 1 may become 4 (b7079 to b7376), -1 is the server's choice
        out["n_slots"] = slots
        out.setdefault("kv_unified", False)
    if isinstance(context, int) and context > 0:
        out["n_ctx"] = context
    if "mmproj" in last:
        out["mmproj"] = last["mmproj"] is not False
    return out


_SETTINGS = {
    "cache_ram": "cache_ram_mib", "ctx_checkpoints": "ctx_checkpoints", "checkpoint_min_step": "checkpoint_min_step",
    "swa_full": "swa_full", "kv_unified": "kv_unified", "cache_idle_slots": "cache_idle_slots",
    "cache_prompt": "cache_prompt", "context_shift": "context_shift", "reasoning_preserve": "reasoning_preserve",
    "cache_reuse": "cache_reuse",
}  # fmt: skip
"""Key of the option -> setting of the session."""


OLLAMA = {
    "parallel": "OLLAMA_NUM_PARALLEL",
    "ctx_size": "OLLAMA_CONTEXT_LENGTH",
    "cache_type_k": "OLLAMA_KV_CACHE_TYPE",
}
"""Key of an option of llama-server -> variable of ollama."""

LM_STUDIO = {"parallel": "Max Concurrent Predictions", "ctx_size": "Context Length"}
"""Key of an option of llama-server -> setting of LM Studio's model loader."""

LM_STUDIO_FIELD = "in LM Studio's advanced load parameters, as llama.cpp parameters (from September 2026 on)"
"""Where all other options are set."""

LM_STUDIO_OLD = "LM Studio before September 2026 has no setting for {options}"

LM_STUDIO_PROMPTS = ["lms log stream --source model --filter input"]
"""Prints every prompt as the model gets it: https://lmstudio.ai/docs/cli/log-stream."""

JAN = {
    "parallel": "Parallel Sequences",
    "ctx_size": "Context Size (of the model)",
    "cache_ram": "Prompt Cache RAM (MiB)",
    "cache_reuse": "Cache Reuse",
    "cache_type_k": "KV Cache K Type",
    "cache_type_v": "KV Cache V Type",
}
"""Key of an option of llama-server -> setting of Jan."""

JAN_SETTINGS = "in Jan: Settings > Model Providers > Llama.cpp"

JAN_VARIABLES = "Environmental variables"
"""The setting that takes all other options."""

JAN_LATER = frozenset({"cache_ram", "cache_reuse"})
"""Settings that Jan has had since 2026 only."""

FASTER: dict[Launcher, str] = {
    "lm-studio": "more GPU Offload, a larger Evaluation Batch Size",
    "jan": "more GPU Layers, a larger uBatch Size",
    "ollama": "more layers on the GPU",
}
"""What makes prompts faster, in the words of the launcher's settings; other launchers use llama-server options."""

FIXED_LOG: dict[Launcher, str] = {"lm-studio": "LM Studio"}
"""Launchers whose users set no variable and no level of llama.cpp's log."""

HANDS_ON: dict[Launcher, str] = {"ollama": "ollama serve", "jan": "Jan"}
"""What to restart, by launcher: these pass their own environment, or variables of a setting, to the llama-server they
start (ollama, llm/llama_server.go: ``cmd.Env = os.Environ()``; https://github.com/ollama/ollama/pull/18265)."""

NAMES = {
    "shell": "a shell", "docker": "docker run", "compose": "docker compose", "systemd": "systemd",
    "kubernetes": "Kubernetes", "llama-swap": "llama-swap", "ollama": "ollama", "lm-studio": "LM Studio",
    "jan": "Jan",
}  # fmt: skip
"""Names of the launchers in texts."""
