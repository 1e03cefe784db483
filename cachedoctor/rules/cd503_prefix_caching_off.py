"""CD503: prefix caching is off, by an argument, by vLLM itself, or for a reason that the log does not show."""

from __future__ import annotations

from cachedoctor.model import Remedy, RuledOut, SamplePeriod, Session
from cachedoctor.rules import rolling
from cachedoctor.rules.base import Note, Rule, Words, n


def inspect(session: Session, fired: set[str]) -> list[Note]:
    """Say it where the configuration says so, or counters and lines do."""
    if "CD502" in fired:
        return []
    if session.setting("prefix_caching") is False:
        return [_configured(session)]
    if session.setting("prefix_caching") is None:
        return _measured(session)
    return []


def _configured(session: Session) -> Note:
    because = session.settings.get("caching_disabled_because")
    by_flag = session.setting("prefix_caching_asked") is False
    lines = rolling.said_by(session.settings["prefix_caching"], "the configuration as resolved: off")
    if by_flag:
        lines += rolling.said_by(session.settings["prefix_caching_asked"], "the argument that switches it off")
    if because is not None:
        lines = [*rolling.said_by(because, "vLLM switches it off"), *lines]
    lines += _proof(session)
    cause = (
        "by an argument" if by_flag else "by vLLM itself" if because is not None else "by default or by the platform"
    )
    fix = (
        [
            Remedy(
                "Leave --no-enable-prefix-caching out, or say the opposite.", ["vllm serve ... --enable-prefix-caching"]
            )
        ]
        if because is None
        else [Remedy("The line says what prevents it; without that option or with another backend it comes back.")]
    )
    return Note(
        Words(
            f"prefix caching is off, {cause}: every prompt is computed in full{_spent(session)}",
            "The configuration that vLLM prints after resolving all arguments says enable_prefix_caching=False.",
            fix,
            [RuledOut("prefix-not-shared", "with caching off it does not matter what the prompts share")],
        ),
        "configured",
        lines,
        "warning",
    )


def _measured(session: Session) -> list[Note]:
    """The configuration is not in the log."""
    off = [c for c in session.counters if c.looked_up == 0 and c.prompt_tokens]
    silent = session.since("0.31") is True and _unrated(session) is not None
    stated = [c for c in off if c.config.get("enable_prefix_caching", "").lower() == "false"]
    if not off and not silent:
        return []
    period = _unrated(session)
    said = (
        f"{off[0].path} counts {n(off[0].prompt_tokens)} prompt tokens, and none of them was looked up"
        if off
        else "the statistics lines print no hit rate, though prompts were computed; from 0.31 on that means off"
    )
    return [
        Note(
            Words(
                f"prefix caching is off: {said}",
                "With caching on every prompt is looked up, whether it is found or not.",
                [Remedy("Switch it on.", ["vllm serve ... --enable-prefix-caching"])],
            ),
            "measured",
            rolling.shown(period) if period is not None else [],
            "warning",
            "high" if stated or (off and silent) else "medium",
        )
    ]


def _unrated(session: Session) -> SamplePeriod | None:
    """A period with prompts and without a hit rate."""
    found = (p for p in session.periods if isinstance(p, SamplePeriod))
    return next((p for p in found if p.busy >= rolling.MIN_INTERVALS and not p.rates), None)


def _proof(session: Session) -> rolling.Shown:
    period = _unrated(session)
    return [] if period is None else rolling.shown(period)[:1]


def _spent(session: Session) -> str:
    periods = [p for p in session.periods if isinstance(p, SamplePeriod)]
    tokens = sum(p.computed_tokens or p.prompt_tokens or 0 for p in periods)
    return f", about {n(tokens)} tokens in this log" if tokens else ""


RULE = Rule(
    "CD503",
    "prefix-caching-off",
    "Prefix caching is off",
    severity="warning",
    on=(),
    inspect=inspect,
    after=("CD502",),
    engine="vllm",
)
