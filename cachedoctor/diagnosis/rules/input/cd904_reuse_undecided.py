"""CD904: much was recomputed, and the log does not show who caused it or how the server lost it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

MANY = 3
"""Requests: two of different length may be any two conversations."""
SHARE = 0.25
"""Share of all prompt tokens: less is not the main problem of this log."""
REUSED = 0.25
"""Largest reused share of the prompt tokens: a server whose cache works well has more."""
NOTABLE = 1000
"""Tokens that a report always mentions, whatever else it contains."""
WORTH = 0.05
"""Share of all prompt tokens that may have been lost, below which they are not reported."""
AGAIN = 3
"""Requests with such tokens: the lengths of two may agree by chance."""
MOST = 0.5
"""Share of first prompts from which on their equal length is not chance."""
TWICE = 2
"""Requests with such tokens if almost nothing was reused: without a finding, the log would seem to be fine."""
_NAMED = tuple(f"CD{number}" for number in range(101, 500))
"""Causes that requests of llama-server show."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire if many computed tokens may have been computed before, or were lost without a known cause."""
    found = session.undecided
    if found is None:
        return []
    if found.lost >= NOTABLE:
        return [_lost(session, found)]
    worth = max(NOTABLE, WORTH * found.prompt_tokens)
    is_level = found.level_requests >= max(AGAIN, MOST * found.first_requests)
    if is_level and found.level >= max(worth, found.tokens / 2):
        return [_level(session, found)]
    much = found.tokens - (0 if is_level else found.level) >= SHARE * found.prompt_tokens  # some are so long by chance
    many = found.all_requests >= MANY and found.requests >= TWICE
    if much and many and found.cached_tokens <= REUSED * found.prompt_tokens:
        return [_nearly_nothing(session, found)]
    is_grown = found.grown_requests >= max(AGAIN, MOST * found.all_requests)
    if is_grown and found.cached_tokens <= REUSED * found.prompt_tokens and found.grown >= worth:
        return [_grown(session, found)]
    if found.able_requests >= AGAIN and found.able >= max(NOTABLE, SHARE * found.prompt_tokens):
        return [_able(session, found)]
    if found.alike_requests >= AGAIN and found.alike >= worth:
        return [_alike(session, found)]
    if found.anew >= NOTABLE and found.returns >= AGAIN:
        return [_in_turn(session, found)]
    return []


