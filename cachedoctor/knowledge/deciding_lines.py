"""Which lines of llama-server tell what a request could have reused, in the words of its build.

Source: the messages of the sampled builds. From b9294 on lengths and reuse are printed at trace level (-lv 4) only.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Wanted = Literal["before", "choice", "prompt", "reused", "end"]
"""The request before it on its slot; the choice of its slot; how long its prompt is; what was reused; how it ended."""


class _Wording(NamedTuple):
    first: int
    last: int
    words: str


_NEWEST = 1 << 30
_TELLS: dict[Wanted, tuple[str, tuple[_Wording, ...]]] = {
    "before": (
        "the end of the request before it on that slot",
        (
            _Wording(0, 6751, '"stop processing: n_past = N"'),
            _Wording(6752, _NEWEST, '"stop processing: n_tokens = N"'),
        ),
    ),
    "choice": (
        "how its slot was chosen",
        (
            _Wording(0, 6451, '"selected slot by lcs similarity" or "by lru", with -lv 4'),
            _Wording(6452, _NEWEST, '"selected slot by LCP similarity" or "by LRU"'),
        ),
    ),
    "prompt": (
        "the length of the prompt",
        (
            _Wording(0, 6751, '"new prompt, ... n_prompt_tokens = N"'),
            _Wording(6752, 9093, '"new prompt, ... task.n_tokens = N"'),
            _Wording(9094, _NEWEST, '"new prompt, ... task.n_tokens = N" with -lv 4'),
        ),
    ),
    "reused": (
        "what was reused",
        (
            _Wording(0, 6628, '"kv cache rm [N, end)"'),
            _Wording(6629, 9093, '"memory_seq_rm [N, end)"'),
            _Wording(9094, _NEWEST, '"cached n_tokens = N, memory_seq_rm [N, end)" with -lv 4'),
        ),
    ),
    "end": (
        "what became of it",
        (_Wording(0, _NEWEST, '"prompt eval time", or the server\'s "cancel task" or "task id = T, error:"'),),
    ),
}


def deciding(wanted: Wanted, low: int | None, high: int | None) -> str:
    """Say what a line tells, and how it begins in the builds from ``low`` to ``high``; None leaves an end open."""
    what, wordings = _TELLS[wanted]
    fitting = [w for w in wordings if (high is None or w.first <= high) and (low is None or w.last >= low)]
    if len(fitting) == 1:
        return f"{what} ({fitting[0].words})"
    said = [f"{w.words} {_builds(w)}" for w in fitting]
    return f"{what} ({'; '.join(said)})"


def _builds(wording: _Wording) -> str:
    if wording.last == _NEWEST:
        return f"from b{wording.first} on"
    return f"up to b{wording.last}" if not wording.first else f"b{wording.first} to b{wording.last}"
