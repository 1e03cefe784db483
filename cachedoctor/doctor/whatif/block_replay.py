"""Replays bodies through the cache of vLLM or SGLang, and answers simulate and tune for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.replay import block_cache, radix_cache
from cachedoctor.diagnosis.replay.prompt_tree import PromptTree
from cachedoctor.diagnosis.replay.traffic import TimedRequest, Traffic
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.whatif.accounts import LEAST_COUNTED
from cachedoctor.doctor.whatif.block_evidence import REFUSED, BlockEvidence
from cachedoctor.doctor.whatif.block_setup import OPTIONS, BlockSetup, changed, command_line, listed
from cachedoctor.knowledge.engines import ENGINES, in_blocks, title
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.whatif import (
    MOST_WRONG,
    Candidate,
    ReplayAccount,
    ReplayedConversation,
    ReplayFit,
    ReplaySetting,
    Simulation,
    Tuning,
)

_COUNTED = ", ".join(f"{e.title} with {e.usage_option}" for e in ENGINES.values()).replace(" with", " shows it with", 1)
MOST_WRONG_SUM = 0.02
"""Share of the prompt tokens by which a replay's sum may be off if the log shows only sums: errors of single requests
may cancel out, and are not seen then."""


class _Served(NamedTuple):
    reused: int
    endless: int
    """Tokens that would be reused with room for everything, in whole blocks."""
    fits: bool


class BlockReplay:
    """Requests that are replayed under several setups."""

    def __init__(self, evidence: BlockEvidence) -> None:
        self.evidence = evidence
        self._known: dict[BlockSetup, list[_Served]] = {}

    @cached_property
    def ideal(self) -> list[int]:
        """Of every prompt the tokens that an earlier one of its key, with its reply, begins with; never all of them."""
        found = [0] * len(self.evidence.prompts)
        by_key: dict[str, list[int]] = {}
        for at, one in enumerate(self.evidence.prompts):
            by_key.setdefault(one.key, []).append(at)
        for places in by_key.values():
            tree, asked = PromptTree(), list[TimedRequest]()
            for at in places:
                one, moment = self.evidence.prompts[at], 2 * len(asked)
                whole = [*one.tokens, *one.reply]
                asked.append(TimedRequest(tree.add(one.tokens), tree.add(whole), moment, moment + 1))
            for at, best in zip(places, Traffic(tree, asked).ideal, strict=True):
                found[at] = max(0, min(best.tokens, len(self.evidence.prompts[at].tokens) - 1))
        return found

    def served(self, setup: BlockSetup) -> list[_Served]:
        """What became of every request."""
        if setup not in self._known:
            self._known[setup] = self._replayed(setup)
        return self._known[setup]

    def _replayed(self, setup: BlockSetup) -> list[_Served]:
        prompts = self.evidence.prompts
        fits = [setup.tokens is None or len(one.tokens) < setup.tokens for one in prompts]
        if not setup.caching:
            return [_Served(0, 0, fit) for fit in fits]
        # A prompt that the server refuses is not in its cache.
        kept = [one for one, fit in zip(prompts, fits, strict=True) if fit]
        if in_blocks(setup.engine):
            blocks = block_cache.serve(kept, block_cache.BlockSettings(setup.block, setup.tokens))
            found = iter([(one.reused, one.endless) for one in blocks])
        else:
            pages = radix_cache.serve(kept, radix_cache.RadixSettings(setup.block, setup.tokens))
            found = iter([(one.reused, one.endless) for one in pages])
        return [_Served(*(next(found) if fit else (0, 0)), fit) for fit in fits]

    def account(self, setup: BlockSetup) -> ReplayAccount:
        """Sum up a replay; what does not fit the cache at all is left out."""
        account = ReplayAccount(0, 0, 0, 0, 0, {}, None)
        new, lost = 0, dict.fromkeys(("evicted", "part of a block", "caching off"), 0)
        for sent, one, best in zip(self.evidence.prompts, self.served(setup), self.ideal, strict=True):
            if not one.fits:
                account.too_long += 1
                continue
            best = max(best, one.endless)
            account.requests += 1
            account.prompt_tokens += len(sent.tokens)
            account.reused_tokens += one.reused
            new += len(sent.tokens) - best
            lost["evicted"] += one.endless - one.reused
            lost["part of a block" if setup.caching else "caching off"] += best - one.endless
        account.computed_tokens = account.prompt_tokens - account.reused_tokens
        account.new_tokens = new
        account.lost_tokens = dict(sorted(((k, n) for k, n in lost.items() if n), key=lambda row: -row[1]))
        return account

    def fit(self) -> ReplayFit:
        """Hold the replay under the recorded setup against what the server said.

        Where the log shows sums only, the fit has no requests.

        Raises:
            CacheDoctorError: the replay does not explain it, or too little is said.
        """
        evidence, served = self.evidence, self.served(self.evidence.setup)
        if evidence.sums is not None:
            ours = sum(one.reused for one in served)
            off = abs(ours - evidence.sums.reused)
            fit = ReplayFit(0, 0, evidence.sums.prompt, evidence.sums.reused, ours, off)
        else:
            fit = ReplayFit(0, 0, 0, 0, 0, 0)
            for sent, one, said in zip(evidence.prompts, served, evidence.reused, strict=True):
                if said is None:
                    continue
                fit.requests += 1
                fit.equal += one.reused == said
                fit.prompt_tokens += len(sent.tokens)
                fit.server_reused_tokens += said
                fit.replay_reused_tokens += one.reused
                fit.wrong_tokens += abs(one.reused - said)
        self._refuse(fit)
        return fit

    def _refuse(self, fit: ReplayFit) -> None:
        name, whole = title(self.evidence.setup.engine), len(self.evidence.prompts)
        sums = self.evidence.sums is not None
        if not sums and fit.requests < max(1, LEAST_COUNTED * whole):
            raise CacheDoctorError(
                f"{name}: {fit.requests:,} of {whole:,} responses show reuse, too few to trust a replay",
                _COUNTED, REFUSED,
            )  # fmt: skip
        most = MOST_WRONG_SUM if sums else MOST_WRONG
        if fit.wrong_tokens <= most * fit.prompt_tokens:
            return
        share = 100 * fit.wrong_tokens / max(1, fit.prompt_tokens)
        raise CacheDoctorError(
            f"the replay does not reproduce the {'log' if sums else 'responses'}: "
            f"the replay reuses {fit.replay_reused_tokens:,} tokens, the server "
            f"{fit.server_reused_tokens:,}; the difference is {share:.1f} % of the prompt tokens "
            f"(the limit is {100 * most:.0f} %)",
            self._hint(), REFUSED,
        )  # fmt: skip

    def _hint(self) -> str:
        if self.evidence.setup.tokens is None:
            size = OPTIONS[self.evidence.setup.engine][1].name
            return f"set the cache size with --ran {size}=N; the log does not show it"
        return "check that the bodies are complete and in the order sent; the replay takes one body after the other"

    def server(self) -> ReplayAccount:
        """Sum up what the server said."""
        sums = self.evidence.sums
        if sums is not None:
            computed = sums.prompt - sums.reused
            return ReplayAccount(len(self.evidence.prompts), sums.prompt, sums.reused, computed, None, None, None)
        told = [(len(s.tokens), n) for s, n in zip(self.evidence.prompts, self.evidence.reused, strict=True)]
        known = [(length, said) for length, said in told if said is not None]
        prompt, reused = sum(length for length, _ in known), sum(said for _, said in known)
        return ReplayAccount(len(known), prompt, reused, prompt - reused, None, None, None)

    def settings(self, wanted: BlockSetup) -> list[ReplaySetting]:
        """List both setups by the names that the server's options have."""
        old, new = listed(self.evidence.setup), listed(wanted)
        return [ReplaySetting(name, old[name], name in self.evidence.assumed, new[name]) for name in old]

    def conversations(self, wanted: BlockSetup) -> list[ReplayedConversation]:
        """Sums of each conversation, where there are several; requests that fit both setups."""
        old, new = self.served(self.evidence.setup), self.served(wanted)
        told = self.evidence.sums is None
        rows: dict[int | None, ReplayedConversation] = {}
        for at, number in enumerate(self.evidence.conversations):
            if not (old[at].fits and new[at].fits):
                continue
            row = rows.setdefault(number, ReplayedConversation(number, 0, 0, 0 if told else None, 0, 0))
            row.requests += 1
            row.prompt_tokens += len(self.evidence.prompts[at].tokens)
            row.replay_reused_tokens += old[at].reused
            row.changed_reused_tokens += new[at].reused
            said = self.evidence.reused[at]
            if row.server_reused_tokens is not None:
                row.server_reused_tokens = None if said is None else row.server_reused_tokens + said
        found = sorted(rows.values(), key=lambda row: (row.conversation is None, row.conversation or 0))
        return found if len(found) > 1 else []