def _lost(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that the server lost it, by what is not known."""
    words = kit.FindingText(
        f"{kit.n(found.lost)} prompt tokens were lost by the server, and no rule identifies the cause",
        "An earlier prompt of the conversation had the same tokens, but they were recomputed. Nothing in this log shows why.",
        _deciding(session),
        [kit.RuledOut("prefix-diverges-early", "the beginning of these prompts did not change")],
    )
    return _note(words, found)


def _alike(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that the client may have changed it, or the server lost it, or that nothing is wrong."""
    words = kit.FindingText(
        f"{kit.n(found.alike)} prompt tokens in {found.alike_requests:,} requests were new, changed by the client or lost by the server: this log "
        "cannot show which",
        "These prompts begin like the slot's content and have the same length, but continue differently. The client may have changed or dropped text at that place. New conversations with the same beginning look the same and are fine.",
        _deciding(session),
        [
            kit.RuledOut(
                "history-truncated", "not excluded: the client drops the oldest messages, or changes early ones"
            ),
            kit.RuledOut(
                "slot-held-other-prompt", "not excluded: another conversation with the same beginning had the slot"
            ),
            kit.RuledOut(
                "new-conversations",
                "not excluded: if these are new conversations that share their beginning, there is nothing to fix",
            ),
        ],
    )
    return _note(words, found, unless=_NAMED)


def _able(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that conversations may have lost their slots to others that begin alike, or that all these prompts are new."""
    words = kit.FindingText(
        f"{kit.n(found.able)} prompt tokens in {found.able_requests:,} requests were new text or recomputed: this log cannot show which",
        "The prompts share their beginning with the slot's content, and are long enough to continue conversations that had a slot before. "
        "If a request keeps half or more of a slot's content, the other tokens are overwritten without a RAM copy, so the conversation that held the slot recomputes them. New "
        "conversations with the same beginning look the same, and are fine.",
        _deciding(session),
        [
            *_named(found),
            kit.RuledOut(
                "shared-prefix-steal",
                "not excluded: sessions with the same system prompt take the slots from each other",
            ),
            kit.RuledOut(
                "new-conversations",
                "not excluded: if these are new conversations that share their beginning, there is nothing to fix",
            ),
        ],
    )
    return _note(words, found)


def _level(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that the client may send only so much of its conversations, or prompts that are of one length by themselves."""
    words = kit.FindingText(
        f"{kit.n(found.level)} prompt tokens in {found.level_requests:,} requests were new or changed by the client: this log cannot show which",
        "Each of these prompts is as long as the previous prompt on its slot and shares at most its start with that prompt. A client that truncates its conversation to a fixed length moves the remaining text each time. Separate prompts of equal length look the same and are fine.",
        _deciding(session)[:1],
        [
            kit.RuledOut(
                "history-truncated",
                "not excluded: the client drops the oldest text, so all prompts are equally long",
            ),
            kit.RuledOut("prefix-diverges-early", "not excluded: the client changes the start of every prompt"),
            kit.RuledOut(
                "new-conversations",
                "not excluded: if these are separate prompts of equal length, there is nothing to fix",
            ),
        ],
    )
    return _note(words, found, unless=_NAMED)


def _in_turn(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that two conversations in turn may be one whose tools, or whose system prompt, change to and fro."""
    words = kit.FindingText(
        f"{kit.n(found.anew)} prompt tokens may have been sent earlier with a different beginning: this log cannot show whether they were",
        f"The first prompt of a conversation began like the content of its slot, was longer, and continued differently. Since then the RAM cache has restored one of these two conversations {found.returns:,} times. If a client uses other tools in plan mode than in build mode, the whole history is recomputed at each switch. Conversations with the same system prompt look the same and are fine.",
        _deciding(session)[:1],
        [
            kit.RuledOut(
                "tools-changed", "not excluded: one client that alternates between two tool lists or system prompts"
            ),
            kit.RuledOut(
                "new-conversations",
                "not excluded: if these are new conversations that share their beginning, there is nothing to fix",
            ),
        ],
    )
    shown = (
        [] if found.anew_at is None else [(found.anew_at, "the prompt began like the slot's content and was longer")]
    )
    return kit.SessionFinding(words, "", shown, severity="note", confidence="low", unless=_NAMED)


def _note(words: kit.FindingText, found: kit.Undecided, unless: tuple[str, ...] = ()) -> kit.SessionFinding:
    line = (found.worst, "the request with the most tokens that were new text or recomputed")
    return kit.SessionFinding(words, "", [line], severity="note", confidence="low", unless=unless)


def _nearly_nothing(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that a large part of all prompt tokens was computed and may have been computed before."""
    words = kit.FindingText(
        f"{kit.n(found.cached_tokens)} of {kit.n(found.prompt_tokens)} prompt tokens were reused, and this log cannot show why: "
        f"{kit.n(found.tokens)} tokens in {found.requests:,} requests were new text or recomputed",
        "Lengths alone do not show which conversation a prompt belongs to. Prompts that have nothing in common are computed in full, which is fine. Conversations that alternate on too few slots look the same, and so does a client that changes the "
        "beginning of every prompt.",
        _deciding(session),
        [
            *_named(found),
            kit.RuledOut(
                "slot-contention", "not excluded: more conversations than slots, and no copy in RAM to restore"
            ),
            kit.RuledOut("prefix-diverges-early", "not excluded: the client changes the start of every prompt"),
            kit.RuledOut(
                "one-shot-prompts", "not excluded: if these prompts have no common beginning, there is nothing to fix"
            ),
        ],
    )
    return _note(words, found, unless=("CD109",))  # whose prompts were in their slots


def _grown(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that all these prompts may be turns of one conversation whose beginning changes."""
    words = kit.FindingText(
        f"{kit.n(found.cached_tokens)} of {kit.n(found.prompt_tokens)} prompt tokens were reused, and this log cannot show why: "
        f"each of {found.grown_requests:,} prompts in a row is somewhat longer than the previous one, and shares nothing with it",
        "The turns of one conversation grow in this way. If the client changes the start of every prompt, no slot has the beginning of the next prompt. Separate prompts that grow by chance look the same, and are fine.",
        [advice.billing_header(), *_deciding(session)[:1]],
        [
            kit.RuledOut("prefix-diverges-early", "not excluded: the client changes the start of every prompt"),
            kit.RuledOut(
                "one-shot-prompts", "not excluded: if these prompts have no common beginning, there is nothing to fix"
            ),
        ],
    )
    return _note(words, found, unless=_NAMED)


def _named(found: kit.Undecided) -> list[kit.RuledOut]:
    """The slot that the client asks for, where it asks for one again and again."""
    if found.named < AGAIN:
        return []
    words = f"not excluded: {found.named:,} of these requests name their slot (id_slot), perhaps the slot of another conversation"
    return [kit.RuledOut("id-slot-pinned", words)]


def _deciding(session: kit.Session) -> list[kit.Remedy]:
    """Say what decides: the bodies, one conversation alone, and what this server may lack."""
    remedies = [
        kit.Remedy(
            "Pass the request bodies; they show which prompts belong together.",
            ["cachedoctor analyze server.log --requests bodies.jsonl"],
        ),
        kit.Remedy(
            "Or run three turns of a single conversation with nothing else on the server. If the three turns are reused, the server could not keep all conversations at once; if not, the client changes its prompts."
        ),
    ]
    if session.setting("cache_ram_mib") == 0:
        remedies.append(advice.cache_ram(session))
    return remedies


RULE = kit.session_rule(
    __name__,
    "Most of the prompt was recomputed; this log cannot show whether the client or the server caused it",
    inspect,
    unless=("CD901",),
)
