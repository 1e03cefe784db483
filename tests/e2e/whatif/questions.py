"""What-if questions: a day on a server, and the settings under which its requests are sent again."""

from __future__ import annotations

from dataclasses import dataclass

from e2e import wheels
from e2e.days import situations
from e2e.days.run import LEVELS
from e2e.days.situations import Situation

_LONG = 4
"""Letters from which on an option has two dashes."""
SITUATIONS = {one.name: one for one in situations.ALL}


@dataclass(frozen=True)
class Question:
    """A day as it is recorded, and what is changed afterwards."""

    situation: str
    kind: str
    settings: tuple[str, ...]
    """Each the NAME=VALUE words of ``--set``, separated by blanks."""
    build: int = wheels.NEWEST
    level: str = "lv4"

    @property
    def name(self) -> str:
        """Memory, situation, build, level."""
        return f"{self.kind}-{self.situation}-b{self.build}-{self.level}"

    @property
    def day(self) -> Situation:
        return SITUATIONS[self.situation]

    @property
    def options(self) -> tuple[str, ...]:
        """What the recorded server is started with, after its model."""
        return self.day.options + LEVELS[self.level]

    def under(self, setting: str) -> tuple[int, tuple[str, ...]]:
        """Build and options of a server with a setting."""
        build, options = self.build, list(self.options)
        for word in setting.split():
            name, _, value = word.partition("=")
            if name == "build":
                build = int(value)
                continue
            names = [option for option in (f"-{name}", f"--{name}") if option in options]
            for option in names:
                del options[options.index(option) : options.index(option) + 2]
            written = names[0] if names else f"-{name}" if len(name) < _LONG else f"--{name}"
            options += [written] if value == "on" else [written, value]
        return build, tuple(options)


ALL = [
    # ---- more slots, another choice of slots
    Question(
        "six_on_four", "dense", ("cache-ram=8192", "np=6 c=73728", "cache-ram=8192 np=2 c=24576"), level="default"
    ),
    Question(
        "eight_on_four", "dense", ("cache-ram=8192", "np=8 c=98304", "slot-prompt-similarity=0.5"), 9713, "default"
    ),
    Question("eight_on_auto", "dense", ("cache-ram=8192", "c=65536"), 9713, "default"),
    Question("three_on_one", "swa", ("np=3 c=36864", "cache-ram=8192", "np=2 c=24576")),
    Question("agents_chat_one", "hybrid", ("cache-ram=8192", "np=3 c=36864")),
    Question("agents_chat_two", "dense", ("np=4 c=49152", "cache-ram=8192"), 8672, "default"),
    Question("sub_agents_one", "recurrent", ("cache-ram=8192", "np=4 c=49152")),
    Question("titles_one", "dense", ("cache-ram=8192", "np=3 c=36864"), level="default"),
    Question("infill_between", "dense", ("np=2 c=24576", "cache-ram=0")),
    Question("sibling_entry", "dense", ("np=3 c=36864", "cache-ram=0", "slot-prompt-similarity=0.9")),
    Question("branches", "swa", ("slot-prompt-similarity=0.8", "np=3 c=36864", "swa-full=on")),
    Question("branches", "dense", ("slot-prompt-similarity=0.8", "np=1 c=12288")),
    # ---- the RAM cache
    Question("eight_ram_small", "dense", ("cache-ram=8192", "cache-ram=0", "cache-ram=3")),
    Question("batch_ram_small", "hybrid", ("cache-ram=8192", "cache-ram=0")),
    Question("batch_beside", "swa", ("cache-ram=8192", "np=3 c=36864")),
    Question("documents", "dense", ("np=1 c=12288", "np=1 c=12288 cache-ram=0"), 9713),
    # ---- the context
    Question("kv_too_small", "dense", ("c=32768", "c=16384", "np=2 c=12288"), 9713),
    Question("three_on_auto", "dense", ("c=12288", "np=1 c=12288 cache-ram=0"), level="default"),
    # ---- checkpoints and windows
    Question("no_checkpoints", "hybrid", ("ctx-checkpoints=32", "ctx-checkpoints=1")),
    Question("no_checkpoints", "recurrent", ("ctx-checkpoints=3", "ctx-checkpoints=32 checkpoint-min-step=64")),
    Question("no_checkpoints", "swa", ("swa-full=on", "ctx-checkpoints=8")),
    Question("compaction", "swa", ("swa-full=on", "ctx-checkpoints=0"), 9713),
    Question("rag_shuffled", "dense", ("cache-reuse=128", "cache-reuse=16", "np=1 c=12288")),
    # ---- another build
    Question("middle_edited", "swa", (f"build={wheels.NEWEST}", "swa-full=on"), 8672, "default"),
    Question("regenerated", "recurrent", (f"build={wheels.NEWEST}", "ctx-checkpoints=0"), 9713),
    Question("sibling_slot", "dense", ("build=9713", "np=1 c=12288", "np=4 c=49152")),
]
