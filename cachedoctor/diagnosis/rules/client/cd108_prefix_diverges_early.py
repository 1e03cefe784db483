"""CD108: the prompt changed near its head; the log shows where, not what."""

from __future__ import annotations

from typing import Any

from cachedoctor.diagnosis.rules import advice, kit, lengths
from cachedoctor.diagnosis.rules.checkpoints import held_whole, serves, serving
from cachedoctor.diagnosis.rules.client import changes
from cachedoctor.diagnosis.rules.client.changes import is_early
from cachedoctor.diagnosis.rules.measured import own_settings
from cachedoctor.knowledge.decision import FRAME

LEAST_TURN = 8
"""Tokens that any turn adds: what a template writes around two messages."""
MOST_ADDED = 0.5
"""Share of a conversation that one turn rarely adds."""
TWICE = 2
"""Earlier occurrences needed if the RAM cache restores other conversations, as it would have restored this one."""
OFTEN = 4
"""Times in a row that lengths must grow before they are taken for those of one conversation."""
STEADY = 3
"""Turns in a row that must grow a little before their lengths alone are taken for those of one conversation."""
LITTLE = 0.1
"""Maximum share of a prompt that such a turn adds."""
APART = 8
"""Tokens by which common prefixes differ at least if they end in different words."""
LARGE = 0.25
"""Share of a prompt from which on a common beginning is a large part of it."""
SMALL_RAM = 1024
"""MiB from which a RAM cache is assumed to keep what leaves a slot, if no line shows it."""
BEFORE_HEADER = 120
"""Tokens up to the changing value in Claude Code's billing header: the message frame and about 60 tokens of the header."""


def _confidence(s: kit.RuleContext) -> kit.Confidence:
    """High only when the slot is known to have held this conversation's previous turn, and it happens again."""
    r = s.request
    if s.by_the_book is False:
        return "low"  # the server did not even reuse what it had to: more than a changed head is at work
    # the first turn that is in the log may have been another conversation's, and so may one that was left open
    repeated = s.said_last("CD108") and s.history[-1].thread_turn > 0
    repeated = repeated and (_often(s) or "CD108" not in s.before[-1].verdict.left_open)
    if r.seen.new_text and " | " in r.seen.new_text:
        return "medium"  # the text is cut to the tokens after the bar: what it is stays open
    alone = s.threads == 1 and (s.slot_before is None or s.slot_before.thread in (None, r.thread))
    if "slot_copy" in r.marks:
        return "medium" if alone and not _frame_alone(s) else "low"
    if _frame_alone(s) and r.thread != r.held_thread:
        return "medium" if repeated and alone else "low"  # so much is common to all prompts of a template
    if r.ram_refused:  # its own last prompt was in RAM, by its length, and did not match; once, it may be another's
        if not repeated or not (alone or _is_apart(s)):
            return "low"
        return "high" if r.reference_lcp is not None or not r.other_candidates else "medium"
    if s.own_slot is False and r.ram_best_lcp is not None:
        return ("high" if repeated else "medium") if r.ram_best_lcp < kit.EARLY * s.whole else "low"
    if s.own_slot is False:
        found = r.seen.choice.looked or (s.setup.ram_keeps_all and s.returns)
        return "medium" if found and repeated else "low"
    if s.own_slot is None or r.other_candidates or lengths.takes_turns(s):
        return "low"
    if not repeated:
        return "low"  # once: the slot may have been erased, or a new conversation begun that happens to be longer
    nothing_in_ram = r.seen.choice.looked and r.restored_from_ram is False
    if r.held_tokens != r.reference_tokens and not _shares_most(s):
        return "low"  # its slot held an older prompt: separate ones behind one instruction go round as well
    if r.lcp_exact and alone and nothing_in_ram:
        return "high"
    return "medium" if alone or nothing_in_ram else "low"


_OPEN = "open"
"""Key of requests whose cause is undecided: they get their own finding, as none of their tokens counts as avoidable."""
_FEW = "few"
"""What is found where too few lengths make these prompts one conversation."""


