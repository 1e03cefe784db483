"""Replays evidence under settings, and refuses where the replay does not explain what the server did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cachedoctor.doctor.whatif.accounts import fit
from cachedoctor.doctor.whatif.evidence import Evidence
from cachedoctor.doctor.whatif.server_names import FIELDS, changed, listed
from cachedoctor.knowledge import flags
from cachedoctor.knowledge.server_options import lacking
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.whatif import MOST_WRONG, ReplayFit, ReplaySetting
from cachedoctor.replay.llamacpp.served import Served
from cachedoctor.replay.llamacpp.server import serve
from cachedoctor.replay.llamacpp.server_settings import Settings

LEAST_COUNTED = 0.5
"""Share of the requests of which the log must say what was reused."""
_REFUSED = 3


class Base(NamedTuple):
    """The replay under the recorded settings."""

    served: list[Served]
    fit: ReplayFit | None


def replay_base(evidence: Evidence) -> Base:
    """Replay under the recorded settings. Of bodies alone nearly all of these are assumed: there the fit is only said.

    Raises:
        CacheDoctorError: the replay does not explain the log, or the log says too little to know.
    """
    served = serve(evidence.traffic, evidence.settings)
    found = fit(evidence, served)
    if found is not None and evidence.from_log:
        _refuse(evidence, found)
    return Base(served, found)


def _refuse(evidence: Evidence, found: ReplayFit) -> None:
    whole = len(evidence.reused)
    if found.requests < LEAST_COUNTED * whole or not found.requests:
        raise CacheDoctorError(
            f"the log says of {found.requests:,} of {whole:,} requests what was reused: too few to trust a replay",
            "start the server with -lv 4, or give the bodies with --requests and the model with --tokenizer",
            _REFUSED,
        )
    if found.wrong_tokens > MOST_WRONG * found.prompt_tokens:
        share = 100 * found.wrong_tokens / max(1, found.prompt_tokens)
        raise CacheDoctorError(
            f"the replay does not explain the log: {found.equal:,} of {found.requests:,} requests are equal, and it is "
            f"off by {share:.1f} % of the prompt tokens (more than {100 * MOST_WRONG:.0f} %)",
            _hint(evidence),
            _REFUSED,
        )


def _hint(evidence: Evidence) -> str:
    if evidence.placed.bodies is not None and not evidence.placed.exact:
        return "give the model's tokenizer and template: --tokenizer MODEL.gguf"
    build = evidence.settings.build
    there = [flags.BY_KEY[key] for key in FIELDS if not lacking(flags.BY_KEY[key], build, build)]
    assumed = [option.names[0].text for option in there if FIELDS[option.key] in evidence.assumed]
    if "memory" in evidence.assumed:
        return "say what the model is, e.g. --set memory=hybrid (attention, swa, recurrent); the log does not"
    if assumed:
        return "give what started the server: --cmdline 'llama-server ...'; the log does not say " + ", ".join(assumed)
    if evidence.placed.bodies is None:
        return "give the request bodies: --requests BODIES --tokenizer MODEL.gguf"
    return "are the bodies complete, and of this server?"


def learn(evidence: Evidence, words: Sequence[str]) -> None:
    """Take settings that ran, each NAME=VALUE, into what was recorded.

    Raises:
        CacheDoctorError: a setting is not known, or the log says it.
    """
    said = changed(evidence.settings, words, model_open="memory" in evidence.assumed)
    for name in Settings.__struct_fields__:
        if getattr(said, name) != getattr(evidence.settings, name):
            if name not in evidence.assumed and name != "window":
                raise CacheDoctorError(f"--set: the log says otherwise of {name}", "leave it out")
            evidence.assumed -= {name}
    evidence.settings = said


def settings_rows(evidence: Evidence, wanted: Settings) -> list[ReplaySetting]:
    """List the settings of both replays by the names that the server's options have."""
    old, new = listed(evidence.settings), listed(wanted)
    fields = {flags.BY_KEY[key].names[0].text.lstrip("-"): field for key, field in FIELDS.items()}
    return [
        ReplaySetting(name, old.get(name, "-"), fields.get(name, name) in evidence.assumed, new.get(name, "-"))
        for name in {**old, **new}
    ]
