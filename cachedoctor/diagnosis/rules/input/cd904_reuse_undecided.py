"""CD904: much was computed again, and the log does not tell whose doing that is, or what the server lost it by."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import advice, kit

MANY = 3
"""Requests: two of different length are what any two conversations look like."""
SHARE = 0.25
"""Of all prompt tokens: less is not the main thing about this log."""
REUSED = 0.25
"""Share of the prompt tokens that is reused at most: a server whose cache works well has more."""
NOTABLE = 1000
"""Tokens that a report does not pass over, whatever else is in it."""
WORTH = 0.05
"""Share of all prompt tokens that may have been lost, below which nothing is said of them."""
AGAIN = 3
"""Requests with such tokens: the lengths of two may agree by chance."""
MOST = 0.5
"""Share of the first prompts from which on it is no chance that they have one length."""
TWICE = 2
"""Requests with such tokens where nearly nothing was reused: silence would read as an all-clear."""
_NAMED = tuple(f"CD{number}" for number in range(101, 500))
"""Causes that requests of llama-server show."""


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Fire where many tokens were computed and may have been computed before, or were lost without a known cause."""
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
        f"{kit.n(found.lost)} prompt tokens were lost by the server, and no rule names the cause",
        "They were the same as in an earlier prompt of their conversation, and were computed again. Nothing in this log says why.",
        _deciding(session),
        [kit.RuledOut("prefix-diverges-early", "the beginning of these prompts did not change")],
    )
    return _note(words, found)


