"""CD105: the client changed the history after the head of the prompt."""

from __future__ import annotations

from itertools import pairwise

from cachedoctor.diagnosis.rules import advice, kit, lengths
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import (
    by_difference,
    cost_of_change,
    from_prompts,
    is_early,
    prompts_prove,
    references,
    why_before,
    why_client,
)
from cachedoctor.diagnosis.rules.lengths import LATE, SAME_PLACE
from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.knowledge.decision import FRAME

_APPEND = kit.Remedy(
    "In the client: keep the history append-only. Do not move reminders or file contents to the newest message, and do not edit old turns."
)
_BY_HAND = kit.Remedy("A manual edit or a compaction changes the history only once, which is fine.")
_KINDS = ("message-edited", "message-removed", "message-inserted", "message-moved", "compacted")
_WRITTEN_ANEW = ("json-spacing", "json-key-order", "whitespace", "other")
"""Differences in a message, or part of it, that keep its meaning: a client parsed it and wrote it again."""
_HISTORY = ("messages[", "input[")
_UNNAMED = ("other", "whitespace", "retokenised", "special-token", "template", "json-spacing", "json-key-order")
"""Differences whose kind does not show where they are."""
_WHY = "The beginning of the conversation matches, but a later part does not: a message was edited, removed, moved or rendered differently. Reuse ends at the changed message."
_OPENING = ("messages[0]", "messages[1]", "input[0]", "input[1]")
"""Possible positions of the first user message in a request."""
SPAN_LEAST = 1000
"""Minimum dropped tokens if only bounds of the divergence are known."""
AGAIN = 64
"""Bytes: what two texts have in common by chance."""
_TWO_SESSIONS = kit.RuledOut(
    "shared-prefix-steal",
    "not excluded: two sessions with the same system prompt that alternate on the slot can have the same lengths; the request bodies show which case it is",
)

_SEPARATE = kit.RuledOut(
    "new-conversations",
    "not excluded: if these are separate prompts with the same system prompt, there is nothing to fix",
)

