"""CD601: SGLang's radix cache is off, so nothing is ever reused."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured.batch_periods import caching, periods, totals
from cachedoctor.diagnosis.rules.sglang.option_advice import extra_buffer, needs_start
from cachedoctor.knowledge.late_patterns import late

_BY_DESIGN = {
    "off_decode": "This is the decode server of a disaggregated pair; the prefill server reuses prefixes.",
    "off_diffusion": "A diffusion model computes its whole text at once.",
    "off_mis": "--enable-mis scores several items in one sequence, which cannot share a cache.",
    "off_whisper": "Whisper's decoder has no prompts worth sharing.",
    "off_embedding": "An embedding model computes every text once.",
    "off_decision": "Bidirectional attention cannot reuse a prefix.",
    "off_prefix_lm": "Bidirectional attention cannot reuse a prefix.",
}
"""Why a line switches the cache off where nothing is to be fixed, by the id of the line's message."""


def _of_arch(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Use a newer version: support depends on the version, and 0.5.14 and newer do not print such a line."
        )
    ]


def _of_hybrid(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Use 0.5.14 or newer. Models with a gated delta net have a radix cache from 0.5.4 on (PR 11214), those with Mamba-2 from "
            "0.5.6 on (PR 13584). From 0.5.14 on, the better strategy (no_buffer or extra_buffer) is the default."
        )
    ]


def _of_trtllm(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Choose another attention backend: the strategy no_buffer needs pages of one token, which trtllm_mha does not support.",
            options=kit.as_typed("--attention-backend triton"),
        ),
        extra_buffer(session),
    ]


_WITHOUT_SPECULATION = kit.Remedy(
    "Or disable speculative decoding: remove --speculative-algorithm and the related options."
)


_BOTH = late(rb"decoding for Qwen3(?:Next|_5)")
"""Models for which 0.5.9 allows the strategy extra_buffer; it refuses it for others, and 0.5.8 refuses it for all with
this line (server_args.py). With SGLANG_ENABLE_SPEC_V2, its worker does not keep their states; eagle_worker_v2.py does
from 0.5.10 on."""


def _of_speculation(session: kit.Session) -> list[kit.Remedy]:
    newer = "0.5.14 or newer, where both work together by default."
    if not _BOTH.search(session.settings["radix_off_because"].text):
        return [kit.Remedy(f"Use {newer}"), _WITHOUT_SPECULATION]
    return [
        kit.Remedy(
            "Keep states where prompts diverge, which works with speculative decoding here. This needs CUDA. "
            "SGLANG_ENABLE_SPEC_V2 must not be set, because the variable works with these models only from 0.5.10 on (PR 18808).",
            options=kit.as_typed("--mamba-scheduler-strategy extra_buffer --page-size 64"),
        ),
        kit.Remedy(f"Or use {newer}"),
        _WITHOUT_SPECULATION,
    ]


def _of_rocm(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy("Use 0.5.16 or newer, which has the strategy extra_buffer on AMD (PR 30359)."),
        _WITHOUT_SPECULATION,
    ]


def _of_qwen_vl(session: kit.Session) -> list[kit.Remedy]:
    return [kit.Remedy("Use 0.4.6 or newer, which has the cache for these models.")]


def _of_determinism(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Choose an attention backend that supports both (fa3 or triton), or remove --enable-deterministic-inference.",
            options=kit.as_typed("--enable-deterministic-inference --attention-backend triton"),
        )
    ]


def _of_dual_chunk(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Use another --attention-backend and a --context-length that needs no dual chunks. Without dual-chunk attention the cache works, but contexts longer than the model's training context do not."
        )
    ]


def _of_multimodal(session: kit.Session) -> list[kit.Remedy]:
    return [
        kit.Remedy(
            "Use SGLang's own implementation of the model, if there is one, instead of the Transformers backend.",
            options=kit.as_typed("--model-impl sglang"),
            purpose="depends",
        )
    ]


_FIXES = {
    "off_arch": _of_arch,
    "off_hybrid_gdn": _of_hybrid,
    "off_trtllm": _of_trtllm,
    "off_spec": _of_speculation,
    "off_rocm": _of_rocm,
    "off_deterministic": _of_determinism,
    "off_dual_chunk": _of_dual_chunk,
    "off_multimodal": _of_multimodal,
    "off_qwen_vl": _of_qwen_vl,
}
"""What fixes it, by the id of the message that says why it is off."""

_ASKED = late(rb"disable_radix_cache(?:=|': )True")
"""The setting as ``server_args`` prints it: a call up to 0.5.18, a dictionary from 0.5.19 on."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report that the cache is off, with the line that proves it; not if something was reused anyway."""
    if caching(session) is not False:
        return []
    off, because = session.settings["radix_cache"], session.settings.get("radix_off_because")
    cause = str(because.value) if because is not None else ""
    requests, new, _cached = totals(periods(session))
    lost = f": all {kit.n(new)} prompt tokens of {kit.times(requests)} were computed" if requests else ""
    fine = _BY_DESIGN.get(cause)
    if session.setting("disaggregation") == "decode":
        fine = _BY_DESIGN["off_decode"]
    evidence = kit.said_by(because, "why it is off") + kit.said_by(off, "the radix cache is off")
    return [
        kit.finding(
            f"the radix cache is off{lost}",
            fine or _why(cause, off),
            _fix(session, cause) if fine is None else [kit.Remedy("Nothing to do.")],
            key=cause,
            evidence=[
                entry for at, entry in enumerate(evidence) if entry[0].line not in {e[0].line for e in evidence[:at]}
            ],
            severity="warning" if requests and fine is None else "note",
        )
    ]


def _why(cause: str, off: kit.Setting) -> str:
    if cause:
        return "The server switched the cache off for the reason in the line above. Every prompt is computed from its first token."
    if _ASKED.search(off.text):
        return "The server was started with --disable-radix-cache. Every prompt is computed from its first token."
    return (
        "The log does not show why the cache is off; usually --disable-radix-cache is on the command line. Every prompt is computed from its first "
        "token."
    )


def _fix(session: kit.Session, cause: str) -> list[kit.Remedy]:
    if cause in _FIXES:
        return _FIXES[cause](session)
    if cause:
        return [kit.Remedy("Remove the option shown in the line, or use a version in which both work together.")]
    said = "Remove --disable-radix-cache from the command line if it is set; the cache is on by default."
    return [kit.Remedy(said, options=kit.left_out("--disable-radix-cache"))]


def _needs(session: kit.Session) -> tuple[str, str] | None:
    return needs_start() if caching(session) is None else None


RULE = kit.session_rule(__name__, "SGLang's radix cache is switched off", inspect, severity="warning", needs=_needs)
