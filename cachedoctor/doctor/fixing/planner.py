"""Plans what a server needs: options are replayed on the log, and the cheapest one that suffices comes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.memory_use import ENOUGH, is_judged, measured, reused_tokens, smallest_ram
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.diagnosis.replay.traffic import Traffic
from cachedoctor.diagnosis.rules import advice
from cachedoctor.doctor.extras.prompt_matching import GivenPrompts
from cachedoctor.doctor.fixing.fixes import key_of
from cachedoctor.doctor.replaying import from_bodies, from_log
from cachedoctor.doctor.replaying.server_names import changed
from cachedoctor.doctor.replaying.trials import SAME, SIMILARITIES, Trial, compare
from cachedoctor.knowledge import server_options
from cachedoctor.model import CacheDoctorError, Finding, Fix, OptionChange, OptionReplay, Remedy, Request, Session

FAMILIES = ("CD2", "CD3")
"""Findings whose options change what is reused of an unchanged prompt: memory and slots."""
_WITH_CLIENTS = frozenset({"CD311"})
"""Findings whose options help together with what clients then send (``id_slot``): alone they cannot be tried."""
_KILLED = "CD409"
"""The finding that memory ran out: the replay says how little RAM cache is enough."""
_MIB = 1 << 20
LEAST = 500
"""Tokens: a smaller claim is not checked by a replay."""
HALF = 0.5
"""Share of the claim that an option has to save."""
NEARLY = 0.99
"""Share of the best saving with which an option is as good."""
_PRICE = {"slot_prompt_similarity": 0, "cache_idle_slots": 0, "cache_ram": 1, "ctx_checkpoints": 1}
"""Rank of options by what they take: nothing, or main memory."""
_SLOTS, _CONTEXT = 2, 3
"""The same for slots that share a context, and for all options that take more memory of the device."""
_SLOT_OPTIONS = frozenset({"parallel", "kv_unified"})


class _TriedServer:
    """One server: what it was asked, and what it did by the replay."""

    def __init__(
        self, requests: Sequence[Request], session: Session, built: from_log.Recalled, *, by_text: bool = False
    ) -> None:
        self.traffic: Traffic = built.traffic
        self.settings: ServerSettings = from_log.recorded(session, requests).settings
        self.served: list[Served] = serve(built.traffic, self.settings)
        pairs = [(one.reused, asked.cached_tokens) for one, asked in zip(self.served, requests, strict=True)]
        known = [abs(reused - cached) <= SAME for reused, cached in pairs if cached is not None]
        self.equal, self.requests = sum(known), len(known)
        opened = set() if by_text else {at for at, one in enumerate(requests) if at and _is_open(one)}
        self.assumed = len(built.assumed | opened)
        self.sent_before = sum(max(0, one.best - one.reused) for one in self.served)
        """Tokens that an earlier prompt or reply began with, and that were not reused."""
        self._conversations = [asked.conversation for asked in built.traffic.asked]
        self._tried: dict[ServerSettings, Trial] = {}

    def trial(self, options: Sequence[OptionChange]) -> Trial | None:
        """Replay with these options; None where the replay does not know what they change."""
        if any(change.remove or change.variable for change in options):
            return None
        words = [one.name if one.value is None else f"{one.name}={one.value}" for one in options]
        try:
            wanted = changed(self.settings, words)
        except CacheDoctorError:
            return None
        if wanted not in self._tried:
            self._tried[wanted] = compare(self._conversations, self.served, serve(self.traffic, wanted))
        return self._tried[wanted]

    def knows(self, claimed: int) -> bool:
        """Whether the replay explains the log, and knows that so many tokens had been sent before."""
        return self.answer(claimed, None).is_explained and self.sent_before >= HALF * claimed

    def answer(self, claimed: int, saved: int | None) -> OptionReplay:
        """What is said of an option."""
        return OptionReplay(claimed, saved, self.equal, self.requests, self.assumed)


def _is_open(request: Request) -> bool:
    """Whether the log leaves open how much of a prompt had been sent before."""
    known = request.common_prefix_tokens is not None or request.reference_lcp is not None
    return not known and (request.thread_turn > 0 or bool(request.held_tokens))


_Server = tuple[str | None, str | None]
"""Input of a server, and the name in its wrapper."""


class Planner:
    """Replays what findings and fixes advise; each server once, each set of options once."""

    def __init__(
        self, requests: Sequence[Request], sessions: Sequence[Session], prompts: GivenPrompts | None = None
    ) -> None:
        """Take the requests of all servers, their runs, and the prompts given beside the log of one server."""
        self._requests, self._sessions, self._prompts = requests, sessions, prompts
        self._known: dict[_Server, _TriedServer | None] = {}

    def findings(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings with what the replay says of their options, the cheapest sufficient one first.

        An option that saves less than half of what its finding cost, or makes a conversation worse, is not advised: it
        is named behind the other remedies. Nothing is rejected where the replay does not explain the log, or does not
        know that what was lost had been sent before; the options say so.
        """
        found = []
        for finding in findings:
            is_kill = finding.code == _KILLED
            replayed = self._replayed(finding) if is_kill or _can_be_tried(finding) else None
            if replayed is not None:
                planned = self._after_a_kill(finding, replayed) if is_kill else _planned(finding, replayed)
                finding = replace(finding, remedies=planned)
            found.append(finding)
        return [_with_cheaper(one, found, self._known.get((one.path, one.origin))) for one in found]

    def fixes(self, fixes: Sequence[Fix], findings: Sequence[Finding]) -> list[Fix]:
        """The fixes with what the replay says of all their options together."""
        return [self._tried(fix, findings) for fix in fixes]

    def _tried(self, fix: Fix, findings: Sequence[Finding]) -> Fix:
        replayed = self._known.get((fix.path, fix.origin))
        own = [one for one in findings if (one.path, one.origin, one.code in fix.codes) == (fix.path, fix.origin, True)]
        if replayed is None or not fix.options or not all(map(_can_be_tried, own)):
            return fix
        claimed = sum(one.cost.tokens for one in own)
        trial = replayed.trial(fix.options) if replayed.knows(claimed) else None
        return replace(fix, replay=replayed.answer(claimed, None if trial is None else max(0, trial.saved)))

    def _after_a_kill(self, finding: Finding, replayed: _TriedServer) -> list[Remedy]:
        """The smallest RAM cache that is enough first; nothing more where the replay does not explain the log."""
        if not replayed.answer(0, None).is_explained:
            return finding.remedies
        session = next(one for one in self._sessions if (one.path, one.origin) == (finding.path, finding.origin))
        return [*_less_memory(replayed.traffic, replayed.settings, session), *finding.remedies]

    def _replayed(self, finding: Finding) -> _TriedServer | None:
        """The requests of the server of a finding, replayed; None without any."""
        server = finding.path, finding.origin
        if server not in self._known:
            lives = {one.index: one for one in self._sessions if (one.path, one.origin) == server}
            own = [one for one in self._requests if one.session in lives]
            built = from_log.build(own)
            if not built.requests:
                self._known[server] = None
            else:
                last = lives[built.requests[-1].session]
                self._known[server] = self._by_text(own, last) or _TriedServer(built.requests, last, built)
        return self._known[server]

    def _by_text(self, requests: Sequence[Request], session: Session) -> _TriedServer | None:
        """The same by the prompts themselves; None where they are not exact, or do not explain the log."""
        given = self._prompts
        if given is None or not given.matched or not given.files.cutter.exact or len(self._servers()) > 1:
            return None
        sent = [from_bodies.SentBody(one) for one in given.sent]
        try:
            built = from_bodies.build(sent, given.files, session.build, requests)
        except CacheDoctorError:
            return None
        own = [(asked, one) for asked, one in zip(built.traffic.asked, built.requests, strict=True) if one is not None]
        if not own or len(own) < len(built.requests):
            return None
        # A conversation is what its text continues.
        asked = [replace(asked, conversation=one.thread) for asked, one in own]
        traffic = Traffic(built.traffic.tree, asked, built.traffic.happened)
        unknown = {at for at, place in enumerate(built.sent) if place is None}
        recalled = from_log.Recalled(traffic, [one for _, one in own], unknown, 0)
        found = _TriedServer(recalled.requests, session, recalled, by_text=True)
        return found if found.answer(0, None).is_explained else None

    def _servers(self) -> set[_Server]:
        return {(one.path, one.origin) for one in self._sessions}


