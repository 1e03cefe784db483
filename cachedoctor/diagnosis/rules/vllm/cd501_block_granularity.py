"""CD501: prompts or their common prefixes are shorter than a block, and only whole blocks are reused."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling
from cachedoctor.diagnosis.rules.measured.rolling import TrafficStretch

_CHEAP = 256
"""Tokens of a prompt below which it does not matter whether it is computed."""
_LARGE = 256
"""Block size in tokens that prompts often do not fill; a block has 16 if all layers have full attention."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if nothing was reused and the average prompt fills no block, or at most one."""
    if said := alone(session):
        return said
    size = rolling.block(session)
    if size is None or rolling.caching(session) is False:
        return []
    for stretch in rolling.stretches(session):
        if stretch.share > 0 or stretch.prompt is None or stretch.prompt >= 2 * size:
            continue
        if stretch.prompt < size or session.memory == "hybrid":
            return [_note(session, stretch, stretch.prompt, size)]
    return []


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Explain the line of a large block if the lines show nothing of the traffic."""
    size = session.setting("attention_block")
    if not isinstance(size, int) or size < _LARGE or session.periods or session.counters or session.answers:
        return []
    if not session.seen <= {"attention_block", "mamba_padding"}:
        return []  # the start of a server, which says it each time
    return [
        kit.finding(
            f"a block has {kit.n(size)} tokens: a shorter shared beginning is not reused",
            "Only whole blocks are reused, and the last token of a prompt is always computed. A hybrid model has large blocks: each block must be as large "
            "as a saved state of the other layers. These lines do not show how long the prompts are.",
            [
                kit.Remedy(
                    "Compare the length of your prompts and of their shared beginning with the block size. The statistics of the server, or /metrics, show more."
                ),
                *_remedies(session, hybrid=True, short=True, prompt=size),
            ],
            key="alone",
            ruled_out=[
                kit.RuledOut("prompts-longer", "not excluded: if prompts share several blocks, nothing is wrong")
            ],
            evidence=kit.said_by(session.settings["attention_block"], f"a block has {kit.n(size)} tokens"),
            severity="note",
            confidence="low",
        )
    ]


def _note(session: kit.Session, stretch: TrafficStretch, prompt: float, size: int) -> kit.SessionFinding:
    short = prompt < size
    hybrid = session.memory == "hybrid"
    what = (
        f"prompts of about {kit.n(prompt)} tokens on average are shorter than one block of {kit.n(size)} tokens"
        if short
        else f"prompts of about {kit.n(prompt)} tokens on average contain one full block of {kit.n(size)} tokens, and only complete common blocks can be reused"
    )
    why = "Only whole blocks are reused, and the last token of a prompt is always computed."
    if hybrid:
        why += " A hybrid model has large blocks: each block must be as large as a saved state of the layers without attention."
    if not short:
        why += " The log cannot show whether the prompts also diverge for another reason. If they share less than one block, nothing can be reused either way."
    line = kit.said_by(rolling.block_line(session), f"a block has {kit.n(size)} tokens")
    return kit.finding(
        f"nothing could be reused: {what} ({stretch.said})",
        why,
        _remedies(session, hybrid, short, prompt),
        references=["https://github.com/vllm-project/vllm/issues/54607"] if hybrid else [],
        key="hybrid" if hybrid else "dense",
        evidence=[*(line if hybrid else []), *stretch.evidence, *([] if hybrid else line)],
        severity="warning" if hybrid and not short else "note",
        confidence="high" if short else "medium",
    )


def _remedies(session: kit.Session, hybrid: bool, short: bool, prompt: float) -> list[kit.Remedy]:
    found = []
    if hybrid and not short:
        found.append(
            kit.Remedy("Put the text that all prompts share at the beginning; it must be at least one block long.")
        )
    if hybrid and session.since("0.26") is False:
        found.append(
            kit.Remedy("Use vLLM 0.26 or newer, which can reuse less than a whole block if prompts repeat in full.")
        )
    elif hybrid:
        newer = "" if session.since("0.26") is True else " This option needs vLLM 0.26 or newer."
        found.append(
            kit.Remedy(
                f"If prompts repeat in full, allow shorter matches. States are not saved more often, so a short beginning that different prompts share is still not reused. vLLM rejects a match length that does not divide the block sizes of all layers.{newer}",
                options=kit.as_typed("--prefix-match-unit 16"),
            )
        )
    if prompt < _CHEAP:
        found.append(
            kit.Remedy("If all prompts are this short, there is nothing to fix: they cost almost nothing to compute.")
        )
    return found


RULE = kit.session_rule(
    __name__,
    "Prompts share less than a block, and only whole blocks are reused",
    inspect,
    needs=rolling.needs_traffic,
    severity="warning",
)
