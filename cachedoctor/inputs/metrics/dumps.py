"""Reads dumps of /metrics and ranges of Prometheus' API into the servers that they describe."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, urlencode

import msgspec

from cachedoctor.inputs.metrics import sglang, vllm
from cachedoctor.inputs.metrics.dump import PLACES, START, Dump, MetricSamples
from cachedoctor.inputs.metrics.prometheus import Exposition, Sample, read
from cachedoctor.knowledge.engines import EITHER, LABELS_EXAMPLE, METRICS_OF_LLAMA, PATTERN
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.knowledge.texts import sound_json
from cachedoctor.model import CacheDoctorError

_ENGINES = {"vllm": vllm, "sglang": sglang}
_OWN = late(rf"({'|'.join(_ENGINES)}|{METRICS_OF_LLAMA})[:_](.+)")
_ENDING = late(r"_(?:total|created)$")
_READ = {source: engine.names() for source, engine in _ENGINES.items()}
_CURL = "curl http://HOST:PORT/metrics > metrics.txt writes a dump"


def servers(chunks: Iterable[bytes], path: str) -> list[Dump]:
    """Read a dump; one for each server in it.

    Raises:
        CacheDoctorError: it is not a dump of vLLM or SGLang.
    """
    exposition = read(chunks, path, _wanted)
    if exposition is None:
        raise CacheDoctorError(
            f"{path}: is not a dump of /metrics", f"{_CURL}; if the file is a log, give it without an option"
        )
    found = of(exposition, path)
    if found:
        return found
    if any(sample.name.startswith(METRICS_OF_LLAMA) for sample in exposition.samples):
        what = f"{path}: is a dump of llama-server's /metrics, which does not count reused tokens"
        raise CacheDoctorError(what, "the server's log shows more: cachedoctor analyze server.log")
    raise CacheDoctorError(f"{path}: this dump of /metrics has no counters of {EITHER}", _CURL)


def is_only_dump(data: bytes) -> bool:
    """Whether a text is only a dump with readable samples, bare or in a fence."""
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
    return own[1] == METRICS_OF_LLAMA or _ENDING.sub("", own[2]) in _READ[own[1]]


def _places(exposition: Exposition) -> dict[str | None, list[Sample]]:
    """Samples by server, as the labels of a collector show it."""
    found: dict[str | None, list[Sample]] = {}
    for sample in exposition.samples:
        place = next((sample.labels[name] for name in PLACES if name in sample.labels), None)
        found.setdefault(place, []).append(sample)
    return found


def _dump(path: str, source: str, place: str | None, samples: list[Sample], exposition: Exposition) -> Dump:
    series, engine = MetricSamples(source, samples, exposition), _ENGINES[source]
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


MOMENTS = 60
"""Number of dumps of a range: the first and the last give the counts, the others show restarts."""
_LEAST_STEP = 15.0
"""Seconds: about the interval at which Prometheus scrapes servers."""
_MAX_SAMPLES = 2_000_000
_NAME = "__name__"
_SERIES = f"({PATTERN})[:_].*"


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = msgspec.field(default_factory=list)


class _Data(msgspec.Struct):
    result_type: str = msgspec.field(name="resultType")
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


def address(url: str, now: float, seconds: float, match: str | None) -> str:
    """Return the address for Prometheus at ``url``: the last ``seconds`` of all series that the readers of dumps know.

    ``match``: more matchers of labels, ``job="vllm"``, with or without braces.
    """
    more = (match or "").strip().removeprefix("{").removesuffix("}").strip().strip(",")
    query = f'{{{_NAME}=~"{_SERIES}|{START}"{", " if more else ""}{more}}}'
    step = max(_LEAST_STEP, seconds / MOMENTS)
    asked = urlencode({"query": query, "start": now - seconds, "end": now, "step": step}, quote_via=quote)
    return f"{url.rstrip('/')}/api/v1/query_range?{asked}"


def moments(body: bytes, name: str) -> list[tuple[float, Exposition]]:
    """Return the samples of every moment of an answer, in the order of time.

    Raises:
        CacheDoctorError: it is not an answer of Prometheus, or an error.
    """
    try:
        answer = msgspec.json.decode(sound_json(body), type=_Answer)
        if answer.status != "success" or answer.data is None:
            raise CacheDoctorError(f"{name}: Prometheus answered: {answer.error[:200] or answer.status}", "see --match")
        if answer.data.result_type != "matrix":
            raise CacheDoctorError(
                f"{name}: did not return a range of values", "check that this is the address of Prometheus itself"
            )
        series = msgspec.json.decode(answer.data.result, type=list[_Series])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CacheDoctorError(
            f"{name}: does not answer like Prometheus",
            "check that this is the address of Prometheus, e.g. http://HOST:9090",
        ) from None
    if sum(len(one.values) for one in series) > _MAX_SAMPLES:
        raise CacheDoctorError(f"{name}: has too many series", f"select fewer servers, e.g. --match {LABELS_EXAMPLE}")
    found: dict[float, Exposition] = {}
    for one in series:
        labels = {key: value for key, value in one.metric.items() if key != _NAME}
        for moment, text in one.values:
            value = _number(text)
            if value is not None:
                exposition = found.setdefault(moment, Exposition())
                exposition.samples.append(Sample(one.metric.get(_NAME, ""), labels, value, moment))
    return sorted(found.items())


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
