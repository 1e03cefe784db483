"""CD510: caching works, but almost nothing is reused: the prompts do not share their beginning, or seem not to."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import kv_proof, rolling, sent_changes, shared_beginnings
from cachedoctor.diagnosis.rules.measured.rolling import TrafficStretch
from cachedoctor.diagnosis.rules.measured.shared_beginnings import SharedVerdict
from cachedoctor.diagnosis.rules.vllm import kv_flow

_CAUSES = ("CD501", "CD502", "CD503", "CD513", "CD514", "CD515")
_WORTH = 10_000
"""Tokens: if fewer were computed in total, the cost is too small to say that the prompts should have shared them."""
_HALF = 0.5
"""Reused share from which on a cache with room is not reported: first requests and new turns explain the rest."""
_MANY = 20
"""Requests: with fewer the first ones of their conversations count for too much."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if given bodies prove it, or if prompts are long, the cache is large enough, and nothing else explains it."""
    if rolling.caching(session) is False:
        return []
    found, shared = rolling.stretches(session), shared_beginnings.judged(session)
    if shared is not None and found and sent_changes.of_this_log(session, found[0].share):
        told = _decided(shared, found[0])
        if told is not None:
            return [told]
    events = kv_proof.changed(session)
    if events:
        return events
    stretch = _barely(session, found, any_size=shared is not None)
    if stretch is None:
        return (_some(session) or _part(session, found)) if shared is None else []
    if shared is not None and shared.verdict == "parted":
        return [_proven(stretch, shared)]
    if _pushed_out(session):
        return []
    if shared is None:
        return [_note(session, stretch, rolling.block(session))]
    return [_proven(stretch, shared)] if shared.verdict == "shared" else []


def _pushed_out(session: kit.Session) -> bool:
    """Whether the size of the cache explains it, as a replay of the bodies says, or else may explain it."""
    if kv_proof.kept(session):
        return False
    sent = session.sent
    if sent is not None and sent.complete and sent.kept is not None:
        return sent.share(sent.kept) <= rolling.LITTLE
    return kv_flow.overflow(session) is not None


