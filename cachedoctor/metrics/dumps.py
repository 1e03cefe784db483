"""Reads a dump of /metrics into the servers that it tells of. Knows which engines have series of theirs read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachedoctor.metrics import sglang, vllm
from cachedoctor.metrics.dump import PLACES, START, Dump, Series
from cachedoctor.metrics.prometheus import Exposition, Sample, read
from cachedoctor.model import CacheDoctorError

_ENGINES = {"vllm": vllm, "sglang": sglang}
_LLAMA = "llamacpp"
_OWN = re.compile(rf"({'|'.join(_ENGINES)}|{_LLAMA})[:_](.+)")
_ENDING = re.compile(r"_(?:total|created)$")
_READ = {source: engine.names() for source, engine in _ENGINES.items()}
_CURL = "curl http://HOST:PORT/metrics > metrics.txt writes one"


def servers(chunks: Iterable[bytes], path: str) -> list[Dump]:
    """Read a dump; one for each server in it.

    Raises:
        CacheDoctorError: it is no dump of vLLM or SGLang.
    """
    exposition = read(chunks, path, _wanted)
    if exposition is None:
        raise CacheDoctorError(f"{path}: is no dump of /metrics", f"{_CURL}; a log is given without an option")
    found = of(exposition, path)
    if found:
        return found
    if any(sample.name.startswith(_LLAMA) for sample in exposition.samples):
        what = f"{path}: /metrics of llama-server, which does not count what was reused"
        raise CacheDoctorError(what, "its log tells more: cachedoctor analyze server.log")
    raise CacheDoctorError(f"{path}: a dump of /metrics without the counters of vLLM or SGLang", _CURL)


def is_only_dump(data: bytes) -> bool:
    """Whether a text is a dump from which something can be read, bare or in a fence, and nothing else."""
    exposition = read([data], "", _wanted)
    return exposition is not None and not exposition.bad and bool(of(exposition, ""))


def of(exposition: Exposition, path: str) -> list[Dump]:
    """Return a dump for each server in what was read."""
    return [
        dump
        for source in _ENGINES
        for place, samples in _places(exposition).items()
        if (dump := _dump(path, source, place, samples, exposition)).readings
    ]


def _wanted(name: str) -> bool:
    own = _OWN.fullmatch(name)
    if own is None:
        return name == START
    return own[1] == _LLAMA or _ENDING.sub("", own[2]) in _READ[own[1]]


def _places(exposition: Exposition) -> dict[str | None, list[Sample]]:
    """Samples by the server that a collector says they are of."""
    found: dict[str | None, list[Sample]] = {}
    for sample in exposition.samples:
        place = next((sample.labels[name] for name in PLACES if name in sample.labels), None)
        found.setdefault(place, []).append(sample)
    return found


def _dump(path: str, source: str, place: str | None, samples: list[Sample], exposition: Exposition) -> Dump:
    series, engine = Series(source, samples, exposition), _ENGINES[source]
    starts = {sample.value for sample in samples if sample.name == START and sample.value > 0}
    times = [sample.time for sample in samples if sample.time is not None]
    return Dump(
        path,
        source,
        place,
        starts.pop() if len(starts) == 1 else None,
        series.created(),
        max(times, default=None),
        engine.readings(series),
        sglang.LATE if source == "sglang" else frozenset(),
    )