_COMPLETIONS = kit.RuledOut(
    "new-conversations",
    "not excluded: if an editor requests completions (`/infill`), it inserts text before an unchanged suffix, and there is nothing to fix",
)


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the prefix ends inside the history: neither near its head nor at its tail."""
    if not s.lost:
        return None
    asked = s.changed("compaction-request")
    if asked is not None:
        return from_prompts(s, asked)
    first = None if s.first is None else s.changed(*_KINDS) or _written_anew(s)
    if s.early and not (_goes_on(s) or lengths.in_history(s)) and (first is None or _another_had_slot(s)):
        return None
    if first is not None:
        return _in_prompts(s, first)
    r = s.request
    if s.lcp is None and r.seen.parted and r.prefix_between is not None:
        return kit.Match(0, "low", key="span") if s.client_lost >= SPAN_LEAST else None
    if (
        (s.known and not _reply_changed(s))
        or s.client_lost < kit.MIN_LOST
        or s.own_slot is False
        or s.lcp is None
        or r.shifted
        or s.forked
        or s.is_infill
    ):
        return None
    again = s.said_last("CD105") or sum(s.said_before("CD105")) >= 2 or (s.early and lengths.moves_on(s))
    again = again and not _wanted(s)
    # A single edit or compaction was wanted: no fix would have saved it. Nor is a changed reply sent again as a whole.
    tokens = cost_of_change(s) if again and not _in_last_reply(s) else 0
    if again and (lengths.one_form(s) or lengths.cursor_moves(s) or s.is_settled("CD105")):
        # separate prompts look the same, of which nobody could have reused more
        return kit.Match(0, "low", at_most=s.client_lost, severity="note", undecided=True, settles=True)
    if tokens and (_drops(s) or lengths.constant_end(s, 2) or lengths.in_variants(s)):
        return kit.Match(0, "low", at_most=tokens, severity="note")
    sure = s.own_slot and not r.other_candidates
    sure = sure and (not lengths.in_first_prompt(s) or (again and not _others(s)))
    return kit.Match(tokens, "medium" if sure else "low")


def _another_had_slot(s: kit.RuleContext) -> bool:
    """Whether another conversation had the slot, and nothing shows that this one would have lost these tokens in any case."""
    return s.own_slot is False and not lengths.copy_refused(s) and not _parts_by_text(s)


def _parts_by_text(s: kit.RuleContext) -> bool:
    """Whether the prompts themselves have less in common than what was lost: no slot could have given it back."""
    r = s.request
    return r.text_lcp is not None and r.text_lcp - (r.cached_tokens or 0) < kit.MIN_LOST


def _written_anew(s: kit.RuleContext) -> kit.First | None:
    """The difference, if it is in a message of the history that says the same in another form."""
    first = s.changed(*_WRITTEN_ANEW)
    return first if first is not None and (first.place or "").startswith(_HISTORY) else None


def _drops(s: kit.RuleContext) -> bool:
    """Whether the client drops text of its last turn, each time further on: a prompt is shorter than what its slot held.

    What follows may all be new, as where passages of documents stand at the newest question only; how much of it had
    been sent before is not in the log.
    """
    turns = [h for h, said in zip(s.history, s.said_before("CD105"), strict=True) if said] + [s.request]
    places = [turn.common_prefix_tokens or 0 for turn in turns]
    moves = all(after > before + SAME_PLACE for before, after in pairwise(places))
    return moves and any((turn.prompt_tokens or 0) < (turn.reference_tokens or 0) - SAME_PLACE for turn in turns)


def _reply_changed(s: kit.RuleContext) -> bool:
    """Whether the bodies only grew, and the log shows that the reply was not sent as the server wrote it: no body has
    what it wrote."""
    known = s.pinned or s.lcp == s.request.cached_tokens
    return known and s.changed("appended") is not None and s.own_slot is True and _in_last_reply(s)


def _in_last_reply(s: kit.RuleContext) -> bool:
    """Whether all of the last prompt is kept, and only the reply to it was changed: cut, or sent without its reasoning.

    How much of the reply was sent again is not in the log.
    """
    before = s.history[-1].prompt_tokens if s.history else None
    return before is not None and (s.lcp or 0) >= before - SAME_PLACE


def _goes_on(s: kit.RuleContext) -> bool:
    """Whether the place of a change that was said before has only become early, as the conversation grew after it."""
    if not s.own_slot or s.lcp is None or not s.said_last("CD105"):
        return False
    return s.lcp >= (s.history[-1].common_prefix_tokens or 0) - SAME_PLACE


def _wanted(s: kit.RuleContext) -> bool:
    """Whether nobody could have reused more: after a turn that continued, a shorter prompt begins a new conversation with
    the same system prompt; one of the same length that parts near its end, as before, is the last turn once more."""
    if not s.history:
        return False
    if _once_more(s):
        return True
    before, prompt = s.history[-1], s.request.prompt_tokens or 0
    length = before.prompt_tokens or prompt
    if prompt < length - SAME_PLACE:
        return before.outcome == "reused"
    same = abs((before.common_prefix_tokens or 0) - (s.lcp or 0)) <= SAME_PLACE
    return prompt <= length + SAME_PLACE and same and (s.lcp or 0) >= LATE * prompt


def _once_more(s: kit.RuleContext) -> bool:
    """Whether the last turn is asked again in other words: the prompt keeps what that turn had continued, and no more."""
    for turn in reversed(s.history):
        if abs((s.lcp or 0) - (turn.common_prefix_tokens or 0)) > FRAME:
            return False
        if turn.outcome == "reused":
            return True
    return False


def _in_prompts(s: kit.RuleContext, first: kit.First) -> kit.Match:
    again = not _wanted(s) and s.said_last("CD105")
    by_hand = not again and not (s.early and _of_head(first.place))  # nobody edits the head in the middle of a chat
    match = from_prompts(s, first, 0 if by_hand or _all_new(s) else cost_of_change(s))
    if not again and (first.place or "").startswith(_OPENING):
        match.confidence = "low"  # a new conversation with the same system prompt begins like this as well
    return match


def _all_new(s: kit.RuleContext) -> bool:
    """Whether nothing that came after the difference was sent again: another draft of the last message, of which nobody
    could have reused more."""
    return s.difference is not None and s.difference.sent_again is not None and s.difference.sent_again <= AGAIN


def _of_head(place: str | None) -> bool:
    """Whether the first message of a body changed: the system prompt, where there is one."""
    return (place or "").startswith(("messages[0]", "input[0]", "system", "instructions"))


_CHOICE = {"lcp": "share of the slot's content that was kept", "lru": "the least recently used slot was chosen"}
"""Label of the slot selection line, by the reason for the selection."""


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show where the prefix ends, and what the slot held."""
    if match.found is not None:
        return prompts_prove(s, match)
    r = s.request
    if match.key == "span":
        return kit.proof(
            r,
            ("restored", "the last checkpoint before the change"),
            ("erased", "a checkpoint after the change"),
            kit.REUSED,
            numbers={"span": r.prefix_between, "changed": s.client_lost},
        )
    return kit.proof(
        r,
        kit.PREFIX_AND_CONTENT,
        ("new", "the new prompt"),
        ("select", _CHOICE.get(r.seen.choice.selected_by or "", "the slot choice")),
        kit.REUSED,
        kit.RECOMPUTED,
        most=3,
        numbers={
            "lcp": s.lcp,
            "reference": r.reference_tokens,
            "changed": r.lost_client,
            "fixed": _same_place(s),
            "below": s.server_lost if r.cut and r.seen.restored and s.server_lost >= SPAN_LEAST else None,
            "end": lengths.constant_end(s, 1),
            "behind": s.is_behind_first,
            "moves": lengths.moves_on(s),
            "two": bool(r.other_candidates) or _others(s),
            "compared": s.difference is not None,
        },
    )


