"""Batch, pipe and tail: loops around one Analyzer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from cachedoctor.diagnosis.rules import names
from cachedoctor.doctor.analysis.analyzer import Analyzer
from cachedoctor.doctor.scratch import printable
from cachedoctor.inputs.sources.base import Source, SourceError, Told, unheard
from cachedoctor.inputs.sources.unpack import MAX_BYTES
from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.knowledge.texts import base_name
from cachedoctor.model import AnalysisOptions, GivenOption, Report

if TYPE_CHECKING:
    from cachedoctor.doctor.extras.extra_inputs import ExtraInputs
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
    from cachedoctor.inputs.metrics.dump import Dump
    from cachedoctor.inputs.sources.stdin import BegunSource


class Beside(msgspec.Struct, frozen=True):
    """What is known beside the logs."""

    cmdline: str | None = None
    """What started the server."""
    prompts: Sequence[str] = ()
    """Request bodies, dumps of /slots, directories of --log-prompts-dir."""
    tokenizer: str | None = None
    template: str | None = None
    metrics: Sequence[str] = ()
    """Dumps of /metrics."""
    responses: Sequence[str] = ()
    """What the server answered, with usage."""
    kv_events: Sequence[str] = ()
    """Recordings of its KV events."""


_NOTHING = Beside()


def source_of(path: str, max_unpacked: int, told: Told = unheard) -> Source:
    """Return what reads the input at ``path``; ``-`` is standard input, ``s3://`` is an address."""
    if path == "-":
        from cachedoctor.inputs.sources.stdin import StdinSource

        return StdinSource(max_bytes=max_unpacked, told=told)
    if "://" in path:
        from cachedoctor.inputs.sources.object_store import RemoteSource, is_remote

        if is_remote(path):
            return RemoteSource(path, max_unpacked, told)
    from cachedoctor.inputs.sources.file import FileSource

    return FileSource(path, max_unpacked, told)


def drive_followed(
    analyzer: Analyzer, path: str, until: AbstractContextManager[Callable[[], bool]]
) -> tuple[list[SourceError], bool]:
    """Feed a file and what is appended to it, up to what was written when ``until``, which is entered, turns true.

    Gives the errors that stopped it, and whether it turned true.
    """
    from cachedoctor.inputs.sources.follow import FollowSource

    with until as stop:
        error = drive(analyzer, FollowSource(path, stop=stop))
        return [] if error is None else [error], stop()


def begun_pipe(path: str) -> BegunSource | None:
    """Return what reads the pipe or the standard input at ``path`` and can be checked before; None of a file."""
    from cachedoctor.inputs.sources.file import is_stream
    from cachedoctor.inputs.sources.stdin import BegunSource

    return BegunSource(source_of(path, MAX_BYTES)) if path == "-" or is_stream(path) else None


def drive_growing(
    analyzer: Analyzer, path: str, pipe: BegunSource | None, until: AbstractContextManager[Callable[[], bool]]
) -> tuple[list[SourceError], bool]:
    """Feed a log that is still written: a ``pipe`` as it comes, a file as ``drive_followed`` does."""
    if pipe is None:
        return drive_followed(analyzer, path, until)
    error = drive(analyzer, pipe)
    return [] if error is None else [error], False


def drive(analyzer: Analyzer, source: Source, *, continues: bool = False, line: int = 1) -> SourceError | None:
    """Feed one source to its end; returns the error that stopped it, or None."""
    info = analyzer.open(source.path, continues=continues, line=line)
    try:
        for chunk in source.chunks():
            if chunk:
                analyzer.feed(chunk)
            else:
                analyzer.idle()
    except SourceError as error:
        info.error = printable(error.message) if info.error is None else f"{info.error}; {printable(error.message)}"
        analyzer.close()
        return error
    analyzer.close()
    return None