def _perhaps_separate(s: kit.RuleContext) -> bool:
    """Whether separate prompts behind one instruction may have these lengths: its slot held something else, and of what
    holds this conversation's last prompt no line shows how little is the same, or all that was compared shares as much."""
    r = s.request
    listed = r.ram_refused and r.reference_lcp is not None and s.own_slot is not True
    elsewhere = any(one.thread == r.thread and one.length == r.reference_tokens for one in r.seen.choice.others)
    if _returned_alone(s) or _others_share(s) or _one_head(s) or (not s.known and lengths.ends_alike(s.history, 2)):
        return True
    if not (listed or elsewhere or kit.passed_over(s.request)):
        return False
    return r.reference_lcp is None or _frame_alone(s) or not _shares_most(s)


def _returned_alone(s: kit.RuleContext) -> bool:
    """Whether this conversation alone did not come back: others do, out of a RAM cache that lost nothing, and only its
    lengths, too few of them, make these prompts one conversation."""
    known = s.request.reference_lcp is not None and not _frame_alone(s)
    comes_back = s.own_slot is False and s.returns and (s.setup.ram_keeps_all or s.request.ram_refused)
    return comes_back and not known and sum(s.said_before("CD108")) < TWICE and not s.is_settled("CD108")


def _perhaps_new(s: kit.RuleContext) -> bool:
    """Whether it happened once, by lengths alone, on a server of several conversations, and no more is shared than what a
    template writes: any new one that is longer than what a slot holds looks like that."""
    return (
        s.threads > 1
        and (s.lcp or 0) <= FRAME
        and not (s.known or s.request.seen.new_text)
        and not any(s.said_before("CD108"))
        and not s.is_settled("CD108")
    )


def _drafts(s: kit.RuleContext) -> bool:
    """Whether it, or the prompt before it, was at work with others of just its length: several drafts of one new prompt,
    each in a slot that held a draft of the last one. Conversations may have one length, too, but grow turn by turn,
    where prompts grow by chance at most a few times."""
    if s.known or s.request.text_lcp is not None or _steady(s, OFTEN):
        return False
    turns = [*s.history[-1:], s.request]
    return any(
        one.prompt_tokens == turn.prompt_tokens and one.thread != turn.thread
        for turn in turns
        for one in s.beside(turn)
    )


def _few(s: kit.RuleContext) -> bool:
    """Whether only lengths that grow make it one conversation, and too few of them: of any five prompts in turn, four grow
    by chance in one of 120 cases, of any four, three in one of 24; but seldom each by as little as a turn adds."""
    r = s.request
    return not (s.known or r.seen.new_text or r.text_lcp is not None or _often(s))


def _often(s: kit.RuleContext) -> bool:
    """Whether the lengths grew so often, or so steadily, that they are taken for those of one conversation, be it later."""
    return s.is_settled("CD108") or _steady(s, STEADY) or sum(s.said_before("CD108")) + 1 >= OFTEN


def _steady(s: kit.RuleContext, times: int) -> bool:
    """Whether the last prompts grew so many times in a row, each by as little as a turn adds."""
    if len(s.history) < times:
        return False
    turn = s.request
    for before in s.history[: -times - 1 : -1]:
        if _added(before, turn) > LITTLE:
            return False
        turn = before
    return True


def _added(before: kit.Request, turn: kit.Request) -> float:
    """Share of a prompt that it adds to what the turn before left: another prompt that is longer seldom adds little."""
    left = before.prompt_tokens if before.seen.released_tokens is None else before.seen.released_tokens
    prompt = turn.prompt_tokens or 1
    return (prompt - (left or 0)) / prompt if prompt - (left or 0) > 0 else 1.0


def _grows(s: kit.RuleContext) -> bool:
    """Whether this happened so often in a row that lengths which grow are taken for those of one conversation."""
    known = s.request.reference_lcp is not None and not _frame_alone(s)
    return known and len(s.before) >= OFTEN and all(s.said_before("CD108")[-OFTEN:])


def _frame_alone(s: kit.RuleContext) -> bool:
    """Whether it is known that the prompt shares no more with what was there before than what a template writes."""
    r = s.request
    known = [n for n in (r.reference_lcp, r.ram_best_lcp) if n is not None]
    return bool(known) and max(known) <= FRAME


