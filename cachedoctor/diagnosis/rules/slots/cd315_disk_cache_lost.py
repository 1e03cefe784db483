"""CD315: the disk tier of the prompt cache was too small, or a prompt could not be written or read back."""

from __future__ import annotations

from cachedoctor.diagnosis.rules import kit


def inspect(session: kit.Session) -> list[kit.SessionFinding]:
    """Report it from the lines of the disk prompt cache."""
    return [*_evicted(session), *_failed(session)]


def _evicted(session: kit.Session) -> list[kit.SessionFinding]:
    said = kit.stated(session, "disk_evicted")
    if said is None:
        return []
    limit = said.numbers.get("limit")
    size = f" of {kit.n(limit)} MiB" if limit else ""
    return [
        kit.finding(
            f"the disk prompt cache{size} was full: {_times(said.count, 'prompt was', 'prompts were')} deleted",
            "The oldest prompt is deleted when the budget is exceeded. If the conversation continues, the prompt is recomputed.",
            [kit.Remedy("Raise the budget of the disk prompt cache, if the disk has room.")],
            key="evicted",
            evidence=[(said.mark, "a prompt is deleted")],
        )
    ]


def _failed(session: kit.Session) -> list[kit.SessionFinding]:
    said = kit.stated(session, "disk_failed")
    if said is None:
        return []
    return [
        kit.finding(
            f"{_times(said.count, 'prompt', 'prompts')} of the disk prompt cache could not be written or read back",
            "The server does not use a corrupt file or a file from another build; the prompt is recomputed.",
            [
                kit.Remedy(
                    "Check whether the disk is full or two servers write to the folder. Delete the files shown in these lines."
                )
            ],
            key="failed",
            evidence=[(said.mark, "what failed")],
            severity="warning",
        )
    ]


def _times(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


RULE = kit.session_rule(
    __name__,
    "The disk tier of the prompt cache lost prompts",
    inspect,
    severity="warning",
    on=("disk_evicted", "disk_failed"),
)
