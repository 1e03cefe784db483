"""A probe combined with an earlier, stored one, and with the server's log."""

from __future__ import annotations

import os

import msgspec

from cachedoctor.inputs.sources.file import open_log
from cachedoctor.knowledge.late_patterns import late
from cachedoctor.model import CacheDoctorError
from cachedoctor.model.probed import Probe, ProbeChange
from cachedoctor.redaction.secrets import hidden
from cachedoctor.report.text.text_safe import cut

_SLASH = late(r"[/\\]")
_MOST_BYTES = 4 << 20
_HINT = "--against needs a file from --save or -f json"
_ODD = ("less", "more")
_FINDINGS = 5
_CELLS = 300
_EXCLUDES: tuple[tuple[frozenset[str], frozenset[str]], ...] = (
    (frozenset({"CD109"}), frozenset({"turn"})),
    (frozenset({"CD101", "CD102", "CD105", "CD108"}), frozenset({"again", "turn", "tail"})),
    (frozenset({"CD301", "CD302", "CD303"}), frozenset({"turn", "back"})),
)
"""Causes, and the questions whose answers exclude them if the prompts were reused."""
_SHORTER = 0.8
"""Share of the length of stored prompts: with shorter prompts, problems that only long ones show may be missing."""


def stored(path: str) -> Probe:
    """Read a probe that was saved.

    Raises:
        CacheDoctorError: the file cannot be read, or is none.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise CacheDoctorError(f"{path}: is too large for a saved probe", _HINT)
        return msgspec.json.decode(raw, type=Probe)
    except OSError as error:
        raise CacheDoctorError(f"{path}: {os.strerror(error.errno or 0)}", _HINT) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CacheDoctorError(f"{path}: is not a saved probe", _HINT) from None


def join_before(now: Probe, before: Probe) -> None:
    """Add the earlier result to each question, and whether the deviations are gone."""
    earlier = {question.name: question for question in before.questions}
    now.changes = [
        ProbeChange(q.name, earlier[q.name].state, q.state, earlier[q.name].reused_tokens, q.reused_tokens)
        for q in now.questions
        if q.name in earlier
    ]
    now.other_server = _others(now, before)
    states = {question.name: question.state for question in now.questions}
    odd = [question.name for question in before.questions if question.state in _ODD]
    deviated = [cause.question for cause in before.causes] or odd
    if now.other_server or not deviated or "none" in (now.measure, before.measure):
        return
    if now.causes or any(states.get(name) in _ODD for name in deviated):
        now.cured = False
    elif all(states.get(name) == "as expected" for name in deviated):
        now.cured = True


def _others(now: Probe, before: Probe) -> list[str]:
    """Name what differs between two probes, other than settings, which are what a fix changes."""
    then, here = before.server, now.server
    values = [
        ("server", then.engine, here.engine),
        ("build", then.build, here.build),
        ("model", then.model, here.model),
    ]
    found = [f"{name}: {a or 'unknown'}, now {b or 'unknown'}" for name, a, b in values if not _same(name, a, b)]
    lengths = [next((q.prompt_tokens for q in one.questions if q.name == "first"), None) for one in (before, now)]
    if lengths[0] and lengths[1] and lengths[1] < lengths[0] * _SHORTER:
        found.append(f"prompts: {lengths[0]:,} tokens, now {lengths[1]:,}")
    return [cut(hidden(words), _CELLS) for words in found]


def _same(name: str, then: str | None, now: str | None) -> bool:
    """Whether two names can mean the same; a build is always or never reported, and a model's path may be missing."""
    if name == "model" and then is not None and now is not None:
        return now in (then, _SLASH.split(then)[-1]) or then == _SLASH.split(now)[-1]
    return then == now or (name != "build" and None in (then, now))


def check_log(path: str) -> None:
    """Open the log, so that an unreadable one is noticed before anything is sent; a pipe is left as it is.

    Raises:
        CacheDoctorError: it is missing, a folder, or not to be read.
    """
    if path != "-" and (not os.path.exists(path) or os.path.isfile(path) or os.path.isdir(path)):
        open_log(path).close()


def _is_excluded(now: Probe, code: str) -> bool:
    """Whether the answers exclude a cause that the log alone may confuse with another one."""
    if any(code in cause.codes for cause in now.causes):
        return False
    kept = {question.name for question in now.questions if question.state in ("as expected", "noted")}
    shows = next((names for codes, names in _EXCLUDES if code in codes), None)
    return shows is not None and shows <= kept and now.measure != "none"


def join_log(now: Probe, path: str) -> None:
    """Add what the server's log shows to the answers.

    Raises:
        CacheDoctorError: the log cannot be read.
    """
    from cachedoctor import analyze

    report = analyze(path)
    named = {code for cause in now.causes for code in cause.codes}
    judged = [(finding, _is_excluded(now, finding.code)) for finding in report.findings]
    judged.sort(key=lambda one: (one[0].code not in named, one[1]))
    shown = (
        f"{finding.code} {finding.name}: {finding.claim}"
        + ("; the responses in this probe show no such fault" if excluded else "")
        for finding, excluded in judged[:_FINDINGS]
    )
    now.log_findings = [cut(hidden(words), _CELLS) for words in shown]
    seen = {finding.code for finding in report.findings}
    both = [code for cause in now.causes for code in cause.codes if code in seen]
    if both:
        now.notes.append(f"the log shows the same: {', '.join(both)}")