def _shares_most(s: kit.RuleContext) -> bool:
    """Whether something was compared that shares less than this conversation's last prompt."""
    own = s.request.reference_lcp
    return own is not None and _less_is_shared(s, own)


def _less_is_shared(s: kit.RuleContext, own: int) -> bool:
    """Whether another slot, or an entry of the RAM cache, shares clearly less than ``own`` tokens with the prompt."""
    choice = s.request.seen.choice
    return any(lcp < own - APART for lcp in (*(n for _, n in choice.candidates), *(one.lcp for one in choice.others)))


def _others_share(s: kit.RuleContext) -> bool:
    """Whether prompts of other conversations share more than a frame with this one, and as much as its own last prompt: all
    begin with one instruction."""
    r, before = s.request, s.slot_before
    least = max(FRAME + 1, (r.reference_lcp or s.lcp or 0) - APART)
    near = [length for length, lcp in r.seen.choice.candidates if lcp >= least]
    if near and not {r.reference_tokens, *(turn.seen.released_tokens for turn in s.history)}.issuperset(near):
        return True
    if before is None or before.thread in (None, r.thread) or s.lcp is None:
        return False
    return before.thread_turn == 0 and least <= (before.common_prefix_tokens or 0) <= s.lcp + APART


def _one_head(s: kit.RuleContext) -> bool:
    """Whether it shares a large part of itself with what another conversation left, where prompts come in the order
    of their lengths: so do separate prompts behind one instruction."""
    return s.own_slot is False and s.is_doubtful and (s.lcp or 0) >= LARGE * (s.request.prompt_tokens or 0)


def _is_apart(s: kit.RuleContext) -> bool:
    """Whether something that was compared shares less than this conversation's last prompt: what is common to all
    prompts, such as one system prompt of many users, says nothing. True where nothing is listed."""
    r = s.request
    own = r.reference_lcp if r.reference_lcp is not None else r.ram_best_lcp
    return own is None or _less_is_shared(s, own)


def _perhaps_erased(s: kit.RuleContext) -> bool:
    """Whether a program may have emptied its slot over the API: not even the frame of a message was reused, and neither
    that nor the kind of memory is in the log."""
    r = s.request
    return (
        r.cached_tokens == 0 and s.lcp is None and s.facts.memory is None and s.own_slot is True and not r.ram_refused
    )


def _perhaps_cleared(s: kit.RuleContext) -> bool:
    """Whether an adapter or a program may have cleared a slot that another conversation had: not even the frame of a message was reused, and no
    line shows that the memory cannot go back to it."""
    unknown = s.lcp is None and s.facts.memory is None and not s.is_settled("CD108")
    return s.own_slot is False and s.request.cached_tokens == 0 and unknown


def decide(s: kit.RuleContext) -> kit.Match | None:
    """Fire when the common prefix is short and the slot held, or may have held, this thread's previous turn."""
    if not s.lost or not s.early or (s.own_slot is False and not lengths.copy_refused(s)):
        return None
    most = s.lcp_at_most
    if s.lcp is None and "slot_files" in s.facts.shows:
        return None  # slots are saved, erased and restored from outside, which prints nothing
    if most is None or s.whole - most < kit.MIN_LOST or (s.lcp is not None and s.client_lost < kit.MIN_LOST):
        return None
    if s.changed("appended") or _drafts(s) or s.is_infill:  # the client only added, or sent something else
        return None
    if s.request.cut:
        return _of_excerpt(s)
    by_lengths = _by_lengths_alone(s)
    if (s.own_slot is None and not s.history and not s.facts.starts_cold) or (by_lengths and _begins(s)):
        # what came before is not in the log: it may be a new one
        return (
            kit.Match(_cost(s), "low", severity="note", undecided=True, key=_OPEN) if s.whole >= s.min_prompt else None
        )
    if by_lengths:
        return None
    if _by_chance(s):
        return kit.Match(_cost(s), "low", severity="note", undecided=True, key=_OPEN)
    if not _perhaps_separate(s):
        sure = _confidence(s)
        if (sure == "low" and (_perhaps_new(s) or _perhaps_cleared(s))) or _few(s):
            return kit.Match(_cost(s), "low", _OPEN, found=_FEW, severity="note", undecided=True)
        return kit.Match(_cost(s), sure, settles=True)
    if _grows(s):  # likely; but what came before stays open, so that no token of these is avoidable for certain
        return kit.Match(_cost(s), _confidence(s), undecided=True, key=_OPEN)
    return kit.Match(_cost(s), "low", severity="note", undecided=True, key=_OPEN)


