"""CD504: more tokens were computed than the KV cache can contain, and little was reused: evicted, or not shared."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import kv_proof, rolling, shared_beginnings
from cachedoctor.diagnosis.rules.vllm import kv_flow
from cachedoctor.diagnosis.rules.vllm.kv_flow import KvFlow

_CLOSE = 0.1
"""Maximum difference between the reused share and that of a replay of the bodies, for the replay to prove it."""
_PARTIAL = 1
"""Blocks that each request leaves unfilled: they are reallocated without any loss."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if bodies prove it, or if the tokens exceed the capacity and reuse stayed low."""
    proof = kv_proof.pushed_out(session, lambda: _remedies(session))
    if proof is not None or kv_proof.kept(session):
        return [] if proof is None else [proof]
    size = session.settings.get("kv_tokens")
    if size is None or not isinstance(size.value, int) or not size.value or rolling.caching(session) is False:
        return []
    sent = session.sent
    if sent is not None and sent.complete and sent.kept is not None and sent.endless is not None:
        return [_proven(session, sent, size)] if sent.share(sent.endless - sent.kept) >= shared_beginnings.WORTH else []
    parted = shared_beginnings.judged(session)
    if parted is not None and parted.early:
        return []  # the prompts are known, and there was nothing to reuse
    flow = kv_flow.overflow(session)
    return [] if flow is None else [_note(session, flow, size, shared=parted is not None)]


def _proven(session: kit.Session, sent: kit.SentBodies, size: kit.Setting) -> kit.SessionFinding:
    """The bodies were given: what a cache without end would have had of them, and what one of this size had."""
    kept, endless = sent.share(sent.kept), sent.share(sent.endless)
    found = rolling.stretches(session)
    agrees = any(abs(stretch.share - kept) <= _CLOSE for stretch in found)
    return kit.finding(
        f"prompts were evicted before they were needed again: with a KV cache of {kit.n(size.value)} tokens {rolling.percent(kept)} of all prompt text in the {kit.n(sent.bodies)} given request bodies can be reused, with a larger cache {rolling.percent(endless)}"
        + (f" ({found[0].said})" if found else ""),
        "The bodies were replayed in order through a simulation of this cache: unused blocks stay until room is needed, and the oldest are evicted first. "
        "The usage in the log counts running requests only, so a low value does not exclude evictions.",
        [*_remedies(session), *_watch(session)],
        evidence=[
            *kit.said_by(size, f"the cache holds {kit.n(size.value)} tokens"),
            *(found[0].evidence if found else []),
        ],
        severity="warning",
        confidence="high" if agrees else "medium",
    )


def _evicted(session: kit.Session) -> bool:
    """Whether /metrics counts more blocks that were given away than unfilled ones can be (vLLM samples them)."""
    return any(
        bool(c.evicted)
        or (c.blocks_taken is not None and c.requests is not None and c.blocks_taken > _PARTIAL * c.requests)
        for c in session.counters
    )


def _note(session: kit.Session, flow: KvFlow, size: kit.Setting, shared: bool) -> kit.SessionFinding:
    evicted = _evicted(session)
    cause = (
        "prompts were probably evicted before they were needed again"
        if shared
        else "either prompts were evicted before they were needed again, or they share hardly any text; the log cannot show which"
    )
    seen = " /metrics counts evicted blocks, but not whether they were needed again." if evicted else ""
    return kit.finding(
        f"about {kit.n(flow.written)} tokens went through a KV cache of {kit.n(size.value)} tokens ({flow.written / size.value:.1f} times its size), and "
        f"{flow.share}: {cause}",
        "Unused blocks stay in the cache until room is needed, and the oldest blocks are evicted first. The usage in the log counts running "
        "requests only, so a low value does not exclude evictions."
        + seen
        + (
            ""
            if shared
            else " Prompts that share nothing (unrelated, or changed at the beginning) fill the cache in the same way."
        ),
        [
            *([] if shared else [_DECIDE, *_watch(session)]),
            *_remedies(session),
            *(_watch(session) if shared else []),
        ],
        ruled_out=[]
        if shared
        else [kit.RuledOut("prefix-not-shared", f"not excluded: the prompts may share hardly any text; {flow.share}")],
        evidence=[*kit.said_by(size, f"the cache holds {kit.n(size.value)} tokens"), *flow.evidence],
        severity="warning" if shared else "note",
        confidence="high" if shared and evicted else "medium" if shared or evicted else "low",
    )


_DECIDE = kit.Remedy(
    "First check whether the prompts should share text: pass the bodies of all requests, in order.",
    ["cachedoctor analyze vllm.log --requests bodies.jsonl"],
)


def _watch(session: kit.Session) -> list[kit.Remedy]:
    if session.since("0.12") is False:
        return []
    return [
        kit.Remedy(
            "To see whether needed blocks are evicted (0.12 and newer), read kv_block_* in /metrics.",
            options=kit.as_typed("--kv-cache-metrics"),
            purpose="look",
        )
    ]


def _remedies(session: kit.Session) -> list[kit.Remedy]:
    found = rolling.more_room(session)
    if session.since("0.11.1") is False:
        return [*found, kit.Remedy("Or serve fewer conversations at once.")]
    return [
        *found,
        kit.Remedy(
            "Keep evicted blocks in main memory (size in GiB; 0.11.1 and newer), or serve fewer conversations at once.",
            options=kit.as_typed("--kv-offloading-size 32"),
        ),
    ]


def _needs(session: kit.Session) -> tuple[str, str] | None:
    if kv_proof.of(session) is not None:
        return None
    missing = rolling.needs_traffic(session)
    if missing is not None or rolling.caching(session) is False:
        return missing
    if not isinstance(session.setting("kv_tokens"), int):
        return "the size of the KV cache is not in the log", "give the log from the start of the server"
    periods = [p for p in session.periods if isinstance(p, kit.SamplePeriod) and p.busy]
    known = any(p.computed_tokens is not None or not p.most_rate for p in periods) or any(
        c.computed is not None for c in session.counters
    )
    if known:
        return None
    return "the lines of this version do not show how many tokens were computed", rolling.NEEDS_STATISTICS[1]


RULE = kit.session_rule(
    __name__,
    "More tokens were computed than the KV cache holds, and few were reused",
    inspect,
    needs=_needs,
    severity="warning",
    unless=("CD501", "CD502", "CD503", "CD514", "CD515"),
)
