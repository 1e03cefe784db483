"""Dumps of /metrics, responses and KV events given beside the logs, attached to their servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from cachedoctor.diagnosis.account.from_kv_events import KvFold
from cachedoctor.doctor.scratch import printable
from cachedoctor.inputs.captures import recognise
from cachedoctor.inputs.metrics import dump, dumps, kv_messages, responses
from cachedoctor.inputs.metrics.dump import Dump
from cachedoctor.inputs.metrics.responses import ResponseFile
from cachedoctor.inputs.sources.base import Source
from cachedoctor.knowledge.engines import ENGINES, METRICS_OF_LLAMA, in_blocks
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError, Counters, KvEvents, Session, Setting
from cachedoctor.prompts.prompt import Prompt
from cachedoctor.prompts.regular_files import open_file


class ServerCounts(NamedTuple):
    """Counts of the server; None is unknown."""

    prompt_tokens: int | None
    cached_tokens: int | None


_UNKNOWN = ServerCounts(None, None)


def of_prompt(prompt: Prompt) -> ServerCounts:
    """Read the answer that was recorded with a prompt."""
    found = responses.of_answer(prompt.answer)
    return _UNKNOWN if found is None else ServerCounts(found.prompt_tokens, found.cached_tokens)


MAX_DUMP = 64 * 1024 * 1024
"""Bytes of a dump; one of vLLM has about 50 KB for each engine."""
MAX_RESPONSES = 1024 * 1024 * 1024
"""Bytes of a file of responses."""
MAX_RECORDING = 16 * 1024 * 1024 * 1024
"""Bytes of a recording of KV events; it is read line by line."""
UNKNOWN = "unknown"
"""Engine of responses that any server may have written."""

_HEAD = 1 << 16
"""Bytes at the beginning of a file that show what it is."""
_DUMP = late(rb"# (?:HELP|TYPE) [a-zA-Z_:]")
_LLAMA = late(rb"# (?:HELP|TYPE) " + METRICS_OF_LLAMA.encode() + rb":")
_RESPONSE = late(rb"(?:[{\[]|data:)")
_SAYS = late(rb'"(?:usage|meta_info)"\s*:')
_RECORDING = late(rb'\{"type":"head","format":"cachedoctor\.kv/')
_WHAT = {"metrics": "a dump of /metrics", "responses": "responses", "kv-events": "recorded KV events"}
_EMPTY = {
    "metrics": "; ".join(known.metrics_hint for known in ENGINES.values() if known.metrics_hint),
    "responses": "give the server's JSON responses",
    "kv-events": "cachedoctor watch --kv-events tcp://HOST:5557 -o kv.jsonl writes a recording",
}

Open = Callable[[str, int], Source]


class ExtraInputs(msgspec.Struct):
    """What was read beside the logs."""

    lives: list[list[list[Counters]]] = msgspec.field(default_factory=list)
    """Runs of each server, the last run last."""
    given: list[ResponseFile] = msgspec.field(default_factory=list)
    kv_events: list[KvEvents] = msgspec.field(default_factory=list)


def load(
    metrics: Sequence[str],
    answers: Sequence[str],
    source_of: Open,
    max_unpacked: int,
    kv_events: Sequence[str] = (),
    asked: Sequence[Dump] = (),
) -> ExtraInputs:
    """Read all files.

    Args:
        source_of: makes what reads a path, and takes the bytes that it may unpack to.
        max_unpacked: what the user allows.
        asked: dumps that servers or Prometheus gave when they were asked.

    Raises:
        CacheDoctorError: one of them cannot be used.
    """
    found = list(asked)
    for path in _distinct(metrics):
        source = source_of(path, min(MAX_DUMP, max_unpacked))
        found += dumps.servers(_chunks(source, "metrics", MAX_DUMP), printable(path))
    given = []
    for path in _distinct(answers):
        source = source_of(path, min(MAX_RESPONSES, max_unpacked))
        given.append(responses.read(_chunks(source, "responses", MAX_RESPONSES), printable(path)))
    recorded = []
    for path in _distinct(kv_events):
        source, name = source_of(path, min(MAX_RECORDING, max_unpacked)), printable(path)
        recorded.append(KvFold(name).take(kv_messages.lines(_chunks(source, "kv-events", MAX_RECORDING), name)))
    return ExtraInputs(dump.lives(found), given, recorded)


def _distinct(paths: Sequence[str]) -> list[str]:
    """Each file once: the difference of a dump and itself is nothing."""
    return list({path if path == "-" else os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def _chunks(source: Source, option: str, most: int) -> Iterator[bytes]:
    """At most ``most`` bytes of a file, after a look at its beginning."""
    path, size, begun = printable(source.path), 0, False
    for chunk in source.chunks():
        head = chunk[:_HEAD].lstrip()
        if not begun and head:
            begun = True
            _refuse(path, head, option)
        size += len(chunk)
        if size > most:
            raise CacheDoctorError(f"{path}: is larger than {most >> 20:,} MiB", "give a part of the file")
        yield chunk
    if not begun:
        raise CacheDoctorError(f"{path}: is empty", _EMPTY[option])


def _refuse(path: str, head: bytes, option: str) -> None:
    """Refuse what is binary, or is what another option takes."""
    if b"\0" in head:
        raise CacheDoctorError(f"{path}: is binary", "give the server's text responses")
    other = _option(head)
    if other not in (None, option):
        raise CacheDoctorError(f"{path}: contains {_WHAT[str(other)]}", f"give the file with --{other}")


def _option(head: bytes) -> str | None:
    """The option that takes what a file begins with; None where none does."""
    if _DUMP.match(head):
        return "metrics"
    if _RECORDING.match(head):
        return "kv-events"
    return "responses" if _RESPONSE.match(head) and _SAYS.search(head) else None


def hint(path: str) -> str | None:
    """Say how a file that was given as a log is to be given, when it is a dump or holds requests or responses."""
    if is_recording(path):
        return f"the file contains recorded requests: cachedoctor lint {path}, or analyze LOG --requests {path}"
    head = _begin(path, _HEAD).lstrip()
    option = None if _LLAMA.match(head) else _option(head)  # llama-server does not count what was reused
    return None if option is None else f"the file contains {_WHAT[option]}: cachedoctor analyze --{option} {path}"


def is_recording(path: str) -> bool:
    """Whether a file begins like what another program recorded, in JSON."""
    return recognise.looks(_begin(path, recognise.HEAD))


def _begin(path: str, most: int) -> bytes:
    """Return the first bytes of a file; of a pipe, a device and what cannot be read none."""
    try:
        with open_file(path, "") as file:
            return file.read(most)
    except (CacheDoctorError, OSError, ValueError):
        return b""


# ---- which server it is of


def attach(extras: ExtraInputs, sessions: list[Session], new: Callable[[str, str | None], Session]) -> None:
    """Give everything to the last life of the server that it is of, or to a session without lines.

    Args:
        aside: what was read.
        sessions: those of the logs; grows by what ``new`` makes.
        new: makes a session for a path and an origin.
    """
    logged = _last_lives(sessions)
    for lives in extras.lives:
        for life in lives:
            rivals = sum(others[-1][0].source == life[0].source for others in extras.lives)
            session = _counted_by(life, logged, rivals) if life is lives[-1] else None
            if session is None:
                session = _own(new(life[-1].path, None), life[0].source, life[0].model)
            session.counters += life
            _equip(session, life)
    servers = _last_lives(sessions)
    for given in extras.given:
        session = _answered_by(given, servers)
        if session is None:
            session = _own(new(given.answers.path, None), given.engine or UNKNOWN, given.model)
        session.answers.append(given.answers)
    for events in extras.kv_events:
        session = _published_by(_last_lives(sessions))
        if session is None:
            session = _own(new(events.path, None), UNKNOWN, None)
        session.kv_events.append(events)


def _published_by(servers: list[Session]) -> Session | None:
    """The only server that publishes KV events: no recording names the model."""
    fitting = [s for s in servers if s.engine in ENGINES]
    return fitting[0] if len(fitting) == 1 else None


def _last_lives(sessions: list[Session]) -> list[Session]:
    """The last session of every server that anything is known of."""
    known = (s for s in sessions if s.n_requests or s.seen or s.counters or s.answers)
    return list({(s.path, s.origin): s for s in known}.values())


def _own(session: Session, engine: str, model: str | None) -> Session:
    """A server of which there is no log."""
    session.engine = engine
    session.learn(model=model)
    return session


def _counted_by(life: list[Counters], logged: list[Session], rivals: int) -> Session | None:
    """The server of the logs that counted this; None where none fits, or several do."""
    fitting = [s for s in logged if s.engine == life[0].source and not _contradicts(s, life[-1])]
    if rivals > 1 or len(fitting) > 1:
        fitting = [s for s in fitting if _same_model(s.model, life[0].model)]
    return fitting[0] if len(fitting) == 1 else None


def _answered_by(given: ResponseFile, servers: list[Session]) -> Session | None:
    fitting = [s for s in servers if given.engine in (None, s.engine)]
    if len(fitting) > 1:
        fitting = [s for s in fitting if _same_model(s.model, given.model)]
    return fitting[0] if len(fitting) == 1 else None


def _same_model(one: str | None, other: str | None) -> bool:
    """Whether two names are of one model, which a log may name with its folder."""
    return bool(one and other) and os.path.basename(str(one)) == os.path.basename(str(other))


def _contradicts(session: Session, counters: Counters) -> bool:
    logged, counted = session.setting("prefix_caching"), _FACTS["prefix_caching"](counters.config)
    return logged is not None and counted is not None and logged != counted


# ---- facts


def _caching(config: dict[str, str]) -> bool | None:
    return {"True": True, "False": False}.get(config.get("enable_prefix_caching", ""))


def _number(name: str) -> Callable[[dict[str, str]], int | None]:
    def read(config: dict[str, str]) -> int | None:
        text = config.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None

    return read


def _mamba_mode(config: dict[str, str]) -> str | None:
    mode = config.get("mamba_cache_mode")
    return mode if mode in ("align", "all", "none") else None


def _attention_block(config: dict[str, str]) -> int | None:
    """The enlarged block of a model with recurrent layers; of others it is the size of every block."""
    return _number("effective_attention_block_size")(config) if _mamba_mode(config) in ("align", "all") else None


_FACTS: dict[str, Callable[[dict[str, str]], bool | int | str | None]] = {
    "prefix_caching": _caching,
    "block_size": _number("block_size"),
    "kv_tokens": _number("kv_cache_size_tokens"),
    "mamba_mode": _mamba_mode,
    "attention_block": _attention_block,
    "match_unit": _number("cache_hit_alignment_tokens"),
    "retention_interval": _number("prefix_cache_retention_interval"),
}
"""Settings that vLLM's cache_config_info contains; the size in tokens since 0.32."""


def _equip(session: Session, life: list[Counters]) -> None:
    """Take facts of the dumps where the log is silent and all engines say the same."""
    for name, read in _FACTS.items():
        said = {read(counters.config) for counters in life}
        value = said.pop()
        if not said and value is not None and name not in session.settings:
            session.settings[name] = Setting(value, None)
    # With caching on every prompt is looked up (0.9.2 to 0.33).
    never = all(c.looked_up == 0 and c.prompt_tokens for c in life)
    if never and in_blocks(life[0].source) and "prefix_caching" not in session.settings:
        session.settings["prefix_caching"] = Setting(False, None)