def _by_chance(s: kit.RuleContext) -> bool:
    """Whether only its length makes it a turn of this conversation, and it adds less than any turn does; or, where another
    one had the slot, more than half of what there was."""
    r = s.request
    if s.known or s.lcp is not None or r.reference_lcp is not None:
        return False
    longer, before = (r.prompt_tokens or 0) - (r.reference_tokens or 0), r.reference_tokens or 0
    return 0 < longer < LEAST_TURN or (s.own_slot is False and longer > MOST_ADDED * before)


def _begins(s: kit.RuleContext) -> bool:
    """Whether only one turn came before, and that is the first of its slot in a log whose start is missing."""
    return _second(s) and s.history[0].seen.fresh


def _second(s: kit.RuleContext) -> bool:
    return s.own_slot is True and len(s.history) == 1 and not s.facts.starts_cold


def _cost(s: kit.RuleContext) -> int:
    """Tokens that an unchanged head would have saved; a prefix that was at hand and refused is the server's own loss."""
    lcp = s.lcp
    if lcp is None or s.server_lost < kit.MIN_LOST:
        return s.lost
    if not s.request.seen.forced:
        return s.lost
    return s.client_lost if held_whole(s) or serving(s.request.seen.checks, lcp, s) else s.lost


def _by_lengths_alone(s: kit.RuleContext) -> bool:
    """Whether only a longer prompt speaks for this conversation: the slot was not chosen for its content, no text is
    known, and no copy in RAM would have come back to a conversation whose slot another one had taken."""
    r = s.request
    if not (r.slot_named or r.seen.choice.selected_by == "lru") or s.known or r.seen.new_text or r.ram_refused:
        return False
    if "slot_copy" in r.marks:
        return False
    # a slot that is asked for by its number is filled without the RAM cache
    return r.slot_named or not s.setup.ram_keeps_all or (kit.passed_over(s.request) and _ram_is_small(s))


def _ram_is_small(s: kit.RuleContext) -> bool:
    """Whether the RAM cache was made so small that a copy may not have been taken, which is told late or never."""
    limit = s.facts.setting("cache_ram_mib")
    return limit is not None and 0 <= limit < SMALL_RAM


def _of_excerpt(s: kit.RuleContext) -> kit.Match | None:
    """Fire if only lengths are known; the finding is a note, because the slot may have contained another conversation."""
    r = s.request
    if s.whole < max(s.min_prompt, kit.SHORT * (r.held_tokens or 0)):
        return None  # too short to matter, or a side request: what the slot held is not gone by that
    least, at_most = s.changed_tokens
    return kit.Match(least, "low", at_most=at_most, severity="note", undecided=True, key=_OPEN)


_FEW_MATCH = "the small part of the prompt that matched the slot"


def prove(s: kit.RuleContext, match: kit.Match) -> kit.Proof:
    """Show where the prefix ends, and which checkpoints lie beyond it."""
    r, most = s.request, s.lcp_at_most or 0
    beyond = bool(r.seen.checks) and all(serves(c, most, s) is False for c in r.seen.checks) and not held_whole(s)
    primary, *related = kit.marked(
        r,
        kit.PREFIX,
        ("select", _FEW_MATCH if r.seen.choice.selected_by == "lcp" else "low similarity with every idle slot"),
        ("slot_copy", "common prefix with another slot, whose length matches this conversation's last prompt"),
        ("ram_copy", "a prompt as long as this conversation's last prompt was saved to the RAM cache"),
        ("ram_candidate", "common prefix with a prompt in RAM"),
        kit.REUSED,
        kit.RECOMPUTED,
        ("new", "the new prompt, after the bar"),
        ("old", "the slot's content, after the bar"),
        ("check", "a checkpoint after the common prefix" if beyond else "a checkpoint that was checked"),
    )
    numbers = {
        "lcp": s.lcp if r.reference_lcp is None else r.reference_lcp,
        "most": most,
        "beyond": len(r.seen.checks) if beyond else 0,
        "begin": any(c.pos_min < most < c.pos_max for c in r.seen.checks),
        "evicted": r.cut and "evicted" in r.marks,
        "own": "slot"
        if "slot_copy" in r.marks or kit.passed_over(s.request)
        else "ram"
        if r.ram_refused
        else s.own_slot,
        "turns": lengths.takes_turns(s),
        "first": _second(s) or (match.confidence == "low" and not s.setup.ram_keeps_all),
        "new": match.undecided and not (r.cut or kit.passed_over(s.request) or match.found == _FEW),
        "one_shot": match.confidence != "high" and r.thread != r.held_thread,
        "compared": s.difference is not None,
        "erased": _perhaps_erased(s),
        "sure": r.lcp_exact or s.lcp == r.cached_tokens or r.reference_lcp is not None,
    }
    return kit.Proof(primary, related[:3], numbers, s.difference)