def _can_be_tried(finding: Finding) -> bool:
    is_of_server = finding.code.startswith(FAMILIES) and finding.code not in _WITH_CLIENTS
    return is_of_server and finding.cost.tokens >= LEAST and any(map(_is_asked, finding.remedies))


def _is_asked(remedy: Remedy) -> bool:
    return remedy.purpose == "fix" and bool(remedy.options)


# ---- one finding


def _planned(finding: Finding, replayed: _TriedServer) -> list[Remedy]:
    """The remedies with what the replay says, those that are rejected last and without their options."""
    claimed = finding.cost.tokens
    if not replayed.knows(claimed):
        answer = replayed.answer(claimed, None)
        return [replace(one, replay=answer) if _is_asked(one) else one for one in finding.remedies]
    kept, rejected = [], []
    for remedy in finding.remedies:
        trial = replayed.trial(remedy.options) if _is_asked(remedy) else None
        if trial is None:
            kept.append(remedy)
        elif trial.saved >= HALF * claimed and not trial.worst:
            kept.append(replace(remedy, replay=replayed.answer(claimed, trial.saved)))
        else:
            kept += _another_value(remedy, claimed, replayed)
            rejected.append(Remedy(_why_not(remedy, trial, claimed), purpose="depends"))
    return [*_cheapest_first(kept), *rejected]


