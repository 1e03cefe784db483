"""CD706: a request reused nothing by its counter, and took far less time than the same work took before."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the longest such prompt, against one that was computed."""
    said = kit.stated(session, "counter_wrong")
    if said is None:
        return []
    n = said.numbers
    return [
        kit.finding(
            f"cached_tokens=0 is wrong for {kit.times(said.count)}: {kit.n(n['prompt'])} tokens took {n['seconds']:.2f} s; earlier {kit.n(n['slow_tokens'])} tokens took "
            f"{n['slow_seconds']:.2f} s",
            "No machine computes a prompt so much faster than another of the same length, so most of the faster prompt was reused. mlx-vlm always prints 0 when a draft model is loaded. From this line on, 0 counts as unknown, and the sums skip these requests.",
            [
                kit.Remedy(
                    "Use the prefill time, or check requests without the draft model (--draft-model); their counter is correct."
                )
            ],
            references=["https://github.com/Blaizzy/mlx-vlm/issues/1957"],
            evidence=[(said.mark, "too fast for cached_tokens=0")],
            severity="warning",
        )
    ]


RULE = kit.session_rule(
    __name__, "A counter shows no reuse, but the time contradicts it", inspect, severity="warning",
    engine="mlx-vlm", on=("counter_wrong",),
)  # fmt: skip
