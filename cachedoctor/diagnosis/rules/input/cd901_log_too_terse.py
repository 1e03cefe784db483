"""CD901: something was lost, and the log cannot show why."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

KEPT = 0.98
"""Share of a slot's content that is kept, from which on hardly any of it was changed."""
BUNCH = 2048
"""Tokens: checkpoints within a shorter span, at the end of a slot four times as long, are bunched."""


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when a loss remains that no rule could explain, or when the log contains only the symptom."""
    r = s.request
    if not s.lost:
        if s.too_small:
            return kit.Match(0, "high", key="small")
        at_hand = _thrown_away(s)
        return kit.Match(0, "low", found=at_hand, severity="warning" if at_hand else None) if s.symptom else None
    left = s.server_lost if s.lcp is not None else s.lost - s.client_lost
    if s.lcp is None and r.text_lcp is not None:
        left = min(left, max(0, r.text_lcp - (r.cached_tokens or 0)))  # the rest is not the same text
    if r.shifted or left < max(kit.MIN_LOST, 0.05 * (r.reference_tokens or 0)):
        return None
    if s.lcp is not None and 2 * (r.cached_tokens or 0) >= s.lcp:
        return None  # an older checkpoint was used: the normal grain of such memory
    earlier = s.earlier
    if earlier is None:
        return kit.Match(left, "low")
    return kit.Match(max(0, min(left, earlier - (r.cached_tokens or 0))), "low", at_most=left)


def _thrown_away(s: kit.RuleContext) -> tuple[int, int] | None:
    """(common prefix at least, tokens at hand) where checkpoints inside the common prefix were erased without a search.

    The slot was chosen because most of it is kept, and held what its farthest checkpoint covers at least.
    """
    r = s.request
    if r.seen.forced or r.seen.checks or r.seen.choice.selected_by != "lcp" or r.f_keep is None:
        return None
    common = round((r.f_keep - 0.0005) * r.seen.reach)
    inside = [end + 1 for begin, end in r.seen.erased_at if begin == end and end + 1 <= common]
    return (common, max(inside)) if inside and max(inside) >= s.min_prompt else None


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show the little that the log shows."""
    r = s.request
    primary, *related = kit.marked(
        r,
        ("forced", "the symptom"),
        ("select", "the slot choice"),
        ("erased", "a checkpoint that was erased"),
        kit.RECOMPUTED,
        ("release", "the length at the end of the request"),
        ("start", "the request"),
    )
    numbers = {"symptom": not s.lost, "at_hand": match.found, "erased": sorted(end + 1 for _, end in r.seen.erased_at)}
    numbers |= {"small": match.key, "least": s.min_prompt, "whole": s.whole, "known": s.lcp}
    numbers["candidates"] = [*_client(s), *_slot(s), *_memory(s), *_caching(s)]
    numbers["emptied"] = s.is_emptied or kit.was_emptied(r)
    others = [(mark, label) for mark, label in related if mark.line != primary[0].line]
    return kit.Proof(primary, others[:2], numbers)


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Name the causes that remain, and what would decide between them."""
    session = g.session
    if g.numbers["small"]:
        return _small(g)
    if g.numbers["symptom"]:
        return _symptom(g)
    return kit.FindingText(
        f"reuse was lost, and this log cannot show why: {kit.recomputed(g)} in {kit.times(g.count)}",
        _what_is_known(g),
        [
            advice.see_more(session),
            *_experiment(session),
        ],
        g.numbers["candidates"],
    )


def _what_is_known(g: kit.MatchGroup) -> str:
    """Say what the lines of the worst request show."""
    r, known = g.worst_request, g.numbers["known"]
    whole = (
        f" of the {kit.n(g.numbers['whole'])} tokens that could have been reused" if g.numbers["whole"] else " tokens"
    )
    size = f"A prompt of {kit.n(r.prompt_tokens)} tokens reused {kit.n(r.cached_tokens or 0)}{whole}. "
    place = "" if known is None else f"Of this prompt, {kit.n(known)} tokens are known to match. "
    emptied = (
        "A slot lost its content, although no other conversation had used the slot and the prompt begins with that content. "
        if g.numbers["emptied"]
        else ""
    )
    named = ", ".join(other.name for other in g.numbers["candidates"] if other.is_open)
    return f"{size}{place}{emptied}Causes not excluded: {named}."


def _client(s: kit.RuleContext) -> list[kit.RuledOut]:
    """Whether the client may have changed the prompt."""
    r, keep = s.request, s.request.f_keep
    if s.known and r.text_lcp is not None and r.text_lcp == r.reference_tokens:
        return [kit.RuledOut("prefix-diverges-early", "the prompt begins with all of the previous prompt")]
    if s.lcp is not None:  # what the client changed behind it has a finding of its own
        return [kit.RuledOut("prefix-diverges-early", f"{kit.n(s.lcp)} of {kit.n(s.whole)} tokens are the same")]
    if keep is not None and keep >= KEPT and r.held_thread == r.thread:
        return [kit.RuledOut("prefix-diverges-early", f"the prompt keeps {keep:.3f} of the slot's content")]
    return [kit.RuledOut("prefix-diverges-early", "not excluded: no line shows how much of the prompt is the same")]


def _memory(s: kit.RuleContext) -> list[kit.RuledOut]:
    """Whether the memory may have been unable to go back."""
    if s.facts.memory == "attention":
        return [kit.RuledOut("no-usable-checkpoint", "this model's memory can go back to any token")]
    if s.facts.memory is None:
        return [kit.RuledOut("no-usable-checkpoint", "not excluded: no line shows whether the memory can go back")]
    off = s.facts.setting("ctx_checkpoints")
    name = "checkpoints-disabled" if off is None and not s.request.checkpoints_shown else "no-usable-checkpoint"
    return [kit.RuledOut(name, f"not excluded: {s.facts.memory} memory can only go back to checkpoints")]


def _caching(s: kit.RuleContext) -> list[kit.RuledOut]:
    """Whether the request may have switched the cache off."""
    r = s.request
    if r.cached_tokens:
        return [kit.RuledOut("cache-prompt-off", f"{kit.n(r.cached_tokens)} tokens were reused")]
    erased = kit.RuledOut(
        "slot-erased", "not excluded: the slot may have been erased through the API; this log does not show it"
    )
    off = kit.RuledOut("cache-prompt-off", "not excluded: nothing was reused, as with cache_prompt false")
    return [off, erased] if r.seen.choice.selected_by == "lru" else [off]


def _slot(s: kit.RuleContext) -> list[kit.RuledOut]:
    """Whether another conversation may have held the slot."""
    r = s.request
    if s.lcp is not None and s.lcp >= s.whole - kit.MIN_LOST:
        return []
    if kit.was_emptied(r):
        return [kit.RuledOut("slot-held-other-prompt", "this conversation was the last one in the slot")]
    held = (
        f"only lengths show that the slot held this conversation's {kit.n(r.reference_tokens)} tokens"
        if s.own_slot
        else _holds(r) or "the slot was empty, and what happened to the last prompt is unknown"
    )
    return [kit.RuledOut("slot-held-other-prompt", f"not excluded: {held}")]


def _holds(r: kit.Request) -> str:
    """Say how much the slot held; empty where it held nothing that is known."""
    return f"the slot held {kit.length(r, 'held_tokens')} tokens of an unknown conversation" if r.held_tokens else ""


def _experiment(session: kit.Session) -> list[kit.Remedy]:
    """Offer the RAM prompt cache where the log shows that it is off: if that helps, a slot had been taken."""
    off = session.settings.get("cache_ram_mib")
    if off is None or off.value != 0:
        return []
    where = f"line {off.line} of this log shows it" if off.line is not None else "the command line sets it"
    known = advice.cache_ram(session)
    return [
        kit.Remedy(
            f"Or test whether the RAM prompt cache helps; it is off now ({where}). {known.text} If prompts are reused after that, other conversations took the slots.",
            options=known.options,
            purpose="depends",
        )
    ]


def _small(g: kit.MatchGroup) -> kit.FindingText:
    """Say that the symptom is not harm here."""
    r, least = g.worst_request, kit.n(g.numbers["least"])
    size = (
        f"a prompt of {kit.n(r.prompt_tokens)} tokens was recomputed"
        if 0 < (r.prompt_tokens or 0) < g.numbers["least"]
        else f"nothing was reused from a slot that held {kit.length(r, 'held_tokens')} tokens"
    )
    return kit.FindingText(
        f"{size}: too few tokens to matter ({kit.times(g.count)})",
        f"Requests for a title or a topic look the same. Prompts shorter than {least} tokens are not checked (min-prompt-tokens).",
        [
            kit.Remedy(
                "If a long prompt is slow, give the lines of that request; its length is shown after n_tokens or progress.",
                purpose="look",
            )
        ],
    )


# ---- the symptom alone


def _symptom(g: kit.MatchGroup) -> kit.FindingText:
    session, at_hand = g.session, g.numbers["at_hand"]
    if at_hand is not None:
        return kit.FindingText(
            f"at least {kit.n(at_hand[0])} tokens matched but none was reused, although a checkpoint of {kit.n(at_hand[1])} tokens was available",
            "The server erased the checkpoint without checking it. Either the request had cache_prompt false, a restore failed, or the checkpoint was rejected; these lines do not show the reason.",
            [kit.Remedy("Check whether the client sends cache_prompt: false."), _turns(session)],
            [
                kit.RuledOut(
                    "no-usable-checkpoint", f"a checkpoint of {kit.n(at_hand[1])} tokens was inside the common prefix"
                ),
                kit.RuledOut("cache-prompt-off", "not excluded: nothing was reused, as with cache_prompt false"),
                kit.RuledOut(
                    "checkpoint-restore-failed",
                    "not excluded: the line that would show this cause is missing or hidden at this log level",
                ),
            ],
        )
    old = [_update(session)] if session.at_least(6751) is False else []
    return kit.FindingText(_seen(g), f"{_meaning(g)} {_deciding(session)}", [*old, _turns(session)], _candidates(g))


def _seen(g: kit.MatchGroup) -> str:
    r = g.worst_request
    prompt = kit.length(r, "prompt_tokens") if r.prompt_tokens or "prompt_tokens" in r.between else None
    if r.seen.forced or r.seen.kept == 0:
        size = f" of {prompt} tokens" if prompt else ""
        return f"the whole prompt{size} was recomputed, and these lines cannot show why"
    return f"a prompt of {prompt} tokens went to a slot that shares at most 10 % of the prompt, and these lines cannot show why"


def _meaning(g: kit.MatchGroup) -> str:
    r, erased = g.worst_request, g.numbers["erased"]
    words = (
        "There are three possible causes: the client changed the prompt, another conversation held the slot, or the model's memory could not go back to an unchanged prompt."
        if r.seen.forced or r.seen.kept == 0
        else "The server chose the least recently used slot: the conversation is new, the start of its prompt changed, or another conversation had taken its slot."
    )
    if erased:
        words += f" Nothing below {kit.n(erased[0])} tokens could be restored, because the first erased checkpoint ends there."
    return words


def _deciding(session: kit.Session) -> str:
    """Name the lines of this build that tell the families apart."""
    lines = []
    if session.at_least(6900) is not False and session.at_least(9538) is not True:
        lines.append('"n_past = N, slot.prompt.tokens.size() = ..." (b6900 to b9294)')
    if session.at_least(8352) is not False:
        lines.append('"Checking checkpoint with [a, b] against N" (b8352 and newer; from b9873 on with -lv 4)')
    if not lines:
        return 'The line "n_past = N, cache_tokens.size() = ..." shows the cause.'
    return f"Look for {' or '.join(lines)}. If N is small, the client or another conversation is the cause; if N is near the slot's length, the server is."


def _turns(session: kit.Session) -> kit.Remedy:
    words, changes = advice.show_accounting(session)
    return kit.Remedy(
        'Give the last two turns, from the line "selected slot" before the previous answer to the end, or better the whole log. '
        f"To log more: {words}.",
        options=changes,
        purpose="look",
    )


def _update(session: kit.Session) -> kit.Remedy:
    windows = ", and builds up to b6123 keep none for sliding windows" if session.at_least(6180) is not True else ""
    return kit.Remedy(
        f"Update llama.cpp first: builds up to b6628 keep no checkpoints for hybrid and recurrent models{windows}, so the memory of these models cannot be restored."
    )


def _candidates(g: kit.MatchGroup) -> list[kit.RuledOut]:
    """What is not excluded: checkpoints that all lie at the end of a long slot, or what the symptom stands for."""
    erased, r = g.numbers["erased"], g.worst_request
    if len(erased) < 2 or erased[-1] - erased[0] > BUNCH or erased[0] < 4 * BUNCH:
        held = _holds(r) or "the slot's content is not known"
        forced = r.seen.forced or r.seen.kept == 0
        memory = kit.RuledOut(
            "no-usable-checkpoint", "not excluded: it is not known how much of the prompt was the same"
        )
        return [
            kit.RuledOut("prefix-diverges-early", "not excluded: no line shows where the prompts begin to differ"),
            kit.RuledOut("slot-held-other-prompt", f"not excluded: {held}"),
            memory
            if forced
            else kit.RuledOut(
                "new-conversations", "not excluded: if this is the first prompt of a conversation, nothing is wrong"
            ),
        ]
    span = f"{kit.n(erased[0])} to {kit.n(erased[-1])}"
    return [
        kit.RuledOut(
            "checkpoints-bunched", f"not excluded: the checkpoints are at {span} tokens, all at the end of the slot"
        ),
        kit.RuledOut("prefix-diverges-early", "not excluded: a changed start of the prompt looks the same"),
    ]


EXPLAINED = tuple(f"CD{number}" for number in range(101, 500) if number not in (104, 105))
"""Causes that explain a loss. CD104 and CD105 say what the client changed, not what the server lost on top."""


RULE = kit.rule(
    __name__,
    "Tokens were lost, and this log cannot show why",
    decide,
    prove,
    say,
    severity="note",
    on=("loss", "symptom"),
    unless=EXPLAINED,
)
