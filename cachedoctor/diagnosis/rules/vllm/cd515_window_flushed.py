"""CD515: unused blocks of a sliding window evict prompts although the cache has space for them."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling, shared_beginnings
from cachedoctor.diagnosis.rules.measured.rolling import TrafficStretch
from cachedoctor.knowledge.builds import is_sliding

_FULL = 0.2
"""Share of the cache that must have been written: reported from a quarter of it on (issue 48435)."""
_LOST = 0.5
"""Share of what the prompts have in common that must be missing."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if prompts that share most of their text were not found, though the cache has space for them."""
    arch, size = session.settings.get("architecture"), session.setting("kv_tokens")
    if arch is None or not is_sliding(str(arch.value)) or session.since("0.29") is not False:
        return []
    if rolling.caching(session) is False or not isinstance(size, int):
        return []
    there = _there(session)
    for stretch in rolling.stretches(session):
        written = stretch.computed is not None and stretch.computed >= _FULL * size
        if there is not None and written and stretch.share <= (1 - _LOST) * there:
            return [_note(session, stretch, there)]
    return []


def _there(session: kit.Session) -> float | None:
    """Share of the prompts that a cache of this size has room for; None where it is not known, or not worth it."""
    sent, parted = session.sent, shared_beginnings.given(session)
    if sent is None or sent.kept is None or not sent.complete or parted is None or parted.early:
        return None
    return sent.share(sent.kept) if sent.share(sent.kept) >= _LOST else None


def _note(session: kit.Session, stretch: TrafficStretch, there: float) -> kit.SessionFinding:
    size, arch = session.settings["kv_tokens"], session.settings["architecture"]
    return kit.finding(
        f"prompts were evicted although there is room for them: a cache of {kit.n(size.value)} tokens is large enough to reuse {rolling.percent(there)} of the "
        f"text in the given request bodies ({stretch.said})",
        "Sliding-window layers free blocks while a prompt is still being computed. Up to 0.28, freed blocks go to the end of the queue that all layers share. Every new prompt then evicts blocks of other prompts, even if only a quarter of the cache is used.",
        _remedies(session),
        references=[
            "https://github.com/vllm-project/vllm/issues/48435",
            "https://github.com/vllm-project/vllm/pull/52216",
        ],
        evidence=[*kit.said_by(arch, "layers with a sliding window"), *stretch.evidence],
        severity="warning",
        confidence="medium",
    )


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    update = kit.Remedy(
        "Update vLLM to 0.29 or newer, which keeps few of these blocks by default.", ["pip install -U vllm"]
    )
    if session.since("0.23") is not True:
        return [update]
    keep = kit.Remedy(
        "Keep window blocks only at the end of a prompt and at places where prompts diverged.",
        options=kit.as_typed("VLLM_PREFIX_CACHE_RETENTION_INTERVAL=0"),
    )
    return [keep, update]


RULE = kit.session_rule(
    __name__,
    "Sliding-window blocks evict prompts although there is room for them",
    inspect,
    needs=rolling.needs_traffic,
    severity="warning",
    unless=("CD501", "CD503", "CD514"),
)
