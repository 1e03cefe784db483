"""CD502: prefix caching is off because the model is a hybrid, by default or for lack of support."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling
from cachedoctor.knowledge.builds import RECURRENT


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if a line shows it, or if the cache of a hybrid model is off without a request for that."""
    unsupported = session.settings.get("caching_unsupported")
    if unsupported is not None:
        return [_unsupported(kit.said_by(unsupported, "vLLM switches prefix caching off"))]
    asked = session.setting("prefix_caching_asked")
    if session.memory != "hybrid" or session.setting("prefix_caching") is not False or asked is not None:
        return []
    if (
        session.since("0.28") is True
        or "arguments" not in session.settings
        or "caching_disabled_because" in session.settings
    ):
        return []  # there it is on by default: something else switched it off
    if session.since("0.11.1") is False:
        return [
            _unsupported(
                kit.said_by(session.settings["prefix_caching"], "the resolved configuration: prefix caching is off")
            )
        ]
    return [_default(session)]


def _unsupported(line: rolling.Shown) -> kit.SessionFinding:
    """Up to 0.11.0 no model with such states can do it: asked for, it is refused or switched off again."""
    return kit.finding(
        "this version has no prefix caching for this model: every prompt is computed in full",
        "The model keeps states in addition to keys and values, and this version cannot save such states.",
        [
            kit.Remedy(
                "Use vLLM 0.16 or newer, where prefix caching works for such models, or better 0.28, where it is on by default."
            )
        ],
        references=_REFERENCES,
        key="unsupported",
        evidence=line,
        severity="warning",
    )


def _default(session: kit.Session) -> kit.SessionFinding:
    lines = kit.said_by(session.settings["prefix_caching"], "the resolved configuration: prefix caching is off")
    lines += kit.said_by(session.settings.get("architecture"), "a hybrid model")
    lines += kit.said_by(session.settings.get("arguments"), "no argument enabled prefix caching")
    return kit.finding(
        "prefix caching is off, the default of this version for a hybrid model: every prompt is computed in full",
        "Up to 0.27, prefix caching must be enabled for models that keep states in addition to keys and values.",
        [
            kit.Remedy(
                "Enable it."
                if session.since("0.16") is True
                else "Enable prefix caching. Up to 0.14, only some of these models support prefix caching; for other models the log shows that caching is disabled again.",
                options=kit.as_typed("--enable-prefix-caching"),
            ),
            *([] if _pure(session) else [kit.Remedy("Or use 0.28 or newer, where prefix caching is on by default.")]),
        ],
        ruled_out=[kit.RuledOut("prefix-caching-off", "no argument switched prefix caching off")],
        references=_REFERENCES,
        key="default",
        evidence=lines,
        severity="warning",
    )


def _pure(session: kit.Session) -> bool:
    """Whether the model has no attention at all: there it is off by default in 0.33 still."""
    return str(session.setting("architecture")).startswith(RECURRENT)


_REFERENCES = ["https://github.com/vllm-project/vllm/pull/23716", "https://github.com/vllm-project/vllm/pull/50991"]

RULE = kit.session_rule(__name__, "Prefix caching is off because the model is a hybrid", inspect, severity="warning")
