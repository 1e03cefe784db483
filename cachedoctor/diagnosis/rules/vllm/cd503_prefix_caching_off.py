"""CD503: prefix caching is off, by an argument, by vLLM itself, or for an unknown reason; or requests bypass it."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit
from cachedoctor.diagnosis.rules.measured import rolling


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it if the configuration, counters or lines show it."""
    on = session.setting("prefix_caching")
    if on is False:
        return [_configured(session)]
    said = _none_looked_up(session)
    if said is None:
        return []
    return [_skipped(session, said) if on else _measured(session, said)]


def _configured(session: kit.Session) -> kit.SessionFinding:
    because = session.settings.get("caching_disabled_because")
    by_flag = session.setting("prefix_caching_asked") is False
    pooling = session.setting("pooling") is True and not by_flag and because is None
    lines = kit.said_by(session.settings["prefix_caching"], "the resolved configuration: off")
    if by_flag:
        lines += kit.said_by(session.settings["prefix_caching_asked"], "the argument that switches prefix caching off")
    if because is not None:
        lines = [*kit.said_by(because, "vLLM switches it off"), *lines]
    logged = bool(lines)
    lines += _proof(session)
    cause = (
        "an argument switched prefix caching off"
        if by_flag
        else "vLLM itself switched prefix caching off"
        if because is not None
        else "prefix caching is off by default or on this platform"
    )
    why = (
        "After resolving all arguments, vLLM prints enable_prefix_caching=False."
        if logged
        else "The /metrics dumps show that no prompt is looked up; with caching on, prompts would be looked up."
    )
    return kit.finding(
        f"{cause}: every prompt is computed in full{_spent(session)}",
        why + (" Caching is normally off for a model that makes embeddings or scores." if pooling else ""),
        _remedies(by_flag, because is not None, pooling),
        ruled_out=[kit.RuledOut("prefix-not-shared", "with caching off, shared beginnings make no difference")],
        key="configured",
        evidence=lines,
        severity="note" if pooling else "warning",
    )


def _remedies(by_flag: bool, because: bool, pooling: bool) -> list[kit.Remedy]:
    if because:
        return [
            kit.Remedy(
                "Remove the option or change the backend that the line names, because it prevents prefix caching."
            )
        ]
    if pooling:
        return [
            kit.Remedy(
                "Enable prefix caching if the model has causal attention and pools the last token; other models cannot reuse prefixes.",
                options=kit.as_typed("--enable-prefix-caching"),
            )
        ]
    said = "Remove --no-enable-prefix-caching, or enable prefix caching." if by_flag else "Enable it."
    return [kit.Remedy(said, options=kit.as_typed("--enable-prefix-caching"))]


def _none_looked_up(session: kit.Session) -> str | None:
    """FindingText for where it is seen that prompts were computed and none was looked up; None where it is not."""
    off = [c for c in session.counters if c.looked_up == 0 and c.prompt_tokens]
    if any(c.looked_up for c in session.counters) or any(
        isinstance(p, kit.SamplePeriod) and p.rates for p in session.periods
    ):
        return None
    if off:
        return f"{off[0].path} counts {kit.n(off[0].prompt_tokens)} prompt tokens, and none of them was looked up"
    whole = "stats_torn" not in session.seen
    if session.since("0.31") is True and whole and _unrated(session) is not None:
        return "the statistics lines print no hit rate, though prompts were computed"
    return None


def _measured(session: kit.Session, said: str) -> kit.SessionFinding:
    """The configuration is not in the log."""
    period = _unrated(session)
    return kit.finding(
        f"no prompt was looked up in the prefix cache: it is off, or all requests bypass it ({said})",
        f"With caching on, every prompt is looked up, found or not. {_PASSING}",
        [
            kit.Remedy(
                "Switch prefix caching on if the start of the log shows that it is off.",
                purpose="depends",
                options=kit.as_typed("--enable-prefix-caching"),
            )
        ],
        key="measured",
        evidence=rolling.shown(period) if period is not None else [],
        severity="warning",
        confidence="medium",
    )


def _skipped(session: kit.Session, said: str) -> kit.SessionFinding:
    """The configuration says that it is on."""
    period = _unrated(session)
    lines = kit.said_by(session.settings["prefix_caching"], "prefix caching is on")
    return kit.finding(
        f"prefix caching is on, but the requests bypass it ({said})",
        _PASSING,
        [kit.Remedy("Remove prompt_logprobs from requests that do not need it.")],
        ruled_out=[
            kit.RuledOut(
                "prefix-not-shared", "prompts that are not looked up cannot be reused, even with a shared beginning"
            )
        ],
        key="skipped",
        evidence=[*lines, *(rolling.shown(period) if period is not None else [])],
        confidence="medium",
    )


_PASSING = "Requests for prompt_logprobs, and some requests for embeddings or scores, are not looked up because they need every token computed."
"""True of 0.8.5 to 0.33."""


def _unrated(session: kit.Session) -> kit.SamplePeriod | None:
    """A period with prompts and without a hit rate."""
    found = (p for p in session.periods if isinstance(p, kit.SamplePeriod))
    return next((p for p in found if p.busy >= rolling.MIN_INTERVALS and not p.rates), None)


def _proof(session: kit.Session) -> rolling.Shown:
    period = _unrated(session)
    return [] if period is None else rolling.shown(period)[:1]


def _spent(session: kit.Session) -> str:
    periods = [p for p in session.periods if isinstance(p, kit.SamplePeriod)]
    tokens = sum(p.computed_tokens or p.prompt_tokens or 0 for p in periods)
    return f", about {kit.n(tokens)} tokens in this log" if tokens else ""


RULE = kit.session_rule(__name__, "Prefix caching is off", inspect, severity="warning", unless=("CD502",))
