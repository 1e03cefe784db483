"""CD505: on a hybrid model in align mode a common prefix is reused only from its third use on."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if such a model had traffic, with the evidence of responses."""
    mode = session.settings.get("mamba_mode")
    if session.memory != "hybrid" or mode is None or mode.value != "align" or rolling.caching(session) is False:
        return []
    if not rolling.traffic(session) or session.since("0.16") is False:
        return []
    cold = _cold_pair(session)
    seen = "; the first two responses here report this" if cold else ""
    dropped = session.since("0.29") is False
    size = rolling.block(session)
    return [
        kit.finding(
            "this hybrid model keeps states only at the ends of prompts and chunks: a shared beginning of different prompts is reused "
            f"late or not at all{seen}"
            if dropped
            else f"this hybrid model reuses a shared beginning of different prompts only from its third use on: the first two prompts with that beginning are computed in full{seen}",
            "A hybrid model's states are saved at the ends of prompts and chunks. If two prompts diverge, a state is saved there only after the second prompt has been computed"
            + (f", and only at multiples of {kit.n(size)} tokens" if size else "")
            + ". A prompt that repeats in full is reused at once. A test of the cache needs at least four requests.",
            _remedies(dropped),
            references=["https://github.com/vllm-project/vllm/issues/42317"],
            evidence=[*kit.said_by(mode, "states are saved at the ends of blocks"), *_rising(session)],
        )
    ]


def _rising(session: kit.Session) -> rolling.Shown:
    """A first interval without reuse before others with it."""
    for p in session.periods:
        if isinstance(p, kit.SamplePeriod) and p.first_rate == 0 and p.most_rate and "first" in p.marks:
            return [
                (p.marks["first"], "the first requests: nothing reused"),
                (p.marks["last"], "later requests: reused"),
            ]
    return []


def _cold_pair(session: kit.Session) -> bool:
    """Whether the first two responses report no reuse, and the third one does."""
    begins = [[a.cached_tokens for a in answers.each[:3]] for answers in session.answers]
    return any(len(begin) == 3 and begin[:2] == [0, 0] and begin[2] for begin in begins)


def _remedies(dropped: bool) -> list[kit.Remedy]:
    if not dropped:
        return [
            kit.Remedy(
                "For long conversations there is nothing to fix. If you send a request only to warm the cache, send it twice."
            )
        ]
    return [
        kit.Remedy(
            "Use smaller chunks, which keep more states but cost speed: up to 0.28, states are kept only at the ends of chunks and prompts.",
            options=kit.as_typed("--max-num-batched-tokens 2048"),
        ),
        kit.Remedy("Or use 0.29 or newer, which also keeps states where prompts diverge."),
    ]


RULE = kit.session_rule(
    __name__, "A hybrid model reuses a shared beginning from its third use on", inspect, unless=("CD502", "CD503")
)