LEAST_SHARE = 0.01
"""Share of the computed tokens: a smaller saving is not worth a restart."""
_ENOUGH = 0.99
"""Share of a setting's best saving that is enough to take a smaller value."""
_TIMES = (1.25, 1.5, 2, 3, 4, 6, 8, 16)
"""Multiples of the cache."""


def simulate(
    evidence: BlockEvidence, words: Sequence[str], paths: Sequence[str], ran: Sequence[str] = ()
) -> Simulation:
    """Replay under the recorded settings, and under those that ``words`` (NAME=VALUE) make of them.

    Raises:
        CacheDoctorError: a setting is not known, or the replay does not explain what the server said.
    """
    _learn(evidence, ran)
    wanted, replay = changed(evidence.setup, words), BlockReplay(evidence)
    fit = replay.fit()
    return Simulation(
        cachedoctor.__version__, [printable(path) for path in paths], evidence.placed, fit, replay.settings(wanted),
        replay.server(), replay.account(evidence.setup), replay.account(wanted), replay.conversations(wanted),
    )  # fmt: skip


def tune(
    replay: BlockReplay, paths: Sequence[str], limit_mib: float | None = None, words: Sequence[str] = ()
) -> Tuning:
    """Rank settings by what they would have saved; the replay keeps what it tried.

    Raises:
        CacheDoctorError: the replay does not explain what the server said, or a setting is not known or said otherwise.
    """
    evidence = replay.evidence
    _learn(evidence, words)
    fit = replay.fit()
    base = replay.account(evidence.setup)
    least = max(fit.wrong_tokens, int(LEAST_SHARE * base.computed_tokens)) + 1
    helped = [one for family in _families(evidence) if (one := _smallest(replay, base, least, family)) is not None]
    helped.sort(key=lambda one: base.reused_tokens - replay.account(one).reused_tokens)
    candidates = [candidate(replay, base, one) for one in helped]
    within = [] if limit_mib is not None else helped
    merged = _merged(evidence.setup, replay, base, least, within)
    best = None if merged is None else candidate(replay, base, merged)
    return Tuning(
        cachedoctor.__version__, [printable(path) for path in paths], evidence.placed, fit,
        replay.settings(evidence.setup if merged is None else merged), base, least, limit_mib,
        [] if limit_mib is None else [one.options for one in candidates],
        candidates if limit_mib is None else [], best,
    )  # fmt: skip


