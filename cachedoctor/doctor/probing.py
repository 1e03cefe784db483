"""A probe with what is joined to it: a stored one from before, and the server's log. Knows no question."""

from __future__ import annotations

import os

import msgspec

from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import Probe, ProbeChange
from cachedoctor.report.forms.probe_forms import ProbeDocument
from cachedoctor.report.secrets import hidden
from cachedoctor.report.text.text_safe import cut

_MOST_BYTES = 4 << 20
_HINT = "--against takes what --save, or -f json, wrote"
_ODD = ("less", "more")
_FINDINGS = 5
_CELLS = 300


def stored(path: str) -> ProbeDocument:
    """Read a probe that was saved.

    Raises:
        CacheDoctorError: the file cannot be read, or is none.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise CacheDoctorError(f"{path}: too large for a stored probe", _HINT)
        return msgspec.json.decode(raw, type=ProbeDocument)
    except OSError as error:
        raise CacheDoctorError(f"{path}: {os.strerror(error.errno or 0)}", _HINT) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CacheDoctorError(f"{path}: is no stored probe", _HINT) from None


def join_before(now: Probe, before: ProbeDocument) -> None:
    """Put beside each question how it was before, and say whether what deviated is cured."""
    earlier = {question.name: question for question in before.questions}
    now.changes = [
        ProbeChange(q.name, earlier[q.name].state, q.state, earlier[q.name].reused_tokens, q.reused_tokens)
        for q in now.questions
        if q.name in earlier
    ]
    if before.server.model != now.server.model:
        now.notes.append("the stored probe is of another model")
    states = {question.name: question.state for question in now.questions}
    deviated = [cause.question for cause in before.causes]
    if not deviated or "none" in (now.measure, before.measure):
        return
    if now.causes or any(states.get(name) in _ODD for name in deviated):
        now.cured = False
    elif all(states.get(name) == "as expected" for name in deviated):
        now.cured = True


def join_log(now: Probe, path: str) -> None:
    """Put beside the answers what the server's log shows.

    Raises:
        CacheDoctorError: the log cannot be read.
    """
    from cachedoctor import analyze

    report = analyze(path)
    shown = (f"{finding.code} {finding.name}: {finding.claim}" for finding in report.findings[:_FINDINGS])
    now.log_findings = [cut(hidden(words), _CELLS) for words in shown]
    seen = {finding.code for finding in report.findings}
    both = [code for cause in now.causes for code in cause.codes if code in seen]
    if both:
        now.notes.append(f"the log shows the same: {', '.join(both)}")
