"""The fix of every server of a report: findings merged into one set of options, in the form of what starts it.

The cheapest test stands first. Command lines are shown without their secrets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.knowledge import builds, cmdline, engines, server_options
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import (
    ClientSetting,
    Finding,
    Fix,
    FixStep,
    InputInfo,
    Launcher,
    OptionChange,
    OtherFix,
    Remedy,
    Session,
)
from cachedoctor.redaction.secrets import hidden, regions
from cachedoctor.report.launchers.command_words import Word, words
from cachedoctor.report.launchers.forms import LaunchRequest, form

_OPTION = late(
    r"(?:-hft|--(?:[a-z0-9]+-)*(?:api-keys?|keys?|token|password|passwd|passphrase|secret|secret-key|access-key))\Z"
)
"""Options whose value is a secret; those that name a file of keys end otherwise: ``--api-key-file``."""
_MANY = late(r"--(?:[a-z0-9]+-)*api-keys?\Z")
"""Options that may have several values."""
_VARIABLE = late(
    r"(?P<name>[A-Za-z_]\w*?(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|PAT|CREDENTIALS?|AUTH)S?|TOKEN|PASSWORD)"
    r"=(?P<value>.+)",
    re.IGNORECASE | re.DOTALL,
)
_ASSIGNED = late(r"(?P<name>[A-Za-z_]\w*)=")
_STANDS_IN = late(r"\$\{?\w+\}?\Z")
"""A value that is already a variable."""
_HARMLESS = ("<user>", "<mail>")
"""Placeholders of regions that stay in the command, which needs them, and that are not secrets: a user's folder."""
_COUNT = late(r"\d{1,9}\Z")


class Masked(NamedTuple):
    """A command line that may be shown."""

    line: str
    names: list[str]
    """Variables that stand for its secrets."""


def masked(line: str) -> Masked:
    """Put a variable for each value that opens something: ``--api-key "$API_KEY"``, ``HF_TOKEN="$HF_TOKEN"``."""
    found, names = words(line), list[str]()
    new, end = list[str](), 0
    at_option: str | None = None
    for word in found:
        name, written = _of(word, at_option)
        if name is not None:
            number = sum(used == name or re.fullmatch(rf"{name}_\d+", used) is not None for used in names)
            name = f"{name}_{number + 1}" if number else name
            names.append(name)
            new += line[end : word.start], f'{written}"${name}"'
            end = word.end
        option = word.text.replace("_", "-").lower() if word.text.startswith("-") else None
        if option is not None:
            at_option = option if _OPTION.match(option) is not None else None
        elif at_option is not None and _MANY.match(at_option) is None:
            at_option = None
        if word.operator:
            at_option = None
    return Masked("".join([*new, line[end:]]), names)


def _of(word: Word, option: str | None) -> tuple[str | None, str]:
    """(variable for the secret in a word, what comes before it); no variable where there is none."""
    if word.operator or _STANDS_IN.match(word.text):
        return None, ""
    head, equals, value = word.text.partition("=")
    if option is not None and not word.text.startswith("-"):
        is_count = _COUNT.match(word.text) is not None and _MANY.match(option) is None
        return (None, "") if is_count else (_variable(option), "")
    given = head.replace("_", "-").lower()
    if equals and value and _OPTION.match(given) is not None:
        return (None, "") if _STANDS_IN.match(value) else (_variable(given), f"{head}=")
    assigned = _VARIABLE.fullmatch(word.text)
    if assigned is not None:
        is_kept = _STANDS_IN.match(assigned["value"]) or _COUNT.match(assigned["value"])
        return (None, "") if is_kept else (assigned["name"], f"{assigned['name']}=")
    if all(region.shown in _HARMLESS for region in regions(word.text)):
        return None, ""
    named = _ASSIGNED.match(word.text)
    return ("SECRET", "") if named is None else (named["name"], f"{named['name']}=")


