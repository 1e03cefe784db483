"""A range of Prometheus' own API as one dump of /metrics for each moment: ``/api/v1/query_range``, a matrix.

``{"status":"success","data":{"resultType":"matrix","result":[{"metric":{...},"values":[[1795218226.89,"17"],...]}]}}``
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec

from cachedoctor.knowledge.texts import sound_json
from cachedoctor.metrics.dump import START
from cachedoctor.metrics.prometheus import Exposition, Sample
from cachedoctor.model import CacheDoctorError

MOMENTS = 60
"""Of a range; what is counted is told by the first and the last, the others show restarts."""
_LEAST_STEP = 15.0
"""Seconds: Prometheus asks servers about as often."""
_MAX_SAMPLES = 2_000_000
_NAME = "__name__"
_SERIES = "(vllm|sglang)[:_].*"


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
    """Return what to ask Prometheus at ``url`` for: the last ``seconds`` of all that the readers of dumps know.

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
        CacheDoctorError: it is no answer of Prometheus, or an error.
    """
    try:
        answer = msgspec.json.decode(sound_json(body), type=_Answer)
        if answer.status != "success" or answer.data is None:
            raise CacheDoctorError(f"{name}: Prometheus says: {answer.error[:200] or answer.status}", "see --match")
        if answer.data.result_type != "matrix":
            raise CacheDoctorError(f"{name}: answers with no range", "is it the address of Prometheus itself?")
        series = msgspec.json.decode(answer.data.result, type=list[_Series])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise CacheDoctorError(
            f"{name}: does not answer as Prometheus does", "is it the address of Prometheus, e.g. http://HOST:9090?"
        ) from None
    if sum(len(one.values) for one in series) > _MAX_SAMPLES:
        raise CacheDoctorError(f"{name}: has too many series", "ask for fewer servers, e.g. --match 'job=\"vllm\"'")
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