def _another_value(remedy: Remedy, claimed: int, replayed: _TriedServer) -> list[Remedy]:
    """Another similarity alone, where the one that was advised is rejected: the best of those that are tried."""
    asked = next((one for one in remedy.options if key_of(one) == "slot_prompt_similarity" and one.value), None)
    if asked is None:
        return []
    tried = [(value, [OptionChange(asked.name, str(value))]) for value in SIMILARITIES]
    trials = [(options, trial, value) for value, options in tried if (trial := replayed.trial(options)) is not None]
    good = [one for one in trials if one[1].saved >= HALF * claimed and not one[1].worst]
    if not good:
        return []
    options, trial, value = max(good, key=lambda one: one[1].saved)
    text = (
        f"Require more similarity before a prompt takes a slot that is in use. Among the values replayed on "
        f"this log, {value} "
        "is the best, and no conversation reuses less than before."
    )
    return [Remedy(text, options=options, replay=replayed.answer(claimed, trial.saved))]


def _why_not(remedy: Remedy, trial: Trial, claimed: int) -> str:
    option = " ".join(word for change in remedy.options for word in change.words)
    loses = f", and one conversation would reuse {trial.worst:,} fewer tokens" if trial.worst else ""
    claim = f"{max(trial.saved, 0):,} of {claimed:,} recomputed tokens"
    if len(remedy.options) == 1:
        return f"{option} does not help here: in a replay of this log the option saves {claim}{loses}."
    return f"{option} do not help here: in a replay of this log these options save {claim}{loses}."


def _cheapest_first(remedies: Sequence[Remedy]) -> list[Remedy]:
    """Order the confirmed options among themselves: those as good as the best one first, of these the cheapest."""
    places = [at for at, one in enumerate(remedies) if _saved(one) is not None]
    best = max((_saved(remedies[at]) or 0 for at in places), default=0)
    ordered = sorted(places, key=lambda at: ((_saved(remedies[at]) or 0) < NEARLY * best, _price(remedies[at])))
    found = list(remedies)
    for place, at in zip(places, ordered, strict=True):
        found[place] = remedies[at]
    return found


def _saved(remedy: Remedy) -> int | None:
    return None if remedy.replay is None else remedy.replay.saved_tokens


def _price(remedy: Remedy) -> int:
    """What the options take: nothing, main memory, slots, context; a client's setting comes before all of them."""
    keys = {key_of(change) for change in remedy.options}
    if keys and keys <= _SLOT_OPTIONS:
        return _SLOTS
    return max((_PRICE.get(key, _CONTEXT) for key in keys), default=0)


# ---- after a kill


def _less_memory(traffic: Traffic, settings: ServerSettings, session: Session) -> list[Remedy]:
    """The smallest limit of the RAM cache that keeps what was reused; empty where it frees nothing of what was held."""
    served, use = measured(traffic, settings)
    if not is_judged(traffic, served):
        return []
    reused = reused_tokens(served)
    wanted = smallest_ram(traffic, settings, ENOUGH * reused, use)
    if wanted is None or wanted * _MIB >= use.saving_bytes:
        return []
    words = (
        f"In a replay of this log, this is the smallest limit that still reuses 99 % of the {reused:,} tokens "
        "reused here. Saving a prompt also needs memory for a copy."
    )
    name = server_options.name_for(server_options.CACHE_RAM, *advice.span(session)) or "--cache-ram"
    return [Remedy(words, options=[OptionChange(name, str(wanted))])]


# ---- several findings of one server


class _Confirmed(NamedTuple):
    """The first option of a finding, which the replay confirms."""

    finding: Finding
    remedy: Remedy
    saved: int


def _with_cheaper(finding: Finding, findings: Sequence[Finding], replayed: _TriedServer | None) -> Finding:
    """The finding with a cheaper option of another one first, where its own saves nothing beside that one."""
    own = _first(finding)
    if own is None or replayed is None:
        return finding
    server = finding.path, finding.origin
    others = [one for other in findings if (other.path, other.origin) == server and (one := _first(other)) is not None]
    for other in sorted(others, key=lambda one: (_price(one.remedy), -one.saved)):
        if _price(other.remedy) >= _price(own.remedy):
            return finding
        both = replayed.trial(_both(other.remedy.options, own.remedy.options))
        if other.saved >= NEARLY * max(own.saved, 0 if both is None else both.saved):
            answer = replayed.answer(finding.cost.tokens, other.saved)
            text = f"The option for {other.finding.code} is cheaper and also saves these tokens."
            cheaper = Remedy(text, options=other.remedy.options, replay=answer)
            return replace(finding, remedies=[cheaper, *finding.remedies])
    return finding


def _first(finding: Finding) -> _Confirmed | None:
    """The option of a finding that a fix takes; None where that is not confirmed, or the finding is a suspicion."""
    remedy = next((one for one in finding.remedies if one.purpose == "fix" and (one.options or one.settings)), None)
    if remedy is None or finding.confidence == "low" or (saved := _saved(remedy)) is None:
        return None
    return _Confirmed(finding, remedy, saved)


def _both(first: Sequence[OptionChange], second: Sequence[OptionChange]) -> list[OptionChange]:
    """Options of two remedies; where both set one the first counts."""
    keys = {key_of(change) for change in first}
    return [*first, *(change for change in second if key_of(change) not in keys)]
