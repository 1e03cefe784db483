"""Answers ``cachedoctor tune --set``: the account of a traffic under other settings."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

import cachedoctor
from cachedoctor.diagnosis.replay.llamacpp.content import Served
from cachedoctor.diagnosis.replay.llamacpp.server import serve
from cachedoctor.diagnosis.replay.llamacpp.server_settings import ServerSettings
from cachedoctor.doctor.replaying.server_names import changed
from cachedoctor.doctor.scratch import printable
from cachedoctor.doctor.whatif import block_replay
from cachedoctor.doctor.whatif.accounts import account, fits, learn, replay_base, server_account, settings_rows
from cachedoctor.doctor.whatif.block_evidence import BlockEvidence
from cachedoctor.doctor.whatif.evidence import ServerTraffic
from cachedoctor.model.whatif import ReplayedConversation, Simulation


def simulate(
    evidence: ServerTraffic | BlockEvidence, words: Sequence[str], paths: Sequence[str], ran: Sequence[str] = ()
) -> Simulation:
    """Replay under the recorded settings, and under those that ``words`` (NAME=VALUE) make of them.

    Args:
        evidence: what is replayed.
        words: settings of the replay.
        paths: what it was read from.
        ran: settings (NAME=VALUE) that ran and that nothing else says.

    Raises:
        CacheDoctorError: a setting is not known, or the replay does not explain the log.
    """
    if isinstance(evidence, BlockEvidence):
        return block_replay.simulate(evidence, words, paths, ran)
    learn(evidence, ran)
    wanted = changed(evidence.settings, words, model_open="memory" in evidence.assumed)
    # What the model is, it is in both.
    evidence.settings = replace(evidence.settings, memory=wanted.memory, window=wanted.window)
    if any(word.startswith("memory=") for word in words):
        evidence.assumed -= {"memory"}
    base = replay_base(evidence)
    served = serve(evidence.traffic, wanted)
    return Simulation(
        cachedoctor.__version__,
        [printable(path) for path in paths],
        evidence.placed,
        base.fit,
        settings_rows(evidence, wanted),
        server_account(evidence),
        account(evidence, base.served, evidence.settings),
        account(evidence, served, wanted),
        _conversations(evidence, base.served, served, wanted),
    )


def _conversations(
    evidence: ServerTraffic, old: Sequence[Served], new: Sequence[Served], wanted: ServerSettings
) -> list[ReplayedConversation]:
    """Sums of each conversation, where there are several; a log alone does not tell them where much is open.

    Requests that do not fit a slot under both settings are left out.
    """
    if evidence.placed.open_tokens:
        return []
    both = [all(pair) for pair in zip(fits(evidence, evidence.settings), fits(evidence, wanted), strict=True)]
    rows: dict[int | None, ReplayedConversation] = {}
    for at, number in enumerate(evidence.conversations):
        if not both[at] or evidence.traffic.asked[at].refused:
            continue
        row = rows.setdefault(number, ReplayedConversation(number, 0, 0, 0 if evidence.is_counted else None, 0, 0))
        row.requests += 1
        row.prompt_tokens += evidence.traffic.tree.length(evidence.traffic.asked[at].prompt)
        row.replay_reused_tokens += old[at].reused
        row.changed_reused_tokens += new[at].reused
        reused = evidence.reused[at]
        if row.server_reused_tokens is not None:
            row.server_reused_tokens = None if reused is None else row.server_reused_tokens + reused
    found = sorted(rows.values(), key=lambda row: (row.conversation is None, row.conversation or 0))
    return found if len(found) > 1 else []
