"""CD706: a request reused nothing by its counter, and took far less time than the same work took before."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Say it of the longest such prompt, against one that was computed."""
    said = kit.stated(session, "counter_wrong")
    if said is None:
        return []
    n = said.numbers
    return [
        kit.finding(
            f"cached_tokens=0 is not true of {kit.times(said.count)}: {kit.n(n['prompt'])} tokens took {n['seconds']:.2f} s, where {kit.n(n['slow_tokens'])} took "
            f"{n['slow_seconds']:.2f} s before",
            "No machine computes one prompt so many times faster than another of that length: most of it was reused. mlx-vlm prints this 0 as a fixed text where "
            "a draft model is loaded. From this line on a 0 is taken as unknown, and the sums leave these requests out.",
            [
                kit.Remedy(
                    "Go by the time of the prefill, or look at requests without the draft model (--draft-model), whose counter is a real one."
                )
            ],
            references=["https://github.com/Blaizzy/mlx-vlm/issues/1957"],
            evidence=[(said.mark, "too fast for what it says")],
            severity="warning",
        )
    ]


RULE = kit.session_rule(
    __name__, "A counter says that nothing was reused, and the time contradicts it", inspect, severity="warning",
    engine="mlx-vlm", on=("counter_wrong",),
)  # fmt: skip
