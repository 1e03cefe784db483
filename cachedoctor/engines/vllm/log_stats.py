"""Turns the statistics line of an engine into a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cachedoctor.model import CacheSample
from cachedoctor.model.bounds import PERCENT

_NUMBER = re.compile(r"(\d{1,10}(?:\.\d{1,15})?)(?!\.?\d)")
_USAGE = " KV cache usage"
_KV = re.compile(r"[A-Z]{2,8}" + _USAGE)
"""``GPU`` up to 0.29 on every device, then the device's own name."""


_HIT_RATE = "Prefix cache hit rate"
_LAST_PAIR = re.compile(rb"(?:(?:usage|rate): \d{1,3}(?:\.\d{1,15})?%|(?<!usage)(?<!rate): \d{1,10}(?: reqs)?)\.?\s*\Z")


def torn(line: bytes, fields: Mapping[str, Any]) -> bool:
    """Whether a line has no hit rate because it was cut: a window's edge, a pager, a record that goes on elsewhere."""
    pairs: Mapping[str, str] | None = fields.get("more")
    if pairs is None or _share(pairs.get(_HIT_RATE)) is not None:
        return False
    return _LAST_PAIR.search(line, max(line.rfind(b",") - 1, 0)) is None


def sample(session: int, path: str, line: int, fields: Mapping[str, Any]) -> CacheSample:
    """Return what the fields of a statistics line say."""
    pairs: Mapping[str, str] = fields.get("more", {})
    usage = next((pairs[name] for name in pairs if name.endswith(_USAGE) and _KV.fullmatch(name)), None)
    return CacheSample(
        session=session,
        path=path,
        line=line,
        engine=fields.get("engine"),
        prompt_rate=fields["prompt_rate"],
        generation_rate=fields["generation_rate"],
        running=fields["running"],
        waiting=fields.get("waiting", fields.get("pending")),
        deferred=_int(pairs.get("Deferred")),
        kv_usage=_share(usage) if usage is not None else share(fields.get("gpu_usage")),
        hit_rate=_share(pairs.get(_HIT_RATE)),
        external_hit_rate=_share(pairs.get("External prefix cache hit rate")),
        mm_hit_rate=_share(pairs.get("MM cache hit rate")),
        preemptions=_int(pairs.get("Preemptions")),
    )


def _float(text: str | None) -> float | None:
    found = None if text is None else _NUMBER.match(text)
    return None if found is None else float(found[1])


def _int(text: str | None) -> int | None:
    found = _float(text)
    return None if found is None else int(found)


def _share(text: str | None) -> float | None:
    return share(_float(text)) if text is not None and "%" in text else None


def share(percent: float | None) -> float | None:
    """Make a share of a percentage; None for one above 100."""
    found = PERCENT.of(percent)
    return None if found is None else round(found / 100, 6)