def _variable(option: str) -> str:
    name = "HF_TOKEN" if option == "-hft" else option.lstrip("-").replace("-", "_").upper()
    return f"OPTION_{name}" if name[:1].isdigit() else name


_LARGER = frozenset({"cache_ram", "ctx_checkpoints", "sleep_idle_seconds"})
"""Options whose larger value is enough for every finding."""
_SMALLER = frozenset({"checkpoint_min_step"})


class Wish(msgspec.Struct, frozen=True):
    """What one finding asks for."""

    finding: Finding
    remedy: Remedy


class Merged(msgspec.Struct, frozen=True):
    """One set of options."""

    options: list[OptionChange]
    notes: list[str]
    """Notes on options for which findings need different values."""
    served: list[Wish]
    """Wishes whose options are all among them, perhaps with larger values."""


def chosen(findings: Sequence[Finding]) -> list[Wish]:
    """Give of every finding that is not a mere suspicion the first remedy that fixes it and says what to change."""
    found = []
    for finding in findings:
        if finding.confidence == "low":
            continue
        fixes = (r for r in finding.remedies if r.purpose == "fix" and (r.options or r.settings))
        remedy = next(fixes, None)
        if remedy is not None:
            found.append(Wish(finding, remedy))
    return found


def key_of(change: OptionChange) -> str:
    """What two spellings of one option have in common."""
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    return change.name if entry is None or change.variable or change.remove else entry[0].key


def merged(wishes: Sequence[Wish], session: Session | None) -> Merged:
    """Merge options, those of the costliest finding first; where two exclude each other the first one counts."""
    taken: dict[str, tuple[OptionChange, Finding]] = {}
    notes: list[str] = []
    served = []
    for wish in wishes:
        refused = [note for change in wish.remedy.options if (note := _take(taken, change, wish.finding, session))]
        notes += refused
        if not refused:
            served.append(wish)
    options = {key: change for key, (change, _) in taken.items()}
    _fit_context(options, served, session)
    return Merged([c for c in options.values() if not _contradicts(c, options)], list(dict.fromkeys(notes)), served)


def _contradicts(change: OptionChange, options: dict[str, OptionChange]) -> bool:
    """Whether an option that is to be left out is set by another finding: what is set replaces it."""
    if not change.remove:
        return False
    entry = server_options.BY_NAME.get(server_options.plain(change.name))
    return entry is not None and not change.variable and entry[0].key in options


def _take(
    taken: dict[str, tuple[OptionChange, Finding]], change: OptionChange, by: Finding, session: Session | None
) -> str | None:
    """Take a change, or say why another one stays."""
    key = key_of(change)
    before = taken.get(key)
    if before is None or before[0] == change:
        taken.setdefault(key, (change, by))
        return None
    old, owner = before
    numbers = _numbers(old, change)
    if key == "ctx_size":
        taken[key] = (change, by) if numbers is not None and numbers[1] > numbers[0] else before
        return None
    rises = key == "parallel" and numbers is not None and min(numbers) >= ((session and session.n_slots) or 1)
    if numbers is not None and (key in _LARGER or key in _SMALLER or rises):
        wins = (numbers[1] > numbers[0]) != (key in _SMALLER)
        taken[key] = (change, by) if wins else before
        return None
    return (
        f"{by.code} {by.name} suggests {_said(change)}, {owner.code} {owner.name} suggests "
        f"{_said(old)}. The second value is used, because its finding costs more"
    )


def _said(change: OptionChange) -> str:
    return " ".join(change.words) or f"no {change.name}"


def _numbers(*changes: OptionChange) -> tuple[float, ...] | None:
    """Values as numbers, no limit (-1) as more than any; None where one is none."""
    try:
        values = [float(change.value or "x") for change in changes]
    except ValueError:
        return None
    return tuple(float("inf") if value == -1 else value for value in values)