def _others(s: kit.RuleContext) -> bool:
    """Whether conversations with one system prompt have these lengths: in turn, or each new, so that prompts do not grow."""
    if not s.history or not lengths.in_first_prompt(s):
        return False
    sizes = lengths.of_prompts(s)
    stands = any(after <= before + SAME_PLACE for before, after in pairwise(sizes))
    return stands or (lengths.goes_on_earlier(s) and not _same_place(s))


def _same_place(s: kit.RuleContext) -> bool:
    """The third request at least whose prefix ends at the same token, while the prompt grows."""
    before = [h for h, said in zip(s.history, s.said_before("CD105"), strict=True) if said]
    places = [h.common_prefix_tokens or 0 for h in before[-2:]] + [s.lcp or 0]
    sizes = [h.prompt_tokens or 0 for h in before[-2:]] + [s.request.prompt_tokens or 0]
    return len(places) == 3 and max(places) - min(places) <= SAME_PLACE and sizes == sorted(set(sizes))


def _between(g: kit.MatchGroup) -> kit.FindingText:
    """Say between which checkpoints the history changed: no line has the place itself."""
    f, r = g.numbers, g.worst_request
    low, high = f["span"]
    return kit.FindingText(
        f"the history changed in {kit.times(g.count)}, between tokens {kit.n(low)} and {kit.n(high)} of at least {kit.n(r.reference_tokens)} "
        f"(at least {kit.n(f['changed'])} tokens dropped)",
        f"The server went back to its checkpoint of {kit.n(low)} tokens and erased the next checkpoint, of {kit.n(high + 1)}: the prompt diverges from the slot's content somewhere between the two. A message was edited, removed, moved or rendered differently at that place.",
        [_APPEND, _BY_HAND, advice.show_text(g.session)],
        [_TWO_SESSIONS],
    )