def _learn(evidence: BlockEvidence, words: Sequence[str]) -> None:
    """Take settings that ran and that the log does not show."""
    said = changed(evidence.setup, words)
    old, new = listed(evidence.setup), listed(said)
    for name, value in new.items():
        if value != old[name] and name not in evidence.assumed and old[name] != "unknown":
            raise CacheDoctorError(f"--ran: the log contradicts {name}", "remove the option")
    evidence.assumed -= {name for name in new if new[name] != old[name]}
    evidence.setup = said


def _families(evidence: BlockEvidence) -> Iterator[list[BlockSetup]]:
    """Values of one setting after the other, the cheapest first."""
    base = evidence.setup
    if not base.caching:
        yield [replace(base, caching=True)]
        return
    if base.tokens is not None:
        larger = [int(times * base.tokens) // base.block for times in _TIMES]
        counted = in_blocks(base.engine)
        yield [replace(base, tokens=n * base.block, blocks_given=n if counted else None) for n in larger]
    yield [replace(base, block=size, blocks_given=_same_memory(base, size)) for size in ENGINES[base.engine].block_sizes
           if size < base.block]  # fmt: skip


def _same_memory(base: BlockSetup, size: int) -> int | None:
    """Blocks of another size in the memory that there is, where their number was asked for."""
    return None if base.blocks_given is None or base.tokens is None else base.tokens // size


def _smallest(replay: BlockReplay, base: ReplayAccount, least: int, family: Sequence[BlockSetup]) -> BlockSetup | None:
    """Of values that save about the same the first; None where none saves enough of the same requests."""
    saved = [(one, replay.account(one)) for one in family]
    found = [
        (one, account.reused_tokens - base.reused_tokens)
        for one, account in saved
        if (account.requests, account.too_long) == (base.requests, base.too_long)
    ]
    most = max((tokens for _, tokens in found), default=0)
    return next((one for one, tokens in found if tokens >= least and tokens >= _ENOUGH * most), None)


def _merged(
    setup: BlockSetup, replay: BlockReplay, base: ReplayAccount, least: int, helped: Sequence[BlockSetup]
) -> BlockSetup | None:
    """The best single change, with the other one where that adds enough."""
    if not helped:
        return None
    best = helped[0]
    for other in helped[1:]:
        block = other.block if other.block != setup.block else best.block
        sized = best if best.tokens != setup.tokens else other
        blocks = None if sized.tokens is None or sized.blocks_given is None else sized.tokens // block
        both = replace(sized, block=block, blocks_given=blocks)
        gain = replay.account(both).reused_tokens - replay.account(best).reused_tokens
        if gain >= least and replay.account(both).requests == base.requests:
            best = both
    return best


def candidate(replay: BlockReplay, base: ReplayAccount, one: BlockSetup) -> Candidate:
    """Put a setup that helps into options, with what it saves; no log shows what a token takes."""
    options = command_line(replay.evidence.setup, one)
    saved = replay.account(one).reused_tokens - base.reused_tokens
    more = (one.tokens or 0) - (replay.evidence.setup.tokens or 0)
    if more <= 0:
        return Candidate(options, saved, None, 0.0, "")
    return Candidate(
        options, saved, None, None, f"{more:,} tokens of KV cache; the log does not show the memory per token"
    )