_WHOSE = {
    "slot": "An idle slot still held a prompt as long as this conversation's last prompt, but too little of that prompt matches. ",
    "ram": "The RAM cache held a prompt as long as this conversation's last prompt, but that prompt did not match. ",
    True: "Each request on this slot is longer than the previous one, as in one conversation. The start of that conversation's prompt therefore changed. If it changed only once, this may be a new conversation with the same beginning. ",
    False: "Another conversation had taken the slot, and the new prompt did not match the RAM copy of this conversation. ",
    None: "Either the start of this conversation's prompt changed, or another conversation held the slot. ",
}


_TAKEN = kit.RuledOut(
    "slot-held-other-prompt", "not excluded: the log does not show which conversation's prompt the slot contained"
)

_ERASED = kit.RuledOut(
    "slot-erased",
    "not excluded: this log level hides the kind of memory and whether a program erased the slot through the API (possible with --slot-save-path)",
)

_NEW = kit.RuledOut(
    "new-conversation",
    "not excluded: if this log starts after the conversation's earlier turns, there is nothing to fix",
)


_ONE_SHOT = kit.RuledOut(
    "one-shot-prompts",
    "not excluded: if these are separate prompts, each a bit longer than the previous one, nothing is wrong",
)


def _may_be_claude(g: kit.MatchGroup) -> bool:
    """Whether Claude Code may have sent it, whose header comes before all that it writes: its bodies are not known,
    and no more is shared than what a template writes before that, and the beginning of the header. How much may be
    shared at most, which is all that the default log level shows, excludes nothing."""
    shared = g.numbers["lcp"]
    return not g.numbers["compared"] and (shared is None or shared < BEFORE_HEADER)


def _left_open(f: dict[str, Any]) -> list[kit.RuledOut]:
    if f["turns"]:
        return [
            kit.RuledOut(
                "cache-ram-disabled",
                "not excluded: two alternating conversations that both grow have the same lengths; without the RAM prompt cache each loses the slot to the other",
            )
        ]
    if f["evicted"]:
        return [
            _TAKEN,
            kit.RuledOut(
                "cache-ram-too-small", "not excluded: a prompt was evicted from the full RAM cache at that moment"
            ),
        ]
    left = {"erased": _ERASED, "new": _NEW, "one_shot": _ONE_SHOT}
    taken = [_TAKEN] if f["own"] is None or f["first"] else []
    return [*taken, *(other for name, other in left.items() if f[name])]


