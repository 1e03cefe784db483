"""Whether prompts share their beginnings, by given bodies or logged prompts, and how to make a server log them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from cachedoctor.diagnosis.rules.kit import n
from cachedoctor.model import Remedy, Session

_LEAST = 3
"""Minimum number of compared logged prompts; for given bodies one pair is enough, since the user chose them."""
_EARLY = 0.1
"""Share of the shorter prompt: a common beginning below it is early."""
_LATE = 0.5
"""Share from which on a common beginning is worth reusing."""
CHANGES = ("CD101", "CD102", "CD103", "CD104", "CD105", "CD106", "CD108", "CD110")
"""Causes of clients that given bodies prove if a log has no requests, or that logged prompts prove."""
CODES = (*CHANGES, "CD111", "CD112")
"""The same, with those of adapters and of salts."""
WORTH = 0.1
"""Share of all prompt text from which on a cause is worth naming."""

Verdict = Literal["changed", "salted", "adapted", "nothing", "parted", "shared"]
"""``parted``: the prompts diverge early, and it is not known whether they repeat anything after that."""


class SharedVerdict(msgspec.Struct, frozen=True):
    """A verdict."""

    verdict: Verdict
    said: str = ""
    """Empty for the first three: causes of clients have rules of their own."""
    why: str = ""
    remedies: list[Remedy] = msgspec.field(default_factory=list)

    @property
    def early(self) -> bool:
        """The prompts explain that nothing is reused."""
        return self.verdict != "shared"


def judged(session: Session) -> SharedVerdict | None:
    """Return the verdict; None without bodies or logged prompts, or if they diverge neither early nor late."""
    return given(session) or _logged(session)


def given(session: Session) -> SharedVerdict | None:
    """Return the verdict of the given bodies."""
    sent = session.sent
    if sent is None or not sent.size:
        return None
    if sent.share(sent.repeated) >= WORTH:
        return SharedVerdict("changed")
    if sent.share(sent.salted) >= WORTH:
        return SharedVerdict("salted")
    if sent.share(sent.adapted) >= WORTH:
        return SharedVerdict("adapted")
    begin = f"{_percent(sent.share(sent.shared))} of the text in {n(sent.bodies)} given request bodies is at the same place in an earlier body"
    if sent.share(sent.shared) < WORTH:
        return SharedVerdict(
            "nothing", f"{begin}, and almost none of the text is in an earlier body at another place", _NOTHING, []
        )
    return SharedVerdict("shared", begin, "", [])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _logged(session: Session) -> SharedVerdict | None:
    known = [
        a
        for answers in session.answers
        if answers.source == "log"
        for a in answers.each
        if a.prefix is not None and a.length
    ]
    if len(known) < _LEAST:
        return None
    shares = [(a.prefix or 0) / (a.length or 1) for a in known]
    early = sum(share < _EARLY for share in shares)
    if 2 * early > len(known):
        said = f"{n(early)} of {n(len(known))} prompts in the log share less than {_EARLY:.0%} of their text with any earlier prompt"
        return SharedVerdict(
            "parted", said, f"A cached prefix ends at the first token that differs. {_NOTHING}", [_SEE]
        )
    late = sum(share >= _LATE for share in shares)
    if 2 * late > len(known):
        said = (
            f"{n(late)} of {n(len(known))} prompts in the log share half of their text or more with an earlier prompt"
        )
        return SharedVerdict("shared", said, "", [])
    return None


_NOTHING = "Different documents share nothing, so no cache can help, and there is nothing to fix."
_SEE = Remedy(
    "The log contains the prompts: see where two prompts diverge, and move changing text after constant text. The prompts may contain secrets; cachedoctor shows none of their text.",
    ["cachedoctor diff prompt1.txt prompt2.txt"],
)


OF_LLAMA_ALONE = frozenset({"CD109"})
"""Causes of clients that other servers do not have: a request cannot switch the cache off by ``cache_prompt``."""
_DIFF = "cachedoctor diff first.json second.json"


def unseen(sessions: Sequence[Session]) -> tuple[str, str]:
    """Explain why logs of these servers cannot show causes of clients, and what would show them.

    The first row of what would show them is a sentence, the others are commands.
    """
    answers = [answers for s in sessions for answers in s.answers]
    if any(session.parted for session in sessions):
        reason = "the request bodies could not be matched to requests: the log has no counts per request"
        return (
            reason,
            "compare each body with the previous body of its conversation\ncachedoctor diff bodies.jsonl",
        )
    if any(answer.prefix is not None for found in answers for answer in found.each):
        reason = "only the length of the common prefix is known, not the change in the prompts"
        return reason, f"compare two request bodies that should share a prefix\n{_DIFF}"
    told = any(found.told for found in answers)
    reason = (
        "the log has counts per request but no prompts" if told else "the log has no per-request counts and no prompts"
    )
    logged = dict.fromkeys(command for session in sessions for command in _commands(session))
    engines = {session.engine for session in sessions}
    log = f"{engines.pop()}.log" if len(engines) == 1 else "server.log"
    words = "pass the request bodies, or use diff to compare two prompts that should share a prefix"
    if logged:
        words += ". Or log the prompts (in plain text)"
    return reason, "\n".join([words, f"cachedoctor analyze {log} --requests bodies.jsonl", _DIFF, *logged])


def _commands(session: Session) -> list[str]:
    if session.engine == "sglang":
        return ["--log-requests --log-requests-level 2"]
    if session.engine != "vllm" or session.since("0.10.1") is False:  # it logs them by itself
        return []
    debug = [] if session.since("0.11.1") is False else ["export VLLM_LOGGING_LEVEL=DEBUG"]
    return [*debug, "--enable-log-requests"]
