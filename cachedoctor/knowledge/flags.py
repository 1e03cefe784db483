"""Names, defaults and builds of llama-server's options: advice must exist in the user's build.

Knows options. Knows no log and no finding.
"""

from __future__ import annotations

import msgspec

from cachedoctor.knowledge import builds


class Flag(msgspec.Struct):
    """An option and the builds that have it; None is open-ended."""

    name: str
    first: int | None
    last: int | None = None
    env: str | None = None


CTX_CHECKPOINTS = [Flag("--swa-checkpoints", 6180, 6628), Flag("--ctx-checkpoints", 6751)]
CHECKPOINT_MIN_STEP = [Flag("--checkpoint-min-step", 9538)]
CACHE_RAM = [Flag("--cache-ram", 6751)]
SWA_FULL = [Flag("--swa-full", 5456)]
SLEEP = [Flag("--sleep-idle-seconds", 7551)]
KEEP_IDLE_SLOTS = [Flag("--no-clear-idle", 8672, 8672), Flag("--no-cache-idle-slots", 8929)]
REASONING = [Flag("--reasoning-preserve", 9873)]


def _fits(flag: Flag, low: int | None, high: int | None) -> bool:
    """Whether every build from ``low`` to ``high`` has the option; an open ``high`` means newer than all samples."""
    if flag.first is not None and (low is None or low < flag.first):
        return False
    return flag.last is None or (high is not None and high <= flag.last)


def name_for(flags: list[Flag], low: int | None, high: int | None) -> str | None:
    """Name of the option that all builds from ``low`` to ``high`` have, or None."""
    return next((f.name for f in flags if _fits(f, low, high)), None)


def by_build(flags: list[Flag]) -> str:
    """Words that say which name belongs to which builds."""
    return ", ".join(
        f"{f.name} ({f'b{f.first} or newer' if f.last is None else f'b{f.first} to b{f.last}'})" for f in flags
    )


def show_accounting(low: int | None, high: int | None) -> tuple[str, str]:
    """Return (words, option) that make a build log prompt length, reuse and checkpoints.

    Up to b9093 the default shows them; b7376 to b9093 call level 4 debug, which prints request bodies.
    """
    if low is not None and low >= builds.LOGS_REDUCED:
        return "restart llama-server with -lv 4 (trace; from b9294 on)", "llama-server ... -lv 4"
    if high is not None and high <= 9093:
        return "this build shows it at its default level: log without --log-disable or a lower -lv", ""
    return "b9294 and newer: restart with -lv 4; older builds show it at their default level", "llama-server ... -lv 4"


def show_text(low: int | None, high: int | None) -> tuple[str, list[str]]:
    """Return (words, commands) that make a build show the text around the divergence."""
    warn = "This writes prompt text into the log."
    if high is not None and high < 6900:
        return (
            "this build cannot show the text; from b6900 on it can, and the request bodies of the client would tell",
            [],
        )
    if low is not None and low >= 10809:
        return f"set both variables and restart. {warn}", [
            "LLAMA_SERVER_SLOTS_DEBUG=1 LLAMA_SERVER_SLOTS_N_DIFF=32 llama-server ...",
            "llama-server ... --log-prompts-dir DIR",
        ]
    if low is not None and low >= 6900 and high is not None and high < 10809:
        more = ["llama-server ... --log-prompts-dir DIR"] if low >= 9713 else []
        return f"set the variable and restart. {warn}", ["LLAMA_SERVER_SLOTS_DEBUG=1 llama-server ...", *more]
    return f"set the variables and restart (the second only acts from b10809 on; both need b6900). {warn}", [
        "LLAMA_SERVER_SLOTS_DEBUG=1 LLAMA_SERVER_SLOTS_N_DIFF=32 llama-server ..."
    ]
