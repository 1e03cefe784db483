"""What agents and providers say themselves of why less was reused, held against what the log shows of the same request.

A request is found by the exact counts of its answer; a claim changes no finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping

from cachedoctor.model import AgentDifference, AgentVerdict, ClaimedRequest, Judged

_SHOWN = 20
"""Differences that are listed."""
_REUSED = 0.9
"""Share of a prompt from which on the log shows no loss of the kind that a change of tools or messages causes."""
_PLACES = frozenset({"CD105", "CD108"})
"""Causes for which the log shows where a prompt changed, not what changed there."""
_GONE = frozenset({"CD301", "CD302", "CD304", "CD306", "CD310", "CD404", "CD405", "CD409"})
"""Causes by which cached tokens were lost while the conversation paused."""
_SAME: dict[str, frozenset[str]] = {
    "tool": frozenset({"CD103"}) | _PLACES,
    "system": frozenset({"CD101", "CD102"}) | _PLACES,
    "message": frozenset({"CD104", "CD106", "CD107", "CD110"}) | _PLACES,
    "compact": frozenset({"CD106"}) | _PLACES,
    "truncat": frozenset({"CD106"}) | _PLACES,
    "idle": _GONE,
    "expire": _GONE,
}
"""Codes of the causes that a reason with this word in it may mean."""
_CAUSES = ("CD1", "CD2", "CD3", "CD4")


class AgentClaims:
    """The claims of all recordings given beside the logs, and the requests that they turned out to be about."""

    def __init__(self, claims: Iterable[ClaimedRequest]) -> None:
        """Begin with the claims in the order of their recordings."""
        self._claims = list(claims)
        self._waiting: dict[int, deque[int]] = defaultdict(deque)
        """Places of claims that no request was found for, by the tokens of their prompt."""
        for at, claimed in enumerate(self._claims):
            if claimed.prompt_tokens is not None:
                self._waiting[claimed.prompt_tokens].append(at)
        self._found: dict[int, int] = {}
        """Places of claims by the index of their request."""
        self._judged: dict[int, Judged] = {}

    def note(self, judged: Judged) -> None:
        """Take a request that was judged, for the first time or again."""
        request = judged.request
        if request.index in self._judged:
            self._judged[request.index] = judged
            return
        waiting = self._waiting.get(request.prompt_tokens or 0)
        if not waiting or request.parent is not None:
            return
        cached = self._claims[waiting[0]].cached_tokens
        if None not in (cached, request.cached_tokens) and cached != request.cached_tokens:
            return
        self._found[request.index] = waiting.popleft()
        self._judged[request.index] = judged

    def verdicts(self, names: Mapping[str, str]) -> list[AgentVerdict]:
        """Sum up what each agent says; ``names`` of the causes by their codes."""
        found: dict[str, AgentVerdict] = {}
        of = {place: self._judged[index] for index, place in self._found.items()}
        for by in dict.fromkeys(one.claim.by for one in self._claims):
            mine = [(at, one) for at, one in enumerate(self._claims) if one.claim.by == by]
            reasons = Counter(one.claim.reason for _, one in mine)
            verdict = found[by] = AgentVerdict(
                by, dict(reasons.most_common()), sum(one.claim.tokens or 0 for _, one in mine)
            )
            for at, one in mine:
                _hold(verdict, one.claim.reason, of.get(at), names)
        return list(found.values())


def _hold(verdict: AgentVerdict, reason: str, judged: Judged | None, names: Mapping[str, str]) -> None:
    """Count a claim by what the log shows of its request."""
    if judged is None:
        verdict.unmatched += 1
        return
    request, said = judged.request, judged.verdict
    same = frozenset().union(*(codes for word, codes in _SAME.items() if word in reason))
    causes = [code for code in said.codes if code.startswith(_CAUSES)]
    if same.intersection(causes):
        verdict.agrees += 1
        return
    prompt, cached = request.prompt_tokens, request.cached_tokens
    is_reused = prompt is not None and cached is not None and cached >= _REUSED * prompt
    if not same or ((said.guessed or said.undecided or not causes) and not is_reused):
        verdict.undecided += 1
        return
    verdict.differs += 1
    if len(verdict.differences) < _SHOWN:
        shown = [] if is_reused else [names.get(code, code) for code in causes]
        verdict.differences.append(
            AgentDifference(request.index, request.task, request.marks["start"].line, reason, shown)
        )
