"""Which versions of SGLang write what was seen. No line of its log names the version.

Source: the wheels of the versions in ``SAMPLED``. A version counts as ``minor * 100 + patch``: 0.5.10 is 510.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

SAMPLED = (403, 405, 406, 408, 410, *range(501, 524))
"""Releases whose messages and settings were read, each in the last of its versions: 0.4.3.post4, 0.5.2 ..."""
_POSTS = frozenset({403, 405, 406, 408, 410, 501, 503, 504, 505, 506, 508, 510, 512, 513, 515})
"""Of these, the ones that had versions before: what the last one lacks, they may still have."""
_LAST_04 = 410
_ALL_SETTINGS = 100
"""Names that every version prints, and more: fewer are an excerpt, in which a missing name says nothing."""
_GRAPHS = ("cuda graph", "cpu graph", "npu graph")
_RATE = "input throughput (token/s)"


class Range(NamedTuple):
    """Versions from ``low`` to ``high``, both included; None where there is no bound."""

    low: int | None
    high: int | None

    def both(self, other: Range) -> Range:
        """Versions in both; ``low`` is above ``high`` where there is none."""
        lows = [n for n in (self.low, other.low) if n is not None]
        highs = [n for n in (self.high, other.high) if n is not None]
        return Range(max(lows, default=None), min(highs, default=None))

    @property
    def empty(self) -> bool:
        """Whether no version is left."""
        return self.low is not None and self.high is not None and self.low > self.high


ANY = Range(None, None)

NEW_SETTINGS: dict[int, str] = {
    405: "page_size",
    406: "disable_chunked_prefix_cache",
    408: "sleep_on_idle",
    410: "enable_lora",
    501: "weight_version",
    502: "tokenizer_worker_num",
    503: "enable_deterministic_inference",
    504: "kt_cpuinfer",
    505: "decrypted_config_file",
    506: "dllm_algorithm",
    507: "log_requests_format",
    508: "admin_api_key",
    509: "mamba_backend",
    510: "enable_hisparse",
    511: "enable_mis",
    512: "detokenizer_worker_num",
    513: "lmcache_config_file",
    514: "cp_strategy",
    515: "dcp_size",
    516: "grpc_port",
    517: "dwdp_size",
    518: "image_processor_backend",
    519: "enable_layernorm_sp",
    520: "uno_lora_path",
    521: "enable_response_store",
    522: "attn_dp_size",
    523: "enable_watermark",
}
"""A setting that ``server_args`` has from this version on, and in all later ones."""


def seen_in(first: int, last: int) -> Range:
    """Range of a wording that was seen from ``first`` to ``last``, with the unread versions on both sides."""
    at, end = SAMPLED.index(first), SAMPLED.index(last)
    low = _after(SAMPLED[at - 1]) if at else None
    high = _without(SAMPLED[end + 1]) if end + 1 < len(SAMPLED) else None
    return Range(low, high)


def from_settings(names: Set[str], whole: bool) -> Range:
    """Range from the names in ``server_args``; ``whole``: the list has an end, so that a missing name counts."""
    found = ANY
    for first, name in NEW_SETTINGS.items():
        here = seen_in(first, SAMPLED[-1])
        if name in names:
            found = found.both(here)
        elif whole and len(names) >= _ALL_SETTINGS:
            found = found.both(Range(None, _without(first)))
    return found


def from_batch(pairs: Mapping[str, str]) -> Range:
    """Range from what a prefill line has; nothing from what it lacks, since its end may be torn off."""
    found = ANY
    for name, first, last in _PAIRS:
        if name in pairs:
            found = found.both(seen_in(first, last))
    order = list(pairs)
    graph = next((order.index(name) for name in _GRAPHS if name in pairs), None)
    if graph is not None and _RATE in pairs:
        found = found.both(seen_in(509, 509) if order.index(_RATE) < graph else seen_in(510, 523))
    return found


_PAIRS = (
    ("swa token usage", 410, 523),
    ("mamba usage", 503, 523),
    ("#pending-token", 511, 523),
    ("#replay-token", 521, 523),
    ("#unbootstrapped-req", 406, 502),
    ("#prealloc-req", 503, 511),
    ("#bootstrap-req", 512, 523),
)
"""A name in a prefill line, and the first and last sampled version that prints it."""


def text(number: int | None) -> str | None:
    """``0.5.10`` of 510."""
    return None if number is None else f"0.{number // 100}.{number % 100}"


def _after(number: int) -> int:
    return 500 if number == _LAST_04 else number + 1


def _without(number: int) -> int:
    """Newest release that can lack what the last version of this one has."""
    return number if number in _POSTS else number - 1
