"""Turns the statistics line of an engine into a sample."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from cachedoctor.model import CacheSample

_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)")
_USAGE = " KV cache usage"
_KV = re.compile(r"[A-Z]{2,8}" + _USAGE)
"""``GPU`` up to 0.29 on every device, then the device's own name."""


def sample(session: int, path: str, line: int, fields: Mapping[str, Any]) -> CacheSample:
    """Return what the fields of a statistics line say."""
    pairs: Mapping[str, str] = fields.get("more", {})
    usage = next((pairs[name] for name in pairs if name.endswith(_USAGE) and _KV.fullmatch(name)), None)
    if usage is None and "gpu_usage" in fields:
        usage = f"{fields['gpu_usage']}%"
    return CacheSample(
        session=session,
        path=path,
        line=line,
        engine=fields.get("engine"),
        prompt_rate=_finite(fields["prompt_rate"]),
        generation_rate=_finite(fields["generation_rate"]),
        running=fields["running"],
        waiting=fields.get("waiting", fields.get("pending")),
        deferred=_int(pairs.get("Deferred")),
        kv_usage=_share(usage),
        hit_rate=_share(pairs.get("Prefix cache hit rate")),
        external_hit_rate=_share(pairs.get("External prefix cache hit rate")),
        mm_hit_rate=_share(pairs.get("MM cache hit rate")),
        preemptions=_int(pairs.get("Preemptions")),
    )


def _finite(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None


def _float(text: str | None) -> float | None:
    found = None if text is None else _NUMBER.match(text)
    return None if found is None else float(found[1])


def _int(text: str | None) -> int | None:
    found = _float(text)
    return None if found is None else int(found)


def _share(text: str | None) -> float | None:
    found = _float(text)
    return None if found is None or found > 100.0 or "%" not in (text or "") else round(found / 100, 6)
