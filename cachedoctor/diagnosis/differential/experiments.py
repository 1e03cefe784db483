"""The one experiment that separates two candidates most cheaply, at best the fix itself or one without a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cachedoctor.diagnosis.differential.kinds import Candidate
from cachedoctor.diagnosis.rules import advice
from cachedoctor.model import Remedy, Session

ALONE = "un three turns of a single conversation with nothing else on the server"
"""Words of the experiment that rules advise as well."""
THEN = "If the turns of the single conversation were reused: "
"""Begins what its outcome then advises."""
_Experiment = Callable[[Session], Remedy]


def experiment(first: Candidate, second: Candidate, session: Session) -> list[Remedy]:
    """Return the experiment that separates the two most likely causes on this server, and the next step if known."""
    test = _BY_PAIR.get(frozenset({first, second}), _one_alone)(session)
    return [test, *_after_one_alone(session)] if test == _one_alone(session) else [test]


def _one_alone(_: Session) -> Remedy:
    return Remedy(
        f"R{ALONE}. No restart is needed. If these turns are reused, the server could not keep all "
        "conversations at once; if not, the client changes its prompts or sends cache_prompt false.",
        purpose="look",
    )


def _after_one_alone(session: Session) -> list[Remedy]:
    known = advice.more_slots(session, (session.n_slots or 1) + 1)
    if not known.options:
        return []
    return [
        Remedy(
            f"{THEN}{known.text[0].lower()}{known.text[1:]}",
            options=known.options,
            purpose="depends",
        )
    ]


def _more_room(session: Session) -> Remedy:
    """The RAM prompt cache where it is off or too small; else one conversation alone."""
    if session.setting("cache_ram_mib") != 0 and not session.setting("ram_evictions"):
        return _one_alone(session)
    known = advice.cache_ram(session)
    if not known.options:
        return _one_alone(session)
    return Remedy(
        "Start the server with a larger RAM prompt cache. If prompts are then reused, other conversations took "
        "the slots, and the larger cache fixes this; if reuse stays low, a client changes the start of its "
        "prompts.",
        options=known.options,
        purpose="look",
    )


def _texts(session: Session) -> Remedy:
    return advice.see_more(session)


def _second_turn(_: Session) -> Remedy:
    return Remedy(
        "Send one of the requests again with its answer and a new question. "
        "If the prompt is reused, the conversations were new and nothing is wrong; if not, another session took the "
        "slot in between.",
        purpose="look",
    )


def _cache_asked(_: Session) -> Remedy:
    return Remedy(
        'Send one request twice with "cache_prompt": true in its body, without a restart in between. '
        "If the second request then reuses the prompt, the client normally sends cache_prompt false.",
        purpose="look",
    )


def _forcing_line(session: Session) -> Remedy:
    words, changes = advice.show_accounting(session)
    if "accounting" in session.shows or not changes:
        return _cache_asked(session)
    return Remedy(
        f"To see which cause applies: {words}. A line about forcing full prompt re-processing means that the model's "
        "memory is the cause; without such a line, the client is.",
        options=changes,
        purpose="look",
    )


_BY_PAIR: Mapping[frozenset[Candidate], _Experiment] = {
    frozenset({"slots", "head"}): _more_room,
    frozenset({"slots", "none"}): _more_room,
    frozenset({"slots", "body"}): _more_room,
    frozenset({"slots", "steal"}): _one_alone,
    frozenset({"steal", "none"}): _second_turn,
    frozenset({"steal", "body"}): _texts,
    frozenset({"head", "none"}): _texts,
    frozenset({"body", "none"}): _texts,
    frozenset({"head", "body"}): _texts,
    frozenset({"nocache", "head"}): _cache_asked,
    frozenset({"nocache", "slots"}): _cache_asked,
    frozenset({"nocache", "none"}): _cache_asked,
    frozenset({"nocache", "body"}): _cache_asked,
    frozenset({"nocache", "checkpoint"}): _forcing_line,
    frozenset({"checkpoint", "none"}): _forcing_line,
    frozenset({"checkpoint", "head"}): _forcing_line,
    frozenset({"checkpoint", "body"}): _forcing_line,
}