def _alike(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that the client may have changed it, or the server lost it, or that nothing is wrong."""
    words = kit.FindingText(
        f"{kit.n(found.alike)} prompt tokens over {found.alike_requests:,} requests were new, changed by the client or lost by the server: this log "
        "does not tell",
        "These prompts begin like what their slot held and are as long, but go on otherwise. The client may have changed or dropped what stood "
        "there. New conversations with the same beginning look the same, and nothing is wrong with them.",
        _deciding(session),
        [
            kit.RuledOut(
                "history-truncated", "not excluded: the client drops the oldest messages, or changes early ones"
            ),
            kit.RuledOut(
                "slot-held-other-prompt", "not excluded: another conversation with the same beginning had the slot"
            ),
            kit.RuledOut("new-conversations", "not excluded: they share their beginning; nothing is to mend then"),
        ],
    )
    return _note(words, found, unless=_NAMED)


def _able(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that conversations may have lost their slots to others that begin alike, or that all these prompts are new."""
    words = kit.FindingText(
        f"{kit.n(found.able)} prompt tokens over {found.able_requests:,} requests were new text, or computed before: this log does not tell",
        "These prompts share their beginning with what their slot held, and are long enough to go on with conversations that had a slot before. "
        "A slot of which half is kept or more is overwritten without a copy in RAM, so that their turns would be computed again. New "
        "conversations with the same beginning look the same, and nothing is wrong with them.",
        _deciding(session),
        [
            *_named(found),
            kit.RuledOut(
                "shared-prefix-steal", "not excluded: sessions with one system prompt take the slots from each other"
            ),
            kit.RuledOut("new-conversations", "not excluded: they share their beginning; nothing is to mend then"),
        ],
    )
    return _note(words, found)


def _level(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that the client may send only so much of its conversations, or prompts that are of one length by themselves."""
    words = kit.FindingText(
        f"{kit.n(found.level)} prompt tokens over {found.level_requests:,} requests were new, or changed by the client: this log does not tell",
        "These prompts are as long as the one before them on their slot, and share no more than a head with it, if that. A client that cuts its "
        "conversation to one length sends the rest at another place each time. Separate prompts of one length look the same, and nothing is "
        "wrong with them.",
        _deciding(session)[:1],
        [
            kit.RuledOut(
                "history-truncated",
                "not excluded: the client drops the oldest text, so that all prompts have one length",
            ),
            kit.RuledOut("prefix-diverges-early", "not excluded: the client changes the head of every prompt"),
            kit.RuledOut("new-conversations", "not excluded: separate prompts of one length; nothing is to mend then"),
        ],
    )
    return _note(words, found, unless=_NAMED)


def _in_turn(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that two conversations in turn may be one whose tools, or whose system prompt, change to and fro."""
    words = kit.FindingText(
        f"{kit.n(found.anew)} prompt tokens may have been sent before behind another beginning: this log does not tell",
        "A first prompt began like the conversation that its slot held, was longer, and went on otherwise; since then the RAM cache brought "
        f"one or another back {found.returns:,} times. A client that plans with some tools and builds with others sends all its history once "
        "more at each change. Conversations with the same system prompt look the same, and nothing is wrong with them.",
        _deciding(session)[:1],
        [
            kit.RuledOut(
                "tools-changed", "not excluded: one client with two lists of tools, or two system prompts, in turn"
            ),
            kit.RuledOut("new-conversations", "not excluded: they share their beginning; nothing is to mend then"),
        ],
    )
    shown = [] if found.anew_at is None else [(found.anew_at, "began like what its slot held, and was longer")]
    return kit.SessionFinding(words, "", shown, severity="note", confidence="low", unless=_NAMED)


def _note(words: kit.FindingText, found: kit.Undecided, unless: tuple[str, ...] = ()) -> kit.SessionFinding:
    line = (found.worst, "of the request with the most of them")
    return kit.SessionFinding(words, "", [line], severity="note", confidence="low", unless=unless)


def _nearly_nothing(session: kit.Session, found: kit.Undecided) -> kit.SessionFinding:
    """Say that a large part of all prompt tokens was computed and may have been computed before."""
    words = kit.FindingText(
        f"{kit.n(found.cached_tokens)} of {kit.n(found.prompt_tokens)} prompt tokens were reused, and this log does not tell why: "
        f"{kit.n(found.tokens)} tokens over {found.requests:,} requests were new text, or computed before",
        "Lengths alone do not tell whose turn a prompt is. Prompts that have nothing in common are computed whole, and nothing "
        "is wrong with that. Conversations that take turns on too few slots look the same, and so does a client that changes the "
        "beginning of every prompt.",
        _deciding(session),
        [
            *_named(found),
            kit.RuledOut(
                "slot-contention", "not excluded: more conversations than slots, and no copy in RAM to come back"
            ),
            kit.RuledOut("prefix-diverges-early", "not excluded: the client changes the head of every prompt"),
            kit.RuledOut(
                "one-shot-prompts", "not excluded: prompts without a beginning in common; nothing is to mend then"
            ),
        ],
    )
    return _note(words, found, unless=("CD109",))  # whose prompts were in their slots


def _named(found: kit.Undecided) -> list[kit.RuledOut]:
    """The slot that the client asks for, where it asks for one again and again."""
    if found.named < AGAIN:
        return []
    words = f"not excluded: {found.named:,} of these requests name their slot (id_slot), perhaps that of another conversation"
    return [kit.RuledOut("id-slot-pinned", words)]


def _deciding(session: kit.Session) -> list[kit.Remedy]:
    """Say what decides: the bodies, one conversation alone, and what this server may lack."""
    remedies = [
        kit.Remedy(
            "The request bodies decide: they show which prompt goes on with which.",
            ["cachedoctor analyze server.log --requests bodies.jsonl"],
        ),
        kit.Remedy(
            "Or let one conversation alone take three turns. If they are reused, the server had too little room for all of them; "
            "if they are not, the client changes its prompts."
        ),
    ]
    if session.setting("cache_ram_mib") == 0:
        remedies.append(advice.cache_ram(session))
    return remedies


RULE = kit.session_rule(
    __name__, "Much was computed again, and the log does not tell whose doing that is", inspect, unless=("CD901",)
)