def chains(paths: list[str]) -> list[list[str]]:
    """Logs in the order of ``paths``, each with its rotations in the order of time; a log given twice is one log."""
    found: list[list[str]] = []
    before, seen = None, set()
    if len(paths) > 1:
        from cachedoctor.inputs.sources.generations import in_time_order  # most analyses are of one file

        paths = in_time_order(paths)
    for path in paths:
        same = path if path == "-" else os.path.realpath(path)
        if same in seen:
            continue
        seen.add(same)
        base = base_name(path)
        if path != "-" and base == before:
            found[-1].append(path)
        else:
            found.append([path])
        before = base
    return found


def drive_chain(
    analyzer: Analyzer, chain: list[str], max_unpacked: int = MAX_BYTES, told: Told = unheard
) -> list[SourceError]:
    """Feed the rotations of one log; returns the errors of those that could not be read to their end."""
    errors = [drive(analyzer, source_of(path, max_unpacked, told), continues=at > 0) for at, path in enumerate(chain)]
    return [error for error in errors if error is not None]


PART = 4 << 20
"""Bytes of a part of the logs; a smaller one is read faster than a process is started."""


def stored_bytes(paths: Iterable[str]) -> int:
    """Bytes of the files that can be read."""
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))


def processes_for(paths: Iterable[str]) -> int:
    """As many processes as there are cores, if each of them has a part to read."""
    parts = stored_bytes(paths) // PART
    if parts > 1:
        from cachedoctor.doctor.processes import cores  # its library is not imported for a small log

        parts = min(cores(), parts)
    return parts


def feed_all(
    analyzer: Analyzer, paths: list[str], max_unpacked: int = MAX_BYTES, told: Told = unheard
) -> list[SourceError]:
    """Feed every path, rotations in time order; returns the errors of inputs that could not be read to their end.

    Args:
        max_unpacked: bytes that each of them may unpack to.
        told: hears of bytes that were read, as they are stored.
    """
    return [error for chain in chains(paths) for error in drive_chain(analyzer, chain, max_unpacked, told)]


def analyze_paths(
    paths: list[str],
    build: int | None = None,
    beside: Beside = _NOTHING,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
) -> Report:
    """Analyse files, or what lies beside them alone, and give the report; an input that fails midway is named in it.

    Raises:
        SourceError: nothing could be read.
        CacheDoctorError: a rule is unknown, or what lies beside the logs cannot be used.
    """
    names.refuse_unknown([*(select or ()), *ignore])
    options = AnalysisOptions(ignored=names.switched_off(select, ignore))
    extras = read_extra_inputs(beside.metrics, beside.responses, kv_events=beside.kv_events)
    analyzer = Analyzer(build, _prompts(beside), _given(beside), options=options, extras=extras)
    errors = feed_all(analyzer, paths)
    report = analyzer.finish()
    if errors and not any(i.lines for i in report.inputs):
        raise errors[0]
    return report


def read_extra_inputs(
    metrics: Sequence[str],
    responses: Sequence[str],
    max_unpacked: int = MAX_BYTES,
    kv_events: Sequence[str] = (),
    asked: Sequence[Dump] = (),
) -> ExtraInputs | None:
    """Read dumps of /metrics, responses and KV events; None where there are none.

    Raises:
        CacheDoctorError: one of them cannot be used.
    """
    if not metrics and not responses and not kv_events and not asked:
        return None
    from cachedoctor.doctor.extras.extra_inputs import load

    return load(metrics, responses, source_of, max_unpacked, kv_events, asked)


def _prompts(beside: Beside) -> GivenPrompts | None:
    if not beside.prompts:
        return None
    from cachedoctor.doctor.extras.prompt_matching import GivenPrompts

    return GivenPrompts(list(beside.prompts), beside.tokenizer, beside.template)


def _given(beside: Beside) -> list[GivenOption]:
    if beside.cmdline is None:
        return []
    from cachedoctor.knowledge.cmdline import engine_of, parse

    return [] if engine_of(beside.cmdline) in ENGINES else parse(beside.cmdline)
