"""Share of the prompt time by kind of request, and what the main turns would have saved without the others."""

from __future__ import annotations

from collections.abc import Sequence

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.doctor.whatif.accounts import span_ms
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model.whatif import KindName, RequestKind
from cachedoctor.prompts.client_habits import system_prompt
from cachedoctor.prompts.prompt import CHAT, Prompt

_LOOK = 1_500
"""Code points at both ends of the prompt in which a request says what it is for."""
_TITLE = late(
    r"(?i)\b(?:generate|create|write|suggest|give|provide|summarize)\b[^.\n]{0,60}\b(?:titles?|headline|tags|follow-?ups?)\b"
    r"|\btitle (?:generator|for (?:this|the) (?:chat|conversation|session))"
)
_SUMMARY = late(
    r"(?i)\bsummar(?:y|i[sz]e|i[sz]ing)\b[^.\n]{0,80}\b(?:conversation|chat|session|history|so far|context)\b"
    r"|\bcompact(?:ed|ing|ion)?\b[^.\n]{0,60}\b(?:conversation|history|context)\b"
)
_TOOL_SEARCH = late(
    r"(?i)\b(?:search|select|choose|find)\b[^.\n]{0,40}\b(?:relevant )?tools?\b[^.\n]{0,60}\b(?:for|from|among|list)\b"
)
_LEAST_SHARE = 0.02
"""Share of the computed tokens: if the kinds other than turns take and displace less, none is named."""


def request_kinds(evidence: ServerTraffic, served: Sequence[Served]) -> list[RequestKind]:
    """Sum up the requests of each kind; empty where all are main turns, or there are no bodies."""
    if not evidence.bodies:
        return []
    names = [
        _kind(body, number, completion=asked.completion)
        for body, number, asked in zip(evidence.bodies, evidence.conversations, evidence.traffic.asked, strict=True)
    ]
    rows: dict[KindName, RequestKind] = {}
    length = evidence.traffic.tree.length
    for name, asked, one in zip(names, evidence.traffic.asked, served, strict=True):
        if name is None or asked.refused:
            continue
        row = rows.setdefault(name, RequestKind(name, 0, 0, 0, None))
        prompt = length(asked.prompt)
        row.requests += 1
        row.prompt_tokens += prompt
        row.computed_tokens += prompt - one.reused
        if evidence.speed.count:
            row.ms = round((row.ms or 0.0) + span_ms(evidence.speed, one.reused, prompt), 3)
    whole = sum(row.computed_tokens for row in rows.values())
    for row in rows.values():
        if row.kind != "main turn":
            row.displaced_tokens = _displaced(evidence, served, [name == row.kind for name in names])
    side = [row.computed_tokens + row.displaced_tokens for row in rows.values() if row.kind != "main turn"]
    if max(side, default=0) < max(1, _LEAST_SHARE * whole):
        return []
    return sorted(rows.values(), key=lambda row: -row.computed_tokens)


def _kind(body: Prompt | None, conversation: int | None, *, completion: bool) -> KindName | None:
    """What a request is for; None where no body says it."""
    if not completion or (body is not None and body.kind in ("openai-completion", "llama-infill")):
        return "autocomplete"
    if body is None or body.kind not in CHAT:
        return None
    if conversation is not None:
        return "main turn"
    said = f"{system_prompt(body)[:_LOOK]}\n{body.text[-_LOOK:]}"
    if _SUMMARY.search(said):
        return "summary"
    if _TITLE.search(said):
        return "title"
    return "tool search" if _TOOL_SEARCH.search(said) else "main turn"


def _displaced(evidence: ServerTraffic, served: Sequence[Served], which: Sequence[bool]) -> int:
    """Tokens that the other requests would have reused more without those of one kind."""
    traffic = evidence.traffic
    kept = [at for at, is_side in enumerate(which) if not is_side]
    without = serve(Traffic(traffic.tree, [traffic.asked[at] for at in kept], traffic.happened), evidence.settings)
    return max(0, sum(now.reused for now in without) - sum(served[at].reused for at in kept))