def _of_request(g: kit.MatchGroup) -> kit.FindingText:
    """Say that the request for a summary has another head than what it sums up."""
    f = g.numbers
    return kit.FindingText(
        f"the request for a summary of the conversation starts differently from the conversation: {kit.n(g.tokens)} tokens recomputed "
        f"in {kit.times(g.count)}",
        f"The summary request has another system prompt or other tools, so it shares no prefix with the conversation.{why_client(g)}",
        by_difference(g, []),
        [kit.RuledOut("slot-held-other-prompt", f"the two prompts themselves diverge at {kit.token(f['lcp'])}")],
        references(g),
    )


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Describe where the history diverges, and what in a client changes it."""
    f, r = g.numbers, g.worst_request
    if f.get("span") is not None:
        return _between(g)
    if f.get("kind") == "compaction-request":
        return _of_request(g)
    least = "at least " if "held_tokens" in r.at_least else ""
    again, worst = (" more than once", "the worst change ") if g.count > 1 else ("", "")
    what = "first message" if _of_head(f.get("place")) else "history"
    place = f"after {kit.token(f['lcp'])} of {least}{kit.n(f['reference'])}"
    return kit.FindingText(
        (
            f"the {what} changed{again}, {worst}{place}: {kit.n(g.tokens)} tokens recomputed in {kit.times(g.count)}"
            if g.tokens
            else f"the {what} changed in {kit.times(g.count)}, {worst}{place} ({least}{kit.n(f['changed'])} tokens dropped)"
        ),
        _WHY
        + (
            " The change is at the same place in at least three growing requests: something at that place changes each time (a date, a counter, a reminder)."
            if f.get("fixed")
            else ""
        )
        + _below(g)
        + why_before(g)
        + why_client(g),
        by_difference(g, [_APPEND, _BY_HAND, advice.show_text(g.session, compared=f.get("compared", True))]),
        [
            kit.RuledOut("prefix-diverges-early", _not_the_head(g)),
            kit.RuledOut("retokenised-tail", f"{kit.n(f['changed'])} tokens changed"),
            *([_TWO_SESSIONS, _SEPARATE] if f.get("two") else []),
            *([_COMPLETIONS] if f.get("end") and not (f.get("two") or g.tokens or g.count < 3) else []),
        ],
        references(g),
    )


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies that diverge in a message, or anywhere after their head."""
    first = difference.first
    if first is None or not (first.kind in _KINDS or (first.kind in _UNNAMED and not is_early(difference))):
        return None
    what = "first message" if _of_head(first.place) else "history"
    head = f"the {what} changed after {changes.place(difference)} of {kit.n(difference.a.tokens)}"
    return changes.of_bodies(difference, head, _WHY, [_APPEND, _BY_HAND])


def _below(g: kit.MatchGroup) -> str:
    """Say what the server recomputed though it had not changed: the distance of its checkpoints."""
    below, session = g.numbers.get("below"), g.session
    if not below:
        return ""
    option = " (--checkpoint-min-step sets the distance)" if session.at_least(9538) is True else ""
    return (
        f" The server went back to the last checkpoint before that place and recomputed {kit.n(below)} unchanged tokens, because its "
        f"checkpoints are that far apart{option}."
    )


def _not_the_head(g: kit.MatchGroup) -> str:
    """What excludes an unknown change of the head: a long common prefix, or prompts that show the change."""
    f, r = g.numbers, g.worst_request
    lcp, prompt = r.common_prefix_tokens or 0, r.prompt_tokens or 0
    if f.get("place") and lcp < kit.EARLY * prompt:
        return "the prompts themselves show which message changed"
    if lcp < kit.EARLY * min(prompt, r.reference_tokens or prompt):
        if f.get("behind"):
            return "the change is behind all of the first prompt of this conversation"
        if f.get("moves"):
            return "the change is further on with each turn, and the head of a prompt does not grow"
        return "at first the change was near the end of the prompt; the conversation grew after the change"
    same = kit.n(f["lcp"]).replace("~", "about ")
    if r.prompt_tokens is None:
        return f"{same} tokens match; prompt length unknown"
    return f"{same} of {kit.n(r.prompt_tokens)} tokens match"


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it for a program that prints where prompts diverge from its cache, after a common prefix."""
    said = kit.stated(session, "parted")
    if said is None:
        return []
    n, reason = said.numbers, own_settings.reason(said)
    worst = "in the worst request " if said.count > 1 else ""
    words = kit.FindingText(
        f"{kit.n(n['tokens'])} tokens in {kit.times(said.count)} differ from the prompt cached by {session.program}, {worst}from token {kit.n(n['place'])} of "
        f"{kit.n(n['held'])} on{reason}: either a changed history or another conversation",
        "The prompt matches the cached prompt up to the difference, and nothing after the difference can be reused. A client causes such a difference if it moves a system message, drops reasoning or old tool results, or summarizes.",
        [own_settings.compare(), *own_settings.room(session), _APPEND],
        [
            kit.RuledOut(
                "slot-held-other-prompt",
                "not excluded: if this is another conversation with the same beginning (system prompt and tools), nothing is wrong",
            )
        ],
    )
    return [kit.SessionFinding(words, "", [(said.mark, "where the prompt diverges")], "note", "low")]


RULE = kit.rule(
    __name__,
    "Old messages after the start of the prompt were changed",
    decide,
    prove,
    say,
    on=("changed",),
    unless=("CD101", "CD102", "CD103", "CD104", "CD106", "CD107", "CD312", "CD402"),
    alone=alone,
    stated=("parted",),
    of_bodies=of_bodies,
)