def say(g: kit.MatchGroup) -> kit.FindingText:
    """Say where the prompts diverge, and which candidates are left."""
    f, r = g.numbers, g.worst_request
    where = (
        f"after {kit.n(f['lcp'])} tokens"
        if f["lcp"] is not None and f["sure"]
        else f"after about {kit.n(f['lcp'])} tokens"
        if f["lcp"] is not None
        else f"within the first {kit.n(f['most'])} tokens"
    )
    out = []
    if (r.lost_server or 0) < kit.MIN_LOST:
        out.append(kit.RuledOut("no-usable-checkpoint", "a checkpoint cannot restore more than the common prefix"))
    if f["beyond"]:
        cut = " and cannot be truncated to it" if f["begin"] else ""
        where_to = f"{kit.checkpoints(f['beyond'])} after the common prefix of {kit.n(f['most'])} tokens{cut}"
        out.append(kit.RuledOut("swa-threshold-misfire", f"{where_to}, so no threshold would have helped"))
    shared = (
        f"The slot held {kit.length(r, 'held_tokens')} tokens. The new prompt of {kit.length(r, 'prompt_tokens')} tokens shares only its first tokens with the slot. "
        if r.held_tokens
        else ""
    )
    if f["erased"]:
        shared = (
            f"The previous request left {kit.length(r, 'held_tokens')} tokens in the slot, but almost none of the new prompt of "
            f"{kit.length(r, 'prompt_tokens')} tokens matched. Either the start of the prompt changed, or a program erased the slot (possible with --slot-save-path). "
        )
    return kit.FindingText(
        f"the prompt differs from the previous prompt {where}: {kit.recomputed(g)} in {kit.times(g.count)}",
        shared
        + _WHOSE[f["own"]]
        + "Candidates: a billing header (billing-header), a date or id in the system prompt (volatile-prefix), a changed tool list "
        "(tools-changed), an early message that changed (history-rewritten).",
        advice.cheapest_first(
            g.session,
            [
                *([advice.billing_header()] if _may_be_claude(g) else []),
                *([advice.cache_ram(g.session)] if f["turns"] else []),
                advice.show_text(g.session, compared=f["compared"]),
                kit.Remedy(
                    "Or save two consecutive request bodies of the client and compare them.",
                    ["cachedoctor diff request1.json request2.json"],
                ),
            ],
        ),
        [*out, *_left_open(f)],
    )


_UNNAMED = ("other", "whitespace", "retokenised", "special-token", "template", "json-spacing", "json-key-order")


def of_bodies(_: kit.Session, difference: kit.PromptDiff) -> kit.ChangeText | None:
    """Report it from two given bodies that diverge near their head, in an unnamed part."""
    first = difference.first
    if first is None or first.kind not in _UNNAMED or not is_early(difference):
        return None
    at = "" if first.place is None else f", in {first.place}"
    head = f"the prompt differs from the previous prompt after {kit.n(difference.common_prefix_tokens)} tokens{at}"
    why = "Reuse ends at the first differing token, even if the rest is the same."
    see = kit.Remedy(
        "Put changing text after constant text. To see where the prompts diverge:",
        ["cachedoctor diff request1.json request2.json"],
    )
    return changes.of_bodies(difference, head, why, [see])


def alone(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it for a program that prints the common prefix of a prompt and its cache, if that is almost nothing."""
    said = kit.stated(session, "parted_early")
    if said is None:
        return []
    n, reason = said.numbers, own_settings.reason(said)
    worst = "in the worst request " if said.count > 1 else ""
    left = [
        kit.RuledOut(
            "slot-held-other-prompt", "not excluded: if another conversation used the server, nothing is wrong"
        )
    ]
    if not n["place"]:
        left.append(
            kit.RuledOut(
                "no-usable-checkpoint",
                "not excluded: recurrent and sliding-window layers lose everything at any difference, because their memory cannot be truncated",
            )
        )
    words = kit.FindingText(
        f"in {kit.times(said.count)} the prompt differs early from the prompt cached by {session.program}{reason}: {worst}only {kit.n(n['place'])} of "
        f"{kit.n(n['held'])} cached tokens match ({kit.n(n['prompt'] - n['cached'])} of {kit.n(n['prompt'])} prompt tokens computed)",
        "Either the client changes the beginning of its prompts (a billing header, a clock, an id, the order of its tools), or another conversation used the server. The log does not show whether the client or another conversation caused the difference.",
        [own_settings.compare(), *own_settings.room(session)],
        left,
    )
    return [kit.SessionFinding(words, "", [(said.mark, "where the prompt diverges")], "note", "low")]


RULE = kit.rule(
    __name__,
    "The prompt changed near its start; the log shows the position, not the text",
    decide,
    prove,
    say,
    on=("early",),
    unless=("CD101", "CD102", "CD103", "CD105", "CD106", "CD313", "CD314", "CD402"),
    alone=alone,
    stated=("parted_early",),
    of_bodies=of_bodies,
)
