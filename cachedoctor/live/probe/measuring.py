"""Compares the actual reuse with the expected reuse: by the server's counts, else by time."""

from __future__ import annotations

from typing import Any

from cachedoctor.knowledge.engines import ENGINES
from cachedoctor.live.probe.connection import ProbeConnection
from cachedoctor.live.probe.plan import Body
from cachedoctor.model.probed import Measure, ProbedServer, ProbeQuestion, State

_SPARE = 8
"""Tokens that templates append to a prompt, and that no server reuses."""
_SHARE = 0.7
"""Share of an estimated common prefix that must be reused."""
_MOST_CHARS = 8
"""Upper bound of the average characters per token in the texts that the probe sends."""
_CHECKPOINT = 0.25
"""Minimum share of the expected reuse that a llama.cpp checkpoint restores (it may lie 516 tokens earlier)."""
_LITTLE = 0.1
"""Share of a prompt that all prompts of the same template may begin with."""
_AT_LEAST = 0.05
"""Minimum seconds that computing a prompt must take to be measurable."""
_TIMES = 3
"""A prompt must take this many times as long as a short one."""
_NEAR, _FAR = 0.3, 0.6
"""Shares of a prompt: the largest shortfall of measured reuse that is normal, and the smallest that is a fault."""


def judge_control(found: ProbeQuestion, chars: int) -> State:
    """Say whether a prompt of so many characters, which nobody sent before, was computed.

    A long head that a gateway or a template puts before every prompt may be reused; what was sent may not.
    """
    if found.prompt_tokens is None or found.reused_tokens is None:
        return "unknown"
    return "more" if found.reused_tokens > found.prompt_tokens - chars // _MOST_CHARS else "as expected"


def judge(found: ProbeQuestion, server: ProbedServer, goes_back: bool, inserted: int = 0) -> State:
    """Say whether the counts of an answer are as expected; ``goes_back``: a checkpoint may have to do.

    ``inserted``: tokens that were added to the prompt on its way, before or after what it shares with others.
    """
    prompt, reused, expected = found.prompt_tokens, found.reused_tokens, found.expected_tokens
    if prompt is None or reused is None or expected is None:
        return "unknown"
    spare = _SPARE + (server.block_tokens or 0)
    least = min(expected, prompt - 1) * (1 if found.exact else _SHARE) - spare
    if least <= 0:
        return "unknown"
    if reused >= least:
        sure = inserted <= _SPARE or reused >= min(expected + inserted, prompt - 1) - spare
        return "as expected" if sure else "unknown"
    return "noted" if goes_back and server.engine == "llama.cpp" and reused >= _CHECKPOINT * expected else "less"


def little(found: ProbeQuestion) -> bool:
    """Whether almost nothing of the prompt was reused."""
    return found.reused_tokens is not None and found.reused_tokens <= (found.prompt_tokens or 0) * _LITTLE


def by_time(questions: list[ProbeQuestion], lengths: dict[str, int], shared: dict[str, int]) -> Measure:
    """Judge questions by their seconds, against a short prompt and the control; ``lengths``, ``shared``: characters.

    What has no length, because an image is in it, is not judged.
    """
    timed = {q.name: q.seconds for q in questions if q.seconds is not None and q.state != "refused"}
    short, full = timed.get("short"), min((timed[n] for n in ("first", "head") if n in timed), default=None)
    if short is None or "head" not in timed or full is None or full < short * _TIMES or full - short < _AT_LEAST:
        return "none"
    control = lengths["head"]
    for found in questions:
        if found.name not in timed or found.name not in lengths or found.name.startswith(("pair", "short")):
            continue
        whole = (full - short) * lengths[found.name] / control
        reused = 1 - (timed[found.name] - short) / whole
        expected = shared[found.name] / lengths[found.name]
        found.state = _timed(reused, expected, found.name in ("first", "head"))
    return "time"


def _timed(reused: float, expected: float, control: bool) -> State:
    if control:
        return "as expected"
    if expected < _FAR:
        return "unknown"
    return "as expected" if reused >= expected - _NEAR else "less" if reused <= expected - _FAR else "unknown"


def tokens(at: ProbeConnection, server: ProbedServer, model: str | None, body: Body) -> list[int] | None:
    """Give the tokens of a chat request as the server's own template and tokenizer make them."""
    if server.engine == "llama.cpp":
        rendered = _post(at, "/apply-template", body)
        text = rendered.get("prompt") if isinstance(rendered, dict) else None
        if not isinstance(text, str):
            return None
        return _ids(_post(at, "/tokenize", {"content": text, "add_special": True, "parse_special": True}))
    if server.engine in ENGINES and ENGINES[server.engine].tokenizes_chats:
        return _ids(_post(at, "/tokenize", {"model": model, "add_generation_prompt": True, **body}))
    return None


def _ids(answer: Any) -> list[int] | None:
    found = answer.get("tokens") if isinstance(answer, dict) else None
    return found if isinstance(found, list) and found and all(type(i) is int for i in found) else None


def _post(at: ProbeConnection, path: str, body: Body) -> Any:
    answer = at.post(path, body)
    return answer.value if answer.status == 200 else None
