"""CD512: speculative decoding makes every reuse end one block earlier."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if such a method is used, caching is on and prompts were computed."""
    method = session.settings.get("speculative")
    kept = session.settings.get("block_drop_off") is not None or _looks_ahead(session)
    if method is None or kept or rolling.caching(session) is False or not rolling.traffic(session):
        return []
    if not rolling.drops_block(str(method.value)):
        return []
    size = rolling.block(session)
    length = f" ({kit.n(size)} tokens)" if size else ""
    hybrid = session.memory == "hybrid"
    low = next((s for s in rolling.stretches(session) if s.share <= rolling.LITTLE), None)
    return [
        kit.finding(
            f"speculative decoding ({method.value}): the last reusable block of every prompt is recomputed{length}",
            "The draft layers need the output of the last reused token, so vLLM drops the last block it found."
            + (
                " A hybrid model has large blocks, and a prefix shorter than two blocks is never reused."
                if hybrid
                else ""
            ),
            [
                kit.Remedy(
                    "If prompts are long, accept this. If prompts are not much longer than a block, remove the draft model."
                    + (
                        ""
                        if session.since("0.33") is True
                        else " From 0.33 on vLLM keeps the block, except on servers with a KV connector."
                    )
                )
            ],
            references=["https://github.com/vllm-project/vllm/issues/38182"],
            evidence=[
                *kit.said_by(method, "the method"),
                *(low.evidence[:1] if low is not None and hybrid else []),
            ],
        )
    ]


def _looks_ahead(session: kit.Session) -> bool:
    """Whether no block is dropped: from 0.33 on hashes cover what follows, without a KV connector or a need of it."""
    needed = not str(session.setting("speculative")).startswith(("dflash", "dspark"))
    return session.since("0.33") is True and not (needed and session.settings.get("kv_connector"))


RULE = kit.session_rule(
    __name__, "With a draft model the last reusable block of each prompt is recomputed", inspect, unless=("CD514",)
)
