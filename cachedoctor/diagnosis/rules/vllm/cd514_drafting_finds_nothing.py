"""CD514: in two versions, a drafting model with sliding-window layers makes every lookup fail without a message."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling, shared_beginnings
from cachedoctor.knowledge.builds import is_sliding


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if version, drafting model and layers match the fault, and nothing was reused."""
    method, arch = session.settings.get("speculative"), session.settings.get("architecture")
    broken = session.since("0.21") is True and session.since("0.23") is False
    if not broken or method is None or arch is None or not is_sliding(str(arch.value)):
        return []
    if rolling.caching(session) is False or not rolling.drops_block(str(method.value)):
        return []
    found = rolling.stretches(session)
    parted = shared_beginnings.judged(session)
    if not found or rolling.any_reuse(session) or found[-1].share > 0 or (parted is not None and parted.early):
        return []
    sure: kit.Confidence = "high" if parted is not None else "medium"
    return [
        kit.finding(
            f"nothing was reused, and with speculative decoding ({method.value}) on this model vLLM {session.version or '0.21 to 0.22'} never finds anything "
            f"in its cache ({found[0].said})",
            "The last matching block is dropped for the draft layers, so a look-up needs one more block of the sliding window than "
            "without a draft model. This version does not keep that block and prints 0.0 % without a warning.",
            [
                kit.Remedy("Update vLLM to 0.23 or newer.", ["pip install -U vllm"]),
                kit.Remedy(
                    "Until you update, start without --speculative-config (the draft model).",
                    options=kit.left_out("--speculative-config"),
                ),
            ],
            references=["https://github.com/vllm-project/vllm/pull/44082"],
            evidence=[
                *kit.said_by(method, "the draft model"),
                *kit.said_by(arch, "layers with a sliding window"),
                *found[0].evidence,
            ],
            severity="warning",
            confidence=sure,
        )
    ]


RULE = kit.session_rule(
    __name__,
    "A draft model makes every look-up fail in this version",
    inspect,
    needs=rolling.needs_traffic,
    severity="warning",
    unless=("CD503",),
)