def _fit_context(options: dict[str, OptionChange], served: Sequence[Wish], session: Session | None) -> None:
    """Give the slots together what each finding wanted for one, where the context is divided among them."""
    slots = _int(options.get("parallel"))
    if session is None or "ctx_size" not in options or slots is None or _unified(options, session):
        return
    each = [share for wish in served if (share := _share(wish.remedy, session))]
    if each:
        old = options["ctx_size"]
        options["ctx_size"] = OptionChange(old.name, str(max(each) * slots))


def _share(remedy: Remedy, session: Session) -> int | None:
    """Tokens of one slot that a remedy asks for."""
    wanted = {key_of(change): change for change in remedy.options}
    context, slots = _int(wanted.get("ctx_size")), _int(wanted.get("parallel")) or session.n_slots
    return None if context is None or not slots else -(-context // slots)


def _unified(options: dict[str, OptionChange], session: Session) -> bool:
    asked = options.get("kv_unified")
    if asked is not None:
        return "--no" not in asked.name
    return session.setting("kv_unified") is True


def _int(change: OptionChange | None) -> int | None:
    return int(change.value) if change is not None and change.value is not None and change.value.isdigit() else None


_PROGRAMS: dict[str, Launcher] = {"ollama": "ollama", "LM Studio (MLX)": "lm-studio"}
_SAME_OPTIONS = frozenset({"ik_llama.cpp"})
"""Programs whose options are llama-server's, nearly all."""
_ASIDE: frozenset[Launcher] = frozenset({"docker", "compose", "systemd", "kubernetes", "llama-swap"})
"""Launchers that hold options as variables."""
_UNSHOWN: frozenset[Launcher | None] = frozenset({"compose", "kubernetes", "llama-swap"})
"""Launchers whose form holds options alone, not the whole command line."""
_FIRST = (
    "a variable has no effect if the server's command has the option; in that case, change the option in the command"
)
_Server = tuple[str | None, str | None]
"""Input of a server, and the name in its wrapper."""
_REPLICA = late(r"[-_]\d{1,4}$")


class StartInfo(msgspec.Struct, frozen=True):
    """What somebody says of the start of the server."""

    launcher: Launcher | None = None
    line: str | None = None
    """The command line that started it."""
    file: str | None = None
    """File that holds that line, as ``--file`` of ``fix`` takes it, with ``--service`` if that was given."""


def fixes(
    findings: Sequence[Finding],
    sessions: Sequence[Session],
    inputs: Sequence[InputInfo],
    told: StartInfo | None = None,
    *,
    whole: bool = False,
    replayed: Sequence[Fix] = (),
) -> list[Fix]:
    """Give one fix for every server with findings that something fixes, in the order of its costliest finding.

    Args:
        told: what somebody says of the start; without a line of it the one counts that is in a pasted issue.
        whole: give a command line with secrets in it, with variables in their place; else it is left out.
        replayed: fixes of the same log; what the replay said of the same options holds for these, too.
    """
    told = told or StartInfo()
    by_server: dict[_Server, list[Wish]] = {}
    for wish in chosen(findings):
        by_server.setdefault((wish.finding.path, wish.finding.origin), []).append(wish)
    others = _others(findings, by_server)
    starts = {info.path: info.launcher for info in inputs}
    replays = {(one.path, one.origin, *one.options): one.replay for one in replayed}
    found = []
    for path, origin in dict.fromkeys([*by_server, *others]):
        wishes = by_server.get((path, origin), [])
        session = _session(sessions, path, origin)
        start = starts.get(path or "")
        line = told.line or (session.cmdline if session is not None else None)
        is_anothers = line is not None and session is not None and not cmdline.is_for(line, session.engine)
        line = None if is_anothers else line
        launcher = _launcher(session, start, msgspec.structs.replace(told, line=line))
        hides = Masked("", [])
        if line is not None and launcher not in _UNSHOWN:
            hides = masked(line)
            line = hides.line if whole else None if hidden(line) != line or hides.names else line
        # The wrapper of another launcher names its own things: a port, a container.
        name = _place(origin, launcher) if start is not None and start == launcher else None
        one = _fix(wishes, session, (path, origin), launcher, name, line)
        one.replay = replays.get((path, origin, *one.options))
        if line is not None and hides.names and one.options:
            variables = " ".join(f"${name}" for name in hides.names)
            one.notes.append(
                f"keys in the command line are replaced with variables: set {variables}, or write the keys instead"
            )
        if is_anothers:
            one.notes.append("the given command line starts a different server and was ignored")
        if told.file is not None and one.options and path not in (None, "-") and not is_anothers:
            one.notes.append(f"as a patch: cachedoctor fix {shlex.quote(path)} --file {told.file}")
        if launcher is not None and not _foreign(session):
            asked = msgspec.structs.replace(_asked([], session, name), line=line)
            one.others = [
                OtherFix(options, *form(msgspec.structs.replace(asked, changes=options), launcher))
                for options in others.get((path, origin), [])
            ]
        if wishes or one.others:
            found.append(one)
    return found


def _others(
    findings: Sequence[Finding], by_server: Mapping[_Server, Sequence[Wish]]
) -> dict[_Server, list[list[OptionChange]]]:
    """Options that remedies of a server ask for and that are not merged, each once."""
    merged_ones = {id(wish.remedy) for wishes in by_server.values() for wish in wishes}
    found: dict[_Server, list[list[OptionChange]]] = {}
    for finding in findings:
        for remedy in finding.remedies:
            if remedy.options and id(remedy) not in merged_ones:
                known = found.setdefault((finding.path, finding.origin), [])
                if remedy.options not in known:
                    known.append(remedy.options)
    return found


def _session(sessions: Sequence[Session], path: str | None, origin: str | None) -> Session | None:
    """The last life of a server with requests, or its last."""
    own = [s for s in sessions if (path is None or s.path == path) and s.origin == origin]
    return next((s for s in reversed(own) if s.n_requests), own[-1] if own else None)


def _launcher(session: Session | None, start: Launcher | None, told: StartInfo) -> Launcher | None:
    if told.launcher is not None:
        return told.launcher
    if session is not None and session.program in _PROGRAMS:
        return _PROGRAMS[session.program]
    if start is not None:
        return start
    if told.line is None:
        return None
    try:
        return "docker" if cmdline.container_at(shlex.split(told.line)) is not None else "shell"
    except ValueError:
        return "shell"


def _fix(
    wishes: list[Wish],
    session: Session | None,
    server_of: _Server,
    launcher: Launcher | None,
    name: str | None,
    line: str | None,
) -> Fix:
    one = merged(wishes, session)
    settings = list(dict.fromkeys(s for wish in wishes for s in wish.remedy.settings))
    server, notes = _server_steps(one, session, launcher, name, line)
    served = [wish.finding for wish in one.served]
    return Fix(
        *server_of, _engine(session), _named(session), launcher,
        [f.code for f in served], [f.name for f in served], [] if _foreign(session) else one.options, settings,
        [*_client_steps(settings), *server],
        [] if launcher in _PROGRAMS.values() or _foreign(session) else _costs(one.options, session),
        [*one.notes, *notes],
    )  # fmt: skip


def _foreign(session: Session | None) -> bool:
    """Whether a server is a program whose options are not llama-server's."""
    program = session.program if session is not None else None
    return program is not None and program not in _PROGRAMS and program not in _SAME_OPTIONS


def _server_steps(
    one: Merged, session: Session | None, launcher: Launcher | None, name: str | None, line: str | None
) -> tuple[list[FixStep], list[str]]:
    program = session.program if session is not None else None
    if one.options and _foreign(session):
        words = " ".join(word for change in one.options for word in change.words)
        return [], [f"{program} has its own options (see its --help); the llama-server options are {words}"]
    steps, notes = form(msgspec.structs.replace(_asked(one.options, session, name), line=line), launcher)
    if launcher in _ASIDE and line is None and any("LLAMA_ARG_" in row for step in steps for row in step.commands):
        notes = [*notes, _FIRST]
    return steps, notes


def asked_of(fix: Fix, sessions: Sequence[Session], launcher: Launcher | None) -> LaunchRequest:
    """What a fix asks of the launcher of its server."""
    name = _place(fix.origin, launcher) if launcher == fix.launcher else None
    return _asked(fix.options, _session(sessions, fix.path, fix.origin), name)


def _asked(changes: list[OptionChange], session: Session | None, name: str | None) -> LaunchRequest:
    engine = "llama.cpp" if session is None else session.program or session.engine  # a fork has builds of its own
    return LaunchRequest(changes, engine, *_span(session), name)


def _place(origin: str | None, launcher: Launcher | None) -> str | None:
    """Name of a service or container by that of the wrapper: compose numbers its containers."""
    if origin is None:
        return None
    name = origin.rpartition("/")[2] if launcher == "kubernetes" else origin.partition("/")[0]
    return _REPLICA.sub("", name) if launcher == "compose" else name


def _span(session: Session | None) -> tuple[int | None, int | None]:
    if session is None:
        return None, None
    return (session.build, session.build) if session.build is not None else (session.build_min, session.build_max)


def _engine(session: Session | None) -> str:
    return "" if session is None else session.program or session.engine


def _named(session: Session | None) -> str:
    if session is None:
        return "the server"
    if session.program is not None:
        return session.program
    if session.engine == "llama.cpp":
        known = session.build or session.build_min or session.build_max
        return "llama-server" + (f" {builds.describe(session.build, *_span(session))}" if known else "")
    name = engines.title(session.engine)
    return f"{name} {session.version}" if session.version else name


def _client_steps(settings: Sequence[ClientSetting]) -> list[FixStep]:
    """What to change in clients: no server has to be started again for that."""
    steps = []
    for client in dict.fromkeys(s.client for s in settings):
        own = [s for s in settings if s.client == client and s.variable is not None]
        sets = [f"{s.variable}={s.value}" for s in own if s.value is not None]
        unset = [s.variable or "" for s in own if s.value is None]
        rows = [*([f"export {shlex.join(sets)}"] if sets else []), *([f"unset {shlex.join(unset)}"] if unset else [])]
        files = [f"{s.key} in {s.file}" for s in own if s.file and s.key]
        where = f" (or set {' and '.join(files)})" if files else ""
        steps.append(FixStep("client", f"in the environment of {client}, then restart the client{where}", rows))
    return steps


def _costs(options: Sequence[OptionChange], session: Session | None) -> list[str]:
    """What the options take, as far as the log prints sizes."""
    found = []
    values = {key_of(c): int(c.value) for c in options if c.value is not None and c.value.isdigit()}
    if (mib := values.get("cache_ram")) is not None:
        now = session.setting("cache_ram_mib") if session is not None else None
        has = f" (now {now:,} MiB)" if isinstance(now, int) and now >= 0 else ""
        found.append(f"--cache-ram needs up to {mib:,} MiB of main memory{has}, and no VRAM")
    if (count := values.get("ctx_checkpoints")) is not None and session is not None:
        size, slots = session.sizes.checkpoint, values.get("parallel") or session.n_slots
        if size and slots:
            found.append(f"--ctx-checkpoints needs up to {count * slots * size:,.0f} MiB of main memory in all slots")
    if (context := values.get("ctx_size")) is not None and session is not None:
        now = session.setting("n_ctx")
        has = f" instead of {now:,}" if isinstance(now, int) else ""
        found.append(f"--ctx-size needs KV memory for {context:,} tokens{has}")
    return found