def _some(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it where /metrics or responses show that some requests reuse, and others compute nearly all of their prompt."""
    for groups, path in kv_flow.groups(session):
        words = kit.FindingText(
            f"{kit.n(groups.low)} requests computed at most {kit.n(groups.low_most)} tokens of their prompt, and {kit.n(groups.high)} requests computed at least {kit.n(groups.high_least)}, nearly the whole prompt ({path}): either some clients reuse prompts and others do not, or many conversations are new",
            "The hit rate is the average of both groups and hides the difference. The first request of a conversation has nothing to reuse. A client with all its requests in the second group changes the beginning of its prompts, or sends unrelated prompts.",
            rolling.experiment()[1:],
        )
        return [kit.SessionFinding(words, "some", [], "note", "medium", unless=shared_beginnings.CODES)]
    return []


def _part(session: kit.Session, found: list[TrafficStretch]) -> list[kit.SessionFinding]:
    """Say that the log does not show whose most tokens are: one rate is the average of all clients, and hides each of them.

    Only where nothing can have been evicted.
    """
    if rolling.caching(session) is not True:
        return []
    for stretch in found:
        requests, prompt, computed = stretch.requests or 0, stretch.prompt or 0, stretch.computed or 0
        large = requests >= _MANY and prompt >= 2 * kv_flow.LONG and computed >= _WORTH
        if large and rolling.LITTLE < stretch.share < _HALF and rolling.fits(session, stretch):
            return [_average(session, stretch, computed, requests)]
    return []


def _average(session: kit.Session, stretch: TrafficStretch, computed: int, requests: int) -> kit.SessionFinding:
    words = kit.FindingText(
        f"{rolling.percent(1 - stretch.share)} of the prompt tokens were computed, about {kit.n(computed / requests)} of {kit.n(stretch.prompt)} per "
        f"request, although all of them fit into the cache; the log cannot show whether these tokens were new text ({stretch.said})",
        "The hit rate is an average: a client that reuses all its prompts hides a client that changes the beginning of each prompt. First requests of conversations and prompts with new text look the same in the log and are fine.",
        [*([] if session.counters else [_HISTOGRAMS]), *rolling.experiment()[1:]],
        [
            *_ruled_out(session, stretch, rolling.block(session)),
            kit.RuledOut("changed-beginning", "not excluded: some of the clients may change the beginning of their prompts"),
            kit.RuledOut("new-text", "not excluded: if these are new conversations and long new turns, there is nothing to fix"),
        ],
    )  # fmt: skip
    return kit.SessionFinding(words, "part", stretch.evidence, "note", "low", unless=shared_beginnings.CODES)


_HISTOGRAMS = kit.Remedy(
    "Fetch /metrics, whose histograms are on by default and show whether only some requests reuse tokens.",
    ["curl -s http://localhost:8000/metrics > metrics.txt", "cachedoctor analyze vllm.log --metrics metrics.txt"],
    purpose="look",
)


def _barely(session: kit.Session, found: list[TrafficStretch], any_size: bool) -> TrafficStretch | None:
    """Traffic that reused almost nothing of prompts that are long enough."""
    size = rolling.block(session)
    least = max(kv_flow.LONG, 2 * size) if size else kv_flow.LONG
    for stretch in found:
        if stretch.share > rolling.LITTLE:
            return None
        if stretch.prompt is not None and stretch.prompt < least:
            continue
        if not any_size and stretch.computed is not None and stretch.computed < _WORTH:
            continue
        return stretch
    return None


def _decided(shared: SharedVerdict, stretch: TrafficStretch) -> kit.SessionFinding | None:
    """Say that the given bodies had nothing to share; what clients changed in them has rules of its own."""
    if shared.verdict != "nothing" or stretch.share > rolling.LITTLE:
        return None
    claim = f"almost nothing was reused, because there was nothing to reuse: {shared.said} ({stretch.said})"
    words = kit.FindingText(claim, shared.why, shared.remedies)
    return kit.SessionFinding(words, "nothing", stretch.evidence, "note", "high", unless=shared_beginnings.CODES)


def _proven(stretch: TrafficStretch, found: SharedVerdict) -> kit.SessionFinding:
    """The prompts were given, or the log has them; whether those that part early repeat anything is not known."""
    if found.early:
        words = kit.FindingText(
            f"almost nothing was reused, because the prompts diverge near their beginning: {found.said} ({stretch.said})",
            found.why,
            found.remedies,
        )
        return kit.SessionFinding(words, "early", stretch.evidence, "note", "high", unless=shared_beginnings.CODES)
    words = kit.FindingText(
        f"almost nothing was reused, although the prompts share their beginning: {found.said} ({stretch.said})",
        "The text of the prompts is therefore not the cause. Possible causes: a cache salt, a LoRA adapter, another image, a router that spreads requests over servers, or "
        "a bug of this version; the log shows none of them.",
        rolling.experiment()[:1],
    )
    return kit.SessionFinding(words, "shared", stretch.evidence, "warning", "high", unless=shared_beginnings.CODES)


def _note(session: kit.Session, stretch: TrafficStretch, size: int | None) -> kit.SessionFinding:
    length = f"prompts of about {kit.n(stretch.prompt)} tokens" if stretch.prompt else "prompts"
    little = "nothing" if stretch.share == 0 else "almost nothing"
    on, fits = rolling.caching(session), rolling.fits(session, stretch)
    causes = [
        *([] if on else ["prefix caching is off (the log does not show it)"]),
        "the prompts share nothing",
        f"the client changes them {'within their first block' if stretch.share == 0 else 'near their beginning'}",
        *([] if fits else ["they were evicted before they were needed again"]),
    ]
    words = kit.FindingText(
        f"{length} reused {little}{', although prefix caching is on' if on else ''} ({stretch.said}); possible causes: {', or '.join(causes)}",
        "If the prompts are unrelated, they share nothing, and there is nothing to fix. A client that changes the beginning of every prompt (a time, a counter, a "
        "new tool list) looks the same. A cache salt, a LoRA adapter, another image, and a router that spreads requests look the same as well; the log shows none of these."
        + _more(session, stretch, size, fits),
        rolling.experiment(),
        _ruled_out(session, stretch, size),
    )
    lines = [*stretch.evidence, *kit.said_by(session.settings.get("prefix_caching"), "prefix caching is on")]
    sure: kit.Confidence = "medium" if on and fits and stretch.prompt is not None else "low"
    return kit.SessionFinding(words, "", lines, "note", sure, unless=shared_beginnings.CODES)


def _more(session: kit.Session, stretch: TrafficStretch, size: int | None, fits: bool | None) -> str:
    """What else cannot be told apart."""
    found = ""
    if stretch.prompt is None:
        found += " Prompts shorter than a block look the same as well; the log does not show the length of prompts."
    if session.memory == "hybrid" and size:
        found += f" On this hybrid model a shared beginning of less than a block of {kit.n(size)} tokens looks the same, and so does a beginning that only two prompts share."
    if fits is None:
        found += " A KV cache that is too small for all prompts looks the same as well; the log does not show the size of the cache."
    elif not fits:
        found += " A KV cache that is too small for all prompts looks the same as well; more tokens were computed than the cache holds."
    return found


def _ruled_out(session: kit.Session, stretch: TrafficStretch, size: int | None) -> list[kit.RuledOut]:
    found = []
    if rolling.caching(session):
        found.append(kit.RuledOut("prefix-caching-off", "prefix caching is on"))
    if size and stretch.prompt and session.memory != "hybrid":
        length = f"the average prompt fills {stretch.prompt / size:.0f} blocks of {kit.n(size)} tokens"
        found.append(kit.RuledOut("block-granularity", length))
    if kv_proof.kept(session):
        found.append(kit.RuledOut("kv-pressure", "KV events: almost nothing was evicted"))
    elif rolling.fits(session, stretch):
        found.append(
            kit.RuledOut(
                "kv-pressure",
                f"all {kit.n(stretch.computed)} computed tokens fit into the cache of {kit.n(session.setting('kv_tokens'))} tokens",
            )
        )
    return found


def _needs(session: kit.Session) -> tuple[str, str] | None:
    return None if kv_proof.changed(session) else rolling.needs_traffic(session)


RULE = kit.session_rule(
    __name__,
    "Prompt tokens were computed, and the log shows no cause",
    inspect,
    needs=_needs,
    severity="warning",
    unless=_CAUSES,
)
